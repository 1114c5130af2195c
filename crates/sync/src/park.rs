//! Sleeping until a word changes: a futex.
//!
//! Under loom it's a model of one: sleepers queue per address and are blocked until they are woken,
//! and looking at the word and falling asleep are one step. So a wake-up that was forgotten shows
//! as a deadlock.

use crate::atomic::AtomicU32;

/// Times a waiter looks again before it parks. `pause` takes 10 to 60 ns, depending on the
/// processor, so this is 2 to 12 us: one decompression at least, and less than waking a sleeper
/// costs the one who wakes.
#[cfg(not(loom))]
pub(crate) const SPINS: u32 = 200;
#[cfg(loom)]
pub(crate) const SPINS: u32 = 1;

/// The same for a waiter who knows that the holder runs on another CPU: about twenty microseconds,
/// which is some compressions by lz4 or one by zstd, and not more than it costs to sleep and be
/// woken.
#[cfg(not(loom))]
pub(crate) const OWNER_SPINS: u32 = 400;
#[cfg(loom)]
pub(crate) const OWNER_SPINS: u32 = 1;

/// Sleeps while `word` is `expected`. May return early; callers look again.
#[inline(never)]
#[cold]
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    #[cfg(not(loom))]
    atomic_wait::wait(word, expected);
    #[cfg(loom)]
    model::wait(word, expected);
}

/// Wakes one sleeper on `word`.
#[inline(never)]
#[cold]
pub(crate) fn wake_one(word: &AtomicU32) {
    #[cfg(not(loom))]
    atomic_wait::wake_one(word);
    #[cfg(loom)]
    model::wake(word, loom::sync::Condvar::notify_one);
}

/// Wakes every sleeper on `word`.
#[inline(never)]
#[cold]
pub(crate) fn wake_all(word: &AtomicU32) {
    #[cfg(not(loom))]
    atomic_wait::wake_all(word);
    #[cfg(loom)]
    model::wake(word, loom::sync::Condvar::notify_all);
}

/// Lets other threads run: for waiting that cannot sleep.
#[cold]
pub(crate) fn let_others_run() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(loom)]
mod model {
    use std::sync::Arc;

    use loom::sync::{Condvar, Mutex};

    use crate::atomic::{AtomicU32, Ordering};

    /// The queues there are: the address of a word, and those who sleep on it.
    type Queues = Vec<(usize, Arc<Condvar>)>;

    loom::lazy_static! {
        static ref QUEUES: Mutex<Queues> = Mutex::new(Vec::new());
    }

    fn queue(queues: &mut Queues, word: &AtomicU32) -> Arc<Condvar> {
        let address = std::ptr::from_ref(word).addr();
        if let Some((_, queue)) = queues.iter().find(|(other, _)| *other == address) {
            return queue.clone();
        }
        let queue = Arc::new(Condvar::new());
        queues.push((address, queue.clone()));
        queue
    }

    pub(super) fn wait(word: &AtomicU32, expected: u32) {
        let mut queues = QUEUES.lock().expect("no thread of the model panics");
        // The queues' lock orders this with every wake-up made so far, so it sees the change that
        // such a wake-up announced. A change not yet announced may be missed: its wake-up follows.
        if word.load(Ordering::Relaxed) == expected {
            let queue = queue(&mut queues, word);
            drop(queue.wait(queues));
        }
    }

    pub(super) fn wake(word: &AtomicU32, notify: fn(&Condvar)) {
        let mut queues = QUEUES.lock().expect("no thread of the model panics");
        notify(&queue(&mut queues, word));
    }
}
