//! A round over all that is numbered: pages of a device, entries of a cache.

use crate::{Allowance, Spell};

/// How far a round has come, and the CPU time that it may take. A caller comes regularly. Each time
/// the round [earns](Round::earn) some time, goes on while that lasts, and [spends](Round::spend)
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    credit: Allowance,
    /// The next number; `None` between two rounds.
    next: Option<usize>,
}

impl Default for Round {
    fn default() -> Round {
        Round { credit: Allowance::of_cpu(0), next: None }
    }
}

impl Round {
    /// Earns `percent` of a CPU for `elapsed` nanoseconds, and begins to spend it. `clock` reads
    /// the CPU time of the calling thread, in nanoseconds.
    pub fn earn<'a>(
        &mut self,
        percent: u32,
        elapsed: u64,
        clock: &'a dyn Fn() -> u64,
    ) -> Spell<'a> {
        self.credit.earn_at(Allowance::of_cpu(percent), elapsed);
        self.credit.spell(clock)
    }

    /// Spends CPU time, in nanoseconds, whether or not it was earned.
    pub fn spend(&mut self, nanoseconds: u64) {
        self.credit.spend(nanoseconds);
    }

    /// Whether it has begun, and has not ended yet.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.next.is_some()
    }

    /// Begins at the number `first`.
    pub fn begin(&mut self, first: usize) {
        self.next = Some(first);
    }

    /// Goes on up to the number before `end`. `look` gets the next number, looks at that and some
    /// after it, and returns the number after those. Returns whether the round ended; otherwise the
    /// time is over.
    pub fn go_on(
        &mut self,
        end: usize,
        spell: Spell<'_>,
        mut look: impl FnMut(usize) -> usize,
    ) -> bool {
        while let Some(next) = self.next.filter(|next| *next < end) {
            if !spell.has_time() {
                return false;
            }
            self.next = Some(look(next));
        }
        self.next = None;
        true
    }
}
