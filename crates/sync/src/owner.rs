//! A mutex that knows on which CPU its holder runs, and waits accordingly.
//!
//! Linux's mutex spins while the holder is running, because what it guards is then given back
//! sooner than a sleeper could be woken ("mutex spin on owner",
//! `Documentation/locking/mutex-design.rst`). Whether the holder is running cannot be asked in
//! userspace, but where it began is known: if that is the waiter's own CPU, the holder was
//! preempted, and the waiter sleeps at once to let it go on. Otherwise the holder most likely runs,
//! and the waiter spins for about as long as a few compressions take.
//!
//! What the lock guards lies in the cache of the holder's CPU: a codec's tables are some twenty
//! kilobytes. So it is better for all if who held it may take it again many times before it moves:
//! who spins looks more and more seldom, leaves a lock that has just come free to its last holder
//! for a moment, and sleeps as soon as there is a third thread that does.
//!
//! One of those who spin is named in the word. While there is one, no sleeper is woken: the lock
//! goes to a thread that runs, and the holder's way out is one instruction. So that nobody sleeps
//! for ever, a sleeper is woken all the same once in a while.
//!
//! # Why unsafe
//! A lock hands out `&mut` to what it guards; only its protocol makes that exclusive.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use units::Cpu;

use crate::atomic::{AtomicU32, Ordering, spin_hint};
use crate::park;

/// Somebody sleeps, or may.
const SLEEPERS: u32 = 1;
/// A waiter spins. The holder that lets go wakes nobody then: the spinner takes the lock, or clears
/// this bit before it sleeps.
const SPINNER: u32 = 1 << 1;
/// The bits of those who wait; above them stands the holder, or nothing.
const WAITERS: u32 = SLEEPERS | SPINNER;

/// Times that the lock may go past the sleepers before one of them is woken.
const PASSES: u32 = if cfg!(loom) { 2 } else { 1024 };

/// A mutual exclusion lock whose waiters spin while the holder is likely to run, and sleep when it
/// is not.
#[repr(C)]
pub struct OwnerMutex<T: ?Sized> {
    state: AtomicU32,
    /// How often the lock went past somebody who sleeps. Wraps.
    passes: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out at most one guard at a time, so a `T` that may move between threads
// may be reached from them in turn.
unsafe impl<T: ?Sized + Send> Send for OwnerMutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for OwnerMutex<T> {}

impl<T> OwnerMutex<T> {
    /// A free lock round `value`.
    pub fn new(value: T) -> OwnerMutex<T> {
        let (state, passes) = (AtomicU32::new(0), AtomicU32::new(0));
        OwnerMutex { state, passes, value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> OwnerMutex<T> {
    /// Takes the lock for a thread on `cpu`, waiting for it if need be. Not fair, not re-entrant.
    #[inline]
    pub fn lock(&self, cpu: Cpu) -> OwnerGuard<'_, T> {
        let holder = holder(cpu);
        // Marks of those who wait do not make it slow for who comes first.
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
            // What is known of the others who wait, when this one waits no more.
            let others = slept | if is_spinner { seen & !SPINNER } else { seen };
            let (is_free, some_sleep) = (seen & !WAITERS == 0, seen & SLEEPERS != 0);
            let spins_on = spins < park::OWNER_SPINS && !some_sleep;
            if is_free && spins > 0 && slept == 0 && !was_free {
                (0..park::OWNER_PATIENCE).for_each(|_| spin_hint());
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
                gap = (2 * gap).min(park::OWNER_GAP);
            } else if seen == others | SLEEPERS || self.swap(seen, others | SLEEPERS) {
                park::wait(&self.state, others | SLEEPERS);
                // There may be others who sleep: whoever was woken says so when it takes the lock.
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
        // Release pairs with the Acquire of whoever locks next.
        let waiters = self.state.fetch_sub(holder, Ordering::Release) - holder;
        if waiters & SLEEPERS != 0 {
            self.let_sleepers_know(waiters);
        }
    }

    #[cold]
    fn let_sleepers_know(&self, waiters: u32) {
        let wakes = if waiters & SPINNER == 0 {
            // If somebody else took it with the mark in it, that one will see to it.
            self.state.compare_exchange(SLEEPERS, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        } else {
            // Two who count at once may count one: a sleeper then sleeps a little longer.
            let passes = self.passes.load(Ordering::Relaxed).wrapping_add(1);
            self.passes.store(passes, Ordering::Relaxed);
            passes.is_multiple_of(PASSES)
        };
        if wakes {
            park::wake_one(&self.state);
        }
    }
}

/// What stands in the word while a thread of `cpu` holds it. Two CPUs that are far apart may have
/// the same: their threads only wait in a way that is not theirs.
#[inline]
fn holder(cpu: Cpu) -> u32 {
    ((cpu.0 & (u32::MAX >> 3)) + 1) << WAITERS.count_ones()
}

/// The lock is held while this lives.
pub struct OwnerGuard<'a, T: ?Sized> {
    mutex: &'a OwnerMutex<T>,
    holder: u32,
}

impl<T: ?Sized> Deref for OwnerGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so nobody else has a reference.
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
