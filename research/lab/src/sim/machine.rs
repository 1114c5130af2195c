//! The simulated machine: CPUs with a thread each, and events in the order of time.
//!
//! A thread's operation is a list of steps. Each step takes effect at its end, and the next one
//! begins then. So a CPU that holds a line alone at an instant holds it for the step's effect.
//! Events at the same instant happen in the order of their planning. The result depends on nothing
//! but the seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::lines::{Costs, LineId, Lines};
use super::lock::{Lock, LockStep, Watcher};
use crate::statistics::deviation;

/// A step of a thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// The thread's own work, in nanoseconds.
    Work(f64),
    /// Reads a line.
    Read(LineId),
    /// Requests a line for reading, and goes on.
    Prefetch(LineId),
    /// Changes a line by an atomic instruction.
    Own(LineId),
    /// A step at a lock.
    Lock(LockStep),
    /// Calls the model with this number.
    Call(u32, usize),
}

/// The work of the threads.
pub trait Model {
    /// Plans an operation of a thread: pushes its steps, the last one first.
    fn plan(&mut self, thread: usize, machine: &mut Machine);

    /// The warm-up is over: what happens from `now` on counts.
    fn begin(&mut self, _now: f64) {}

    /// Does the effect of a `Step::Call`.
    fn call(&mut self, _thread: usize, _what: u32, _with: usize, _machine: &mut Machine) {}
}

/// The thread of one CPU.
#[derive(Default)]
pub(super) struct Thread {
    /// Steps to do, the next one last.
    pub(super) steps: Vec<Step>,
    /// A prefetched line, and the time of its arrival.
    coming: Option<(LineId, f64)>,
    asleep_since: Option<f64>,
    has_begun: bool,
    /// Whether it spins and looks again when the line changes.
    pub(super) watching: bool,
    /// Number of steps that stay when the line changes.
    pub(super) kept: usize,
    /// Only events with this number count. A call-back makes the events planned before it invalid.
    pub(super) call: u64,
}

/// The machine.
pub struct Machine {
    /// The costs of lines and waiting.
    pub costs: Costs,
    /// The lines.
    pub lines: Lines,
    /// The locks.
    pub locks: Vec<Lock>,
    /// The source of random numbers.
    pub random: fastrand::Rng,
    /// The time, in nanoseconds.
    pub now: f64,
    pub(super) threads: Vec<Thread>,
    /// Bits of a time that is not negative, which are in its order; the number of the event, so
    /// that those of one instant happen in the order of their planning; the thread, and its call.
    events: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    planned: u64,
    /// The spinning threads of each line.
    pub(super) watchers: HashMap<LineId, Vec<Watcher>>,
    began: f64,
    slept: f64,
    /// A flaw for tests: a lock lets two threads in.
    pub lets_two_in: bool,
}

/// The length of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Operations that do not count, which come first.
    pub warm: u64,
    /// Operations that count.
    pub operations: u64,
    /// Events after which the simulation ends, if it has not done its operations.
    pub events: u64,
}

impl Length {
    /// The length with a tenth of the operations for warm-up.
    pub const fn of(operations: u64, events: u64) -> Length {
        Length { warm: operations / 10 + 1, operations, events }
    }
}

/// The result of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Operations a second, of all threads together.
    pub rate: f64,
    /// Half of the interval in which the rate lies with 95 % confidence (batch means).
    pub confidence: f64,
    /// The lock or line with the highest use.
    pub busiest: String,
    /// The part of the time that `busiest` is in use.
    pub utilisation: f64,
    /// The part of the time that threads sleep.
    pub asleep: f64,
    /// Operations done.
    pub operations: u64,
}

/// Batches of a simulation; Student's t for 95 % with one degree of freedom less.
const BATCHES: usize = 10;
const T_95: f64 = 2.262;

impl Machine {
    /// A machine of `cpus` CPUs, whose caches lose a line after `reach` operations.
    pub fn new(cpus: usize, costs: Costs, reach: u64, seed: u64) -> Machine {
        Machine {
            costs,
            lines: Lines::new(cpus, reach),
            locks: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            now: 0.0,
            threads: (0..cpus).map(|_| Thread::default()).collect(),
            events: BinaryHeap::new(),
            planned: 0,
            watchers: HashMap::new(),
            began: 0.0,
            slept: 0.0,
            lets_two_in: false,
        }
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.threads.len()
    }

    /// A random number from 0 to 1.
    pub fn chance(&mut self) -> f64 {
        self.random.f64()
    }

    /// Pushes a step that the thread does before its other steps.
    pub fn push(&mut self, thread: usize, step: Step) {
        self.threads[thread].steps.push(step);
    }

    /// Pushes steps that the thread does before its other steps, in this order.
    pub fn push_all(&mut self, thread: usize, steps: &[Step]) {
        self.threads[thread].steps.extend(steps.iter().rev());
    }

    pub(super) fn wake_at(&mut self, time: f64, thread: usize) {
        let call = self.threads[thread].call;
        self.events.push(Reverse((time.to_bits(), self.planned, thread, call)));
        self.planned += 1;
    }

    /// Discards the planned events of a thread.
    pub(super) fn call_back(&mut self, thread: usize) {
        self.threads[thread].call += 1;
    }

