//! Tiers: pages move to smaller forms by themselves, as [`tiers::Policy`] decides.
//!
//! A thread of the program calls `Disk::move_pages` regularly. Each call does some of the present
//! pass over all pages, until the pass ends or the CPU time that it may take is spent. Pages are
//! looked at in aligned groups: neighbours that are cold are packed together.

use alloc::string::String;

use block::IoError;
use objects::Recompressed;
use pagealloc::{LazyTable, NoMemory};
use sync::Reader;
use sync::atomic::{AtomicU32, Ordering};
use tiers::{
    Action, Allowance, Budgets, COLD, MOST_TIERS, Memory, OUT, Pass, Policy, Round, Seen, Spell,
    TIERS, Tier, TierPass, Verdict, WARM,
};
use units::PAGE_SIZE;
use zcomp::EXTENT_PAGES;

use crate::engine::{Engine, Packed};
use crate::engine::{Kind, Slot};
use crate::resources::CPU;
use crate::tiering::moves::{Group, Mover, Place, leaves, packs, tier_of};
use crate::tiering::out::{Going, Out};
use crate::tiering::stats::{TierCounts, TierStats};

/// Pages that are looked at in about the time that the move of one takes.
pub(crate) const LOOKS: usize = 4096;
/// Times of last use are compared among this many times the pages, or groups, that move.
pub(crate) const SAMPLES: usize = 4;

/// A page that a pass looked at.
#[derive(Clone, Copy)]
pub(crate) struct Looked {
    pub(crate) index: usize,
    pub(crate) slot: Slot,
    pub(crate) seen: Seen,
}

/// The tiers of a device that has a size.
pub(crate) struct TierWalk {
    generation: u64,
    pub(crate) policy: Policy,
    pub(crate) mover: Mover,
    /// What goes to the backing device, and comes back.
    pub(crate) out: Out,
    /// What the policy remembers of each page.
    pub(crate) memory: LazyTable<AtomicU32>,
    /// The present pass; its next page is the first of a group.
    round: Round,
    /// The next page of those who need memory at once.
    pub(crate) hand: usize,
    /// Since this was cleared, a page that was to move was used meanwhile, or was tried in one way
    /// and may have others left.
    pub(crate) again: bool,
    pass: Pass,
    /// When the present or last pass began, and when the last one ended, in seconds.
    begun: Option<u32>,
    /// The uses of the device when it began.
    uses: u64,
    ended: Option<u32>,
    stats: TierStats,
}

