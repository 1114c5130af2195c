//! The indexes on the simulated machine.
//!
//! The lab has measured the time of one thread for a call of each mix. The time that a lock is held
//! is the rest of it, without the lock's two instructions and the thread's counter. A writer's call
//! takes the lock of its part and owns the line of a node in it. A lookup without a lock reads the
//! line of a node. In a table the words of neighbours share a line; it stands for that of a node.

use anyhow::Result;
use serde_json::{Value, json};

use super::variant::{Locked, Variant};
use super::workers::{Call, Measured, Mix};
use crate::args::IndexArgs;
use crate::locks_sim::primitives::Primitives;
use crate::locks_sim::schemes::{QUEUES, give, take};
use crate::sim::lines::{Costs, LineId};
use crate::sim::lock::{Lock, LockId, Manner, Mode};
use crate::sim::machine::{Length, Machine, Model, Step};
use crate::threads::two_cpus;

/// Lines of nodes in a part: a line written by one call is seldom wanted by the next.
const NODES: usize = 256;
/// Calls in a simulation, and events after which it ends, if it has not done them.
const LENGTH: Length = Length::of(60_000, 3_000_000);
/// Calls after which a CPU has forgotten a line.
const REACH: u64 = 4096;
/// The share of a call that is the thread's own work: drawing an offset, keeping its lists.
const OWN_SHARE: f64 = 0.25;

struct Scene {
    variant: Variant,
    mix: Mix,
    /// Nanoseconds outside the lock, and inside it.
    own: f64,
    held: f64,
    between: f64,
    locks: Vec<LockId>,
    nodes: Vec<Vec<LineId>>,
    next: Vec<usize>,
}

impl Model for Scene {
    fn plan(&mut self, thread: usize, machine: &mut Machine) {
        let calls = self.mix.calls();
        let call = calls[self.next[thread] % calls.len()];
        self.next[thread] += 1;
        let part = machine.random.usize(..self.locks.len());
        let node = self.nodes[part][machine.random.usize(..NODES)];
        let lock = self.locks[part];
        let own = Step::Work(self.own + self.between);
        let held = Step::Work(self.held);
        let touch = if call == Call::Load { Step::Read(node) } else { Step::Own(node) };
        let is_locked = match self.variant.locked {
            Locked::All => true,
            Locked::Changes => call != Call::Load,
            Locked::None => false,
        };
        if !is_locked {
            return machine.push_all(thread, &[own, touch, held]);
        }
        let (take, give) = (take(lock, Mode::Write), give(lock, Mode::Write));
        machine.push_all(thread, &[own, take, touch, held, give]);
    }
}

/// A thread's nanoseconds for a call, and the busiest lock or line.
fn simulate(
    variant: Variant,
    mix: Mix,
    alone: f64,
    setting: (usize, f64),
    args: &IndexArgs,
    costs: &Costs,
) -> (f64, String, f64) {
    let (threads, between) = setting;
    let mut machine = Machine::new(threads, costs.clone(), REACH, args.seed);
    let parts = match variant.split {
        true => u64::from(args.pages).div_ceil(designs::indexes::PAGES_PER_PART) as usize,
        false => 1,
    };
    let queues: Vec<LineId> = (0..QUEUES).map(|_| machine.lines.add("wait queue", 1, 0)).collect();
    let locks = (0..parts)
        .map(|part| {
            let line = machine.lines.add("line of a lock", 1, 0);
            machine.add_lock(Lock::new(
                "lock of a tree",
                Manner::WaitQueues,
                line,
                queues[part % QUEUES],
            ))
        })
        .collect();
    let nodes = (0..parts)
        .map(|_| (0..NODES).map(|n| machine.lines.add("line of a node", 1, n % threads)).collect())
        .collect();
    let own = alone * OWN_SHARE;
    let held = (alone - own - 3.0 * costs.local).max(1.0);
    let next = vec![0; threads];
    let mut scene = Scene { variant, mix, own, held, between, locks, nodes, next };
    let outcome = machine.run(&mut scene, LENGTH, alone + between + 1000.0);
    let ns = threads as f64 / outcome.rate * 1e9;
    (ns, outcome.busiest, outcome.utilisation)
}

/// The simulations of one thread and two with the measured times, and those of more threads.
pub fn all(
    args: &IndexArgs,
    variants: &[Variant],
    measured: &[Measured],
) -> Result<(Vec<Value>, Vec<Value>)> {
    let costs = Primitives::measure(two_cpus()?)?.costs;
    let (mut validation, mut predicted) = (Vec::new(), Vec::new());
    for mix in Mix::ALL {
        for &variant in variants {
            let name = variant.name;
            let measured = |threads| {
                let mut all = measured.iter();
                let is = |m: &&Measured| (m.variant, m.mix, m.threads) == (name, mix, threads);
                all.find(is).map(|measured| measured.ns)
            };
            let Some(alone) = measured(1) else { continue };
            for threads in [1, 2] {
                let Some(real) = measured(threads) else { continue };
                let (ns, ..) = simulate(variant, mix, alone, (threads, 0.0), args, &costs);
                validation.push(json!({
                    "variant": name,
                    "mix": mix,
                    "threads": threads,
                    "measured_ns": real,
                    "simulated_ns": ns,
                    "error_percent": (ns / real - 1.0) * 100.0,
                }));
            }
            for &between in &args.between {
                for &threads in &args.simulate {
                    let setting = (threads as usize, f64::from(between));
                    let (ns, busiest, utilisation) =
                        simulate(variant, mix, alone, setting, args, &costs);
                    predicted.push(json!({
                        "variant": name,
                        "mix": mix,
                        "threads": threads,
                        // A thread's own work between calls, included in `ns`.
                        "between": between,
                        "ns": ns,
                        "busiest": busiest,
                        "utilisation": utilisation,
                        "simulated": true,
                    }));
                }
            }
        }
    }
    Ok((validation, predicted))
}
