//! A lock of the simulated machine: its word, its holders and its waiters.
//!
//! A version tells whether a word is still the one that a thread saw, so that a compare-and-swap
//! fails where the real one would. [`locking`](super::locking) has the steps by which a thread
//! takes a lock.

use super::lines::LineId;

/// The number of a lock.
pub type LockId = usize;

/// The way in which threads wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// `WaitQueues` (crates/sync/src/bitlock.rs): a thread looks and takes; it spins, marks,
    /// sleeps. A wake-up wakes all.
    WaitQueues,
    /// `SharedWaitQueues` (crates/sync/src/shared.rs): as `WaitQueues`, but readers come in
    /// together, unless a thread sleeps.
    Shared,
    /// `own` (crates/sync/src/owned.rs): a thread looks and takes, and never sleeps. Every 64th
    /// look lets other threads run.
    Owned,
    /// `Mutex` (crates/sync/src/mutex.rs): a thread takes without looking; it spins, sleeps. One is
    /// woken.
    Mutex,
    /// A mutex that spins while its owner runs, which here is always.
    SpinsOnOwner,
    /// At most this many threads are inside. A thread that finds no place sleeps at once; each
    /// thread that leaves wakes one. This is the idle list of streams in Linux 3.15.
    Permits(u32),
}

/// The mode of a lock: shared with readers, or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Shared with other readers, if the lock can do that.
    Read,
    /// Exclusive.
    Write,
}

/// A step of a thread at a lock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LockStep {
    /// Takes the lock.
    Take(LockId, Mode),
    /// Leaves the lock.
    Give(LockId, Mode),
    /// The thread has looked at the word: it takes the lock, spins on or sleeps.
    Decide(LockId, Mode, u32),
    /// The thread holds the line: it takes the lock, if the word still has this version.
    Try(LockId, Mode, u32, u32),
    /// The thread holds the line: it marks the word as waited for.
    Mark(LockId, Mode, u32, u32),
    /// Sleeps, if no thread has been woken since this ticket was taken.
    Sleep(LockId, Mode, u32),
    /// The thread holds the line: it takes the lock, or sleeps.
    TakeOrSleep(LockId),
    /// The thread holds the line: it has left the lock.
    Left(LockId, Mode),
    /// The thread holds the line of the wait queue: it wakes all its sleepers.
    Open(LockId),
}

/// A spinning thread: it looks at a line that stays unchanged until another CPU takes it.
///
/// All looks until then find the same, so they are not simulated one by one.
pub struct Watcher {
    pub(super) thread: usize,
    /// Its thread's call at the time. If the thread's call has changed, the watcher is out of date.
    pub(super) call: u64,
    pub(super) lock: LockId,
    pub(super) mode: Mode,
    /// Number of looks so far, the time of the last one, and the time between two.
    pub(super) spins: u32,
    pub(super) since: f64,
    pub(super) pause: f64,
}

/// A lock.
pub struct Lock {
    /// What it guards, for reports.
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

    /// Whether no thread is inside.
    pub(super) fn is_free(&self) -> bool {
        self.writers == 0 && self.readers == 0
    }

    pub(super) fn begin(&mut self, now: f64) {
        (self.held, self.held_since) = (0.0, now);
    }

    /// Whether it keeps readers out now, too.
    fn is_full(&self) -> bool {
        match self.manner {
            Manner::Permits(places) => self.writers >= places,
            _ => self.writers > 0,
        }
    }

    /// The time that it has kept other threads out since the beginning.
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
