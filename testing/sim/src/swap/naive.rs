//! A cache that is too simple to be wrong, except for a flaw that a test chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::{BlockDevice, Job, Operation};
use sync::{EventCount, Mutex, MutexGuard};
use units::{Cpu, PAGE_SIZE, Page};

use super::model::{limit, mark};
use super::{
    AREAS, Cache, FaultyDevice, Found, MEMCGS, Model, PAGES, Policy, Queue, Reclaimed, Refusal,
    SwapPage, Totals,
};

const P: u64 = PAGE_SIZE as u64;
/// `EBUSY` and `ENODEV`.
const BUSY: i32 = 16;
const NO_DEVICE: i32 = 19;

/// The fault of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// No fault.
    None,
    /// After writeback of a page the thread removes whatever page is at that place then.
    TakesAnother,
    /// A page leaves the cache before it is on its device.
    LeavesTooSoon,
    /// A page is dropped when its write fails.
    DropsOnFailure,
    /// A page whose write fails is never the oldest again.
    LosesItsPlace,
    /// A refused store leaves the previous page in the cache.
    KeepsOldOnRefusal,
    /// A store is refused while a write of the previous page is under way.
    RefusesTooSoon,
    /// Pages that are dropped with their area stay counted.
    AreaForgetsCounts,
    /// A replaced page stays charged to its memcg.
    DuplicateForgetsMemcg,
    /// No page gets a second chance.
    NoSecondChance,
    /// The cache takes pages until it is sixteen pages over the limit.
    LimitOffByBatch,
    /// A full cache takes pages again as soon as it is below the limit.
    NoHysteresis,
    /// All writes are under way at once, without a limit.
    UnboundedWrites,
    /// A failed write is counted as a success.
    CountsFailures,
    /// An exclusive load leaves the page in the cache.
    KeepsWhatWasTaken,
    /// Pages of a memcg with writeback off are written back.
    IgnoresSwitch,
    /// The cache ignores the limit of a memcg.
    IgnoresShare,
    /// An area is turned off while it has pages.
    LeavesPagesBehind,
    /// A page that is invalidated during its writeback stays in the cache.
    ForgetsInvalidation,
}

impl Flaw {
    /// The flaws that a single thread can detect.
    pub const SEEN_BY_ONE: [Flaw; 15] = [
        Flaw::DropsOnFailure,
        Flaw::LosesItsPlace,
        Flaw::KeepsOldOnRefusal,
        Flaw::AreaForgetsCounts,
        Flaw::DuplicateForgetsMemcg,
        Flaw::NoSecondChance,
        Flaw::LimitOffByBatch,
        Flaw::NoHysteresis,
        Flaw::UnboundedWrites,
        Flaw::CountsFailures,
        Flaw::KeepsWhatWasTaken,
        Flaw::IgnoresSwitch,
        Flaw::IgnoresShare,
        Flaw::LeavesPagesBehind,
        Flaw::LeavesTooSoon,
    ];
    /// The flaws that only a race shows.
    pub const SEEN_IN_RACES: [Flaw; 4] =
        [Flaw::TakesAnother, Flaw::LeavesTooSoon, Flaw::RefusesTooSoon, Flaw::ForgetsInvalidation];
}

/// A cache with one lock and a map of uncompressed pages.
pub struct Naive {
    flaw: Flaw,
    state: Mutex<State>,
    /// Rung when the write of a page ends.
    written: EventCount,
}

struct Entry {
    contents: Box<Page>,
    memcg: usize,
    life: u64,
}

struct State {
    areas: [Option<Arc<FaultyDevice>>; AREAS],
    entries: BTreeMap<SwapPage, Entry>,
    queue: Queue,
    /// Pages that are being written back.
    claims: BTreeSet<SwapPage>,
    /// Pages written back, and neither replaced nor invalidated since.
    backed: BTreeSet<SwapPage>,
    lives: u64,
    full: bool,
    frames: u64,
    enabled: bool,
    exclusive: bool,
    same_filled: bool,
    non_same_filled: bool,
    shrinker: bool,
    max_pool: u64,
    accept: u32,
    in_flight: usize,
    memcg_max: [u64; MEMCGS],
    writeback: [bool; MEMCGS],
    totals: Totals,
}

