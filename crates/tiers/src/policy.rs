//! The policy: which pages move, by age, budgets and what was learned.

use crate::MOST_TIERS;
use crate::intervals::{GENERATIONS, Intervals, Past, generation};
use crate::memory::Memory;

/// A tier of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tier {
    /// Its name.
    pub name: &'static str,
    /// The slowest read of a page that is there, in microseconds: about the 99th percentile.
    pub slowest_read: u32,
    /// Seconds that a page must stay there for its move, and its slower read, to be worth it.
    pub worth: u32,
    /// Its pages are on a device, not in memory. Pages move there only if
    /// [`Budgets::written_a_day`] allows writes, and not before [`TIMES_OLDER`] times the age at
    /// which they move to the tier before.
    pub on_device: bool,
}

/// The limits that an operator sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// Bytes of memory that are aimed at. Above it pages move, the oldest first. 0: all pages that
    /// are old enough move.
    pub target: u64,
    /// CPU time of all work, in percent of one CPU: 1 to 100.
    pub cpu_percent: u32,
    /// Tiers with slower reads are not used, in microseconds. 0: all are.
    pub slowest_read: u32,
    /// Bytes a day that may be written to a tier on a device. 0: no page moves there.
    pub written_a_day: u64,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets { target: 0, cpu_percent: 5, slowest_read: 0, written_a_day: 0 }
    }
}

/// A page as a pass finds it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its tier.
    pub tier: usize,
    /// The second of its last use.
    pub last_used: u32,
    /// What the policy remembers of it.
    pub memory: Memory,
}

/// What is to be done with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing.
    Stay,
    /// It moves down to this tier.
    Down(usize),
    /// It moves up to tier 0.
    Up,
}

/// What a page tells about a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// Nothing new.
    Nothing,
    /// It was used, so soon after its move to this tier that the move was a mistake.
    TooSoon(usize),
    /// It was used long after its move to this tier.
    Late(usize),
}

/// The judgement of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What to do.
    pub action: Action,
    /// It is of tier 0, is to move to tier 1, and is old enough for tier 2, too. If it is only
    /// [`Memory::compared`] with others, it moves to that one next time.
    pub goes_on: bool,
    /// What to remember, if that was done.
    pub memory: Memory,
    /// What to count, whether it was done or not.
    pub news: News,
    /// The seconds between the last two uses, if the last is new.
    pub interval: Option<u32>,
}

/// What a pass saw and did in one tier.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TierPass {
    /// Pages, as they were found.
    pub pages: u64,
    /// The ages by generation of those that could move down.
    pub ages: [u64; GENERATIONS],
    /// Pages that moved here.
    pub moved: u64,
    /// Bytes that these moves saved.
    pub saved: u64,
    /// Pages that came up from here.
    pub raised: u64,
    /// Pages of here that were used too soon.
    pub soon: u64,
    /// Pages of here that were used later.
    pub late: u64,
}

/// What a pass over all pages saw and did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pass {
    /// Seconds since the end of the pass before.
    pub seconds: u32,
    /// Bytes of memory that the pages take now.
    pub memory: u64,
    /// Seconds since the last use of a page, if there are pages.
    pub unused: Option<u32>,
    /// Tier by tier.
    pub tiers: [TierPass; MOST_TIERS],
    /// Pages were compared that the next pass moves.
    pub goes_on: bool,
    /// The intervals between uses that ended.
    pub ended: Intervals,
    /// Those that have not ended, as long as they will probably be.
    pub lasting: Intervals,
}

impl Pass {
    /// Counts a page that was seen in the second `now`, and its verdict.
    pub fn count(&mut self, page: &Seen, verdict: &Verdict, now: u32) {
        let age = now.saturating_sub(page.last_used);
        self.tiers[page.tier].pages += 1;
        self.unused = Some(self.unused.map_or(age, |unused| unused.min(age)));
        // A page that became no smaller stays, whatever its age.
        if verdict.action != Action::Stay || verdict.memory.tier() <= page.tier {
            self.tiers[page.tier].ages[generation(age)] += 1;
        }
        // On average an interval is half over when one looks.
        self.lasting.add(age.saturating_mul(2));
        if let Some(seconds) = verdict.interval {
            self.ended.add(seconds);
        }
        match verdict.news {
            News::Nothing => {}
            News::TooSoon(tier) => self.tiers[tier].soon += 1,
            News::Late(tier) => self.tiers[tier].late += 1,
        }
    }

    /// A page that was counted cannot move down now, although it should.
    pub fn stays(&mut self, page: &Seen, now: u32) {
        let age = now.saturating_sub(page.last_used);
        let count = &mut self.tiers[page.tier].ages[generation(age)];
        debug_assert!(*count > 0, "a page that was not counted: {page:?}");
        *count = count.saturating_sub(1);
    }
}

