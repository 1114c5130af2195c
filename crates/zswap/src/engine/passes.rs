//! Passes of recompression: all entries grow older, and the old ones are recompressed, with their
//! neighbours if these are old, too.
//!
//! An entry keeps its age in bits of its state, as the number of passes that came by since it was
//! stored or read. So the passes need no other memory and no list.

use alloc::format;

use control::{ControlError, Errno};
use objects::Recompressed;
use tiers::{PASSES, Spell, WARM_CODEC, WARM_PRIORITY, waits_after};
use units::Cpu;

use super::Zswap;
use super::packing::Wanted;
use crate::Word;
use crate::counts::Count;
use crate::entry::{Content, Due};
use crate::warming::Walk;

/// Entries between two looks at the CPU time.
const STRETCH: u32 = 256;
/// The pool is compacted after a pass if that gains one in this many frames.
const LOOSE: u64 = 32;

impl Zswap {
    /// Lets [`Zswap::recompress_old`] work, or ends that. All memory that it needs is taken now,
    /// but for more than the first packs, which [`Zswap::provide`] gets. Recompressed pages stay as
    /// they are. The calling thread must not be a reader.
    ///
    /// # Errors
    /// `ENOMEM`, or `EBUSY` when stored objects use too many other codecs. Nothing but the codec
    /// has changed then.
    pub fn set_auto(&self, on: bool) -> Result<(), ControlError> {
        let mut walk = self.warming.walk.lock();
        if on && walk.is_none() {
            let chosen = (self.find_codec)(WARM_CODEC.0)?;
            let compressor = chosen.compressor.clone();
            self.install(WARM_PRIORITY, chosen)?;
            let packing = self.objects.packing(&self.readers.enter(Cpu(0)), WARM_PRIORITY);
            let none = || format!("{} packs no pages", compressor.name());
            let packing = packing.and_then(|packing| packing.ok_or_else(none));
            let packing = packing.map_err(|why| ControlError::new(Errno::ENOMEM, why))?;
            *walk = Some(Walk::new(&*compressor, packing, self.moved_and_soon())?);
            self.warming.set_waits(1);
            // What is missing is asked for again by the passes.
            self.provide_packs();
        } else if !on {
            *walk = None;
            self.warming.set_waits(0);
        }
        Ok(())
    }

    /// Whether old pages are recompressed.
    #[must_use]
    pub fn auto(&self) -> bool {
        self.warming.waits() > 0
    }

    /// Recompresses pages that were not read for [`crate::Policy::auto_age`], neighbours together,
    /// if that is on. One that had no old neighbours is tried with them once more, as long again
    /// later. `elapsed` are the nanoseconds since the call before; `spent` reads the CPU time of
    /// the calling thread in nanoseconds. It takes no more of it than
    /// [`crate::Policy::auto_cpu_percent`] of the elapsed time, on average. Returns whether pages
    /// wait for CPU time. A call begins one pass at most, and there are up to eight in `auto_age`:
    /// to a caller that comes less often, pages are old later.
    ///
    /// Stores, loads and writeback go on meanwhile. The calling thread is no reader, and has no
    /// stream and no lock. While another thread is in this call it does nothing.
    pub fn recompress_old(&self, cpu: Cpu, elapsed: u64, spent: &dyn Fn() -> u64) -> bool {
        let Some(mut walk) = self.warming.walk.try_lock() else { return false };
        let Some(walk) = &mut *walk else { return false };
        walk.since = walk.since.saturating_add(elapsed);
        let spell = walk.round.earn(self.policy.auto_cpu_percent(), elapsed, spent);
        if !self.begin_pass(walk) {
            return false;
        }
        // Without time, the look at it costs none.
        if !spell.has_time() {
            return true;
        }
        let ended = self.go_on(cpu, walk, spell);
        let spent = spell.spent();
        walk.round.spend(spent);
        self.counts.add(cpu, Count::RecompressNanoseconds, spent as i64);
        !ended
    }

    /// Begins a pass, unless one is under way. Returns whether there is one now.
    fn begin_pass(&self, walk: &mut Walk) -> bool {
        let Walk { round, since, .. } = walk;
        if !round.is_under_way() && *since >= self.policy.auto_age_ns() / u64::from(PASSES) {
            round.begin(1);
            *since = 0;
        }
        round.is_under_way()
    }

    fn moved_and_soon(&self) -> (u64, u64) {
        (self.counts.sum(Count::Recompressed), self.counts.sum(Count::WarmLoadsSoon))
    }

