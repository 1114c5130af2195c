//! A reader-writer lock that is fair between readers and writers: a waiter spins briefly, then
//! parks.
//!
//! It follows the behaviour of Linux's `qrwlock` (`Documentation/locking`). A thread that gets the
//! lock at the first try pays one atomic operation. Every other thread stands in a queue. The front
//! of the queue holds a mutex and waits alone on the lock's word. While a writer is at the front,
//! no new reader enters, so readers cannot starve it. A reader at the front has counted itself
//! already, and enters together with all readers that come meanwhile, before the next writer. The
//! queue itself keeps no order.
//!
//! # Why unsafe
//! A lock hands out references to its value; only the lock's protocol keeps `&mut` from being
//! shared.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use sync::atomic::{AtomicU32, Ordering, spin_hint};
use sync::{Mutex, park};

/// A thread writes.
const WRITER: u32 = 1;
/// A writer is at the front of the queue. Only the front sets and clears this bit.
const QUEUED: u32 = 1 << 1;
/// The front of the queue sleeps, or may sleep. Only the front sets and clears this bit.
const ASLEEP: u32 = 1 << 2;
/// One reader; the bits from here on count them.
const READER: u32 = 1 << 3;

/// A lock that many threads may hold for reading, or one for writing.
///
/// The lock lies in front of its value, on the same cache line. Not re-entrant: a thread that holds
/// it in any mode must not take it again.
#[repr(C)]
pub struct RwLock<T: ?Sized> {
    state: AtomicU32,
    queue: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves with the lock, and a `T` that is `Send` may move to another thread.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: readers share the value. Writers, one at a time, have it exclusively.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// Makes a free lock around `value`.
    pub fn new(value: T) -> RwLock<T> {
        let (state, queue) = (AtomicU32::new(0), Mutex::new(()));
        RwLock { state, queue, value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading, and waits for it if necessary.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        if !self.try_enter() {
            self.read_slowly();
        }
        ReadGuard { lock: self }
    }

    /// Takes the lock for reading if that is possible now.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        // Not `then_some`: an unused guard would unlock when it is dropped.
        self.try_enter().then(|| ReadGuard { lock: self })
    }

    /// Takes the lock for writing, and waits for it if necessary.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        if !self.try_own(0) {
            self.write_slowly();
        }
        WriteGuard { lock: self }
    }

    /// Takes the lock for writing if that is possible now.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        self.try_own(0).then(|| WriteGuard { lock: self })
    }

    /// The value, without locking: the `&mut` proves that no other thread has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every guard.
        unsafe { &mut *self.value.get() }
    }

    #[inline]
    fn try_enter(&self) -> bool {
        // Acquire pairs with the Release in `end_write`.
        let seen = self.state.fetch_add(READER, Ordering::Acquire);
        let entered = seen & (WRITER | QUEUED) == 0;
        if !entered {
            self.end_read();
        }
        entered
    }

    #[inline]
    fn try_own(&self, seen: u32) -> bool {
        // Acquire pairs with the Release in `end_read` and `end_write`.
        self.state.compare_exchange(seen, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn read_slowly(&self) {
        let _front = self.queue.lock();
        // This reader is counted from here on: only a writer that is in already may precede it.
        self.state.fetch_add(READER, Ordering::Relaxed);
        let mut spins = 0;
        loop {
            // Acquire pairs with the Release in `end_write`.
            let seen = self.state.load(Ordering::Acquire);
            if seen & WRITER == 0 {
                if seen & ASLEEP != 0 {
                    self.state.fetch_and(!ASLEEP, Ordering::Relaxed);
                }
                return;
            }
            self.wait_at_front(&mut spins, seen);
        }
    }

    #[cold]
    fn write_slowly(&self) {
        let _front = self.queue.lock();
        self.state.fetch_or(QUEUED, Ordering::Relaxed);
        let mut spins = 0;
        loop {
            let seen = self.state.load(Ordering::Relaxed);
            if seen & !(QUEUED | ASLEEP) != 0 {
                self.wait_at_front(&mut spins, seen);
            } else if self.try_own(seen) {
                return;
            }
        }
    }

    /// Waits until the word differs from `seen`: spins at first, then sleeps.
    fn wait_at_front(&self, spins: &mut u32, seen: u32) {
        if *spins < park::SPINS {
            *spins += 1;
            return spin_hint();
        }
        let asleep = seen | ASLEEP;
        let relaxed = Ordering::Relaxed;
        if seen == asleep || self.state.compare_exchange(seen, asleep, relaxed, relaxed).is_ok() {
            park::wait(&self.state, asleep);
        }
    }

    #[inline]
    fn end_read(&self) {
        // Release pairs with the Acquire in `try_own` of the next writer.
        let left = self.state.fetch_sub(READER, Ordering::Release) - READER;
        // The last reader wakes the writer at the front. A reader at the front waits for no reader.
        if left == QUEUED | ASLEEP {
            park::wake_one(&self.state);
        }
    }

    #[inline]
    fn end_write(&self) {
        // Release pairs with the Acquire of the next holder, in either mode.
        if self.state.fetch_sub(WRITER, Ordering::Release) & ASLEEP != 0 {
            park::wake_one(&self.state);
        }
    }
}

/// Holds the lock for reading while it lives.
pub struct ReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

/// Holds the lock for writing while it lives.
pub struct WriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this guard lives, no thread holds the lock for writing.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock exclusively.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock exclusively, and `&mut self` makes this its only
        // reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.end_read();
    }
}

impl<T: ?Sized> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.end_write();
    }
}
