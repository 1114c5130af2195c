//! Ownership of a word, taken by compare-and-swap and waited for without sleeping.
//!
//! The top bit says that somebody owns the word. Who wants it spins, and lets other threads run
//! now and then; nobody is ever told that it came free, so the owner's way out is one store.

use crate::atomic::{AtomicU64, Ordering, spin_hint};
use crate::bitlock::LOCKED;
use crate::park;

/// Looks before others are let run.
const LOOKS: u32 = 64;

/// Takes a word for this thread alone and returns what it holds, without the top bit.
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
        // In userspace the owner may have been preempted.
        if looks.is_multiple_of(LOOKS) { park::let_others_run() } else { spin_hint() }
    }
}

/// Leaves `next` in a word that this thread owns.
#[inline]
pub fn disown(word: &AtomicU64, next: u64) {
    debug_assert_eq!(next & LOCKED, 0, "the top bit of an owned word is not its owner's");
    // Release pairs with the Acquire in `own`.
    word.store(next, Ordering::Release);
}
