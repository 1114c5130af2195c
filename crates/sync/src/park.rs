//! A futex: a thread sleeps until a word changes. Locks are built on it, here and in `research`.
//!
//! Under loom and shuttle this is a model of a futex. Sleepers queue per address and are blocked
//! until they are woken. The check of the word and the start of the sleep are one step. So a
//! forgotten wake-up shows as a deadlock.

use crate::atomic::AtomicU32;

/// How often a waiter checks again before it parks. `pause` takes 10 to 60 ns, depending on the
/// processor, so this is 2 to 12 us. That is at least one decompression, and less than a wake-up
/// costs the waking thread.
pub const SPINS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 200 };

/// The processor's atomic, for the system.
#[cfg(not(any(loom, shuttle, killed)))]
fn plain(word: &AtomicU32) -> &AtomicU32 {
    word
}
#[cfg(killed)]
fn plain(word: &AtomicU32) -> &core::sync::atomic::AtomicU32 {
    word.plain()
}

/// Sleeps while `word` is `expected`. May return early; the caller checks again.
#[inline(never)]
#[cold]
pub fn wait(word: &AtomicU32, expected: u32) {
    #[cfg(not(any(loom, shuttle)))]
    atomic_wait::wait(plain(word), expected);
    #[cfg(any(loom, shuttle))]
    model::wait(word, expected);
}

/// Wakes one sleeper on `word`.
#[inline(never)]
#[cold]
pub fn wake_one(word: &AtomicU32) {
    #[cfg(not(any(loom, shuttle)))]
    atomic_wait::wake_one(plain(word));
    #[cfg(any(loom, shuttle))]
    model::wake(word, model::Condvar::notify_one);
}

/// Wakes every sleeper on `word`.
#[inline(never)]
#[cold]
pub fn wake_all(word: &AtomicU32) {
    #[cfg(not(any(loom, shuttle)))]
    atomic_wait::wake_all(plain(word));
    #[cfg(any(loom, shuttle))]
    model::wake(word, model::Condvar::notify_all);
}

/// Lets other threads run, for a wait that cannot sleep.
#[cold]
pub fn let_others_run() {
    #[cfg(not(any(loom, shuttle)))]
    std::thread::yield_now();
    #[cfg(any(loom, shuttle))]
    crate::atomic::spin_hint();
}

/// Lets other threads run, or sleeps after many `rounds`, a millisecond at most: for a wait that no
/// thread ends with a wake-up and that may take long.
#[cold]
pub fn nap(rounds: u32) {
    #[cfg(not(any(loom, shuttle)))]
    match nap_length(rounds) {
        None => let_others_run(),
        Some(length) => std::thread::sleep(length),
    }
    #[cfg(any(loom, shuttle))]
    {
        let _ = rounds;
        let_others_run();
    }
}

/// The sleep in such a wait: none at first, then 50 us, and at most 1 ms.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn nap_length(rounds: u32) -> Option<std::time::Duration> {
    const PATIENCE: u32 = 64;
    let more = rounds.checked_sub(PATIENCE)?;
    Some(std::time::Duration::from_micros((50 << (more / 16).min(5)).min(1000)))
}

#[cfg(any(loom, shuttle))]
mod model {
    use std::sync::Arc;

    #[cfg(loom)]
    use loom::lazy_static;
    #[cfg(loom)]
    pub(super) use loom::sync::Condvar;
    #[cfg(loom)]
    use loom::sync::Mutex;
    #[cfg(shuttle)]
    use shuttle::lazy_static;
    #[cfg(shuttle)]
    pub(super) use shuttle::sync::Condvar;
    #[cfg(shuttle)]
    use shuttle::sync::Mutex;

    use crate::atomic::{AtomicU32, Ordering};

    /// The queues: the address of each word, and its sleepers.
    type Queues = Vec<(usize, Arc<Condvar>)>;

    lazy_static! {
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
        #[cfg(shuttle)]
        if !crate::atomic::in_an_execution() {
            return super::let_others_run();
        }
        let mut queues = QUEUES.lock().expect("no thread of the model panics");
        // The lock of the queues orders this load after every earlier wake-up, so it sees the
        // change that such a wake-up announced. It may miss a change that is not yet announced: its
        // wake-up follows.
        if word.load(Ordering::Relaxed) == expected {
            let queue = queue(&mut queues, word);
            drop(queue.wait(queues));
        }
    }

    pub(super) fn wake(word: &AtomicU32, notify: fn(&Condvar)) {
        #[cfg(shuttle)]
        if !crate::atomic::in_an_execution() {
            return;
        }
        let mut queues = QUEUES.lock().expect("no thread of the model panics");
        notify(&queue(&mut queues, word));
    }
}
