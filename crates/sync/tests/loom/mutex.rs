//! The mutex.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use sync::{Mutex, MutexGuard};

use crate::{DEADLOCK, RACE, bounded, every, refused};

/// `threads` threads, this one among them, each add one `rounds` times under the lock.
fn all_add(threads: usize, rounds: usize) {
    let sum = Arc::new(Mutex::new(UnsafeCell::new(0)));
    let add = move |sum: &Mutex<UnsafeCell<usize>>| {
        for _ in 0..rounds {
            let held = sum.lock();
            // SAFETY: loom checks that this is the only access.
            held.with_mut(|sum| unsafe { *sum += 1 });
        }
    };
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let sum = sum.clone();
            thread::spawn(move || add(&sum))
        })
        .collect();
    add(&sum);
    for other in others {
        other.join().expect("no thread of the model panics");
    }
    // SAFETY: as above.
    sum.lock().with(|sum| assert_eq!(unsafe { *sum }, threads * rounds));
}

#[test]
fn two_threads_exclude_each_other_and_both_finish() {
    every(|| all_add(2, 2));
}

#[test]
fn three_threads_exclude_each_other_and_all_finish() {
    bounded(3, || all_add(3, 1));
}

/// Trying in vain leaves the lock as it is: who tries and then waits must not come in beside the
/// holder.
#[test]
fn trying_excludes_and_never_waits() {
    every(|| {
        let sum = Arc::new(Mutex::new(UnsafeCell::new(0)));
        let add = |held: MutexGuard<'_, UnsafeCell<usize>>| {
            // SAFETY: loom checks that this is the only access.
            held.with_mut(|sum| unsafe { *sum += 1 });
        };
        let other = {
            let sum = sum.clone();
            thread::spawn(move || {
                add(sum.lock());
                add(sum.lock());
            })
        };
        let taken = sum.try_lock().map(add).is_some();
        add(sum.lock());
        other.join().expect("no thread of the model panics");
        // SAFETY: as above.
        sum.lock().with(|sum| assert_eq!(unsafe { *sum }, 3 + usize::from(taken)));
    });
}

/// A copy of the mutex, with room for flaws.
mod copy {
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU32, Ordering};

    use crate::futex;

    /// What is wrong with it.
    #[derive(Clone, Copy, PartialEq)]
    pub(super) enum Flaw {
        None,
        /// Who goes to sleep leaves no mark for the one who unlocks.
        NoMark,
        /// Unlocking does not release what was written under the lock.
        NoRelease,
        /// Locking does not acquire what was written before.
        NoAcquire,
        /// Locking looks first and takes then.
        NotAtomic,
    }

    pub(super) struct Copy {
        state: AtomicU32,
        pub(super) sum: UnsafeCell<usize>,
        flaw: Flaw,
    }

    impl Copy {
        pub(super) fn new(flaw: Flaw) -> Copy {
            Copy { state: AtomicU32::new(0), sum: UnsafeCell::new(0), flaw }
        }

        fn try_acquire(&self) -> bool {
            if self.flaw == Flaw::NotAtomic {
                let free = self.state.load(Ordering::Acquire) == 0;
                if free {
                    self.state.store(1, Ordering::Relaxed);
                }
                return free;
            }
            self.state.compare_exchange(0, 1, self.acquire(), Ordering::Relaxed).is_ok()
        }

        fn acquire(&self) -> Ordering {
            if self.flaw == Flaw::NoAcquire { Ordering::Relaxed } else { Ordering::Acquire }
        }

        pub(super) fn lock(&self) {
            if self.try_acquire() {
                return;
            }
            let mark = if self.flaw == Flaw::NoMark { 1 } else { 2 };
            while self.state.swap(mark, self.acquire()) != 0 {
                futex::wait(&self.state, mark);
            }
        }

        pub(super) fn unlock(&self) {
            let order =
                if self.flaw == Flaw::NoRelease { Ordering::Relaxed } else { Ordering::Release };
            if self.state.swap(0, order) == 2 {
                futex::wake_all(&self.state);
            }
        }
    }

    // SAFETY: that it excludes is what loom is to judge.
    unsafe impl Send for Copy {}
    // SAFETY: as above.
    unsafe impl Sync for Copy {}
}

fn copies_add(flaw: copy::Flaw) {
    let mutex = Arc::new(copy::Copy::new(flaw));
    let add = |mutex: &copy::Copy| {
        mutex.lock();
        // SAFETY: loom checks that this is the only access.
        mutex.sum.with_mut(|sum| unsafe { *sum += 1 });
        mutex.unlock();
    };
    let other = {
        let mutex = mutex.clone();
        thread::spawn(move || add(&mutex))
    };
    add(&mutex);
    other.join().expect("no thread of the model panics");
}

#[test]
fn a_faithful_copy_passes() {
    every(|| copies_add(copy::Flaw::None));
}

#[test]
fn forgetting_who_sleeps_is_found() {
    refused(DEADLOCK, || copies_add(copy::Flaw::NoMark));
}

#[test]
fn unlocking_without_release_is_found() {
    refused(RACE, || copies_add(copy::Flaw::NoRelease));
}

#[test]
fn locking_without_acquire_is_found() {
    refused(RACE, || copies_add(copy::Flaw::NoAcquire));
}

#[test]
fn taking_in_two_steps_is_found() {
    refused(RACE, || copies_add(copy::Flaw::NotAtomic));
}
