//! A lock in the top bits of a 64-bit word: spins briefly, then parks in a shared wait queue.
//!
//! The word has no room for a queue, so sleepers wait in one of a few wait queues (an event count
//! each) chosen by a key. A wait queue may hold sleepers of several words. A wake-up wakes all of
//! them, and each checks its word again.

use crate::CachePadded;
use crate::atomic::{AtomicU32, AtomicU64, Ordering, spin_hint};
use crate::park;

/// Set while a thread holds the word.
pub const LOCKED: u64 = 1 << 63;
/// Set while a thread sleeps for the word.
pub const WAITED: u64 = 1 << 62;
/// Bits of a word that belong to its owner.
pub const WORD_BITS: u32 = 62;

const OWN: u64 = !(LOCKED | WAITED);
const QUEUES: usize = 32;

/// The wait queues of threads that want a held word.
pub struct WaitQueues {
    tickets: [CachePadded<AtomicU32>; QUEUES],
}

impl Default for WaitQueues {
    fn default() -> WaitQueues {
        WaitQueues { tickets: core::array::from_fn(|_| CachePadded::new(AtomicU32::new(0))) }
    }
}

impl WaitQueues {
    /// Locks `word` and returns the owner's bits. `key` must be the same for each use of one word.
    #[inline]
    pub fn lock(&self, word: &AtomicU64, key: usize) -> u64 {
        let seen = word.load(Ordering::Relaxed);
        if seen & LOCKED == 0 && self.try_take(word, seen).is_ok() {
            return seen & OWN;
        }
        self.lock_slowly(word, key)
    }

    /// Locks `word` if it is free now, and returns the owner's bits.
    #[inline]
    pub fn try_lock(&self, word: &AtomicU64) -> Option<u64> {
        let seen = word.load(Ordering::Relaxed);
        (seen & LOCKED == 0 && self.try_take(word, seen).is_ok()).then_some(seen & OWN)
    }

    /// Stores the owner's bits `next` in `word` and unlocks it. Only the holder may call this.
    #[inline]
    pub fn unlock(&self, word: &AtomicU64, key: usize, next: u64) {
        debug_assert_eq!(next & !OWN, 0, "the top bits of a locked word are not its owner's");
        // Release pairs with the Acquire in `try_take` of the next holder.
        if word.swap(next & OWN, Ordering::Release) & WAITED != 0 {
            self.open(key);
        }
    }

    #[inline]
    fn try_take(&self, word: &AtomicU64, seen: u64) -> Result<u64, u64> {
        // Acquire pairs with the Release in `unlock`.
        word.compare_exchange_weak(seen, seen | LOCKED, Ordering::Acquire, Ordering::Relaxed)
    }

    #[cold]
    fn lock_slowly(&self, word: &AtomicU64, key: usize) -> u64 {
        let queue = self.queue(key);
        let mut spins = 0;
        loop {
            // Acquire pairs with the Release in `open`: a new ticket comes with the unlocked word,
            // so an old ticket below always belongs to a word not yet unlocked.
            let ticket = queue.load(Ordering::Acquire);
            let seen = word.load(Ordering::Relaxed);
            if seen & LOCKED == 0 {
                if self.try_take(word, seen).is_ok() {
                    return seen & OWN;
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

    /// The wait queue of a key, for a lock of another kind on these queues.
    pub fn queue(&self, key: usize) -> &AtomicU32 {
        &self.tickets[key % QUEUES]
    }

    /// Wakes every sleeper in the wait queue of a key.
    #[cold]
    pub fn open(&self, key: usize) {
        let queue = self.queue(key);
        // Release pairs with the Acquire of the threads that take a ticket.
        queue.fetch_add(1, Ordering::Release);
        park::wake_all(queue);
    }
}