/// A page that is chosen for writeback.
struct Candidate {
    swap_page: SwapPage,
    life: u64,
    contents: Box<Page>,
    device_below: Arc<FaultyDevice>,
    made: bool,
}

impl Naive {
    /// Makes an empty cache with a flaw.
    #[must_use]
    pub fn new(flaw: Flaw) -> Naive {
        let state = State {
            areas: Default::default(),
            entries: BTreeMap::new(),
            queue: Queue::default(),
            claims: BTreeSet::new(),
            backed: BTreeSet::new(),
            lives: 0,
            full: false,
            frames: u64::MAX,
            enabled: true,
            exclusive: false,
            same_filled: true,
            non_same_filled: true,
            shrinker: true,
            max_pool: 0,
            accept: 90,
            in_flight: 4,
            memcg_max: [u64::MAX; MEMCGS],
            writeback: [true; MEMCGS],
            totals: Totals::default(),
        };
        let naive = Naive { flaw, state: Mutex::new(state), written: EventCount::default() };
        Model::settings().into_iter().for_each(|policy| naive.set(policy));
        naive
    }

    /// Writes a batch and returns its result.
    fn batch(&self, most: u64) -> Reclaimed {
        let mut chosen = self.choose(most);
        chosen.sort_by_key(|candidate| candidate.swap_page);
        for area in 0..AREAS {
            let of_area = chosen.iter_mut().filter(|candidate| candidate.swap_page.area == area);
            let (mut jobs, mut these) = (Vec::new(), Vec::new());
            let mut device_below = None;
            for candidate in of_area {
                let Candidate { swap_page, contents, made, .. } = candidate;
                device_below = Some(candidate.device_below.clone());
                let offset = swap_page.offset * P;
                jobs.push(Job::new(Operation::Write { offset, from: &contents[..] }));
                these.push(made);
            }
            if let Some(device_below) = device_below {
                device_below.submit_all(Cpu(0), &mut jobs);
            }
            for (job, made) in jobs.iter().zip(these) {
                *made = job.result.is_ok();
            }
        }
        let mut state = self.state.lock();
        let mut done = Reclaimed::default();
        for candidate in chosen {
            let Candidate { swap_page, life, made, .. } = candidate;
            state.claims.remove(&swap_page);
            let gone = made || self.flaw == Flaw::DropsOnFailure;
            let there = state.entries.get(&swap_page).is_some_and(|entry| entry.life == life);
            if gone && (there || self.flaw == Flaw::TakesAnother) {
                state.take_out(swap_page);
                state.backed.insert(swap_page);
            }
            if !made && there && self.flaw == Flaw::LosesItsPlace {
                state.queue.remove(swap_page);
            }
            if made || self.flaw == Flaw::CountsFailures {
                done.written += 1;
                state.totals.written_back += 1;
            } else {
                done.failed += 1;
            }
        }
        drop(state);
        self.written.notify_all();
        done
    }

    fn choose(&self, most: u64) -> Vec<Candidate> {
        let mut state = self.state.lock();
        let unbounded = self.flaw == Flaw::UnboundedWrites;
        let most = if unbounded { most as usize } else { state.in_flight.min(most as usize) };
        if self.flaw == Flaw::NoSecondChance {
            state.queue.forget_uses();
        }
        let mut chosen: Vec<Candidate> = Vec::new();
        for swap_page in state.queue.take(most) {
            let entry = &state.entries[&swap_page];
            let stays = !state.writeback[entry.memcg] && self.flaw != Flaw::IgnoresSwitch;
            if stays || state.claims.contains(&swap_page) {
                continue;
            }
            let Some(device_below) = state.areas[swap_page.area].clone() else { continue };
            let (life, contents) = (entry.life, entry.contents.clone());
            chosen.push(Candidate { swap_page, life, contents, device_below, made: false });
            state.claims.insert(swap_page);
        }
        if self.flaw == Flaw::LeavesTooSoon {
            chosen.iter().for_each(|candidate| state.take_out(candidate.swap_page));
        }
        chosen
    }

