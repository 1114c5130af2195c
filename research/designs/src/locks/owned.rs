//! Ownership of a word: taken by compare-and-swap, waited for without sleeping.
//!
//! The top bit says that a thread owns the word. A waiter spins, and lets other threads run now and
//! then. No thread is woken when the word becomes free, so the owner releases it with one store.

use sync::atomic::{AtomicU64, Ordering, spin_hint};
use sync::{LOCKED, park};

/// Looks at the word before other threads are let run.
const LOOKS: u32 = 64;

/// Takes a word for this thread alone, and returns its value without the top bit.
#[inline]
pub fn own(word: &AtomicU64) -> u64 {
    let mut looks = 0u32;
    loop {
        let seen = word.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `disown`.
        if seen & LOCKED == 0
            && word
                .compare_exchange_weak(seen, seen | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return seen;
        }
        looks += 1;
        // The owner may have been preempted.
        if looks.is_multiple_of(LOOKS) { park::let_others_run() } else { spin_hint() }
    }
}

/// Stores `next` in a word that this thread owns, and releases the word.
#[inline]
pub fn disown(word: &AtomicU64, next: u64) {
    debug_assert_eq!(next & LOCKED, 0, "the top bit of an owned word is not its owner's");
    // Release pairs with the Acquire in `own`.
    word.store(next, Ordering::Release);
}
