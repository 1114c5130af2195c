//! One zone and its threads, on the simulated machine.
//!
//! The machine's own locks are the product's, which are not fair. This module has the locks of the
//! kernel's zones. The threads share two things:
//!
//! * the zone's lock, which is passed on in the order of requests. The next shared waiters come in
//!   together, until a waiter wants it alone (a queued spin lock, a fair read-write lock);
//! * the heads of lists, one at a time inside the lock. A waiter spins, and the next one is chosen
//!   at random. Each waiter makes a head slower, because it fetches the line once for each thread
//!   that is served.
//!
//! Written anew after the model of the reference notes. Tests compare it with closed forms.

use std::collections::VecDeque;

use serde::Serialize;

use super::load::{Costs, Demand, Load, Visit};
use crate::sim::lines;
use crate::sim::machine::{Length, Machine, Model, Step};

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

/// The way in which a thread has the lock, or wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    None,
    Read,
    Write,
}

#[derive(Clone)]
struct Thread {
    allocates: bool,
    /// Pages left in this phase.
    left: f64,
    way: Way,
    heads: u32,
    /// Time between two heads of a section.
    piece: f64,
}

/// A thread's own work is over: it visits the zone.
const VISIT: u32 = 0;
/// It wants a head of a list.
const WANT_HEAD: u32 = 1;
/// It leaves the head.
const LEAVE_HEAD: u32 = 2;
/// It leaves the zone.
const LEAVE: u32 = 3;

struct Engine<'a> {
    demand: &'a Demand,
    load: &'a Load,
    costs: &'a Costs,
    threads: Vec<Thread>,
    writer: bool,
    readers: u32,
    last: usize,
    queue: VecDeque<(usize, f64)>,
    head_busy: bool,
    head_queue: Vec<(usize, f64)>,
    /// From when on everything counts, and until when.
    counted: [f64; 2],
    pages: f64,
    waits: [f64; 3],
    /// A flaw for tests: the lock lets all threads in.
    lets_all_in: bool,
}

/// Simulates a zone. The same arguments give the same result.
pub fn simulate(demand: &Demand, load: &Load, costs: &Costs, seed: u64) -> Outcome {
    Engine::new(demand, load, costs).run(seed)
}

impl<'a> Engine<'a> {
    fn new(demand: &'a Demand, load: &'a Load, costs: &'a Costs) -> Engine<'a> {
        let (allocates, left, way) = (true, load.pages, Way::None);
        Engine {
            demand,
            load,
            costs,
            threads: vec![Thread { allocates, left, way, heads: 0, piece: 0.0 }; load.threads],
            writer: false,
            readers: 0,
            last: usize::MAX,
            queue: VecDeque::new(),
            head_busy: false,
            head_queue: Vec::new(),
            counted: [0.0; 2],
            pages: 0.0,
            waits: [0.0; 3],
            lets_all_in: false,
        }
    }

    fn run(mut self, seed: u64) -> Outcome {
        let (demand, load) = (self.demand, self.load);
        let visits = |visit: &Visit| (load.pages / visit.pages).ceil().max(1.0) as u64;
        let free = if load.frees { visits(&demand.free) } else { 0 };
        // One cycle of each thread does not count.
        let warm = load.threads as u64 * (visits(&demand.alloc) + free);
        let length = Length { warm, operations: warm * u64::from(load.cycles), events: u64::MAX };
        let whole = load.pages
            * (load.alloc_ns + load.free_ns + demand.per_page(self.costs.hand_off)).max(1.0);
        let machine = Machine::new(load.threads, lines::Costs::default(), u64::MAX, seed);
        machine.run(&mut self, length, if load.stagger { whole } else { 0.0 });
        let elapsed = (self.counted[1] - self.counted[0]).max(1e-9);
        let [write, read, head] =
            self.waits.map(|wait| 100.0 * wait / (elapsed * load.threads as f64));
        Outcome {
            pages_per_s: self.pages / elapsed * 1e9,
            write_wait_percent: write,
            read_wait_percent: read,
            head_wait_percent: head,
        }
    }

    fn phase(&self, thread: usize) -> &'a Visit {
        if self.threads[thread].allocates { &self.demand.alloc } else { &self.demand.free }
    }

    /// The pages of a thread until its next visit, or until the end of the phase.
    fn pages_until_visit(&self, thread: usize) -> f64 {
        self.phase(thread).pages.min(self.threads[thread].left)
    }

