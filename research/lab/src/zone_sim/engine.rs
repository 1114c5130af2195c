//! One zone and its threads, event by event.
//!
//! The simulated machine of `locks_sim` knows lines and the product's own locks, which are not
//! fair. This module has the locks of the kernel's zones. The threads share two things:
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
use crate::events::Events;

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
    #[must_use]
    pub fn lock_wait_percent(&self) -> f64 {
        self.write_wait_percent + self.read_wait_percent
    }
}

/// The position of a thread: the step that is over at its event.
#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    /// The start.
    Begin,
    /// Its own work. Now it visits the zone.
    Work,
    /// A part of the section. Next comes a head, or the end of the visit.
    Section,
    /// A head of a list.
    Head,
}

/// The way in which a thread has the lock, or wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    None,
    Read,
    Write,
}

struct Thread {
    at: At,
    allocates: bool,
    /// Pages left in this phase.
    left: f64,
    way: Way,
    heads: u32,
    /// Time between two heads of a section.
    piece: f64,
    cycles: u32,
}

struct Engine<'a> {
    demand: &'a Demand,
    load: &'a Load,
    costs: &'a Costs,
    random: fastrand::Rng,
    /// The thread whose step is over.
    events: Events<usize>,
    threads: Vec<Thread>,
    writer: bool,
    readers: u32,
    last: usize,
    queue: VecDeque<(usize, f64)>,
    head_busy: bool,
    head_queue: Vec<(usize, f64)>,
    counts_since: Option<f64>,
    pages: f64,
    waits: [f64; 3],
    /// A flaw for tests: the lock lets all threads in.
    lets_all_in: bool,
}

/// Simulates a zone. The same arguments give the same result.
#[must_use]
pub fn simulate(demand: &Demand, load: &Load, costs: &Costs, seed: u64) -> Outcome {
    Engine::new(demand, load, costs, seed).run()
}

impl<'a> Engine<'a> {
    fn new(demand: &'a Demand, load: &'a Load, costs: &'a Costs, seed: u64) -> Engine<'a> {
        let thread = |_| Thread {
            at: At::Begin,
            allocates: true,
            left: load.pages,
            way: Way::None,
            heads: 0,
            piece: 0.0,
            cycles: 0,
        };
        Engine {
            demand,
            load,
            costs,
            random: fastrand::Rng::with_seed(seed),
            events: Events::new(),
            threads: (0..load.threads).map(thread).collect(),
            writer: false,
            readers: 0,
            last: usize::MAX,
            queue: VecDeque::new(),
            head_busy: false,
            head_queue: Vec::new(),
            counts_since: None,
            pages: 0.0,
            waits: [0.0; 3],
            lets_all_in: false,
        }
    }

    fn run(mut self) -> Outcome {
        let (threads, load) = (self.load.threads, self.load);
        // Without stagger each thread begins a nanosecond after the one before it.
        let whole = load.pages
            * (load.alloc_ns + load.free_ns + self.demand.per_page(self.costs.hand_off)).max(1.0);
        for thread in 0..threads {
            let begin = if load.stagger { self.chance() * whole } else { thread as f64 };
            self.wake(thread, At::Begin, begin);
        }
        let (warm, end) = (threads as u32, threads as u32 * (load.cycles + 1));
        let mut done = 0;
        let mut now = 0.0;
        while let Some((time, thread)) = self.events.next() {
            now = time;
            done += self.step(thread, now);
            if done >= warm && self.counts_since.is_none() {
                self.counts_since = Some(now);
                (self.pages, self.waits) = (0.0, [0.0; 3]);
            }
            if done >= end {
                break;
            }
        }
        let elapsed = (now - self.counts_since.unwrap_or(0.0)).max(1e-9);
        let percent = |wait: f64| 100.0 * wait / (elapsed * threads as f64);
        Outcome {
            pages_per_s: self.pages / elapsed * 1e9,
            write_wait_percent: percent(self.waits[0]),
            read_wait_percent: percent(self.waits[1]),
            head_wait_percent: percent(self.waits[2]),
        }
    }

    /// A random number from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.random.f64()
    }

    fn wake(&mut self, thread: usize, at: At, time: f64) {
        self.threads[thread].at = at;
        self.events.plan(time, thread);
    }