    /// Goes on with the pass while there is time. Returns whether it has ended.
    fn go_on(&self, cpu: Cpu, walk: &mut Walk, spell: Spell<'_>) -> bool {
        let (end, mut moved) = (self.entries.touched() as u32, false);
        let wanted = (PASSES * self.warming.waits()).min(0xff) as u8;
        let mut round = walk.round;
        let ended = round.go_on(end as usize + 1, spell, |next| {
            let first = next as u32;
            let until = first.saturating_add(STRETCH).min(end + 1);
            let due = |number| self.due(number, wanted).map(|due| (number, due));
            let Some((old, due)) = (first..until).find_map(due) else { return until as usize };
            moved |= self.move_counted(cpu, old, Wanted { due, passes: wanted }, walk);
            old as usize + 1
        });
        walk.round = round;
        if moved {
            // The old objects are freed now, not at some later call.
            self.quiesce(cpu);
        }
        if ended {
            self.end_pass(cpu, walk);
        }
        ended
    }

    /// Lets an entry grow older. Returns what is due then.
    fn due(&self, number: u32, passes: u8) -> Option<Due> {
        let content = self.entries.in_pool(number)?;
        let due = self.entries.pass_by(number, passes);
        match (due, content) {
            (None, Content::Part(part)) => {
                let is_wasted = self.is_wasted(part.pack) && self.entries.rests(number, passes);
                is_wasted.then_some(Due::First)
            }
            (due, _) => due,
        }
    }

    /// Packs a page with its neighbours, or recompresses it. Returns whether one is smaller now.
    fn move_counted(&self, cpu: Cpu, number: u32, wanted: Wanted, walk: &mut Walk) -> bool {
        let packed = self.pack(cpu, number, wanted, &mut walk.tool);
        self.counts.add(cpu, Count::Recompressed, packed.pages as i64);
        self.counts.add(cpu, Count::RecompressSaved, packed.saved as i64);
        if packed.is_done {
            if !packed.has_moved && wanted.due == Due::First {
                // What is left of its pack takes no less in another way, for now.
                self.entries.rest_again(number);
                self.counts.add(cpu, Count::RecompressVain, 1);
            }
            return packed.has_moved;
        }
        let done = self.recompress(cpu, number, &mut walk.tool);
        match done {
            Recompressed::Done { from, to } => {
                let saved = self.objects.gain(from, to).unwrap_or(0);
                self.counts.add(cpu, Count::Recompressed, 1);
                self.counts.add(cpu, Count::RecompressSaved, saved as i64);
            }
            Recompressed::NoSmaller => self.counts.add(cpu, Count::RecompressVain, 1),
            Recompressed::Skipped | Recompressed::InUse => {
                self.counts.add(cpu, Count::RecompressLeft, 1);
            }
        }
        packed.has_moved || matches!(done, Recompressed::Done { .. })
    }

    fn end_pass(&self, cpu: Cpu, walk: &mut Walk) {
        let (all_moved, all_soon) = self.moved_and_soon();
        let (moved, soon) = (all_moved - walk.before.0, all_soon - walk.before.1);
        walk.before = (all_moved, all_soon);
        self.warming.set_waits(waits_after(self.warming.waits(), moved, soon));
        if moved > 0 {
            // The smaller objects left holes.
            self.compacts_for(cpu, (self.pool().frames() / LOOSE).max(1));
        }
    }

    /// Marks that the page of an entry was read, and counts the read if it was recompressed.
    #[inline]
    pub(super) fn refer(&self, cpu: Cpu, word: Word) {
        let Some(passes) = self.entries.refer(word.number()) else { return };
        self.counts.add(cpu, Count::WarmLoads, 1);
        if u32::from(passes) < PASSES {
            self.counts.add(cpu, Count::WarmLoadsSoon, 1);
        }
    }

    /// Pages in the cache that were recompressed.
    pub(crate) fn warm_pages(&self) -> u64 {
        let reader = self.readers.enter(Cpu(0));
        let warm = self.objects.codecs().current(&reader, WARM_PRIORITY);
        warm.map_or(0, |(number, _)| self.by_codec.sum(usize::from(number)))
    }

    /// The age in seconds at which pages are recompressed now; 0 if they are not.
    pub(crate) fn recompress_age(&self) -> u64 {
        u64::from(self.policy.auto_age()) * u64::from(self.warming.waits())
    }
}
