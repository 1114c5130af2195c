//! The mutex that spins on its owner.
//!
//! Who spins lets others go on. So that it may also spin in vain and sleep, the holder lets others
//! go on as well.

use std::sync::Arc;

use designs::locks::OwnerMutex;
use loom::cell::UnsafeCell;
use loom::thread;
use units::Cpu;

use crate::{DEADLOCK, RACE, at_once, bounded, every, refused};

/// Threads on these CPUs, this one the first, each add one `rounds` times under the lock.
fn all_add(cpus: &'static [u32], rounds: usize) {
    let sum = Arc::new(OwnerMutex::new(UnsafeCell::new(0)));
    at_once(&sum, cpus, move |sum, cpu| {
        for _ in 0..rounds {
            let held = sum.lock(Cpu(cpu));
            thread::yield_now();
            // SAFETY: loom checks that this is the only access.
            held.with_mut(|sum| unsafe { *sum += 1 });
        }
    });
    // SAFETY: as above.
    sum.lock(Cpu(0)).with(|sum| assert_eq!(unsafe { *sum }, cpus.len() * rounds));
}

#[test]
fn two_threads_exclude_each_other_and_both_finish() {
    every(|| all_add(&[0, 1], 1));
    bounded(3, || all_add(&[0, 1], 2));
}

/// One of them was preempted by the other, who sleeps at once.
#[test]
fn two_threads_on_a_cpu_both_finish() {
    every(|| all_add(&[0, 0], 1));
    bounded(3, || all_add(&[0, 0], 2));
}

#[test]
fn three_threads_exclude_each_other_and_all_finish() {
    bounded(2, || all_add(&[0, 1, 2], 1));
}

/// One may spin, and the other two sleep.
#[test]
fn spinners_and_sleepers_all_finish() {
    bounded(2, || all_add(&[0, 0, 1], 1));
    bounded(2, || all_add(&[0, 0, 0], 1));
}

#[test]
fn the_highest_cpus_have_names_too() {
    every(|| all_add(&[u32::MAX, u32::MAX >> 3], 1));
}

/// A copy of the lock, with room for flaws.
mod copy {
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU32, Ordering};

    use crate::futex;

    /// What is wrong with it.
    #[derive(Clone, Copy, PartialEq)]
    pub(super) enum Flaw {
        None,
        /// Who spun and goes to sleep leaves its name in the word.
        StaysSpinner,
        /// The one who was woken does not say that others may sleep.
        Forgets,
        /// Who goes to sleep writes the word it saw.
        MarkByStore,
        /// Unlocking does not release what was written under the lock.
        NoRelease,
    }

    const SLEEPERS: u32 = 1;
    const SPINNER: u32 = 2;
    const HELD: u32 = 4;

    pub(super) struct Copy {
        pub(super) flaw: Flaw,
        pub(super) state: AtomicU32,
        pub(super) sum: UnsafeCell<usize>,
    }

    // SAFETY: that it excludes is what loom is to judge.
    unsafe impl Send for Copy {}
    // SAFETY: as above.
    unsafe impl Sync for Copy {}

    impl Copy {
        pub(super) fn new(flaw: Flaw) -> Copy {
            Copy { flaw, state: AtomicU32::new(0), sum: UnsafeCell::new(0) }
        }

        fn swap(&self, seen: u32, next: u32) -> bool {
            self.state.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed).is_ok()
        }

        /// Every holder is on a CPU of its own, if `spins`, and on the waiter's otherwise.
        pub(super) fn lock(&self, spins: bool) {
            let (mut spun, mut is_spinner, mut slept) = (false, false, 0);
            loop {
                let seen = self.state.load(Ordering::Relaxed);
                let own = if is_spinner { SPINNER } else { 0 };
                let others = (seen & !own) | slept;
                if seen & HELD == 0 {
                    if self.swap(seen, others | HELD) {
                        return;
                    }
                } else if spins && !spun {
                    if seen & SPINNER == 0 {
                        is_spinner = self.swap(seen, seen | SPINNER);
                        continue;
                    }
                    spun = true;
                    loom::thread::yield_now();
                } else {
                    let kept = if self.flaw == Flaw::StaysSpinner { seen & SPINNER } else { 0 };
                    let next = others | SLEEPERS | kept;
                    if self.flaw == Flaw::MarkByStore {
                        self.state.store(next, Ordering::Relaxed);
                    } else if seen != next && !self.swap(seen, next) {
                        continue;
                    }
                    futex::wait(&self.state, next);
                    let forgets = self.flaw == Flaw::Forgets;
                    (spun, is_spinner) = (false, false);
                    slept = if forgets { 0 } else { SLEEPERS };
                }
            }
        }

        pub(super) fn unlock(&self) {
            let order =
                if self.flaw == Flaw::NoRelease { Ordering::Relaxed } else { Ordering::Release };
            let waiters = self.state.fetch_sub(HELD, order) - HELD;
            let sleepers_alone = waiters == SLEEPERS
                && self
                    .state
                    .compare_exchange(SLEEPERS, 0, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if sleepers_alone {
                futex::wake_one(&self.state);
            }
        }
    }
}

/// Threads that add; each of them says whether it spins.
fn copies_add(flaw: copy::Flaw, threads: &'static [bool]) {
    let lock = Arc::new(copy::Copy::new(flaw));
    at_once(&lock, threads, |lock, spins| {
        lock.lock(spins);
        thread::yield_now();
        // SAFETY: loom checks that this is the only access.
        lock.sum.with_mut(|sum| unsafe { *sum += 1 });
        lock.unlock();
    });
}

#[test]
fn a_faithful_copy_passes() {
    every(|| copies_add(copy::Flaw::None, &[true, true]));
    bounded(2, || copies_add(copy::Flaw::None, &[false, false, false]));
}

#[test]
fn sleeping_under_the_name_of_a_spinner_is_found() {
    refused(DEADLOCK, || copies_add(copy::Flaw::StaysSpinner, &[true, true]));
}

#[test]
fn forgetting_other_sleepers_is_found() {
    refused(DEADLOCK, || copies_add(copy::Flaw::Forgets, &[false, false, false]));
}

#[test]
fn marking_by_a_plain_store_is_found() {
    // The word that is written says that somebody holds the lock, who may have left.
    refused(&[DEADLOCK[0], RACE[0]], || copies_add(copy::Flaw::MarkByStore, &[false, false]));
}

#[test]
fn unlocking_without_release_is_found() {
    refused(RACE, || copies_add(copy::Flaw::NoRelease, &[true, true]));
}