    /// Lets the thread sleep until another one wakes it.
    pub fn sleep(&mut self, thread: usize) {
        self.threads[thread].asleep_since = Some(self.now);
    }

    /// Nanoseconds that a thread has slept.
    pub(super) fn slept_for(&self, thread: usize) -> f64 {
        self.threads[thread].asleep_since.map_or(0.0, |since| self.now - since)
    }

    /// Lets a sleeping thread go on at this time.
    pub fn wake(&mut self, thread: usize, at: f64) {
        if let Some(since) = self.threads[thread].asleep_since.take() {
            self.slept += at - since.max(self.began);
            self.wake_at(at, thread);
        }
    }

    /// Warms up, then runs until the operations are done or about as many events have happened.
    /// Returns the result. The model's threads begin within `stagger` nanoseconds.
    pub fn run(mut self, model: &mut dyn Model, length: Length, stagger: f64) -> Outcome {
        let Length { warm, operations, events } = length;
        for thread in 0..self.cpus() {
            let at = self.chance() * stagger;
            self.wake_at(at, thread);
        }
        let (mut done, mut happened) = (0u64, 0u64);
        // For each batch, the time of its end and the operations done until then.
        let mut marks: Vec<(f64, u64)> = Vec::new();
        let (mut next_mark, mut next_event) = (warm, events / (BATCHES as u64 + 1));
        while let Some(Reverse((time, _, thread, call))) = self.events.pop() {
            if call != self.threads[thread].call {
                continue;
            }
            if std::mem::take(&mut self.threads[thread].watching) {
                self.call_back(thread);
            }
            self.now = f64::from_bits(time);
            happened += 1;
            let over = self.advance(model, thread);
            done += over;
            if done >= next_mark || happened >= next_event {
                if marks.is_empty() {
                    self.begin();
                    model.begin(self.now);
                }
                marks.push((self.now, done));
                next_mark = done + (operations / BATCHES as u64).max(1);
                next_event = happened.saturating_add(events / (BATCHES as u64 + 1));
                if marks.len() > BATCHES {
                    break;
                }
            }
        }
        self.outcome(&marks)
    }

    fn begin(&mut self) {
        (self.began, self.slept) = (self.now, 0.0);
        self.lines.begin();
        for lock in &mut self.locks {
            lock.begin(self.now);
        }
    }

    /// Lets a thread do steps until time passes. Returns the number of operations it finished.
    fn advance(&mut self, model: &mut dyn Model, thread: usize) -> u64 {
        let mut finished = 0;
        loop {
            let Some(step) = self.threads[thread].steps.pop() else {
                if finished > 0 {
                    // An operation that takes no time must not stop the clock.
                    self.wake_at(self.now + 1e-3, thread);
                    return finished;
                }
                if std::mem::replace(&mut self.threads[thread].has_begun, true) {
                    finished = 1;
                    self.lines.done[thread] += 1;
                }
                model.plan(thread, self);
                continue;
            };
            let now = self.now;
            let over = match step {
                Step::Work(ns) => now + ns,
                Step::Read(line) => self.read(thread, line),
                Step::Prefetch(line) => {
                    let there = self.lines.read(&self.costs, line, thread, now);
                    self.threads[thread].coming = Some((line, there));
                    now
                }
                Step::Own(line) => {
                    self.stir(thread, line);
                    self.lines.own(&self.costs, line, thread, now)
                }
                Step::Lock(step) => {
                    self.lock_step(thread, step);
                    now
                }
                Step::Call(what, with) => {
                    model.call(thread, what, with, self);
                    now
                }
            };
            let Thread { asleep_since, watching, .. } = &self.threads[thread];
            if asleep_since.is_some() || *watching {
                return finished;
            }
            if over > now {
                self.wake_at(over, thread);
                return finished;
            }
        }
    }

    fn read(&mut self, thread: usize, line: LineId) -> f64 {
        let there = self.lines.read(&self.costs, line, thread, self.now);
        match self.threads[thread].coming {
            Some((coming, at)) if coming == line => there.max(at),
            _ => there,
        }
    }

    fn outcome(self, marks: &[(f64, u64)]) -> Outcome {
        let (first, last) = match marks {
            [first, .., last] => (*first, *last),
            _ => ((0.0, 0), (1.0, 0)),
        };
        let elapsed = (last.0 - first.0).max(1e-9);
        let rate = (last.1 - first.1) as f64 / elapsed * 1e9;
        let batches: Vec<f64> = marks
            .windows(2)
            .map(|pair| (pair[1].1 - pair[0].1) as f64 / (pair[1].0 - pair[0].0).max(1e-9) * 1e9)
            .collect();
        let mut busiest = self.lines.busiest();
        for lock in &self.locks {
            let held = lock.held_until(self.now);
            if held > busiest.1 {
                busiest = (lock.what, held);
            }
        }
        let still: f64 = self
            .threads
            .iter()
            .filter_map(|thread| thread.asleep_since)
            .map(|since| self.now - since.max(self.began))
            .sum();
        Outcome {
            rate,
            confidence: T_95 * deviation(&batches) / (batches.len().max(1) as f64).sqrt(),
            busiest: busiest.0.to_owned(),
            utilisation: (busiest.1 / elapsed).min(1.0),
            asleep: ((self.slept + still) / elapsed / self.cpus() as f64).clamp(0.0, 1.0),
            operations: last.1 - first.1,
        }
    }
}
