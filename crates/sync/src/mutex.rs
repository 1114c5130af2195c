//! A mutex that spins for a moment before it parks, allocates nothing and cannot be poisoned.
//!
//! # Why unsafe
//! A lock hands out `&mut` to its value; only the lock's protocol makes that reference exclusive.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::atomic::{AtomicU32, Ordering, spin_hint};
use crate::park;

const FREE: u32 = 0;
const HELD: u32 = 1;
const HELD_WITH_SLEEPERS: u32 = 2;

/// A mutual exclusion lock (Drepper, "Futexes Are Tricky", mutex 3, with a bounded spin in front).
///
/// The lock lies in front of its value, on the same cache line.
#[repr(C)]
pub struct Mutex<T: ?Sized> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out at most one guard at a time. So threads reach a `T` that may move
// between threads only in turn.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// Makes a free lock around `value`.
    pub fn new(value: T) -> Mutex<T> {
        Mutex { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, and waits for it if necessary. Not fair, not re-entrant.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if self.try_acquire() {
            return MutexGuard { mutex: self };
        }
        self.lock_slowly();
        MutexGuard { mutex: self }
    }

    /// Takes the lock if it is free now.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Not `then_some`: an unused guard would unlock when it is dropped.
        self.try_acquire().then(|| MutexGuard { mutex: self })
    }

    /// The value, without locking: the `&mut` proves that no other thread has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes every guard.
        unsafe { &mut *self.value.get() }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        // Acquire pairs with the Release in `release`.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        for _ in 0..park::SPINS {
            spin_hint();
            if self.state.load(Ordering::Relaxed) == FREE && self.try_acquire() {
                return;
            }
        }
        // Acquire pairs with the Release in `release`.
        while self.state.swap(HELD_WITH_SLEEPERS, Ordering::Acquire) != FREE {
            park::wait(&self.state, HELD_WITH_SLEEPERS);
        }
    }

    #[inline]
    fn release(&self) {
        // Release pairs with the Acquire of the thread that locks next.
        if self.state.swap(FREE, Ordering::Release) == HELD_WITH_SLEEPERS {
            park::wake_one(&self.state);
        }
    }
}

/// Holds the lock while it lives.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no other thread has a reference.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and `&mut self` makes this its only reference.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.release();
    }
}
