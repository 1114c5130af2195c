//! Going through a gate, and telling a probe of it.

use units::Cpu;

use crate::{Gate, Probe};

/// A probe, and the CPU on which somebody goes through gates.
pub(super) struct Watch<'a, P> {
    pub probe: &'a P,
    pub cpu: Cpu,
}

/// What somebody holds who came through a gate.
pub(super) struct Hold<G> {
    pub guard: G,
    gate: Gate,
    since: u64,
}

impl<P: Probe> Watch<'_, P> {
    /// Comes through `gate` by `try_now` or, if that fails, by `wait`.
    #[inline]
    pub fn pass<G>(
        &self,
        gate: Gate,
        try_now: impl FnOnce() -> Option<G>,
        wait: impl FnOnce() -> G,
    ) -> Hold<G> {
        if !P::WATCHES {
            let guard = try_now().unwrap_or_else(wait);
            return Hold { guard, gate, since: 0 };
        }
        let (guard, began) = match try_now() {
            Some(guard) => (guard, None),
            None => {
                let began = self.probe.now();
                (wait(), Some(began))
            }
        };
        let since = self.probe.now();
        self.probe.took(self.cpu, gate, began.map_or(0, |began| since - began));
        Hold { guard, gate, since }
    }

    /// Lets go by `release`, after `pages` frames went in or out.
    #[inline]
    pub fn leave<G>(&self, hold: Hold<G>, pages: u64, release: impl FnOnce(G)) {
        let Hold { guard, gate, since } = hold;
        if !P::WATCHES {
            return release(guard);
        }
        let held = self.probe.now() - since;
        release(guard);
        self.probe.left(self.cpu, gate, held, pages);
    }
}
