//! The guard of the zone's lock, with or without a trace.

use core::ops::{Deref, DerefMut};

use sync::MutexGuard;
use units::Cpu;

use super::Zone;
use super::index::Index;
use crate::{LockClass, LockTrace};

/// Holds the zone's lock while it lives.
pub(super) struct Held<'a, P: LockTrace> {
    /// `Some` until the guard is dropped.
    guard: Option<MutexGuard<'a, Index>>,
    trace: &'a P,
    cpu: Cpu,
    since: u64,
    /// Frames that went in or out meanwhile.
    pub pages: u64,
}

impl<P: LockTrace> Zone<P> {
    /// Takes the zone's lock.
    pub(super) fn lock_index(&self, cpu: Cpu) -> Held<'_, P> {
        let trace = &self.trace;
        if !P::WATCHES {
            return Held { guard: Some(self.index.lock()), trace, cpu, since: 0, pages: 0 };
        }
        let (guard, waited) = match self.index.try_lock() {
            Some(guard) => (guard, 0),
            None => {
                let start = trace.now();
                let guard = self.index.lock();
                (guard, trace.now().saturating_sub(start))
            }
        };
        trace.took(cpu, LockClass::Write, waited);
        Held { guard: Some(guard), trace, cpu, since: trace.now(), pages: 0 }
    }
}

impl<P: LockTrace> Drop for Held<'_, P> {
    fn drop(&mut self) {
        if P::WATCHES {
            let held = self.trace.now().saturating_sub(self.since);
            drop(self.guard.take());
            self.trace.left(self.cpu, LockClass::Write, held, self.pages);
        }
    }
}

/// The guard is `None` only in `drop`.
const HELD: &str = "the lock is held";

impl<P: LockTrace> Deref for Held<'_, P> {
    type Target = Index;
    #[inline]
    fn deref(&self) -> &Index {
        self.guard.as_deref().expect(HELD)
    }
}

impl<P: LockTrace> DerefMut for Held<'_, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Index {
        self.guard.as_deref_mut().expect(HELD)
    }
}
