//! The futex that the flawed copies sleep on: the same model as in `src/park.rs`, which is private
//! to the crate. One queue is enough here, because everybody looks again when woken.

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};

loom::lazy_static! {
    static ref QUEUE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

/// Sleeps while `word` is `expected`.
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    let held = QUEUE.0.lock().expect("no thread of the model panics");
    if word.load(Ordering::Relaxed) == expected {
        drop(QUEUE.1.wait(held));
    }
}

/// Wakes every sleeper. `_word` is what changed.
pub(crate) fn wake_all(_word: &AtomicU32) {
    let _held = QUEUE.0.lock().expect("no thread of the model panics");
    QUEUE.1.notify_all();
}

/// Wakes one sleeper. `_word` is what changed; nobody sleeps on another.
pub(crate) fn wake_one(_word: &AtomicU32) {
    let _held = QUEUE.0.lock().expect("no thread of the model panics");
    QUEUE.1.notify_one();
}
