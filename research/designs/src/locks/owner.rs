//! A mutex that records the CPU of its holder, and whose waiters use it to spin or sleep.
//!
//! Linux's mutex spins while the holder is running, because the lock is then released sooner than a
//! sleeper could be woken ("mutex spin on owner", `Documentation/locking/mutex-design.rst`).
//! Userspace cannot ask whether the holder is running, but it knows the CPU on which the holder
//! took the lock. If that is the waiter's own CPU, the holder was preempted, and the waiter sleeps
//! at once to let it continue. Otherwise the holder most likely runs, and the waiter spins for
//! about as long as a few compressions take.
//!
//! The data of the lock is in the cache of the holder's CPU: the tables of a codec are some twenty
//! kilobytes. So it is better if one thread takes the lock many times before it moves to another
//! CPU. A spinning waiter therefore checks less and less often, leaves a free lock to its last
//! holder for a moment, and sleeps as soon as a third thread sleeps.
//!
//! The word marks that one waiter spins. While it does, no sleeper is woken: the lock goes to a
//! running thread, and the holder releases it with one instruction. A sleeper is still woken once
//! in a while, so that no thread sleeps for ever.
//!
//! # Why unsafe
//! A lock hands out `&mut` to its value; only the lock's protocol makes that reference exclusive.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use sync::atomic::{AtomicU32, Ordering, spin_hint};
use sync::park;
use units::Cpu;

/// A thread sleeps, or may sleep.
const SLEEPERS: u32 = 1;
/// A waiter spins. A release wakes no thread then: the spinner takes the lock, or clears this bit
/// before it sleeps.
const SPINNER: u32 = 1 << 1;
/// The bits of the waiters. The bits above them hold the holder, or zero.
const WAITERS: u32 = SLEEPERS | SPINNER;

/// A model checker has the least of everything.
const fn in_a_model(least: u32, usual: u32) -> u32 {
    if cfg!(any(loom, shuttle)) { least } else { usual }
}

/// How often a waiter checks again if the holder probably runs on another CPU: 160 us or more.
/// Linux's mutex would spin as long as the holder runs.
const SPINS: u32 = in_a_model(1, 16384);
/// The most pauses between two checks of such a waiter.
const GAP: u32 = in_a_model(1, 2048);
/// Pauses for which such a waiter leaves a free lock to the last holder.
const PATIENCE: u32 = in_a_model(1, 128);

/// How often the lock may pass the sleepers before one of them is woken.
const PASSES: u32 = if cfg!(loom) { 2 } else { 1024 };

/// A mutual exclusion lock. Its waiters spin while the holder probably runs, and sleep otherwise.
#[repr(C)]
pub struct OwnerMutex<T: ?Sized> {
    state: AtomicU32,
    /// How often the lock passed a sleeper. Wraps.
    passes: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out at most one guard at a time. So threads reach a `T` that may move
// between threads only in turn.
unsafe impl<T: ?Sized + Send> Send for OwnerMutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for OwnerMutex<T> {}

impl<T> OwnerMutex<T> {
    /// Makes a free lock around `value`.
    pub fn new(value: T) -> OwnerMutex<T> {
        let (state, passes) = (AtomicU32::new(0), AtomicU32::new(0));
        OwnerMutex { state, passes, value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> OwnerMutex<T> {
    /// Takes the lock for a thread on `cpu`, and waits for it if necessary. Not fair, not
    /// re-entrant.
    #[inline]
    pub fn lock(&self, cpu: Cpu) -> OwnerGuard<'_, T> {
        let holder = holder(cpu);
        // The marks of waiters do not slow down a thread that finds the lock free.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & !WAITERS != 0 || !self.swap(seen, seen | holder) {
            self.lock_slowly(holder);
        }
        OwnerGuard { mutex: self, holder }
    }

    #[cold]
    fn lock_slowly(&self, holder: u32) {
        let (mut spins, mut gap, mut is_spinner, mut slept) = (0, 1, false, 0);
        let mut was_free = false;
        loop {
            let seen = self.state.load(Ordering::Relaxed);
            // The marks of the other waiters, without those of this thread.
            let others = slept | if is_spinner { seen & !SPINNER } else { seen };
            let (is_free, some_sleep) = (seen & !WAITERS == 0, seen & SLEEPERS != 0);
            let spins_on = spins < SPINS && !some_sleep;
            if is_free && spins > 0 && slept == 0 && !was_free {
                (0..PATIENCE).for_each(|_| spin_hint());
                was_free = true;
                continue;
            }
            was_free = false;
            if is_free {
                if self.swap(seen, others | holder) {
                    return;
                }
            } else if spins_on && seen & !WAITERS != holder {
                if seen & SPINNER == 0 && !is_spinner {
                    is_spinner = self.swap(seen, seen | SPINNER);
                    continue;
                }
                (0..gap).for_each(|_| spin_hint());
                spins += gap;
                gap = (2 * gap).min(GAP);
            } else if seen == others | SLEEPERS || self.swap(seen, others | SLEEPERS) {
                park::wait(&self.state, others | SLEEPERS);
                // Other threads may sleep too: a woken thread sets the mark again when it takes the
                // lock.
                (spins, gap, is_spinner, slept) = (0, 1, false, SLEEPERS);
            }
        }
    }

    #[inline]
    fn swap(&self, seen: u32, next: u32) -> bool {
        // Acquire pairs with the Release in `release`.
        self.state.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn release(&self, holder: u32) {
        // Release pairs with the Acquire of the thread that locks next.
        let waiters = self.state.fetch_sub(holder, Ordering::Release) - holder;
        if waiters & SLEEPERS != 0 {
            self.let_sleepers_know(waiters);
        }
    }

    #[cold]
    fn let_sleepers_know(&self, waiters: u32) {
        let wakes = if waiters & SPINNER == 0 {
            // If another thread took the lock with the mark in it, that thread wakes the sleeper.
            self.state.compare_exchange(SLEEPERS, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        } else {
            // Two threads that count at once may count one. A sleeper then sleeps a little longer.
            let passes = self.passes.load(Ordering::Relaxed).wrapping_add(1);
            self.passes.store(passes, Ordering::Relaxed);
            passes.is_multiple_of(PASSES)
        };
        if wakes {
            park::wake_one(&self.state);
        }
    }
}

/// The value of the word while a thread of `cpu` holds the lock. Two CPUs with distant numbers may
/// have the same value. Their threads then only choose the worse way to wait.
#[inline]
fn holder(cpu: Cpu) -> u32 {
    ((cpu.0 & (u32::MAX >> 3)) + 1) << WAITERS.count_ones()
}

/// Holds the lock while it lives.
pub struct OwnerGuard<'a, T: ?Sized> {
    mutex: &'a OwnerMutex<T>,
    holder: u32,
}

impl<T: ?Sized> Deref for OwnerGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so no other thread has a reference.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for OwnerGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and `&mut self` makes this its only reference.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for OwnerGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.release(self.holder);
    }
}
