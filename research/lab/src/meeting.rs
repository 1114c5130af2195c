//! A barrier at which threads spin before they let others run.

use sync::CachePadded;
use sync::atomic::{AtomicBool, AtomicU64, Ordering, spin_hint};

/// Spinning iterations before a thread lets others run.
const SPINS: u32 = 2000;

/// A place where a fixed number of threads meet, again and again.
pub struct Meeting {
    threads: u64,
    arrived: CachePadded<AtomicU64>,
    done: CachePadded<AtomicU64>,
    off: AtomicBool,
}

impl Meeting {
    /// A meeting of `threads` threads.
    pub fn new(threads: usize) -> Meeting {
        Meeting {
            threads: threads as u64,
            arrived: CachePadded::new(AtomicU64::new(0)),
            done: CachePadded::new(AtomicU64::new(0)),
            off: AtomicBool::new(false),
        }
    }

    /// Waits until all threads have come, or one has left for ever.
    pub fn wait(&self) {
        // AcqRel pairs with the Acquire below and with itself: work before the meeting is visible
        // after it.
        let ticket = self.arrived.fetch_add(1, Ordering::AcqRel);
        let goal = (ticket / self.threads + 1) * self.threads;
        let mut turns = 0;
        // Acquire pairs with the AcqRel above.
        while self.arrived.load(Ordering::Acquire) < goal && !self.is_off() {
            turns += 1;
            if turns < SPINS {
                spin_hint();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Tells that this thread has done its part, and goes on only for the others.
    pub fn finish(&self) {
        // Relaxed: it publishes nothing.
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all threads have done their part.
    pub fn all_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.threads || self.is_off()
    }

    fn is_off(&self) -> bool {
        // Relaxed: it publishes nothing.
        self.off.load(Ordering::Relaxed)
    }

    /// Registers a thread as long as the result lives. If it panics, the others do not wait for it.
    pub fn take_part(&self) -> Part<'_> {
        Part(self)
    }
}

/// A thread's part in a meeting.
pub struct Part<'a>(&'a Meeting);

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.off.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn nobody_goes_on_before_all_have_come() {
        const ROUNDS: u64 = 200;
        let (meeting, counter) = (&Meeting::new(3), &AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(move || {
                    let _part = meeting.take_part();
                    for round in 1..=ROUNDS {
                        counter.fetch_add(1, Ordering::Relaxed);
                        meeting.wait();
                        assert!(counter.load(Ordering::Relaxed) >= 3 * round);
                        meeting.wait();
                    }
                });
            }
        });
        assert_eq!(counter.load(Ordering::Relaxed), 3 * ROUNDS);
    }

    #[test]
    fn nobody_waits_for_who_panicked() {
        let meeting = &Meeting::new(2);
        thread::scope(|scope| {
            let lost = scope.spawn(move || {
                let _part = meeting.take_part();
                std::panic::resume_unwind(Box::new("lost on the way"));
            });
            let waits = scope.spawn(move || meeting.wait());
            assert!(lost.join().is_err());
            waits.join().expect("it went on");
        });
        assert!(meeting.all_done());
    }
}
