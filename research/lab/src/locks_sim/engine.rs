//! The simulated engine: operations as steps, after crates/zram/src/engine.rs.

use super::reader_epochs::{Object, Readers};
use super::schemes::{Cell, Content, Guard, LINE, Op, QUEUES, Workload, give, take};
use crate::sim::lines::{Costs, LineId};
use crate::sim::lock::{Lock, LockId, Manner, Mode};
use crate::sim::machine::{Length, Machine, Model, Outcome, Step};

/// Times of the parts of an operation, in nanoseconds, on one thread.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Work before and after the rest: the CPU's number, the device's reader, the CPU's counters.
    pub outside: f64,
    /// Work of an update while the slot is held.
    pub update_held: f64,
    /// Time that a size class's lock is held to take a slot of the pool.
    pub class_take: f64,
    /// Time that a size class's lock is held to free a slot of the pool.
    pub class_leave: f64,
    /// The other work of a store: searching for a pattern, compressing.
    pub store_body: f64,
    /// The other work of a load while the slot is held: filling a page, decompressing.
    pub load_body: f64,
}

/// A situation to simulate.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// The situation.
    pub cell: Cell,
    /// The times of the parts.
    pub parts: Parts,
    /// Factors of a body's time, whose mean is 1. Each body draws one.
    pub spread: &'a [f64],
    /// Size classes of stored pages and the lines of their objects. Each store draws one; under
    /// `eight` each page has its own.
    pub objects: &'a [(usize, u32)],
    /// Operations after which a CPU's caches have forgotten a line.
    pub reach: u64,
}

/// The current operation of a thread.
#[derive(Clone, Default)]
struct Task {
    made: Option<Object>,
    displaced: Option<Object>,
    seen: u32,
}

/// The simulated engine.
pub(super) struct Engine<'a> {
    scene: &'a Scene<'a>,
    slot_lines: Vec<LineId>,
    slot_locks: Vec<LockId>,
    versions: Vec<u32>,
    contents: Vec<Option<Object>>,
    classes: Vec<(LockId, Vec<Object>)>,
    objects_made: usize,
    zspage: LineId,
    stream: Option<LockId>,
    counters: [LineId; 2],
    pub(super) readers: Readers,
    tasks: Vec<Task>,
}

/// Approximate number of objects in a zspage.
const PER_ZSPAGE: usize = 8;

const TAKEN: u32 = 0;
const SWAP: u32 = 1;
const SEEN: u32 = 2;
const TRY: u32 = 3;
const RETIRE: u32 = 4;
const LOOK: u32 = 5;
/// Simulates a scene with this many threads.
pub fn simulate(
    scene: &Scene<'_>,
    threads: usize,
    costs: &Costs,
    seed: u64,
    length: Length,
) -> Outcome {
    let mut machine = Machine::new(threads, costs.clone(), scene.reach, seed);
    let mut engine = Engine::new(scene, &mut machine);
    let stagger = scene.parts.store_body.max(scene.parts.load_body) + 1000.0;
    machine.run(&mut engine, length, stagger)
}

