//! The simulated engine: operations as steps.
//!
//! The line of a slot, or of the global lock, goes to each CPU that changes it. A store compresses
//! before it takes the slot; a load decompresses while it has it. What is in a CPU's own lines, and
//! the pool, is private work.

use serde::Serialize;

use super::schemes::{Cell, Content, Guard, LINE, Streams};
use crate::sim::{Gate, GateId, Length, Machine, Mode, Model, Outcome, Sleep, Step};

/// What threads pay for each other, in nanoseconds. All are measured, except in tests.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// An atomic instruction on a line that this CPU changed last.
    pub local_ns: f64,
    /// The transfer of a line from another CPU.
    pub transfer_ns: f64,
    /// The time that a waiter spins before it sleeps.
    pub spin_ns: f64,
    /// The time of the waker of a thread.
    pub waker_ns: f64,
    /// The time from then until the thread runs.
    pub latency_ns: f64,
}

/// Displacements after which `epoch` looks for readers on all CPUs (`sync::Retired`).
const LOOK_EVERY: f64 = 16.0;

/// A situation to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    pub cell: Cell,
    /// Private work of a store and of a load.
    pub store_ns: f64,
    pub load_ns: f64,
    /// Factors of private work, whose mean is 1. Each operation draws one.
    pub spread: &'a [f64],
    pub costs: Costs,
}

struct Engine<'a> {
    scene: &'a Scene<'a>,
    /// The line and the lock of each slot.
    slots: Vec<(GateId, GateId)>,
    stream: Option<GateId>,
}

/// Simulates a scene with this many threads.
pub fn simulate(scene: &Scene<'_>, threads: usize, seed: u64, length: Length) -> Outcome {
    let mut machine = Machine::new(threads, seed);
    let mut engine = Engine::new(scene, &mut machine);
    machine.run(&mut engine, length, scene.store_ns.max(scene.load_ns) + 1000.0)
}

impl<'a> Engine<'a> {
    fn new(scene: &'a Scene<'a>, machine: &mut Machine) -> Engine<'a> {
        let Scene { cell, costs, .. } = scene;
        let (slots, per_line) = (cell.workload.slots(), LINE / cell.scheme.bytes);
        let line = |what| Gate { local: costs.local_ns, ..Gate::new(what, costs.transfer_ns) };
        let sleep =
            Sleep { after: costs.spin_ns, waker: costs.waker_ns, latency: costs.latency_ns };
        // Whoever finds a lock free has paid for its line already.
        let lock = |what, sleeps: bool| Gate {
            fresh: 0.0,
            sleep: sleeps.then_some(sleep),
            ..Gate::new(what, costs.transfer_ns)
        };
        let slots = match cell.scheme.guard {
            Guard::Global => {
                let line = machine.add(line("line of the global lock"));
                vec![(line, machine.add(lock("global lock", true))); slots]
            }
            guard => {
                let lines = slots.div_ceil(per_line);
                let lines: Vec<GateId> =
                    (0..lines).map(|_| machine.add(line("line of slots"))).collect();
                let sleeps = matches!(guard, Guard::Each { sleeps: true, .. });
                let of =
                    |slot| (lines[slot / per_line], machine.add(lock("lock of a slot", sleeps)));
                (0..slots).map(of).collect()
            }
        };
        let places = match cell.streams {
            Streams::PerCpu => None,
            Streams::Single => Some(1),
            Streams::Multi(streams) => Some(streams),
        };
        let stream = places.map(|places| {
            machine.add(Gate { places, fresh: costs.transfer_ns, ..lock("streams", true) })
        });
        Engine { scene, slots, stream }
    }

    fn store(&self, (line, lock): (GateId, GateId), body: Step, cpus: usize) -> Vec<Step> {
        let write = Mode::Write;
        let own = [Step::Take(line, write), Step::Leave(line, write)];
        let mut steps = vec![body];
        if let Some(stream) = self.stream.filter(|_| self.scene.cell.content == Content::Pages) {
            steps = vec![Step::Take(stream, write), body, Step::Leave(stream, write)];
        }
        steps.extend(own);
        if self.scene.cell.scheme.guard == Guard::Published {
            let looks = cpus.saturating_sub(1) as f64 / LOOK_EVERY;
            steps.push(Step::Work(looks * self.scene.costs.transfer_ns));
        } else {
            steps.push(Step::Take(lock, write));
            steps.extend(own);
            steps.push(Step::Leave(lock, write));
        }
        steps
    }

    fn load(&self, (line, lock): (GateId, GateId), body: Step) -> Vec<Step> {
        let mode = match self.scene.cell.scheme.guard {
            Guard::Published => return vec![body],
            Guard::Each { shares: false, .. } => Mode::Write,
            Guard::Global | Guard::Each { .. } => Mode::Read,
        };
        let own = [Step::Take(line, Mode::Write), Step::Leave(line, Mode::Write)];
        let (take, leave) = (Step::Take(lock, mode), Step::Leave(lock, mode));
        [&own[..], &[take, body], &own, &[leave]].concat()
    }
}

impl Model for Engine<'_> {
    fn plan(&mut self, thread: usize, machine: &mut Machine) {
        let scene = self.scene;
        let slot = self.slots[machine.random.usize(..self.slots.len())];
        let factor = scene.spread[machine.random.usize(..scene.spread.len())];
        let steps = if scene.cell.op.stores(&mut machine.random) {
            self.store(slot, Step::Work(scene.store_ns * factor), machine.cpus())
        } else {
            self.load(slot, Step::Work(scene.load_ns * factor))
        };
        machine.push(thread, &steps);
    }
}
