//! Tiers: pages move to smaller forms by themselves, as [`tiers::Policy`] decides.
//!
//! A thread of the program calls `Disk::move_pages` regularly. Each call goes on with the present
//! pass over all pages until the pass ends or the CPU time that it may take is spent.

use alloc::vec::Vec;

use block::IoError;
use objects::Object;
use pagealloc::LazyTable;
use sync::atomic::{AtomicU32, Ordering};
use sync::{Reader, ReaderEpochs};
use tiers::{Action, Budgets, Credit, MOST_TIERS, Memory, Pass, Policy, Seen, Tier, TierPass};
use units::{Cpu, PAGE_SIZE};

use crate::engine::Engine;
use crate::page_ops::{Recompressed, Recompression, Select};
use crate::resources::Design;
use crate::slot::{Kind, Slot};

/// The CPU of the thread that goes through all pages; any CPU will do.
const CPU: Cpu = Cpu(0);
/// Pages between two looks at the CPU time: pages that only are looked at, and pages that move.
const LOOKS: usize = 4096;
const MOVES: u32 = 8;

/// How a page gets into a tier.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// As every page is stored.
    Store,
    /// By compression with the codec of this priority.
    Recompress(u8),
}

/// The tiers of a device. A further tier is one more line here, a step, and its arm in [`tier_of`]
/// and [`TierWalk::move_down`].
static TIERS: [Tier; 2] = [
    Tier { name: "hot", slowest_read: 0, worth: 0 },
    Tier { name: "warm", slowest_read: 40, worth: 64 },
];
const STEPS: [Step; TIERS.len()] = [Step::Store, Step::Recompress(1)];

/// The codec of the warm tier, if the device has no other of its priority, and its level.
pub(crate) const WARM: (&str, i32) = ("zstd", 1);

/// The tier of a page; `None` if its slot holds nothing that could move.
fn tier_of<D: Design>(engine: &Engine<D>, reader: &Reader<'_>, slot: Slot) -> Option<usize> {
    let priority = match slot.kind() {
        Kind::Stored(Object::Compressed { codec, .. }) => engine.priority_of(reader, codec),
        Kind::Stored(Object::Huge(_)) => 0,
        _ => return None,
    };
    let is_there =
        |step: &Step| matches!(step, Step::Recompress(at) if priority > 0 && *at <= priority);
    Some(STEPS.iter().rposition(is_there).unwrap_or(0))
}

/// What the tiers of a device did since it got its size.
#[derive(Clone, Debug, Default)]
pub struct TierStats {
    /// Tier by tier, the hot one first.
    pub tiers: Vec<TierCounts>,
    /// Passes over all pages.
    pub passes: u64,
    /// Times that memory was put together.
    pub compactions: u64,
    /// CPU time of all this, in nanoseconds.
    pub cpu_ns: u64,
}

/// What is known of a tier.
#[derive(Clone, Debug, Default)]
pub struct TierCounts {
    /// Its name.
    pub name: &'static str,
    /// The age in seconds at which pages move there now; `None` if they do not.
    pub age: Option<u32>,
    /// Pages that were there in the last whole pass.
    pub pages: u64,
    /// Pages that moved there, and the bytes that this saved.
    pub moved: u64,
    /// See `moved`.
    pub saved: u64,
    /// Pages that came up from there.
    pub raised: u64,
    /// Pages that were used too soon after their move there.
    pub too_soon: u64,
    /// Pages that were used later.
    pub late: u64,
}

/// The tiers of a device that has a size.
pub(crate) struct TierWalk {
    generation: u64,
    budgets: Budgets,
    policy: Policy,
    credit: Credit,
    /// What the policy remembers of each page.
    memory: LazyTable<AtomicU32>,
    /// The page with which the pass goes on.
    next: usize,
    pass: Pass,
    /// When the present pass began; `None` between two passes.
    begun: Option<u32>,
    /// When the last pass began and ended, in seconds.
    last: Option<(u32, u32)>,
    stats: TierStats,
}

/// The pages of a device, and the present second.
pub(crate) struct Place<'a, D: Design> {
    pub(crate) engine: &'a Engine<D>,
    pub(crate) readers: &'a ReaderEpochs,
    pub(crate) pages: usize,
    pub(crate) now: u32,
}

impl TierWalk {
    pub(crate) fn new(generation: u64, budgets: Budgets, memory: LazyTable<AtomicU32>) -> TierWalk {
        let counts = |tier: &Tier| TierCounts { name: tier.name, ..TierCounts::default() };
        TierWalk {
            generation,
            budgets,
            policy: Policy::new(&TIERS, budgets),
            credit: Credit::new(budgets.cpu_percent),
            memory,
            next: 0,
            pass: Pass::default(),
            begun: None,
            last: None,
            stats: TierStats { tiers: TIERS.iter().map(counts).collect(), ..Default::default() },
        }
    }