impl<'a> Engine<'a> {
    fn new(scene: &'a Scene<'a>, machine: &mut Machine) -> Engine<'a> {
        let cpus = machine.cpus();
        let slots = scene.cell.workload.slots();
        let per_line = LINE / scene.cell.scheme.bytes;
        // The last writer of a line is drawn: after a while a real run is in such a state.
        let lines: Vec<LineId> = (0..slots.div_ceil(per_line))
            .map(|_| {
                let owner = machine.random.usize(..cpus);
                machine.lines.add("line of slots", 1, owner)
            })
            .collect();
        let slot_lines: Vec<LineId> = (0..slots).map(|slot| lines[slot / per_line]).collect();
        let queues: Vec<LineId> =
            (0..QUEUES).map(|_| machine.lines.add("queue to wait in", 1, 0)).collect();
        let slot_locks = match scene.cell.scheme.guard {
            Guard::Global(manner) => {
                let line = machine.lines.add("line of the global lock", 1, 0);
                vec![machine.add_lock(Lock::new("global lock", manner, line, queues[0]))]
            }
            Guard::Each(manner) => (0..slots)
                .map(|slot| {
                    let (line, queue) = (slot_lines[slot], queues[slot % QUEUES]);
                    machine.add_lock(Lock::new("lock of a slot", manner, line, queue))
                })
                .collect(),
            Guard::Published => Vec::new(),
        };
        let count = scene.objects.iter().map(|(class, _)| class + 1).max().unwrap_or(0);
        let classes = (0..count)
            .map(|_| {
                // crates/zsmalloc/src/pool.rs: a class's state is behind its lock, in the lock's
                // line.
                let line = machine.lines.add("line of a size class", 1, 0);
                let lock = Lock::new("lock of a size class", Manner::Mutex, line, line);
                (machine.add_lock(lock), Vec::new())
            })
            .collect();
        let stream = scene.cell.streams.manner().map(|manner| {
            let line = machine.lines.add("line of the streams", 1, 0);
            machine.add_lock(Lock::new("streams", manner, line, line))
        });
        let mut engine = Engine {
            scene,
            slot_lines,
            slot_locks,
            versions: vec![0; slots],
            contents: vec![None; slots],
            classes,
            objects_made: 0,
            zspage: 0,
            stream,
            counters: [(); 2].map(|()| machine.lines.add("shared counters", 1, 0)),
            readers: Readers::new(machine),
            tasks: vec![Task::default(); cpus],
        };
        if scene.cell.content == Content::Pages {
            for slot in 0..slots {
                let class = engine.draw(slot, machine);
                let owner = machine.random.usize(..cpus);
                let object = engine.new_object(class, owner, machine);
                if scene.cell.op == Op::Load {
                    machine.lines.share(object.memory);
                    machine.lines.share(object.zspage);
                }
                engine.contents[slot] = Some(object);
            }
        }
        // All CPUs share the lines that are only read.
        if scene.cell.op == Op::Load && !matches!(scene.cell.scheme.guard, Guard::Each(_)) {
            engine.slot_lines.iter().for_each(|&line| machine.lines.share(line));
        }
        engine
    }

    /// Draws the class and lines of a page that is stored in `slot`.
    fn draw(&self, slot: usize, machine: &mut Machine) -> (usize, u32) {
        let objects = self.scene.objects;
        match self.scene.cell.workload {
            Workload::Eight => objects[slot % objects.len()],
            Workload::Spread => objects[machine.random.usize(..objects.len())],
        }
    }

    fn new_object(&mut self, of: (usize, u32), owner: usize, machine: &mut Machine) -> Object {
        let (class, lines) = of;
        if self.objects_made.is_multiple_of(PER_ZSPAGE) {
            self.zspage = machine.lines.add("line of a zspage", 1, owner);
        }
        self.objects_made += 1;
        let memory = machine.lines.add("lines of an object", lines.max(2), owner);
        Object { class, memory, zspage: self.zspage }
    }

    fn body(&self, mean: f64, machine: &mut Machine) -> Step {
        Step::Work(mean * self.scene.spread[machine.random.usize(..self.scene.spread.len())])
    }

    /// Engine::store: prefetch, look for a pattern, peek, compress, store in the pool; commit.
    fn plan_store(&mut self, me: usize, slot: usize, machine: &mut Machine) {
        let scene = self.scene;
        let (parts, line) = (&scene.parts, self.slot_lines[slot]);
        let body = self.body(parts.store_body, machine);
        let mut steps = vec![Step::Work(parts.outside / 2.0), Step::Prefetch(line)];
        match scene.cell.content {
            // `make` first searches the page for a pattern, and peeks then.
            Content::SameFilled => steps.extend([body, Step::Read(line)]),
            Content::Pages => {
                steps.push(Step::Read(line));
                steps.extend(self.stream.map(|stream| take(stream, Mode::Write)));
                let of = self.draw(slot, machine);
                let lock = self.classes[of.0].0;
                // Pool::store takes the slot under the class's lock and copies the bytes after it.
                // The stream is held until then (Engine::pack).
                let give = give(lock, Mode::Write);
                steps.extend([body, take(lock, Mode::Write)]);
                steps.push(Step::Call(TAKEN, of.0 << 16 | of.1 as usize));
                steps.extend([Step::Work(parts.class_take), give]);
                steps.push(Step::Call(TAKEN, usize::MAX));
                steps.extend(self.stream.map(|stream| self::give(stream, Mode::Write)));
            }
        }
        // SlotTable::update of each scheme.
        let held = Step::Work(parts.update_held);
        match scene.cell.scheme.guard {
            Guard::Global(_) => {
                let lock = self.slot_locks[0];
                steps.extend([take(lock, Mode::Write), Step::Own(line), held]);
                steps.extend([Step::Call(SWAP, slot), give(lock, Mode::Write)]);
            }
            Guard::Each(_) => {
                let lock = self.slot_locks[slot];
                steps.extend([take(lock, Mode::Write), held]);
                steps.extend([Step::Call(SWAP, slot), give(lock, Mode::Write)]);
            }
            Guard::Published => {
                steps.extend([Step::Read(line), Step::Call(SEEN, slot), held]);
                steps.extend([Step::Own(line), Step::Call(TRY, slot)]);
            }
        }
        steps.push(Step::Call(RETIRE, 0));
        if scene.cell.shared_counters {
            // crates/zram/src/counts.rs: `Writes` in the first line of counters, `ComprBytes` in
            // the second; a same-filled page in place of another changes no gauge.
            steps.push(Step::Own(self.counters[0]));
            if scene.cell.content == Content::Pages {
                steps.push(Step::Own(self.counters[1]));
            }
        }
        steps.push(Step::Work(parts.outside / 2.0));
        machine.push_all(me, &steps);
    }

    /// Engine::load: all its work is in the closure of SlotTable::load.
    fn plan_load(&mut self, me: usize, slot: usize, machine: &mut Machine) {
        let scene = self.scene;
        let (parts, line) = (&scene.parts, self.slot_lines[slot]);
        let body = self.body(parts.load_body, machine);
        let look = [Step::Read(line), Step::Call(LOOK, slot), body];
        let mut steps = vec![Step::Work(parts.outside / 2.0)];
        let lock = match scene.cell.scheme.guard {
            Guard::Global(_) => Some(self.slot_locks[0]),
            Guard::Each(_) => Some(self.slot_locks[slot]),
            Guard::Published => None,
        };
        match lock {
            Some(lock) => {
                steps.push(take(lock, Mode::Read));
                steps.extend(look);
                steps.push(give(lock, Mode::Read));
            }
            None => {
                steps.extend(self.readers.enter());
                steps.extend(look);
                steps.extend(self.readers.leave(me));
            }
        }
        if scene.cell.shared_counters {
            steps.push(Step::Own(self.counters[0]));
        }
        steps.push(Step::Work(parts.outside / 2.0));
        machine.push_all(me, &steps);
    }

    /// Pool::free (crates/zsmalloc/src/pool.rs) finds the class by the zspage, and frees the slot
    /// under the class's lock.
    pub(super) fn free(&mut self, me: usize, object: Object, machine: &mut Machine) {
        let lock = self.classes[object.class].0;
        self.classes[object.class].1.push(object);
        let held = Step::Work(self.scene.parts.class_leave);
        machine.push_all(
            me,
            &[
                Step::Read(object.zspage),
                take(lock, Mode::Write),
                Step::Own(object.zspage),
                held,
                give(lock, Mode::Write),
            ],
        );
    }
}