    /// Requests the lock that the visit needs.
    fn visit(&mut self, thread: usize, machine: &mut Machine) {
        let visit = *self.phase(thread);
        if visit.pages.is_infinite() {
            return self.leave(thread, machine);
        }
        let way = if visit.lockless > 0.0 && machine.chance() < visit.lockless {
            Way::None
        } else if visit.reads > 0.0 && machine.chance() < visit.reads {
            Way::Read
        } else {
            Way::Write
        };
        // The heads of a single visit are unknown: each visit has as many, on average.
        let one_more = machine.chance() < visit.heads.fract();
        let heads = visit.heads as u32 + u32::from(one_more);
        let own = match way {
            Way::None => 0.0,
            Way::Read => visit.read_ns,
            Way::Write => visit.write_ns,
        };
        let mine = &mut self.threads[thread];
        (mine.way, mine.heads, mine.piece) = (way, heads, own / f64::from(heads.max(1)));
        if way == Way::None {
            self.push_section(thread, machine);
        } else if self.lets_all_in || (self.queue.is_empty() && self.is_open(way)) {
            let taken = if self.last == thread { 0.0 } else { self.costs.hand_off };
            self.enter(thread, machine);
            machine.push(thread, Step::Work(taken));
        } else {
            self.queue.push_back((thread, machine.now));
            machine.sleep(thread);
        }
    }

    fn is_open(&self, way: Way) -> bool {
        !self.writer && (way == Way::Read || self.readers == 0)
    }

    fn enter(&mut self, thread: usize, machine: &mut Machine) {
        match self.threads[thread].way {
            Way::Read => self.readers += 1,
            _ => self.writer = true,
        }
        self.last = thread;
        self.push_section(thread, machine);
    }

    /// The section: a piece of it before each head.
    fn push_section(&self, thread: usize, machine: &mut Machine) {
        let Thread { heads, piece, .. } = self.threads[thread];
        machine.push(thread, Step::Call(LEAVE, 0));
        for _ in 0..heads {
            machine.push_all(thread, &[Step::Work(piece), Step::Call(WANT_HEAD, 0)]);
        }
        if heads == 0 {
            machine.push(thread, Step::Work(piece));
        }
    }

    /// Ends the visit: waiters may come in, and the thread goes on with its work.
    fn leave(&mut self, thread: usize, machine: &mut Machine) {
        match std::mem::replace(&mut self.threads[thread].way, Way::None) {
            Way::None => {}
            Way::Read => self.readers = self.readers.saturating_sub(1),
            Way::Write => self.writer = false,
        }
        while let Some(&(next, asked)) = self.queue.front() {
            let way = self.threads[next].way;
            if !self.is_open(way) {
                break;
            }
            self.queue.pop_front();
            let when = machine.now + self.costs.hand_off;
            self.waits[usize::from(way == Way::Read)] += when - self.since(asked);
            self.enter(next, machine);
            machine.wake(next, when);
        }
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
        self.counted[1] = machine.now;
    }

    /// Waiting counts from the time at which measurement begins.
    fn since(&self, asked: f64) -> f64 {
        asked.max(self.counted[0])
    }

    fn have_head(&self, thread: usize, slower: f64, machine: &mut Machine) {
        let busy = self.phase(thread).head_ns + slower;
        machine.push_all(thread, &[Step::Work(busy), Step::Call(LEAVE_HEAD, 0)]);
    }

    fn leave_head(&mut self, machine: &mut Machine) {
        if self.head_queue.is_empty() {
            self.head_busy = false;
            return;
        }
        let which = machine.random.usize(..self.head_queue.len());
        let (next, asked) = self.head_queue.swap_remove(which);
        // The slowdown by other waiters is waiting, too.
        let slower = self.costs.waiter * self.head_queue.len() as f64;
        self.waits[2] += machine.now + slower - self.since(asked);
        self.have_head(next, slower, machine);
        machine.wake(next, machine.now);
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
        machine.push_all(thread, &[work, Step::Call(VISIT, 0)]);
    }

    fn begin(&mut self, now: f64) {
        (self.counted, self.pages, self.waits) = ([now; 2], 0.0, [0.0; 3]);
    }

    fn call(&mut self, thread: usize, what: u32, _with: usize, machine: &mut Machine) {
        match what {
            VISIT => self.visit(thread, machine),
            WANT_HEAD if self.head_busy => {
                self.head_queue.push((thread, machine.now));
                machine.sleep(thread);
            }
            WANT_HEAD => {
                self.head_busy = true;
                self.have_head(thread, 0.0, machine);
            }
            LEAVE_HEAD => self.leave_head(machine),
            _ => self.leave(thread, machine),
        }
    }
}

#[cfg(test)]
mod tests;