    fn evict(&self, pages: u64) -> Reclaimed {
        let mut sum = Reclaimed::default();
        while sum.written < pages {
            let done = self.batch(pages - sum.written);
            sum.written += done.written;
            sum.failed += done.failed;
            // A flaw counts failed writes as written; the limit ends a loop that has no other end.
            if done.written == 0 || sum.written > 1 << 10 {
                break;
            }
        }
        sum
    }

    fn refuse<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        swap_page: SwapPage,
        why: Refusal,
    ) -> Refusal {
        state.totals.refused += 1;
        if self.flaw == Flaw::KeepsOldOnRefusal {
            return why;
        }
        state.take_out(swap_page);
        state.backed.remove(&swap_page);
        if self.flaw == Flaw::RefusesTooSoon {
            return why;
        }
        loop {
            let ticket = self.written.ticket();
            if !state.claims.contains(&swap_page) {
                return why;
            }
            drop(state);
            self.written.wait(ticket);
            state = self.state.lock();
        }
    }
}

impl State {
    /// The size of a page: its bytes without the zeroes at its end.
    fn bytes(page: &Page) -> u64 {
        page.iter().rposition(|byte| *byte != 0).map_or(8, |last| last as u64 + 1)
    }

    fn pool_bytes(&self) -> u64 {
        self.entries.values().map(|entry| State::bytes(&entry.contents)).sum()
    }

    fn mark(&self) -> u64 {
        mark(self.max_pool, self.accept)
    }

    fn memcg_bytes(&self, memcg: usize) -> u64 {
        let mine = self.entries.values().filter(|entry| entry.memcg == memcg);
        mine.map(|entry| State::bytes(&entry.contents)).sum()
    }

    fn take_out(&mut self, swap_page: SwapPage) {
        self.queue.remove(swap_page);
        if let Some(entry) = self.entries.remove(&swap_page) {
            self.totals.stored -= 1;
            self.totals.memcg_pages[entry.memcg] -= 1;
        }
    }

    fn judge(
        &mut self,
        flaw: Flaw,
        swap_page: SwapPage,
        memcg: usize,
        page: &Page,
    ) -> Option<Refusal> {
        let (words, _) = page.as_chunks::<8>();
        let same = words.iter().all(|word| *word == words[0]);
        let taken =
            if same { self.same_filled || self.non_same_filled } else { self.non_same_filled };
        if !self.enabled || !taken {
            return Some(Refusal::Disabled);
        }
        if self.areas[swap_page.area].is_none() || swap_page.offset >= PAGES {
            return Some(Refusal::NoArea);
        }
        let bytes = State::bytes(page);
        if self.frames < bytes / P + 1 {
            return Some(Refusal::NoMemory);
        }
        let share = self.memcg_max[memcg];
        if self.memcg_bytes(memcg) >= share && flaw != Flaw::IgnoresShare {
            return Some(Refusal::MemcgLimit);
        }
        let pool = self.pool_bytes();
        if pool <= self.mark() || flaw == Flaw::NoHysteresis {
            self.full = false;
        }
        let slack = if flaw == Flaw::LimitOffByBatch { 16 * P } else { 0 };
        if self.full || pool + bytes > limit(self.max_pool) + slack {
            self.full = true;
            self.totals.limit_hits += 1;
            return Some(Refusal::PoolLimit);
        }
        None
    }
}

impl Cache for Naive {
    fn swapon(&self, area: usize, device: Arc<FaultyDevice>) -> Result<(), i32> {
        let mut state = self.state.lock();
        if state.areas[area].is_some() {
            return Err(BUSY);
        }
        state.areas[area] = Some(device);
        Ok(())
    }

    fn swapoff(&self, area: usize) -> Result<(), i32> {
        let mut state = self.state.lock();
        if state.areas[area].is_none() {
            return Err(NO_DEVICE);
        }
        let left =
            state.entries.keys().chain(&state.backed).any(|swap_page| swap_page.area == area);
        if left && self.flaw != Flaw::LeavesPagesBehind {
            return Err(BUSY);
        }
        state.areas[area] = None;
        Ok(())
    }

