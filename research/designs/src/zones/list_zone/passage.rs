//! Takes locks and reports them to a trace.

use units::Cpu;

use pagealloc::{LockClass, LockTrace};

/// A trace, and the CPU of the thread that takes locks.
pub(super) struct Watch<'a, P> {
    pub trace: &'a P,
    pub cpu: Cpu,
}

/// A held lock, with its class.
pub(super) struct Hold<G> {
    pub guard: G,
    class: LockClass,
    since: u64,
}

impl<P: LockTrace> Watch<'_, P> {
    /// Takes a lock of `class` by `try_now` or, if that fails, by `wait`.
    #[inline]
    pub fn pass<G>(
        &self,
        class: LockClass,
        try_now: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> Hold<G> {
        if !P::WATCHES {
            let guard = try_now().unwrap_or_else(wait);
            return Hold { guard, class, since: 0 };
        }
        let (guard, began) = match try_now() {
            Some(guard) => (guard, None),
            None => {
                let began = self.trace.now();
                (wait(), Some(began))
            }
        };
        let since = self.trace.now();
        self.trace.took(self.cpu, class, began.map_or(0, |began| since - began));
        Hold { guard, class, since }
    }

    /// Releases the lock by `release`. `pages` frames went in or out under it.
    #[inline]
    pub fn leave<G>(&self, hold: Hold<G>, pages: u64, release: impl FnOnce(G)) {
        let Hold { guard, class, since } = hold;
        if !P::WATCHES {
            return release(guard);
        }
        let held = self.trace.now() - since;
        release(guard);
        self.trace.left(self.cpu, class, held, pages);
    }
}
