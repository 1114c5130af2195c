//! The word of an entry that names its object. Compaction changes it while readers and evictors use
//! the entry, and beside the thread that frees the entry.
//!
//! A thread that changes or reads the word of another thread's entry is a reader of retired words
//! (`sync::Retired`). So is the thread that compacts. The thread that frees an entry takes the word
//! out when no such reader is left: it finds the last place of the object, and every earlier place
//! was retired by the thread that moved the object away from it.

use sync::atomic::{AtomicU64, Ordering};

/// Writes the word of an entry that no other thread knows. The object has been written.
#[inline]
pub fn set(word: &AtomicU64, object: u64) {
    // Release pairs with the Acquire in `get`.
    word.store(object, Ordering::Release);
}

/// The word. What it names can be read, as long as the entry is kept.
#[inline]
pub fn get(word: &AtomicU64) -> u64 {
    // Acquire pairs with the Release in `set` and `replace`.
    word.load(Ordering::Acquire)
}

/// Lets the word name the copy of an object, if it still names the object. Returns whether it did.
pub fn replace(word: &AtomicU64, object: u64, copy: u64) -> bool {
    // Release pairs with the Acquire in `get` and `take`: the copy has been written.
    word.compare_exchange(object, copy, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Adds `mark` to the word of an entry that no index names any more: from now on no [`replace`]
/// succeeds. Returns the word before, the last one that the entry has.
#[inline]
pub fn close(word: &AtomicU64, mark: u64) -> u64 {
    // Nothing is read behind the word here. Whoever reads it later pairs with `set` and `replace`.
    word.fetch_or(mark, Ordering::Relaxed)
}

/// Takes the word out of an entry that no thread keeps any more, and leaves `nothing`.
#[inline]
pub fn take(word: &AtomicU64, nothing: u64) -> u64 {
    // Acquire pairs with the Release in `set` and `replace`.
    word.swap(nothing, Ordering::Acquire)
}