impl TierWalk {
    /// For the pages of a device that got its size for this time.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub(crate) fn new(
        place: &Place<'_>,
        generation: u64,
        budgets: Budgets,
    ) -> Result<TierWalk, String> {
        let Place { engine, provider, pages, .. } = *place;
        let counts = |tier: &Tier| TierCounts { name: tier.name, ..TierCounts::default() };
        let no_memory = |error: NoMemory| alloc::format!("{error}");
        Ok(TierWalk {
            generation,
            policy: Policy::new(&TIERS, budgets),
            mover: Mover::new(provider, pages)?,
            out: Out::new(budgets.written_a_day),
            memory: LazyTable::new(provider, engine.capacity()).map_err(no_memory)?,
            round: Round::default(),
            hand: 0,
            again: false,
            pass: Pass::default(),
            begun: None,
            uses: 0,
            ended: None,
            stats: TierStats { tiers: TIERS.iter().map(counts).collect(), ..Default::default() },
        })
    }

    /// How often the device had got its size when this was made.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn stats(&self) -> TierStats {
        let (written_bytes, failed_writes) = (self.out.bytes, self.out.failures);
        TierStats { written_bytes, failed_writes, ..self.stats.clone() }
    }

    /// Earns CPU time under these budgets, and begins to spend it. `clock` reads the CPU time of
    /// the thread.
    pub(crate) fn begin<'a>(
        &mut self,
        budgets: Budgets,
        elapsed: u64,
        clock: &'a dyn Fn() -> u64,
    ) -> Spell<'a> {
        self.policy.set_budgets(budgets);
        self.out.allowance.earn_at(Allowance::of_a_day(budgets.written_a_day), elapsed);
        self.round.earn(budgets.cpu_percent, elapsed, clock)
    }

    /// Spends CPU time.
    pub(crate) fn spend(&mut self, nanoseconds: u64) {
        self.round.spend(nanoseconds);
        self.stats.cpu_ns += nanoseconds;
    }

    /// Whether memory should be put together now; the caller does it.
    pub(crate) fn takes_compaction(&mut self) -> bool {
        let wanted = self.is_between() && self.policy.wants_compaction();
        if wanted {
            self.policy.compacted();
            self.stats.compactions += 1;
        }
        wanted
    }

    /// Goes on with the pass, or begins one if it is time. Returns whether it ran out of time.
    pub(crate) fn go_on(&mut self, place: &Place<'_>, spell: Spell<'_>) -> bool {
        let Place { engine, readers, pages, now, uses, .. } = *place;
        if self.is_between() {
            let pause = match self.uses == uses {
                true => self.policy.rest(),
                false => self.policy.pause(),
            };
            if self.begun.is_some_and(|begun| now.saturating_sub(begun) < pause) {
                return false;
            }
            (self.begun, self.uses) = (Some(now), uses);
            self.round.begin(0);
            self.mover.begin(place);
            self.out.begin();
        }
        let end = pages.min(engine.capacity());
        let mut round = self.round;
        let ended = round.go_on(end, spell, |next| {
            // The readers leave before long, for others wait for them.
            let (group, next) = self.look(place, &readers.enter(CPU), next, end);
            if let Some(group) = group {
                // Without space, pages move later.
                let _ = self.move_group(place, &group);
            }
            next
        });
        self.round = round;
        if ended {
            self.finish(engine, now);
        }
        !ended
    }

    /// The bytes that the moves of the present pass saved.
    pub(crate) fn saved(&self) -> u64 {
        self.pass.tiers.iter().map(|tier| tier.saved).sum()
    }

    /// Notes in a group what its page is to do. Returns false if the page should move, but cannot.
    pub(crate) fn sort_in(
        &self,
        engine: &Engine,
        page: &Looked,
        verdict: &Verdict,
        group: &mut Group,
    ) -> bool {
        let Looked { index, slot, seen } = *page;
        let (member, bit) = (index - group.first, 1 << (index - group.first));
        group.memories[member] = verdict.memory;
        match verdict.action {
            // Until it leaves, a page is as those that stay.
            Action::Stay | Action::Down(OUT) => {
                let is_cold = verdict.memory.tier() == COLD || verdict.action != Action::Stay;
                if is_cold && packs(slot) {
                    group.with_cold |= bit;
                }
                group.is_wasted |= self.mover.can_pack() && engine.is_wasted(slot);
            }
            Action::Up => group.up |= bit,
            Action::Down(WARM) if !slot.is_incompressible() => {
                group.to_warm |= bit;
                if verdict.goes_on && self.mover.can_pack() {
                    group.to_compare |= bit;
                    group.memories[member] = verdict.memory.compared();
                }
            }
            Action::Down(COLD) if packs(slot) && self.mover.can_pack() => {
                group.to_cold |= bit;
                if seen.tier == 0 && seen.memory.is_compared() {
                    group.compared |= bit;
                }
            }
            // The codec that packs is gone since it was compared.
            Action::Down(COLD) if packs(slot) && seen.tier == 0 && seen.memory.is_compared() => {
                group.to_warm |= bit;
                group.compared |= bit;
                group.memories[member] = verdict.memory.in_tier(WARM);
            }
            Action::Down(_) => return false,
        }
        true
    }

    /// Looks at some pages from `next` on, up to a group of which some are to move. Returns that,
    /// and the page after those.
    fn look(
        &mut self,
        place: &Place<'_>,
        reader: &Reader<'_>,
        next: usize,
        end: usize,
    ) -> (Option<Group>, usize) {
        let Place { engine, now, .. } = *place;
        let until = end.min(next + LOOKS);
        let (mut index, mut next) = (engine.next_touched(next, until), next);
        while index < until {
            let mut group = Group::of(index, end);
            let mut seen = [None; EXTENT_PAGES];
            for index in engine.touched(index..group.end) {
                seen[index - group.first] = self.see(place, reader, index, &mut group);
            }
            group.settle();
            self.note_lonely(&group, &seen, now);
            next = group.end;
            if !group.is_empty() {
                return (Some(group), next);
            }
            index = engine.next_touched(group.end, until.max(group.end));
        }
        (None, next.max(until))
    }

    /// Looks at a page of a group. Returns what the pass has counted, if the page can move.
    fn see(
        &mut self,
        place: &Place<'_>,
        reader: &Reader<'_>,
        index: usize,
        group: &mut Group,
    ) -> Option<Looked> {
        let Place { engine, now, .. } = *place;
        let slot = engine.peek(index);
        let word = self.memory.get(index);
        let memory = Memory::from_bits(word.load(Ordering::Relaxed));
        let tier = match slot.kind() {
            // Only those that left by themselves come back by themselves.
            Kind::WrittenBack(_) if memory.tier() == OUT => OUT,
            _ => tier_of(engine, reader, slot)?,
        };
        let last_used = engine.last_access(index).unwrap_or(now);
        let seen = Seen { tier, last_used, memory };
        let page = Looked { index, slot, seen };
        let verdict = self.policy.judge(seen, now);
        self.pass.count(&seen, &verdict, now);
        match verdict.action {
            Action::Stay => _ = self.remember(index, verdict.memory),
            Action::Up if tier == OUT => {
                if !self.out.add_coming(index, verdict.memory) {
                    self.remember(index, verdict.memory.in_tier(OUT));
                }
                return Some(page);
            }
            Action::Down(OUT) if leaves(slot) => self.let_go(&page, verdict.memory),
            Action::Down(OUT) => self.pass.stays(&seen, now),
            _ => {}
        }
        if !self.sort_in(engine, &page, &verdict, group) {
            self.pass_by(&page, now);
        }
        Some(page)
    }

    /// Adds a page that is to leave memory.
    fn let_go(&mut self, page: &Looked, memory: Memory) {
        let Looked { index, seen: Seen { last_used, .. }, .. } = *page;
        self.out.add_going(Going { index, last_used, memory });
    }

    /// A page that cannot move to the tiers in memory leaves it, if it is old enough for that.
    fn pass_by(&mut self, page: &Looked, now: u32) {
        let Looked { slot, seen, .. } = *page;
        self.pass.stays(&seen, now);
        // Also of a page that a process before has moved, of which nothing is remembered.
        let memory = seen.memory.used(seen.last_used).in_tier(COLD);
        let verdict = self.policy.judge(Seen { memory, ..seen }, now);
        if verdict.action == Action::Down(OUT) && leaves(slot) {
            self.let_go(page, verdict.memory);
        }
    }

    /// Pages that are old enough to be packed, but have no neighbour that is.
    fn note_lonely(&mut self, group: &Group, seen: &[Option<Looked>; EXTENT_PAGES], now: u32) {
        if group.packs() {
            return;
        }
        for (index, _) in group.pages(group.to_cold) {
            if let Some(page) = &seen[index - group.first] {
                self.pass_by(page, now);
            }
        }
    }

    /// Returns whether that is new.
    pub(crate) fn remember(&self, index: usize, memory: Memory) -> bool {
        let word = self.memory.get(index);
        let is_new = word.load(Ordering::Relaxed) != memory.bits();
        if is_new {
            word.store(memory.bits(), Ordering::Relaxed);
        }
        is_new
    }

    /// Whether a pass has ended, and the next has not begun.
    pub(crate) fn is_between(&self) -> bool {
        !self.round.is_under_way()
    }

    /// Counts pages that left memory, and the bytes of their objects. The next pass tells.
    pub(crate) fn count_out(&mut self, pages: u64, bytes: u64) {
        let TierPass { moved, saved, .. } = &mut self.pass.tiers[OUT];
        (*moved, *saved) = (*moved + pages, *saved + bytes);
    }

    /// Counts a page that came back from the backing device, if it did.
    pub(crate) fn count_back(&mut self, is_up: bool) {
        self.pass.tiers[OUT].raised += u64::from(is_up);
    }

    /// Moves the pages of a group.
    ///
    /// # Errors
    /// `NoMemory`, `NoSpace`: pages stay that should have moved down.
    pub(crate) fn move_group(&mut self, place: &Place<'_>, group: &Group) -> Result<(), IoError> {
        let Place { engine, readers, .. } = *place;
        for (index, memory) in group.pages(group.up) {
            let reader = readers.enter(CPU);
            let tier = tier_of(engine, &reader, engine.peek(index)).unwrap_or(0);
            drop(reader);
            let is_up = self.mover.raise(place, index);
            self.pass.tiers[tier].raised += u64::from(is_up);
            self.remember(index, memory);
        }
        let mut outcome = Ok(());
        for (index, memory) in group.pages(group.to_warm) {
            let word = |index| self.memory.get(index).load(Ordering::Relaxed);
            let is_compared = |index| Memory::from_bits(word(index)).is_compared();
            let compares = group.has(group.to_compare, index);
            let made = if group.has(group.compared, index) {
                self.mover.recompress(place, index)
            } else if compares {
                self.mover.compare(place, index, &is_compared)
            } else {
                self.mover.warm(place, index, &is_compared)
            };
            match made {
                Ok(Recompressed::Done { from, to }) => {
                    let TierPass { moved, saved, .. } = &mut self.pass.tiers[WARM];
                    (*moved, *saved) = (*moved + 1, *saved + from.saturating_sub(to) as u64);
                    self.remember(index, memory);
                }
                Ok(Recompressed::NoSmaller) => {
                    self.pass.goes_on |= compares;
                    self.again |= self.remember(index, memory);
                }
                Err(error @ (IoError::NoSpace | IoError::NoMemory)) => outcome = Err(error),
                // Later.
                Ok(Recompressed::Skipped | Recompressed::InUse) => self.again = true,
                // It is bad, and only its readers hear of that.
                Err(IoError::Corrupt) => self.again |= self.remember(index, memory),
                Err(_) => {}
            }
        }
        if !group.packs() {
            return outcome;
        }
        match self.mover.pack(place, group) {
            Ok(Packed { in_use: true, .. }) => self.again = true,
            Ok(packed) => {
                let moves = [(COLD, (packed.pages, packed.saved)), (WARM, packed.alone)];
                for (tier, (pages, bytes)) in moves {
                    let TierPass { moved, saved, .. } = &mut self.pass.tiers[tier];
                    (*moved, *saved) = (*moved + pages, *saved + bytes);
                }
                // Also those that were not packed: they would take no less memory.
                let to_cold = group.pages(group.to_cold);
                let learnt = to_cold.filter(|(index, memory)| self.remember(*index, *memory));
                self.again |= learnt.count() > 0;
            }
            Err(error @ (IoError::NoSpace | IoError::NoMemory)) => outcome = Err(error),
            // The codec was changed: later.
            Err(_) => {}
        }
        outcome
    }

    /// Ends a pass.
    fn finish(&mut self, engine: &Engine, now: u32) {
        engine.give_back(CPU);
        self.pass.seconds = self.ended.map_or(0, |ended| now.saturating_sub(ended));
        self.pass.memory = engine.pool().stats().frames * PAGE_SIZE as u64;
        self.policy.learn(&self.pass);
        for (tier, counts) in self.stats.tiers.iter_mut().enumerate().take(MOST_TIERS) {
            let TierPass { pages, moved, saved, raised, soon, late, .. } = self.pass.tiers[tier];
            counts.pages = pages;
            counts.age = self.policy.age(tier);
            counts.moved += moved;
            counts.saved += saved;
            counts.raised += raised;
            counts.too_soon += soon;
            counts.late += late;
        }
        self.stats.passes += 1;
        (self.ended, self.pass) = (Some(now), Pass::default());
    }
}