    fn visit(&self, thread: usize) -> &'a Visit {
        if self.threads[thread].allocates { &self.demand.alloc } else { &self.demand.free }
    }

    /// The pages of a thread until its next visit, or until the end of the phase.
    fn pages_until_visit(&self, thread: usize) -> f64 {
        self.visit(thread).pages.min(self.threads[thread].left)
    }

    /// Works on the pages of the last visit; in a phase without visits, on all pages.
    fn begin_work(&mut self, thread: usize, now: f64) {
        let pages = self.pages_until_visit(thread);
        let own = match self.threads[thread].allocates {
            true => self.load.alloc_ns,
            false => self.load.free_ns,
        };
        let over = now + pages * own;
        self.wake(thread, At::Work, over);
    }

    /// Does the next step of a thread. Returns the number of cycles it finished.
    fn step(&mut self, thread: usize, now: f64) -> u32 {
        match self.threads[thread].at {
            At::Begin => self.begin_work(thread, now),
            At::Work => return self.ask(thread, now),
            At::Section if self.threads[thread].heads > 0 => self.ask_head(thread, now),
            At::Section => return self.leave(thread, now),
            At::Head => {
                self.leave_head(now);
                let piece = self.threads[thread].piece;
                self.threads[thread].heads -= 1;
                // The last piece of the section is before the last head.
                let more = if self.threads[thread].heads > 0 { piece } else { 0.0 };
                self.wake(thread, At::Section, now + more);
            }
        }
        0
    }

    /// Requests the lock that the visit needs.
    fn ask(&mut self, thread: usize, now: f64) -> u32 {
        let visit = *self.visit(thread);
        if visit.pages.is_infinite() {
            return self.leave(thread, now);
        }
        let way = if visit.lockless > 0.0 && self.chance() < visit.lockless {
            Way::None
        } else if visit.reads > 0.0 && self.chance() < visit.reads {
            Way::Read
        } else {
            Way::Write
        };
        // The heads of a single visit are unknown: each visit has as many, on average.
        let heads = visit.heads.floor() + f64::from(u8::from(self.chance() < visit.heads.fract()));
        let own = match way {
            Way::None => 0.0,
            Way::Read => visit.read_ns,
            Way::Write => visit.write_ns,
        };
        let heads = heads as u32;
        let mine = &mut self.threads[thread];
        (mine.way, mine.heads, mine.piece) = (way, heads, own / f64::from(heads.max(1)));
        if way == Way::None {
            self.wake(thread, At::Section, now + own);
        } else if self.lets_all_in || (self.queue.is_empty() && self.is_open(way)) {
            let taken = if self.last == thread { 0.0 } else { self.costs.hand_off };
            self.enter(thread, now + taken);
        } else {
            self.queue.push_back((thread, now));
        }
        0
    }

    fn is_open(&self, way: Way) -> bool {
        !self.writer && (way == Way::Read || self.readers == 0)
    }

    fn enter(&mut self, thread: usize, when: f64) {
        match self.threads[thread].way {
            Way::Read => self.readers += 1,
            _ => self.writer = true,
        }
        self.last = thread;
        let piece = self.threads[thread].piece;
        self.wake(thread, At::Section, when + piece);
    }

    /// Ends the visit: waiters may come in, and the thread goes on with its work.
    fn leave(&mut self, thread: usize, now: f64) -> u32 {
        match self.threads[thread].way {
            Way::None => {}
            Way::Read => self.readers = self.readers.saturating_sub(1),
            Way::Write => self.writer = false,
        }
        self.threads[thread].way = Way::None;
        self.pass_on(now);
        let pages = self.pages_until_visit(thread);
        if self.threads[thread].allocates {
            self.pages += pages;
        }
        self.threads[thread].left -= pages;
        // After many visits, a rest of a page is a rounding error.
        let mut over = 0;
        if self.threads[thread].left < 1e-6 {
            let mine = &mut self.threads[thread];
            if mine.allocates && self.load.frees {
                mine.allocates = false;
            } else {
                mine.allocates = true;
                mine.cycles += 1;
                over = u32::from(mine.cycles <= self.load.cycles + 1);
            }
            mine.left = self.load.pages;
        }
        self.begin_work(thread, now);
        over
    }

    fn pass_on(&mut self, now: f64) {
        while let Some(&(thread, asked)) = self.queue.front() {
            let way = self.threads[thread].way;
            if !self.is_open(way) {
                return;
            }
            self.queue.pop_front();
            let when = now + self.costs.hand_off;
            let reads = usize::from(way == Way::Read);
            self.waits[reads] += when - self.since(asked);
            self.enter(thread, when);
        }
    }

    /// Waiting counts from the time at which measurement begins.
    fn since(&self, asked: f64) -> f64 {
        asked.max(self.counts_since.unwrap_or(0.0))
    }

    fn ask_head(&mut self, thread: usize, now: f64) {
        if self.head_busy {
            self.head_queue.push((thread, now));
        } else {
            self.head_busy = true;
            let head = self.visit(thread).head_ns;
            self.wake(thread, At::Head, now + head);
        }
    }

    fn leave_head(&mut self, now: f64) {
        if self.head_queue.is_empty() {
            self.head_busy = false;
            return;
        }
        let which = self.random.usize(..self.head_queue.len());
        let (thread, asked) = self.head_queue.swap_remove(which);
        let waiters = self.head_queue.len() as f64;
        // The slowdown by other waiters is waiting, too.
        let slower = self.costs.waiter * waiters;
        self.waits[2] += now + slower - self.since(asked);
        let busy = self.visit(thread).head_ns + slower;
        self.wake(thread, At::Head, now + busy);
    }
}

#[cfg(test)]
mod tests;