/// Which pages move, and when. See the crate.
#[derive(Clone, Debug)]
pub struct Policy {
    tiers: &'static [Tier],
    budgets: Budgets,
    past: Past,
    /// The age at which a move to each tier pays best.
    best: [u32; MOST_TIERS],
    /// The age at which pages move to each tier now; `None` if they do not.
    ages: [Option<u32>; MOST_TIERS],
    /// All pages that moved, and the bytes that this saved.
    moved: u64,
    saved: u64,
    /// Pages that moved since memory was last put together.
    loose: u64,
    compact: bool,
    /// The pause of a device at rest, if that is longer.
    rest: u32,
}

/// The guess of what a move saves, in bytes, until there are moves.
const SAVED: u64 = 256;
/// The most seconds between passes. A use is seen only if a pass comes before the next one.
const PAUSE: u32 = 4;
/// The same while nothing is used.
const REST: u32 = 64;
/// A pass comes late by one in so many parts of the age at which pages move, or of that of the
/// youngest page at rest.
const LATE: u32 = 8;
/// A page that moves to a tier on a device is this many times as old as one that moves to the tier
/// before.
pub const TIMES_OLDER: u32 = 4;
/// Memory is put together when one in this many pages moved.
const LOOSE: u64 = 64;

impl Policy {
    /// A policy for these tiers, of which the first is that of new pages. More than [`MOST_TIERS`]
    /// are not used.
    #[must_use]
    pub fn new(tiers: &'static [Tier], budgets: Budgets) -> Policy {
        let mut policy = Policy {
            tiers: &tiers[..tiers.len().min(MOST_TIERS)],
            budgets,
            past: Past::default(),
            best: [0; MOST_TIERS],
            ages: [None; MOST_TIERS],
            moved: 0,
            saved: 0,
            loose: 0,
            compact: false,
            rest: 0,
        };
        policy.plan(&Pass::default());
        policy
    }

    /// The age in seconds at which pages move to a tier now; `None` if they do not.
    #[must_use]
    pub fn age(&self, tier: usize) -> Option<u32> {
        self.ages.get(tier).copied().flatten()
    }

    /// The seconds between the beginnings of two passes.
    #[must_use]
    pub fn pause(&self) -> u32 {
        let best = self.usable().map(|tier| self.best[tier]).min();
        best.map_or(u32::MAX, |age| (age / LATE).clamp(1, PAUSE))
    }

    /// The same if the device was not used since the last pass began. There is little to do, and a
    /// look at all pages costs the same each time.
    #[must_use]
    pub fn rest(&self) -> u32 {
        self.pause().max(self.rest)
    }

    /// Whether the device should put its memory together now.
    #[must_use]
    pub fn wants_compaction(&self) -> bool {
        self.compact
    }

    /// The device has put its memory together.
    pub fn compacted(&mut self) {
        (self.compact, self.loose) = (false, 0);
    }

    /// Changes the budgets, from the next pass on.
    pub fn set_budgets(&mut self, budgets: Budgets) {
        if budgets != self.budgets {
            (self.budgets, self.rest) = (budgets, 0);
        }
    }

    /// What to do with a page in the second `now`.
    #[must_use]
    pub fn judge(&self, page: Seen, now: u32) -> Verdict {
        let Seen { tier, last_used, memory } = page;
        // A process before may have moved it.
        let is_new = memory == Memory::default();
        let memory = if is_new { memory.used(last_used).in_tier(tier) } else { memory };
        // An equal page was found: it shares an object, as does one that others came to.
        let has_moved = memory.is_compared() && tier > 0;
        let memory = if has_moved { memory.in_tier(tier) } else { memory };
        let (interval, memory) = (memory.idle(last_used), memory.used(last_used));
        let (action, news) = (Action::Stay, News::Nothing);
        let stays = Verdict { action, goes_on: false, memory, news, interval };
        match (interval, memory.tier()) {
            (Some(seconds), was @ 1..) => return self.came_back(tier, was, seconds, stays),
            (Some(_), 0) => return stays,
            (None, _) => {}
        }
        let age = u64::from(now.saturating_sub(last_used));
        // A page that could not become smaller in a tier is not tried there again until it is used.
        let next = tier.max(memory.tier()) + 1;
        let is_due =
            |to| self.age(to).is_some_and(|wanted| age >= u64::from(wanted) << memory.returns());
        if !is_due(next) {
            return stays;
        }
        let goes_on = tier == 0 && next == 1 && is_due(2);
        let to = if goes_on && memory.is_compared() { 2 } else { next };
        let (action, goes_on) = (Action::Down(to), goes_on && to == 1);
        Verdict { action, goes_on, memory: memory.in_tier(to), ..stays }
    }

