//! A simulated machine of more CPUs than there are: what `locks-sim` and `zone-sim` stand on.
//!
//! Each CPU has a thread, whose operation is a list of steps. Events happen in the order of time,
//! and those of one instant in the order of their planning. The result depends on nothing but the
//! seed. Threads meet at [`Gate`]s: locks, or cache lines that one CPU at a time changes.

mod gate;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::statistics::deviation;
pub use gate::{Gate, GateId, Mode, Sleep};

/// A step of a thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// The thread's own work, in nanoseconds.
    Work(f64),
    /// Takes a gate, and waits for it.
    Take(GateId, Mode),
    /// Leaves a gate.
    Leave(GateId, Mode),
    /// Calls the model with this number.
    Call(u32),
}

/// The work of the threads.
pub trait Model {
    /// Plans an operation of a thread: pushes its steps.
    fn plan(&mut self, thread: usize, machine: &mut Machine);

    /// The warm-up is over: what happens from `now` on counts.
    fn begin(&mut self, _now: f64) {}

    /// Does the effect of a `Step::Call`.
    fn call(&mut self, _thread: usize, _what: u32, _machine: &mut Machine) {}
}

#[derive(Clone, Default)]
struct Thread {
    /// Steps to do, the next one last.
    steps: Vec<Step>,
    waits: bool,
    has_begun: bool,
}

pub struct Machine {
    /// The source of random numbers.
    pub random: fastrand::Rng,
    /// The time, in nanoseconds.
    pub now: f64,
    gates: Vec<Gate>,
    threads: Vec<Thread>,
    /// Bits of a time that is not negative, which are in its order; the number of the event; the
    /// thread.
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    planned: u64,
    began: f64,
}

/// The length of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Operations that do not count, which come first.
    pub warm: u64,
    /// Operations that count.
    pub operations: u64,
}

impl Length {
    /// The length with a tenth of the operations for warm-up.
    pub const fn of(operations: u64) -> Length {
        Length { warm: operations / 10 + 1, operations }
    }
}

/// The result of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Operations a second, of all threads together.
    pub rate: f64,
    /// Half of the interval in which the rate lies with 95 % confidence (batch means).
    pub confidence: f64,
    /// The gate that is in use for the largest part of the time, and that part.
    pub busiest: (&'static str, f64),
    /// Nanoseconds of waiting at each gate, shared and exclusive.
    pub waited: Vec<[f64; 2]>,
}

/// Batches of a simulation; Student's t for 95 % with one degree of freedom less.
const BATCHES: usize = 10;
const T_95: f64 = 2.262;

impl Machine {
    /// A machine of `cpus` CPUs.
    pub fn new(cpus: usize, seed: u64) -> Machine {
        Machine {
            random: fastrand::Rng::with_seed(seed),
            now: 0.0,
            gates: Vec::new(),
            threads: vec![Thread::default(); cpus],
            events: BinaryHeap::new(),
            planned: 0,
            began: 0.0,
        }
    }

    pub fn cpus(&self) -> usize {
        self.threads.len()
    }

    /// A random number from 0 to 1.
    pub fn chance(&mut self) -> f64 {
        self.random.f64()
    }

    /// Adds a gate and returns its number.
    pub fn add(&mut self, gate: Gate) -> GateId {
        self.gates.push(gate);
        self.gates.len() - 1
    }

    /// Pushes steps that the thread does before its other steps, in this order.
    pub fn push(&mut self, thread: usize, steps: &[Step]) {
        self.threads[thread].steps.extend(steps.iter().rev());
    }

    fn go_on_at(&mut self, time: f64, thread: usize) {
        self.threads[thread].waits = false;
        self.events.push(Reverse((time.to_bits(), self.planned, thread)));
        self.planned += 1;
    }

