//! Locks of the simulated machine: the steps of the locks in crates/sync, one by one.
//!
//! Each lock is a word in a line; whoever looks at it, tries to take it or leaves it needs the line
//! for that. A version says whether a word is still the one that was seen, so that a
//! compare-and-swap fails where the real one would.

use super::lines::LineId;
use super::machine::{Machine, Step};

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

/// Stands for a version when the word was not looked at: it must be that of a free lock.
const UNSEEN: u32 = u32::MAX;
/// Looks before others are let run, as `LOOKS` in crates/sync/src/owned.rs.
const LOOKS: u32 = 64;

/// Who spins: looks at a line that stays as it is until somebody takes it.
///
/// Each look in between would find the same, so they are not simulated one by one.
pub struct Watcher {
    thread: usize,
    /// Its thread's call at the time: it is out of date when that is another one.
    call: u64,
    lock: LockId,
    mode: Mode,
    /// Looks so far, the time of the last of them, and the time from one to the next.
    spins: u32,
    since: f64,
    pause: f64,
}

/// A lock.
pub struct Lock {
    /// What it guards, for people.
    pub what: &'static str,
    manner: Manner,
    line: LineId,
    queue: LineId,
    writers: u32,
    readers: u32,
    waited: bool,
    version: u32,
    ticket: u32,
    sleepers: Vec<usize>,
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
    fn is_free(&self) -> bool {
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

    fn admits(&self, mode: Mode, two: bool) -> bool {
        let most = if two { 2 } else { 1 };
        match (self.manner, mode) {
            (Manner::Permits(places), _) => self.writers < places,
            (Manner::Shared, Mode::Read) => self.writers < most && !self.waited,
            _ => self.writers < most && self.readers == 0,
        }
    }

    fn enter(&mut self, mode: Mode, now: f64) {
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

    fn leave(&mut self, mode: Mode, now: f64) {
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

impl Machine {
    /// Adds a lock and returns its number.
    pub fn add_lock(&mut self, lock: Lock) -> LockId {
        self.locks.push(lock);
        self.locks.len() - 1
    }

    fn look(&mut self, me: usize, id: LockId, mode: Mode, spins: u32) {
        let (line, queue) = (self.locks[id].line, self.locks[id].queue);
        self.push(me, Step::Lock(LockStep::Decide(id, mode, spins)));
        self.push(me, Step::Read(line));
        // The fast path does not look at the ticket.
        if spins > 0 && self.locks[id].manner != Manner::Owned {
            self.push(me, Step::Read(queue));
        }
    }

    fn own_then(&mut self, me: usize, line: LineId, step: LockStep) {
        self.push_all(me, &[Step::Own(line), Step::Lock(step)]);
    }

    pub(super) fn lock_step(&mut self, me: usize, step: LockStep) {
        let (now, two) = (self.now, self.lets_two_in);
        match step {
            LockStep::Take(id, mode) => {
                let lock = &self.locks[id];
                let line = lock.line;
                match (lock.manner, mode) {
                    (Manner::WaitQueues | Manner::Owned, _) | (Manner::Shared, Mode::Read) => {
                        self.look(me, id, mode, 0);
                    }
                    (Manner::Permits(_), _) => {
                        self.own_then(me, line, LockStep::TakeOrSleep(id));
                    }
                    _ => self.own_then(me, line, LockStep::Try(id, mode, UNSEEN, 0)),
                }
            }
            LockStep::Try(id, mode, seen, spins) => {
                let lock = &mut self.locks[id];
                let unseen = seen == UNSEEN && (lock.manner != Manner::Shared || !lock.waited);
                if (unseen || seen == lock.version) && lock.admits(mode, two) {
                    lock.enter(mode, now);
                } else {
                    self.look(me, id, mode, spins.max(1));
                }
            }
            LockStep::Decide(id, mode, spins) => self.decide(me, id, mode, spins),
            LockStep::Mark(id, mode, seen, ticket) => {
                let lock = &mut self.locks[id];
                if lock.version != seen {
                    return self.look(me, id, mode, self.costs.spins + 1);
                }
                (lock.waited, lock.version) = (true, lock.version + 1);
                let sleep = Step::Lock(LockStep::Sleep(id, mode, ticket));
                self.push_all(me, &[Step::Work(self.costs.system_call), sleep]);
            }
            LockStep::Sleep(id, mode, ticket) => {
                self.look(me, id, mode, self.costs.spins + 1);
                if self.locks[id].ticket == ticket {
                    self.locks[id].sleepers.push(me);
                    self.sleep(me);
                }
            }
            LockStep::TakeOrSleep(id) => self.take_or_sleep(me, id),
            LockStep::Give(id, mode) => {
                let line = self.locks[id].line;
                self.own_then(me, line, LockStep::Left(id, mode));
            }
            LockStep::Left(id, mode) => self.left(me, id, mode),
            LockStep::Open(id) => {
                let lock = &mut self.locks[id];
                lock.ticket += 1;
                let sleepers = std::mem::take(&mut lock.sleepers);
                self.rouse(me, sleepers);
            }
        }
    }

    fn decide(&mut self, me: usize, id: LockId, mode: Mode, spins: u32) {
        let two = self.lets_two_in;
        let lock = &self.locks[id];
        let (line, seen, ticket) = (lock.line, lock.version, lock.ticket);
        if lock.admits(mode, two) {
            return self.own_then(me, line, LockStep::Try(id, mode, seen, spins));
        }
        let most = match lock.manner {
            Manner::Owned | Manner::SpinsOnOwner => u32::MAX,
            _ => self.costs.spins,
        };
        if spins < most {
            let mut pause = self.costs.pause;
            if lock.manner == Manner::Owned {
                pause += (self.costs.system_call - pause) / f64::from(LOOKS);
            }
            if !self.lines.has(line, me) {
                // Taken meanwhile by somebody who asked before this look was over.
                self.look(me, id, mode, spins + 1);
                self.push(me, Step::Work(pause));
                return;
            }
            let (call, since) = (self.threads[me].call, self.now);
            self.watch(Watcher { thread: me, call, lock: id, mode, spins, since, pause });
        } else if lock.manner == Manner::Mutex {
            self.own_then(me, line, LockStep::TakeOrSleep(id));
        } else if lock.waited {
            let sleep = Step::Lock(LockStep::Sleep(id, mode, ticket));
            self.push_all(me, &[Step::Work(self.costs.system_call), sleep]);
        } else {
            self.own_then(me, line, LockStep::Mark(id, mode, seen, ticket));
        }
    }

    /// Spins until somebody takes the line, or it is time to sleep.
    fn watch(&mut self, watcher: Watcher) {
        let me = watcher.thread;
        self.threads[me].kept = self.threads[me].steps.len();
        let lock = &self.locks[watcher.lock];
        let line = lock.line;
        if !matches!(lock.manner, Manner::Owned | Manner::SpinsOnOwner) {
            let left = f64::from(self.costs.spins.saturating_sub(watcher.spins).max(1));
            self.wake_at(watcher.since + left * watcher.pause, me);
            self.look(me, watcher.lock, watcher.mode, self.costs.spins.max(1));
        }
        self.threads[me].watching = true;
        self.watchers.entry(line).or_default().push(watcher);
    }

    /// A line is taken: whoever looks at it will have to get it again, at the next look.
    pub(super) fn stir(&mut self, me: usize, line: LineId) {
        let Some(watchers) = self.watchers.get_mut(&line) else { return };
        for watcher in std::mem::take(watchers) {
            let thread = watcher.thread;
            let out_of_date = watcher.call != self.threads[thread].call;
            if thread == me || out_of_date || !self.threads[thread].watching {
                continue;
            }
            let Watcher { lock, mode, spins, since, pause, .. } = watcher;
            // The first look after this instant.
            let looks = ((self.now - since) / pause).floor() + 1.0;
            self.call_back(thread);
            self.threads[thread].watching = false;
            let kept = self.threads[thread].kept;
            self.threads[thread].steps.truncate(kept);
            let spins = spins.saturating_add(looks as u32).min(u32::MAX - 1);
            self.look(thread, lock, mode, spins);
            self.wake_at(since + looks * pause, thread);
        }
    }

    /// The last resort of a mutex: the swap that takes it or marks it; and all of `Permits`.
    fn take_or_sleep(&mut self, me: usize, id: LockId) {
        let (now, two) = (self.now, self.lets_two_in);
        let lock = &mut self.locks[id];
        let line = lock.line;
        let admitted = lock.admits(Mode::Write, two);
        if let Manner::Mutex | Manner::SpinsOnOwner = lock.manner {
            lock.waited = true;
        }
        if admitted {
            lock.enter(Mode::Write, now);
            return;
        }
        lock.sleepers.push(me);
        self.own_then(me, line, LockStep::TakeOrSleep(id));
        self.sleep(me);
    }

    fn left(&mut self, me: usize, id: LockId, mode: Mode) {
        let now = self.now;
        let lock = &mut self.locks[id];
        lock.leave(mode, now);
        let was_waited = lock.waited;
        match lock.manner {
            Manner::WaitQueues | Manner::Shared if was_waited && lock.is_free() => {
                lock.waited = false;
                let queue = lock.queue;
                self.own_then(me, queue, LockStep::Open(id));
            }
            Manner::Mutex | Manner::SpinsOnOwner if was_waited => {
                lock.waited = false;
                self.rouse_one(me, id);
            }
            Manner::Permits(_) if !lock.sleepers.is_empty() => self.rouse_one(me, id),
            _ => {}
        }
    }

    fn rouse_one(&mut self, me: usize, id: LockId) {
        let lock = &mut self.locks[id];
        let sleeper = (!lock.sleepers.is_empty()).then(|| lock.sleepers.remove(0));
        self.rouse(me, sleeper.into_iter().collect());
    }

    /// The system call that wakes: it costs whoever makes it a while for each sleeper.
    fn rouse(&mut self, me: usize, sleepers: Vec<usize>) {
        let mut busy = self.costs.system_call;
        for sleeper in sleepers {
            let wake = self.costs.wake(self.slept_for(sleeper) + busy);
            busy += wake.waker_ns;
            self.wake(sleeper, self.now + busy + wake.latency_ns);
        }
        self.push(me, Step::Work(busy));
    }
}