    /// What to do with a page in the second `now` if memory is needed at once: it moves down
    /// whatever its age, unless it became no smaller there. No page moves up. What the page tells
    /// is not counted: it did not choose the time of its move.
    #[must_use]
    pub fn press(&self, page: Seen, now: u32) -> Verdict {
        let judged = self.judge(page, now);
        let silent = Verdict { news: News::Nothing, interval: None, goes_on: false, ..judged };
        if let Action::Down(_) = judged.action {
            return silent;
        }
        let to = page.tier.max(judged.memory.tier()) + 1;
        if self.usable().any(|tier| tier == to) {
            return Verdict {
                action: Action::Down(to),
                memory: judged.memory.in_tier(to),
                ..silent
            };
        }
        // A pass has yet to hear of its last use.
        Verdict { action: Action::Stay, memory: page.memory, ..silent }
    }

    /// A page that was used `seconds` after the use before, and had moved to the tier `was`.
    fn came_back(&self, tier: usize, was: usize, seconds: u32, stays: Verdict) -> Verdict {
        let worth = self.tiers.get(was).map_or(0, |tier| tier.worth);
        let memory = stays.memory;
        let soon = seconds < self.best[was % MOST_TIERS].saturating_add(worth);
        let (news, returns) = match soon {
            true => (News::TooSoon(was), memory.returns() + 1),
            false => (News::Late(was), memory.returns().saturating_sub(1)),
        };
        let memory = memory.with_returns(returns);
        let up = memory.in_tier(0);
        match (tier, soon) {
            // A store brought it up already.
            (0, _) => Verdict { memory: up, news, ..stays },
            (_, true) => Verdict { action: Action::Up, memory: up, news, ..stays },
            // One read after a long time says nothing about the next: a program that reads all of
            // its memory once must not bring all of it up.
            (_, false) => Verdict { memory, news, ..stays },
        }
    }

    /// Learns from a pass, and plans the next one.
    pub fn learn(&mut self, pass: &Pass) {
        self.past.add(&pass.ended, pass.seconds);
        for tier in &pass.tiers {
            self.moved += tier.moved;
            self.saved += tier.saved;
            self.loose += tier.moved;
        }
        let planned = self.ages;
        self.plan(pass);
        let pages: u64 = pass.tiers.iter().map(|tier| tier.pages).sum();
        let moved = pass.tiers.iter().map(|tier| tier.moved).sum::<u64>();
        let at_rest = moved <= pages / LOOSE && self.loose > pages / LOOSE;
        self.compact = at_rest || self.loose > pages / 4;
        // By other ages, the next pass may move pages.
        let rests = moved == 0 && !pass.goes_on && self.ages == planned;
        self.rest = pass.unused.filter(|_| rests).map_or(0, |unused| (unused / LATE).min(REST));
    }

    /// The tiers that are fast enough, and may be written.
    fn usable(&self) -> impl Iterator<Item = usize> + use<> {
        let (tiers, Budgets { slowest_read: slowest, written_a_day, .. }) =
            (self.tiers, self.budgets);
        (1..tiers.len()).filter(move |tier| {
            let Tier { slowest_read, on_device, .. } = tiers[*tier];
            (slowest == 0 || slowest_read <= slowest) && (!on_device || written_a_day > 0)
        })
    }

    /// Sets the ages at which pages move.
    fn plan(&mut self, pass: &Pass) {
        self.ages = [None; MOST_TIERS];
        let target = self.budgets.target;
        let mut needed = pass.memory.saturating_sub(target);
        let each = self.saved.checked_div(self.moved).map_or(SAVED, |saved| saved.max(1));
        for tier in self.usable() {
            let Tier { worth, on_device, .. } = self.tiers[tier];
            self.best[tier] = self.past.best_age(&pass.lasting, worth);
            if on_device {
                let before = self.best[tier - 1].saturating_mul(TIMES_OLDER);
                self.best[tier] = self.best[tier].max(before);
            }
            if target == 0 {
                self.ages[tier] = Some(self.best[tier]);
                continue;
            }
            // The oldest pages first, as many as are needed.
            for generation in (0..GENERATIONS).rev() {
                let age = 1 << generation;
                if needed == 0 || age < self.best[tier] {
                    break;
                }
                self.ages[tier] = Some(age);
                let pages: u64 = pass.tiers[..tier].iter().map(|it| it.ages[generation]).sum();
                needed = needed.saturating_sub(pages.saturating_mul(each));
            }
        }
    }
}
