//! The simulated readers and queues of `epoch`, after crates/sync/src/{reader_epochs,retired}.rs.

use std::collections::VecDeque;

use crate::sim::lines::LineId;
use crate::sim::machine::{Machine, Step};

/// Words in the queue of a CPU: `QUEUE` of research/designs/src/slots/epoch.rs.
const QUEUE: usize = 128;
/// A search for readers follows each time this many words have come in: `QUEUE` by `CHECKS` of
/// retired.rs.
const LOOK_EVERY: usize = QUEUE / 8;
/// Epochs of a grace period: `GRACE_EPOCHS` of retired.rs.
const GRACE_EPOCHS: u32 = 3;

/// Calls from this number on are those of [`Readers`]; lower ones are the engine's own.
pub(super) const FIRST_CALL: u32 = 100;
const ENTER: u32 = FIRST_CALL;
const ENTERED: u32 = FIRST_CALL + 1;
const LEAVE: u32 = FIRST_CALL + 2;
const PUT: u32 = FIRST_CALL + 3;
const TURN: u32 = FIRST_CALL + 4;
const FLIPPED: u32 = FIRST_CALL + 5;
const COUNTED: u32 = FIRST_CALL + 6;
const EPOCH: u32 = FIRST_CALL + 7;
const RELEASED: u32 = FIRST_CALL + 8;
const TAKE_TURN: u32 = FIRST_CALL + 9;

/// An object of the pool: its class, and the lines of its bytes and of its zspage's descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) class: usize,
    pub(super) memory: LineId,
    pub(super) zspage: LineId,
}

/// Readers, the epoch, and the objects that wait for it.
pub(super) struct Readers {
    phase: u32,
    epoch: u32,
    turn_held: bool,
    phase_line: LineId,
    epoch_line: LineId,
    turn_line: LineId,
    cpus: Vec<OneCpu>,
}

struct OneCpu {
    line: LineId,
    queue_line: LineId,
    /// Readers in each phase. All are of this CPU's thread, as each thread has a CPU to itself.
    inside: [u32; 2],
    entered: u32,
    queue: VecDeque<(u32, Object)>,
    retiring: Option<Object>,
    /// Epochs to wait for. Above zero when the queue is full.
    waits: u32,
}

impl Readers {
    pub(super) fn new(machine: &mut Machine) -> Readers {
        let cpus = machine.cpus();
        let cpu = |cpu| OneCpu {
            line: machine.lines.add("readers of a CPU", 1, cpu),
            queue_line: machine.lines.add("queue of a CPU", 1, cpu),
            inside: [0; 2],
            entered: 0,
            queue: VecDeque::new(),
            retiring: None,
            waits: 0,
        };
        let cpus = (0..cpus).map(cpu).collect();
        let [phase_line, epoch_line, turn_line] =
            ["phase of the readers", "number of the epoch", "turn of the readers"]
                .map(|what| machine.lines.add(what, 1, 0));
        Readers { phase: 0, epoch: 0, turn_held: false, phase_line, epoch_line, turn_line, cpus }
    }

    /// ReaderEpochs::enter: the phase, and the CPU's own counter.
    pub(super) fn enter(&self) -> [Step; 2] {
        [Step::Read(self.phase_line), Step::Call(ENTER, 0)]
    }

    /// Reader::drop.
    pub(super) fn leave(&self, me: usize) -> [Step; 2] {
        [Step::Own(self.cpus[me].line), Step::Call(LEAVE, 0)]
    }

    /// Retired::retire: takes the queue's lock, which is the CPU's own, and reads the epoch.
    pub(super) fn retire(&mut self, me: usize, object: Object, machine: &mut Machine) {
        let cpu = &mut self.cpus[me];
        cpu.retiring = Some(object);
        let steps = [
            Step::Own(cpu.queue_line),
            Step::Read(self.epoch_line),
            Step::Call(PUT, 0),
            Step::Own(cpu.queue_line),
        ];
        machine.push_all(me, &steps);
    }

