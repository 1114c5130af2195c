//! A reader-writer lock in a 64-bit word of its own: a waiter spins briefly, then parks in a shared
//! wait queue.
//!
//! The low bits count readers, [`LOCKED`] marks a writer, [`WAITED`] marks a sleeper. While a
//! thread sleeps, no new reader enters, so that readers in turn cannot starve a writer.

use sync::atomic::{AtomicU64, Ordering, spin_hint};
use sync::{LOCKED, WAITED, WaitQueues, park};

const READERS: u64 = !(LOCKED | WAITED);

/// The wait queues of threads that want a word that other threads read or write.
#[derive(Default)]
pub struct SharedWaitQueues {
    queues: WaitQueues,
}

impl SharedWaitQueues {
    /// Locks `word` for reading. `key` must be the same for each use of one word. Not re-entrant.
    #[inline]
    pub fn read(&self, word: &AtomicU64, key: usize) {
        if !self.try_read(word) {
            self.wait_for(word, key, admits_reader, |seen| seen + 1);
        }
    }

    /// Locks `word` for reading if that is possible now.
    #[inline]
    pub fn try_read(&self, word: &AtomicU64) -> bool {
        let seen = word.load(Ordering::Relaxed);
        admits_reader(seen) && try_swap(word, seen, seen + 1)
    }

    /// Ends a [`SharedWaitQueues::read`].
    #[inline]
    pub fn end_read(&self, word: &AtomicU64, key: usize) {
        // Release pairs with the Acquire in `try_swap` of the next writer.
        if word.fetch_sub(1, Ordering::Release) == WAITED | 1 {
            self.end_last_read(word, key);
        }
    }

    /// Locks `word` for writing.
    #[inline]
    pub fn write(&self, word: &AtomicU64, key: usize) {
        if !self.try_write(word) {
            self.wait_for(word, key, admits_writer, |seen| seen | LOCKED);
        }
    }

    /// Locks `word` for writing if that is possible now, and nobody waits.
    #[inline]
    pub fn try_write(&self, word: &AtomicU64) -> bool {
        try_swap(word, 0, LOCKED)
    }

    /// Ends a [`SharedWaitQueues::write`].
    #[inline]
    pub fn end_write(&self, word: &AtomicU64, key: usize) {
        // Release pairs with the Acquire in `try_swap` of the next holder.
        if word.swap(0, Ordering::Release) & WAITED != 0 {
            self.queues.open(key);
        }
    }

    #[cold]
    fn end_last_read(&self, word: &AtomicU64, key: usize) {
        // If a writer took the word with the mark in it, that writer wakes the wait queue.
        if word.compare_exchange(WAITED, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.queues.open(key);
        }
    }

    #[cold]
    fn wait_for(
        &self,
        word: &AtomicU64,
        key: usize,
        admits: fn(u64) -> bool,
        taken: fn(u64) -> u64,
    ) {
        let queue = self.queues.queue(key);
        let mut spins = 0;
        loop {
            // Acquire pairs with the Release in `WaitQueues::open`: a new ticket comes with the
            // word as it was unlocked, so an old ticket below always belongs to a word not yet
            // unlocked.
            let ticket = queue.load(Ordering::Acquire);
            let seen = word.load(Ordering::Relaxed);
            if admits(seen) {
                if try_swap(word, seen, taken(seen)) {
                    return;
                }
                continue;
            }
            if spins < park::SPINS {
                spins += 1;
                spin_hint();
                continue;
            }
            let marked = seen & WAITED != 0
                || word
                    .compare_exchange_weak(
                        seen,
                        seen | WAITED,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    )
                    .is_ok();
            if marked {
                park::wait(queue, ticket);
            }
        }
    }
}

fn admits_reader(seen: u64) -> bool {
    seen & (LOCKED | WAITED) == 0
}

fn admits_writer(seen: u64) -> bool {
    seen & (LOCKED | READERS) == 0
}

#[inline]
fn try_swap(word: &AtomicU64, seen: u64, next: u64) -> bool {
    // Acquire pairs with the Release in `end_read` and `end_write`.
    word.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed).is_ok()
}
