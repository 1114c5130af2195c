//! A lock of the simulated machine: its word, who is inside and who waits.
//!
//! A version says whether a word is still the one that was seen, so that a compare-and-swap fails
//! where the real one would. How a thread takes a lock, step by step, stands in
//! [`locking`](super::locking).

use super::lines::LineId;

/// A lock's number.
pub type LockId = usize;

/// How a lock is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// As `WaitQueues` (crates/sync/src/bitlock.rs): looks, takes; spins, marks, sleeps; all are
    /// woken.
    WaitQueues,
    /// As `SharedWaitQueues` (crates/sync/src/shared.rs): the same, and readers come in together,
    /// but not while somebody sleeps.
    Shared,
    /// As `own` (crates/sync/src/owned.rs): looks and takes, and never sleeps; every 64th look lets
    /// others run.
    Owned,
    /// As `Mutex` (crates/sync/src/mutex.rs): takes without looking; spins, sleeps; one is woken.
    Mutex,
    /// A mutex that spins as long as its owner runs, which here is for ever.
    SpinsOnOwner,
    /// So many may be inside; who finds no place sleeps at once, and one is woken for each that
    /// leaves: the idle list of streams in Linux 3.15.
    Permits(u32),
}

/// With others who read, or alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Beside other readers, where the lock can do that.
    Read,
    /// Alone.
    Write,
}

/// A part of what is done with a lock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LockStep {
    /// Takes it.
    Take(LockId, Mode),
    /// Leaves it.
    Give(LockId, Mode),
    /// Having looked at the word: takes it, spins on or sleeps.
    Decide(LockId, Mode, u32),
    /// Having the line: takes the lock, if the word is still the one of this version.
    Try(LockId, Mode, u32, u32),
    /// Having the line: marks the word as waited for.
    Mark(LockId, Mode, u32, u32),
    /// Sleeps, if nobody has been woken since this ticket was taken.
    Sleep(LockId, Mode, u32),
    /// Having the line: takes the lock, or sleeps.
    TakeOrSleep(LockId),
    /// Having the line: the lock is left.
    Left(LockId, Mode),
    /// Has the line of the wait queue: everybody in it is woken.
    Open(LockId),
}

/// Who spins: looks at a line that stays as it is until somebody takes it.
///
/// Each look in between would find the same, so they are not simulated one by one.
pub struct Watcher {
    pub(super) thread: usize,
    /// Its thread's call at the time: it is out of date when that is another one.
    pub(super) call: u64,
    pub(super) lock: LockId,
    pub(super) mode: Mode,
    /// Looks so far, the time of the last of them, and the time from one to the next.
    pub(super) spins: u32,
    pub(super) since: f64,
    pub(super) pause: f64,
}

/// A lock.
pub struct Lock {
    /// What it guards, for people.
    pub what: &'static str,
    pub(super) manner: Manner,
    pub(super) line: LineId,
    pub(super) queue: LineId,
    writers: u32,
    readers: u32,
    pub(super) waited: bool,
    pub(super) version: u32,
    pub(super) ticket: u32,
    pub(super) sleepers: Vec<usize>,
    held: f64,
    held_since: f64,
}

impl Lock {
    /// A free lock in `line`, whose waiters watch `queue`.
    pub fn new(what: &'static str, manner: Manner, line: LineId, queue: LineId) -> Lock {
        Lock {
            what,
            manner,
            line,
            queue,
            writers: 0,
            readers: 0,
            waited: false,
            version: 0,
            ticket: 0,
            sleepers: Vec::new(),
            held: 0.0,
            held_since: 0.0,
        }
    }

    /// Whether nobody is inside.
    pub(super) fn is_free(&self) -> bool {
        self.writers == 0 && self.readers == 0
    }

    pub(super) fn begin(&mut self, now: f64) {
        (self.held, self.held_since) = (0.0, now);
    }

    /// Whether it keeps others out now, not only writers.
    fn is_full(&self) -> bool {
        match self.manner {
            Manner::Permits(places) => self.writers >= places,
            _ => self.writers > 0,
        }
    }

    /// For how long it kept others out, since the beginning.
    pub(super) fn held_until(&self, now: f64) -> f64 {
        if self.is_full() { self.held + now - self.held_since } else { self.held }
    }

    pub(super) fn admits(&self, mode: Mode, two: bool) -> bool {
        let most = if two { 2 } else { 1 };
        match (self.manner, mode) {
            (Manner::Permits(places), _) => self.writers < places,
            (Manner::Shared, Mode::Read) => self.writers < most && !self.waited,
            _ => self.writers < most && self.readers == 0,
        }
    }

    pub(super) fn enter(&mut self, mode: Mode, now: f64) {
        let was_full = self.is_full();
        match mode {
            Mode::Read if self.manner == Manner::Shared => self.readers += 1,
            _ => self.writers += 1,
        }
        if !was_full && self.is_full() {
            self.held_since = now;
        }
        self.version += 1;
    }

    pub(super) fn leave(&mut self, mode: Mode, now: f64) {
        let was_full = self.is_full();
        match mode {
            Mode::Read if self.manner == Manner::Shared => self.readers -= 1,
            _ => self.writers -= 1,
        }
        self.version += 1;
        if was_full && !self.is_full() {
            self.held += now - self.held_since;
        }
    }
}