    /// Does a step of the protocol. Returns the objects to free.
    pub(super) fn call(
        &mut self,
        me: usize,
        what: u32,
        with: usize,
        machine: &mut Machine,
    ) -> Vec<Object> {
        let count = self.cpus.len();
        match what {
            ENTER => {
                self.cpus[me].entered = self.phase & 1;
                machine.push_all(me, &[Step::Own(self.cpus[me].line), Step::Call(ENTERED, 0)]);
            }
            ENTERED => {
                let cpu = &mut self.cpus[me];
                cpu.inside[cpu.entered as usize] += 1;
            }
            LEAVE => {
                let cpu = &mut self.cpus[me];
                cpu.inside[cpu.entered as usize] -= 1;
            }
            PUT => {
                let epoch = self.epoch;
                let cpu = &mut self.cpus[me];
                cpu.queue.extend(cpu.retiring.take().map(|object| (epoch, object)));
                if cpu.queue.len().is_multiple_of(LOOK_EVERY) {
                    let try_flip = [Step::Own(self.turn_line), Step::Call(TAKE_TURN, 0)];
                    machine.push_all(me, &try_flip);
                }
            }
            // ReaderEpochs::try_flip, also as part of wait_for_readers.
            TAKE_TURN if self.turn_held && self.cpus[me].waits > 0 => {
                let again = [
                    Step::Work(machine.costs.pause),
                    Step::Own(self.turn_line),
                    Step::Call(TAKE_TURN, 0),
                ];
                machine.push_all(me, &again);
            }
            TAKE_TURN if self.turn_held => return self.free_old(me, machine),
            TAKE_TURN => {
                self.turn_held = true;
                machine.push_all(me, &[Step::Read(self.phase_line), Step::Call(TURN, 0)]);
            }
            TURN if self.phase == self.epoch => {
                let flip = [Step::Own(self.phase_line), Step::Call(FLIPPED, 0)];
                machine.push_all(me, &flip);
            }
            TURN => self.look_at(me, 0, machine),
            FLIPPED => {
                self.phase += 1;
                self.look_at(me, 0, machine);
            }
            // ReaderEpochs::have_left looks at the CPUs in turn, until one has a reader.
            COUNTED if self.cpus[with].inside[(self.epoch & 1) as usize] > 0 => {
                if self.cpus[me].waits > 0 {
                    self.look_again(me, machine);
                } else {
                    self.release(me, machine);
                }
            }
            COUNTED if with + 1 < count => self.look_at(me, with + 1, machine),
            COUNTED => {
                machine.push_all(me, &[Step::Own(self.epoch_line), Step::Call(EPOCH, 0)]);
            }
            EPOCH => {
                self.epoch += 1;
                let cpu = &mut self.cpus[me];
                cpu.waits = cpu.waits.saturating_sub(1);
                if cpu.waits > 0 {
                    machine.push_all(me, &[Step::Read(self.phase_line), Step::Call(TURN, 0)]);
                } else {
                    self.release(me, machine);
                }
            }
            RELEASED => {
                self.turn_held = false;
                return self.free_old(me, machine);
            }
            _ => {}
        }
        Vec::new()
    }

    fn look_at(&self, me: usize, cpu: usize, machine: &mut Machine) {
        let steps = [Step::Read(self.cpus[cpu].line), Step::Call(COUNTED, cpu)];
        machine.push_all(me, &steps);
    }

    /// Looks at the CPUs again after a pause, from the first one on.
    fn look_again(&self, me: usize, machine: &mut Machine) {
        let pause = machine.costs.pause;
        machine.push_all(
            me,
            &[Step::Work(pause), Step::Read(self.cpus[0].line), Step::Call(COUNTED, 0)],
        );
    }

    fn release(&self, me: usize, machine: &mut Machine) {
        machine.push_all(me, &[Step::Own(self.turn_line), Step::Call(RELEASED, 0)]);
    }

    /// Retired::free_old: takes out the objects whose grace period is over. If the queue is full,
    /// waits for readers.
    fn free_old(&mut self, me: usize, machine: &mut Machine) -> Vec<Object> {
        let epoch = self.epoch;
        let cpu = &mut self.cpus[me];
        let old = cpu.queue.iter().take_while(|(then, _)| epoch - then >= GRACE_EPOCHS).count();
        let old = cpu.queue.drain(..old).map(|(_, object)| object).collect();
        if cpu.queue.len() >= QUEUE {
            // Waits for two more epochs and is called again; by then every grace period is over.
            cpu.waits = 2;
            for (then, _) in &mut cpu.queue {
                *then = epoch.wrapping_sub(GRACE_EPOCHS).min(*then);
            }
            machine.push_all(me, &[Step::Own(self.turn_line), Step::Call(TAKE_TURN, 0)]);
        }
        old
    }
}
