//! Locks of the simulated machine: the steps of the locks in crates/sync, one by one.
//!
//! Each lock is a word in a line. A thread needs the line to look at the word, to try to take the
//! lock, and to leave it.

use super::lines::LineId;
use super::lock::{Lock, LockId, LockStep, Manner, Mode, Watcher};
use super::machine::{Machine, Step};

/// The version of a word that the thread has not looked at: the lock must be free.
const UNSEEN: u32 = u32::MAX;
/// Looks before the thread lets others run, as `LOOKS` in crates/sync/src/owned.rs.
const LOOKS: u32 = 64;

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
        // The fast path does not read the ticket.
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
                // Another thread asked before this look was over, and has the lock now.
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

    /// Spins until another CPU takes the line, or it is time to sleep.
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

    /// A CPU takes a line: each thread that watches it must get it again at its next look.
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

    /// The last step of a mutex: the swap that takes or marks it. For `Permits`, the only step.
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

    /// The wake-up system call. Each sleeper costs the waker some time.
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
