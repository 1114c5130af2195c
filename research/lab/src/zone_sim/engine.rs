//! One zone and its threads, on the simulated machine. The threads share two gates:
//!
//! * the zone's lock, which is passed on in the order of requests (a queued spin lock, a fair
//!   read-write lock);
//! * the heads of lists, one at a time inside the lock. A waiter spins, and the next one is chosen
//!   at random. Each waiter makes a head slower, because it fetches the line once for each thread
//!   that is served.
//!
//! Written anew after the model of the reference notes. Tests compare it with closed forms.

use serde::Serialize;

use super::load::{Demand, Load, Visit};
use crate::sim::{Gate, GateId, Length, Machine, Mode, Model, Step};

/// The results of a simulation.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Pages a second: allocated, and freed if the load frees.
    pub pages_per_s: f64,
    /// Waiting for the exclusive lock, in percent of the time of all threads.
    pub write_wait_percent: f64,
    /// Waiting for the shared lock, in percent of the time of all threads.
    pub read_wait_percent: f64,
    /// Waiting for heads of lists, in percent of the time of all threads.
    pub head_wait_percent: f64,
}

impl Outcome {
    /// Waiting for the zone's lock, shared or exclusive.
    pub fn lock_wait_percent(&self) -> f64 {
        self.write_wait_percent + self.read_wait_percent
    }
}

#[derive(Clone)]
struct Thread {
    allocates: bool,
    /// Pages left in this phase.
    left: f64,
}

/// The zone's lock, and the heads of its lists.
const LOCK: GateId = 0;
const HEAD: GateId = 1;

/// A thread's own work is over: it visits the zone.
const VISIT: u32 = 0;
/// It has left the zone.
const LEFT: u32 = 1;

struct Engine<'a> {
    demand: &'a Demand,
    load: &'a Load,
    /// Nanoseconds in which a line moves to another CPU: so long it takes to pass a lock to a
    /// waiter, or to take one that another CPU had last; and each waiter at a head of a list adds
    /// it, because it looks at the same line.
    transfer: f64,
    threads: Vec<Thread>,
    /// From when on everything counts, and until when.
    counted: [f64; 2],
    pages: f64,
}

/// Simulates a zone. The same arguments give the same result.
pub fn simulate(demand: &Demand, load: &Load, transfer: f64, seed: u64) -> Outcome {
    Engine::new(demand, load, transfer).run(seed)
}

impl<'a> Engine<'a> {
    fn new(demand: &'a Demand, load: &'a Load, transfer: f64) -> Engine<'a> {
        let threads = vec![Thread { allocates: true, left: load.pages }; load.threads];
        Engine { demand, load, transfer, threads, counted: [0.0; 2], pages: 0.0 }
    }

    fn run(mut self, seed: u64) -> Outcome {
        let (demand, load) = (self.demand, self.load);
        let visits = |visit: &Visit| (load.pages / visit.pages).ceil().max(1.0) as u64;
        let free = if load.frees { visits(&demand.free) } else { 0 };
        // One cycle of each thread does not count.
        let warm = load.threads as u64 * (visits(&demand.alloc) + free);
        let length = Length { warm, operations: warm * u64::from(load.cycles) };
        let whole =
            load.pages * (load.alloc_ns + load.free_ns + demand.per_page(self.transfer)).max(1.0);
        let mut machine = Machine::new(load.threads, seed);
        machine.add(Gate::new("lock", self.transfer));
        machine.add(Gate { crowd: Some(self.transfer), ..Gate::new("head", 0.0) });
        let stagger = if load.stagger { whole } else { 0.0 };
        let waited = machine.run(&mut self, length, stagger).waited;
        let elapsed = (self.counted[1] - self.counted[0]).max(1e-9);
        let percent = |gate: GateId, mode| {
            100.0 * waited[gate][mode as usize] / elapsed / load.threads as f64
        };
        Outcome {
            pages_per_s: self.pages / elapsed * 1e9,
            write_wait_percent: percent(LOCK, Mode::Write),
            read_wait_percent: percent(LOCK, Mode::Read),
            head_wait_percent: percent(HEAD, Mode::Write),
        }
    }

    fn phase(&self, thread: usize) -> &'a Visit {
        if self.threads[thread].allocates { &self.demand.alloc } else { &self.demand.free }
    }

    /// The pages of a thread until its next visit, or until the end of the phase.
    fn pages_until_visit(&self, thread: usize) -> f64 {
        self.phase(thread).pages.min(self.threads[thread].left)
    }

    /// The steps of a visit: the lock that it needs, and a piece of its work before each head.
    fn visit(&mut self, thread: usize, machine: &mut Machine) {
        let visit = *self.phase(thread);
        let mut steps = Vec::new();
        if visit.pages.is_finite() {
            let mode = if machine.chance() < visit.lockless {
                None
            } else if machine.chance() < visit.reads {
                Some(Mode::Read)
            } else {
                Some(Mode::Write)
            };
            // The heads of a single visit are unknown: each visit has as many, on average.
            let one_more = machine.chance() < visit.heads.fract();
            let heads = visit.heads as u32 + u32::from(one_more);
            let own = match mode {
                None => 0.0,
                Some(Mode::Read) => visit.read_ns,
                Some(Mode::Write) => visit.write_ns,
            };
            let piece = Step::Work(own / f64::from(heads.max(1)));
            steps.extend(mode.map(|mode| Step::Take(LOCK, mode)));
            for _ in 0..heads {
                let (take, leave) = (Step::Take(HEAD, Mode::Write), Step::Leave(HEAD, Mode::Write));
                steps.extend([piece, take, Step::Work(visit.head_ns), leave]);
            }
            if heads == 0 {
                steps.push(piece);
            }
            steps.extend(mode.map(|mode| Step::Leave(LOCK, mode)));
        }
        steps.push(Step::Call(LEFT));
        machine.push(thread, &steps);
    }

    /// A visit is over: the thread goes on with its work.
    fn left(&mut self, thread: usize, now: f64) {
        let pages = self.pages_until_visit(thread);
        let mine = &mut self.threads[thread];
        mine.left -= pages;
        if mine.allocates {
            self.pages += pages;
        }
        // After many visits, a rest of a page is a rounding error.
        if mine.left < 1e-6 {
            mine.allocates = !(mine.allocates && self.load.frees);
            mine.left = self.load.pages;
        }
        self.counted[1] = now;
    }
}

impl Model for Engine<'_> {
    /// Works on the pages of the last visit; in a phase without visits, on all pages.
    fn plan(&mut self, thread: usize, machine: &mut Machine) {
        let own = match self.threads[thread].allocates {
            true => self.load.alloc_ns,
            false => self.load.free_ns,
        };
        let work = Step::Work(self.pages_until_visit(thread) * own);
        machine.push(thread, &[work, Step::Call(VISIT)]);
    }

    fn begin(&mut self, now: f64) {
        (self.counted, self.pages) = ([now; 2], 0.0);
    }

    fn call(&mut self, thread: usize, what: u32, machine: &mut Machine) {
        match what {
            VISIT => self.visit(thread, machine),
            _ => self.left(thread, machine.now),
        }
    }
}

#[cfg(test)]
mod tests;