    /// How often the device had got its size when this was made.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn stats(&self) -> &TierStats {
        &self.stats
    }

    /// Earns CPU time under these budgets. Returns how much there is, in nanoseconds.
    pub(crate) fn earn(&mut self, budgets: Budgets, elapsed: u64) -> u64 {
        if self.budgets != budgets {
            self.budgets = budgets;
            self.policy.set_budgets(budgets);
            self.credit = Credit::new(budgets.cpu_percent);
        }
        self.credit.earn(elapsed);
        self.credit.left()
    }

    /// Spends CPU time.
    pub(crate) fn spend(&mut self, nanoseconds: u64) {
        self.credit.spend(nanoseconds);
        self.stats.cpu_ns += nanoseconds;
    }

    /// Whether memory should be put together now; the caller does it.
    pub(crate) fn takes_compaction(&mut self) -> bool {
        let wanted = self.begun.is_none() && self.policy.wants_compaction();
        if wanted {
            self.policy.compacted();
            self.stats.compactions += 1;
        }
        wanted
    }

    /// Goes on with the pass, or begins one if it is time. Returns whether it ran out of time.
    pub(crate) fn go_on<D: Design>(
        &mut self,
        place: &Place<'_, D>,
        has_time: &dyn Fn() -> bool,
    ) -> bool {
        let Place { engine, readers, pages, now } = *place;
        if self.begun.is_none() {
            let is_due = |(begun, _)| now.saturating_sub(begun) >= self.policy.pause();
            if !self.last.is_none_or(is_due) {
                return false;
            }
            self.begun = Some(now);
        }
        let end = pages.min(engine.capacity());
        let mut moves = 0;
        while self.next < end {
            if !has_time() {
                return true;
            }
            let piece = self.next..(self.next + LOOKS).min(end);
            let reader = readers.enter(CPU);
            let mut index = engine.next_touched(piece.start, piece.end);
            while index < piece.end {
                moves += u32::from(self.see(engine, &reader, index, now));
                index = engine.next_touched(index + 1, piece.end);
                // The reader leaves before long, for others wait for it.
                if moves == MOVES {
                    moves = 0;
                    break;
                }
            }
            self.next = index;
        }
        self.finish(engine, now);
        false
    }

    /// Looks at a page, and moves it if that is to be done. Returns whether it tried.
    fn see<D: Design>(
        &mut self,
        engine: &Engine<D>,
        reader: &Reader<'_>,
        index: usize,
        now: u32,
    ) -> bool {
        let slot = engine.peek(index);
        let Some(tier) = tier_of(engine, reader, slot) else { return false };
        let word = self.memory.get(index);
        let remembered = Memory::from_bits(word.load(Ordering::Relaxed));
        let last_used = engine.last_access(index).unwrap_or(now);
        let seen = Seen { tier, last_used, memory: remembered };
        let verdict = self.policy.judge(seen, now);
        self.pass.count(&seen, &verdict, now);
        let remember = |memory: Memory| {
            if memory != remembered {
                word.store(memory.bits(), Ordering::Relaxed);
            }
        };
        match verdict.action {
            Action::Stay => {
                remember(verdict.memory);
                false
            }
            Action::Up => {
                // Without space, it stays where it is.
                let is_up = engine.raise(reader, CPU, index).unwrap_or(false);
                self.pass.tiers[tier].raised += u64::from(is_up);
                remember(verdict.memory);
                true
            }
            Action::Down(_) if slot.is_incompressible() => false,
            Action::Down(to) => {
                let before = slot.object().map_or(PAGE_SIZE, Object::bytes);
                match move_down(engine, reader, index, to) {
                    Ok(Recompressed::Smaller) => {
                        let after = engine.peek(index).object().map_or(before, Object::bytes);
                        let TierPass { moved, saved, .. } = &mut self.pass.tiers[to];
                        *moved += 1;
                        *saved += before.saturating_sub(after) as u64;
                        remember(verdict.memory);
                    }
                    Ok(Recompressed::InVain) => remember(verdict.memory),
                    // It was used meanwhile, or is bad, or there is no space: later.
                    Ok(Recompressed::Skipped) | Err(_) => {}
                }
                true
            }
        }
    }

    /// Ends a pass.
    fn finish<D: Design>(&mut self, engine: &Engine<D>, now: u32) {
        engine.give_back(CPU);
        let begun = self.begun.take().unwrap_or(now);
        self.pass.seconds = self.last.map_or(0, |(_, ended)| now.saturating_sub(ended));
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
        (self.last, self.next, self.pass) = (Some((begun, now)), 0, Pass::default());
    }
}

/// Moves a page down to a tier.
fn move_down<D: Design>(
    engine: &Engine<D>,
    reader: &Reader<'_>,
    index: usize,
    to: usize,
) -> Result<Recompressed, IoError> {
    match STEPS[to] {
        Step::Store => Ok(Recompressed::Skipped),
        Step::Recompress(priority) => {
            let how = Recompression { priority, select: Select::Any, threshold: 0, last: false };
            engine.recompress(reader, CPU, index, how)
        }
    }
}