    /// Warms up, then runs until the operations are done. The model's threads begin within
    /// `stagger` nanoseconds.
    pub fn run(mut self, model: &mut dyn Model, length: Length, stagger: f64) -> Outcome {
        for thread in 0..self.cpus() {
            let at = self.chance() * stagger;
            self.go_on_at(at, thread);
        }
        let (mut done, mut next_mark) = (0u64, length.warm);
        // For each batch, the time of its end and the operations done until then.
        let mut marks: Vec<(f64, u64)> = Vec::new();
        while let Some(Reverse((time, _, thread))) = self.events.pop() {
            self.now = f64::from_bits(time);
            done += self.advance(model, thread);
            if done < next_mark {
                continue;
            }
            if marks.is_empty() {
                self.began = self.now;
                self.gates.iter_mut().for_each(|gate| gate.begin(self.began));
                model.begin(self.now);
            }
            marks.push((self.now, done));
            next_mark = done + (length.operations / BATCHES as u64).max(1);
            if marks.len() > BATCHES {
                break;
            }
        }
        self.outcome(&marks)
    }

    /// Lets a thread do steps until time passes. Returns the number of operations it finished.
    fn advance(&mut self, model: &mut dyn Model, thread: usize) -> u64 {
        let mut finished = 0;
        loop {
            let Some(step) = self.threads[thread].steps.pop() else {
                if finished > 0 {
                    // An operation that takes no time must not stop the clock.
                    self.go_on_at(self.now + 1e-3, thread);
                    return finished;
                }
                finished = u64::from(std::mem::replace(&mut self.threads[thread].has_begun, true));
                model.plan(thread, self);
                continue;
            };
            match step {
                Step::Work(ns) if ns > 0.0 => {
                    self.go_on_at(self.now + ns, thread);
                    return finished;
                }
                Step::Work(_) => {}
                Step::Take(gate, mode) => self.take(thread, gate, mode),
                Step::Leave(gate, mode) => self.leave(thread, gate, mode),
                Step::Call(what) => model.call(thread, what, self),
            }
            if self.threads[thread].waits {
                return finished;
            }
        }
    }

    fn take(&mut self, thread: usize, id: GateId, mode: Mode) {
        let gate = &mut self.gates[id];
        if gate.admits(mode) {
            let taken = gate.enter(thread, mode, self.now);
            self.push(thread, &[Step::Work(taken)]);
        } else {
            gate.wait(thread, mode, self.now);
            self.threads[thread].waits = true;
        }
    }

    fn leave(&mut self, thread: usize, id: GateId, mode: Mode) {
        self.gates[id].leave(mode, self.now);
        while let Some(next) = self.gates[id].next(self.now, self.began, &mut self.random) {
            if next.asleep {
                // It tries again; until then others may be faster.
                self.push(next.thread, &[Step::Take(id, next.mode)]);
                self.go_on_at(self.now + next.after, next.thread);
                self.push(thread, &[Step::Work(next.waker)]);
                if next.mode == Mode::Write {
                    return;
                }
                continue;
            }
            self.go_on_at(self.now + next.after, next.thread);
        }
    }

    fn outcome(&self, marks: &[(f64, u64)]) -> Outcome {
        let (first, last) = match marks {
            [first, .., last] => (*first, *last),
            _ => ((0.0, 0), (1.0, 0)),
        };
        let elapsed = (last.0 - first.0).max(1e-9);
        let rate = |from: (f64, u64), to: (f64, u64)| {
            (to.1 - from.1) as f64 / (to.0 - from.0).max(1e-9) * 1e9
        };
        let batches: Vec<f64> = marks.windows(2).map(|pair| rate(pair[0], pair[1])).collect();
        let busy = self.gates.iter().map(|gate| (gate.what, gate.busy_until(self.now) / elapsed));
        let busiest = busy.fold(("", 0.0), |most, next| if next.1 > most.1 { next } else { most });
        Outcome {
            rate: rate(first, last),
            confidence: T_95 * deviation(&batches) / (batches.len().max(1) as f64).sqrt(),
            busiest: (busiest.0, busiest.1.min(1.0)),
            waited: self.gates.iter().map(|gate| gate.state.waited).collect(),
        }
    }
}
