//! A reader-writer lock round a value, of which readers and writers wait in turn.
//!
//! [`SharedWaitQueues`] is its protocol: as in Linux's `qrwlock`, readers come in together until a
//! writer waits, and no new reader enters before that writer.
//!
//! # Why unsafe
//! A lock hands out references to its value; only the lock's protocol keeps `&mut` from being
//! shared.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use sync::atomic::AtomicU64;

use super::SharedWaitQueues;

/// The only key of the only lock.
const KEY: usize = 0;

/// A lock that many threads may hold for reading, or one for writing. Not re-entrant: a thread that
/// holds it in any mode must not take it again.
pub struct RwLock<T> {
    word: AtomicU64,
    value: UnsafeCell<T>,
    queues: SharedWaitQueues,
}

// SAFETY: the value moves with the lock, and a `T` that is `Send` may move to another thread.
unsafe impl<T: Send> Send for RwLock<T> {}
// SAFETY: readers share the value. Writers, one at a time, have it exclusively.
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// Makes a free lock around `value`.
    pub fn new(value: T) -> RwLock<T> {
        let (word, queues) = (AtomicU64::new(0), SharedWaitQueues::default());
        RwLock { word, value: UnsafeCell::new(value), queues }
    }

    /// Takes the lock for reading, and waits for it if necessary.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.queues.read(&self.word, KEY);
        Guard { lock: self }
    }

    /// Takes the lock for reading if that is possible now.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        // Not `then_some`: an unused guard would unlock when it is dropped.
        self.queues.try_read(&self.word).then(|| Guard { lock: self })
    }

    /// Takes the lock for writing, and waits for it if necessary.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.queues.write(&self.word, KEY);
        Guard { lock: self }
    }

    /// Takes the lock for writing if that is possible now.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        self.queues.try_write(&self.word).then(|| Guard { lock: self })
    }
}

/// Holds the lock for reading while it lives.
pub type ReadGuard<'a, T> = Guard<'a, T, false>;
/// Holds the lock for writing while it lives.
pub type WriteGuard<'a, T> = Guard<'a, T, true>;

/// Holds the lock while it lives: alone if it `WRITES`.
pub struct Guard<'a, T, const WRITES: bool> {
    lock: &'a RwLock<T>,
}

impl<T, const WRITES: bool> Deref for Guard<'_, T, WRITES> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this guard lives, no other thread holds the lock for writing.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock exclusively, and `&mut self` makes this its only
        // reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, const WRITES: bool> Drop for Guard<'_, T, WRITES> {
    #[inline]
    fn drop(&mut self) {
        let RwLock { queues, word, .. } = self.lock;
        if WRITES { queues.end_write(word, KEY) } else { queues.end_read(word, KEY) }
    }
}