impl Model for Engine<'_> {
    fn plan(&mut self, me: usize, machine: &mut Machine) {
        let slot = machine.random.usize(..self.contents.len());
        self.tasks[me] = Task::default();
        let stores = match self.scene.cell.op {
            Op::Store => true,
            Op::Load => false,
            Op::Mix => machine.random.bool(),
        };
        if stores {
            self.plan_store(me, slot, machine);
        } else {
            self.plan_load(me, slot, machine);
        }
    }

    fn call(&mut self, me: usize, what: u32, with: usize, machine: &mut Machine) {
        match what {
            TAKEN if with == usize::MAX => {
                if let Some(made) = self.tasks[me].made {
                    machine.push(me, Step::Own(made.memory));
                }
            }
            TAKEN => {
                let of = (with >> 16, (with & 0xffff) as u32);
                let hole = self.classes[of.0].1.pop();
                let object = match hole {
                    Some(hole) => hole,
                    None => self.new_object(of, me, machine),
                };
                self.tasks[me].made = Some(object);
                machine.push(me, Step::Own(object.zspage));
            }
            SWAP => self.swap(me, with),
            SEEN => self.tasks[me].seen = self.versions[with],
            TRY if self.tasks[me].seen == self.versions[with] => self.swap(me, with),
            TRY => {
                // The failed compare-and-swap returns the word's current value.
                self.tasks[me].seen = self.versions[with];
                let again = [Step::Own(self.slot_lines[with]), Step::Call(TRY, with)];
                machine.push_all(me, &again);
            }
            RETIRE => {
                if let Some(displaced) = self.tasks[me].displaced.take() {
                    match self.scene.cell.scheme.guard {
                        Guard::Published => self.readers.retire(me, displaced, machine),
                        _ => self.free(me, displaced, machine),
                    }
                }
            }
            LOOK => {
                if let Some(object) = self.contents[with] {
                    let steps = [Step::Read(object.zspage), Step::Read(object.memory)];
                    machine.push_all(me, &steps);
                }
            }
            _ => {
                for object in self.readers.call(me, what, with, machine) {
                    self.free(me, object, machine);
                }
            }
        }
    }
}

impl Engine<'_> {
    /// The commit changes the word.
    fn swap(&mut self, me: usize, slot: usize) {
        self.versions[slot] = self.versions[slot].wrapping_add(1);
        let task = &mut self.tasks[me];
        if task.made.is_some() {
            task.displaced = std::mem::replace(&mut self.contents[slot], task.made);
        }
    }
}