    fn store(&self, _: Cpu, swap_page: SwapPage, memcg: usize, page: &Page) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if let Some(why) = state.judge(self.flaw, swap_page, memcg, page) {
            return Err(self.refuse(state, swap_page, why));
        }
        if state.entries.contains_key(&swap_page) {
            state.totals.duplicates += 1;
            if self.flaw == Flaw::DuplicateForgetsMemcg {
                let old = state.entries[&swap_page].memcg;
                state.totals.memcg_pages[old] += 1;
            }
            state.take_out(swap_page);
        }
        state.lives += 1;
        let entry = Entry { contents: Box::new(*page), memcg, life: state.lives };
        state.entries.insert(swap_page, entry);
        state.backed.remove(&swap_page);
        state.queue.push(swap_page, false);
        state.totals.stored += 1;
        state.totals.memcg_pages[memcg] += 1;
        Ok(())
    }

    fn load(&self, _: Cpu, swap_page: SwapPage, page: &mut Page) -> Found {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get(&swap_page) else { return Found::Nothing };
        page.copy_from_slice(&entry.contents[..]);
        if state.exclusive && self.flaw != Flaw::KeepsWhatWasTaken {
            state.take_out(swap_page);
        } else {
            state.queue.touch(swap_page);
        }
        Found::Page
    }

    fn invalidate_page(&self, _: Cpu, swap_page: SwapPage) {
        let mut state = self.state.lock();
        if self.flaw == Flaw::ForgetsInvalidation && state.claims.contains(&swap_page) {
            return;
        }
        state.take_out(swap_page);
        state.backed.remove(&swap_page);
    }

    fn invalidate_area(&self, _: Cpu, area: usize) {
        let mut state = self.state.lock();
        let swap_pages: Vec<SwapPage> =
            state.entries.keys().filter(|swap_page| swap_page.area == area).copied().collect();
        let stored = state.totals.stored;
        swap_pages.into_iter().for_each(|swap_page| state.take_out(swap_page));
        state.backed.retain(|swap_page| swap_page.area != area);
        if self.flaw == Flaw::AreaForgetsCounts {
            state.totals.stored = stored;
        }
    }

    fn reclaim(&self, _: Cpu, pages: u64) -> Reclaimed {
        self.evict(pages)
    }

    fn work(&self) -> bool {
        let over = {
            let state = self.state.lock();
            state.full && state.pool_bytes() > state.mark()
        };
        over && self.evict(1).written > 0
    }

    fn shrink(&self, _: Cpu, pages: u64) {
        let shrinker = self.state.lock().shrinker;
        if shrinker {
            self.evict(pages);
        }
    }

    fn set(&self, policy: Policy) {
        let mut state = self.state.lock();
        match policy {
            Policy::Enabled(yes) => state.enabled = yes,
            // This cache has no codec and no limit of the compressed size.
            Policy::Compressor(_) | Policy::Ratio(_) => {}
            Policy::MaxPool(bytes) => state.max_pool = bytes,
            Policy::Accept(percent) => state.accept = percent,
            Policy::Exclusive(yes) => state.exclusive = yes,
            Policy::SameFilled(yes) => state.same_filled = yes,
            Policy::NonSameFilled(yes) => state.non_same_filled = yes,
            Policy::Shrinker(yes) => state.shrinker = yes,
            Policy::InFlight(most) => state.in_flight = most as usize,
            Policy::MemcgMax(memcg, bytes) => state.memcg_max[memcg] = bytes,
            Policy::MemcgWriteback(memcg, yes) => state.writeback[memcg] = yes,
        }
    }

    fn leave_frames(&self, frames: u32) {
        self.state.lock().frames = if frames == u32::MAX { u64::MAX } else { u64::from(frames) };
    }

    fn totals(&self) -> Totals {
        let state = self.state.lock();
        let memcg_bytes = std::array::from_fn(|memcg| state.memcg_bytes(memcg));
        Totals { pool_bytes: state.pool_bytes(), memcg_bytes, ..state.totals }
    }

    fn validate(&self) {
        let state = self.state.lock();
        assert!(state.claims.is_empty(), "pages are still claimed: {:?}", state.claims);
    }
}
