//! A gate: a lock that threads hold, or a cache line that one CPU at a time changes.
//!
//! Waiters come in by the order of their requests, and the next shared ones together, until one
//! wants the gate alone: as at Linux's queued spin lock and its fair read-write lock. A waiter that
//! has slept is only woken, and then has to ask again, as at the product's locks.

use std::collections::VecDeque;

/// The number of a gate.
pub type GateId = usize;

/// How a gate is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Shared with others that read.
    Read,
    /// Exclusive.
    Write,
}

/// What sleeping costs, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sleep {
    /// How long a waiter spins before it sleeps.
    pub after: f64,
    /// How long the thread is busy that wakes it.
    pub waker: f64,
    /// How long it takes then to run.
    pub latency: f64,
}

struct Waiter {
    thread: usize,
    mode: Mode,
    asked: f64,
}

/// A waiter whose turn it is.
pub(super) struct Next {
    pub thread: usize,
    pub mode: Mode,
    /// The time until it goes on.
    pub after: f64,
    /// Whether it was asleep: then it is not inside.
    pub asleep: bool,
    /// The time that waking it takes.
    pub waker: f64,
}

/// A gate. Times are nanoseconds.
pub struct Gate {
    /// Its name in reports.
    pub what: &'static str,
    /// How many threads it lets in that want it exclusively.
    pub places: u32,
    /// The time to take it, free, from another thread.
    pub fresh: f64,
    /// The time to take it again.
    pub local: f64,
    /// The time to hand it to a waiter.
    pub hand_off: f64,
    /// Waiters come in by chance, and each that still waits makes its turn so much longer.
    pub crowd: Option<f64>,
    /// What waiters do that spin in vain; without, they spin for ever.
    pub sleep: Option<Sleep>,
    /// Who is inside and who waits.
    pub state: State,
}

/// The threads at a gate.
#[derive(Default)]
pub struct State {
    writers: u32,
    readers: u32,
    last: Option<usize>,
    queue: VecDeque<Waiter>,
    busy: f64,
    busy_since: f64,
    pub(super) waited: [f64; 2],
}

impl Gate {
    /// A gate that goes from one thread to another in `hand_off` nanoseconds.
    pub fn new(what: &'static str, hand_off: f64) -> Gate {
        Gate {
            what,
            places: 1,
            fresh: hand_off,
            local: 0.0,
            hand_off,
            crowd: None,
            sleep: None,
            state: State::default(),
        }
    }

    /// Restarts the counts.
    pub(super) fn begin(&mut self, now: f64) {
        let state = &mut self.state;
        (state.busy, state.busy_since, state.waited) = (0.0, now, [0.0; 2]);
    }

    fn is_full(&self) -> bool {
        self.state.writers >= self.places
    }

    /// The time that it has kept other threads out since the beginning.
    pub(super) fn busy_until(&self, now: f64) -> f64 {
        if self.is_full() { self.state.busy + now - self.state.busy_since } else { self.state.busy }
    }

    fn is_open(&self, mode: Mode) -> bool {
        !self.is_full() && (mode == Mode::Read || self.state.readers == 0)
    }

    /// Whether a thread that comes now gets in. Waiters that sleep keep out only those that would
    /// read beside others.
    pub(super) fn admits(&self, mode: Mode) -> bool {
        let is_free = self.state.writers == 0 && self.state.readers == 0;
        let passes = self.sleep.is_some() && (mode == Mode::Write || is_free);
        (self.state.queue.is_empty() || passes) && self.is_open(mode)
    }

    /// Lets a thread in, and returns the time that taking the gate takes.
    pub(super) fn enter(&mut self, thread: usize, mode: Mode, now: f64) -> f64 {
        let was_full = self.is_full();
        match mode {
            Mode::Read => self.state.readers += 1,
            Mode::Write => self.state.writers += 1,
        }
        if !was_full && self.is_full() {
            self.state.busy_since = now;
        }
        let from = self.state.last.replace(thread);
        if from == Some(thread) { self.local } else { self.fresh }
    }

    pub(super) fn wait(&mut self, thread: usize, mode: Mode, asked: f64) {
        self.state.queue.push_back(Waiter { thread, mode, asked });
    }

    pub(super) fn leave(&mut self, mode: Mode, now: f64) {
        let was_full = self.is_full();
        match mode {
            Mode::Read => self.state.readers -= 1,
            Mode::Write => self.state.writers -= 1,
        }
        if was_full && !self.is_full() {
            self.state.busy += now - self.state.busy_since;
        }
    }

    /// The next waiter that may go on now. It is inside, unless it was asleep.
    pub(super) fn next(
        &mut self,
        now: f64,
        began: f64,
        random: &mut fastrand::Rng,
    ) -> Option<Next> {
        let spins = |waiter: &Waiter| self.sleep.is_none_or(|s| now - waiter.asked <= s.after);
        let at = match self.crowd {
            _ if self.state.queue.is_empty() => return None,
            Some(_) => random.usize(..self.state.queue.len()),
            None => self.state.queue.iter().position(spins).unwrap_or(0),
        };
        if !self.is_open(self.state.queue[at].mode) {
            return None;
        }
        let asleep = !spins(&self.state.queue[at]);
        let Waiter { thread, mode, asked } = self.state.queue.remove(at)?;
        let sleep = self.sleep.filter(|_| asleep);
        let crowded = self.crowd.map(|each| each * self.state.queue.len() as f64);
        let after = sleep.map_or(crowded.unwrap_or(self.hand_off), |sleep| sleep.latency);
        self.state.waited[mode as usize] += now + after - asked.max(began);
        if !asleep {
            self.enter(thread, mode, now);
        }
        Some(Next { thread, mode, after, asleep, waker: sleep.map_or(0.0, |sleep| sleep.waker) })
    }
}
