//! The exact model of a cache, and the comparison after each event.

mod leaving;
mod limits;
mod refusals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};

use super::{
    AREAS, Cache, Event, FaultMode, FaultyDevice, Found, MEMCGS, PAGES, Policy, Queue, Refusal,
    SwapPage, Totals,
};
use crate::content::Fill;

pub(super) use limits::{limit, mark};

const P: u64 = PAGE_SIZE as u64;
/// `EBUSY`.
const BUSY: i32 = 16;

/// A page in the cache.
#[derive(Clone, Copy, Debug)]
struct Held {
    fill: Fill,
    memcg: usize,
}

/// The state of an area.
struct Area {
    on: bool,
    device_below: Arc<FaultyDevice>,
    /// The contents of each page for its user: the page stored last, unless it was invalidated or
    /// its user has taken it out.
    newest: Vec<Option<Fill>>,
}

/// The pages that a cache must hold, and those that may be on the devices behind it.
pub struct Model {
    areas: Vec<Area>,
    held: BTreeMap<SwapPage, Held>,
    /// Pages written back, and neither replaced nor invalidated since.
    backed: BTreeSet<SwapPage>,
    /// The order of writeback, if there is one CPU, one memcg and one area.
    queue: Option<Queue>,
    cpus: u32,
    enabled: bool,
    exclusive: bool,
    same_filled: bool,
    non_same_filled: bool,
    shrinker: bool,
    ratio: u32,
    max_pool: u64,
    accept: u32,
    in_flight: u32,
    writeback: [bool; MEMCGS],
    memcg_max: [u64; MEMCGS],
    short: bool,
    /// The cache may have been full, and was not seen below the mark since.
    full: bool,
    /// The cache was full, and has not been below the mark since.
    surely_full: bool,
    written_back: u64,
    duplicates: u64,
    refused: u64,
    failed_writes: u64,
    steps: u32,
}

/// The result of a run. A test checks it, because a run without any of these proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Outcome {
    /// Pages written back.
    pub written_back: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Stores that replaced a page.
    pub duplicates: u64,
    /// Stores that were refused.
    pub refused: u64,
}

impl Model {
    /// Makes the model of a new cache with the settings of [`Model::settings`]. With one CPU, the
    /// model checks the order of writeback; events must then be those of `Mix::ORDER`.
    #[must_use]
    pub fn new(seed: u64, cpus: u32) -> Model {
        let mut rng = Rng::new(seed);
        let area = |_| Area {
            on: false,
            device_below: FaultyDevice::new(PAGES, rng.next_u64(), 0),
            newest: vec![None; PAGES as usize],
        };
        Model {
            areas: (0..AREAS).map(area).collect(),
            held: BTreeMap::new(),
            backed: BTreeSet::new(),
            queue: (cpus == 1).then(Queue::default),
            cpus,
            enabled: true,
            exclusive: false,
            same_filled: true,
            non_same_filled: true,
            shrinker: true,
            ratio: 100,
            max_pool: 0,
            accept: 90,
            in_flight: 4,
            writeback: [true; MEMCGS],
            memcg_max: [u64::MAX; MEMCGS],
            short: false,
            full: false,
            surely_full: false,
            written_back: 0,
            duplicates: 0,
            refused: 0,
            failed_writes: 0,
            steps: 0,
        }
    }

    /// The settings that a model begins with.
    #[must_use]
    pub fn settings() -> Vec<Policy> {
        let mut settings = vec![
            Policy::Enabled(true),
            Policy::Exclusive(false),
            Policy::SameFilled(true),
            Policy::NonSameFilled(true),
            Policy::Shrinker(true),
            Policy::Ratio(100),
            Policy::MaxPool(0),
            Policy::Accept(90),
            Policy::InFlight(4),
        ];
        for memcg in 0..MEMCGS {
            settings.push(Policy::MemcgMax(memcg, u64::MAX));
            settings.push(Policy::MemcgWriteback(memcg, true));
        }
        settings
    }

    /// Turns every area on.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub fn begin(&mut self, cache: &dyn Cache) -> Result<(), String> {
        Model::settings().into_iter().for_each(|policy| cache.set(policy));
        (0..AREAS).try_for_each(|area| self.step(cache, &Event::Swapon(area)))
    }

    /// The result so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            written_back: self.written_back,
            failed_writes: self.failed_writes,
            duplicates: self.duplicates,
            refused: self.refused,
        }
    }

    /// Applies an event to the cache and the model, and compares.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub fn step(&mut self, cache: &dyn Cache, event: &Event) -> Result<(), String> {
        self.steps = self.steps.wrapping_add(1);
        let cpu = Cpu(self.steps % self.cpus);
        match *event {
            Event::Swapon(area) => self.swapon(cache, area)?,
            Event::Swapoff(area) => self.swapoff(cache, area)?,
            Event::Store(swap_page, memcg, fill) => {
                self.store(cache, cpu, swap_page, memcg, fill)?
            }
            Event::Load(swap_page) => self.load(cache, cpu, swap_page)?,
            Event::InvalidatePage(swap_page) => {
                cache.invalidate_page(cpu, swap_page);
                self.forget(swap_page);
            }
            Event::InvalidateArea(area) => {
                cache.invalidate_area(cpu, area);
                self.forget_area(area);
            }
            Event::Reclaim(pages) => {
                let done = cache.reclaim(cpu, pages);
                let (made, failed) = self.written(pages)?;
                if (done.written, done.failed) != (made, failed) || made > pages {
                    return Err(format!(
                        "{done:?} is said of {made} pages that were written and {failed} whose \
                         write failed; {pages} were asked for"
                    ));
                }
            }
            Event::Work => {
                cache.work();
                self.written(0)?;
            }
            Event::Shrink(pages) => {
                cache.shrink(cpu, pages);
                let (made, failed) = self.written(pages)?;
                if !self.shrinker && made + failed > 0 {
                    return Err("pages are written back for a shrinker there is none of".into());
                }
            }
            Event::Recompress => cache.recompress(cpu),
            Event::Set(policy) => {
                cache.set(policy);
                self.set(policy);
            }
            Event::FaultMode(area, fault_mode) => {
                self.areas[area].device_below.set_mood(fault_mode)
            }
            Event::LeaveFrames(frames) => {
                cache.leave_frames(frames);
                self.short = frames != u32::MAX;
            }
        }
        self.written(0)?;
        let totals = cache.totals();
        if totals.pool_bytes <= self.mark() {
            (self.full, self.surely_full) = (false, false);
        }
        self.count(&totals)
    }

    /// Checks every page and removes it. The cache must then be empty.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub fn end(&mut self, cache: &dyn Cache) -> Result<(), String> {
        let step = |model: &mut Model, event| model.step(cache, &event);
        step(self, Event::LeaveFrames(u32::MAX))?;
        (0..AREAS).try_for_each(|area| step(self, Event::FaultMode(area, FaultMode::Well)))?;
        cache.validate();
        for area in 0..AREAS {
            for offset in 0..PAGES {
                step(self, Event::Load(SwapPage { area, offset }))?;
            }
        }
        for area in 0..AREAS {
            step(self, Event::InvalidateArea(area))?;
            step(self, Event::Swapoff(area))?;
        }
        cache.validate();
        let totals = cache.totals();
        if totals.pool_bytes != 0 {
            return Err(format!("all was taken away, and there still is memory: {totals:?}"));
        }
        Ok(())
    }

    fn swapon(&mut self, cache: &dyn Cache, number: usize) -> Result<(), String> {
        let area = &mut self.areas[number];
        let done = cache.swapon(number, area.device_below.clone());
        let expected = if area.on { Err(BUSY) } else { Ok(()) };
        if done != expected {
            return Err(format!("turning area {number} on: {done:?}, not {expected:?}"));
        }
        if !area.on {
            area.on = true;
            area.newest.fill(None);
        }
        Ok(())
    }

    fn swapoff(&mut self, cache: &dyn Cache, number: usize) -> Result<(), String> {
        let left = self.held.keys().chain(&self.backed).any(|swap_page| swap_page.area == number);
        let done = cache.swapoff(number);
        let area = &mut self.areas[number];
        let right = match done {
            Ok(()) => area.on && !left,
            Err(BUSY) => area.on && left,
            Err(_) => !area.on,
        };
        if !right {
            let on = area.on;
            return Err(format!("turning area {number} off: {done:?}; on: {on}, pages: {left}"));
        }
        if done.is_ok() {
            area.on = false;
            area.newest.fill(None);
        }
        Ok(())
    }

    fn is_there(&self, swap_page: SwapPage) -> bool {
        self.areas[swap_page.area].on && swap_page.offset < PAGES
    }

    fn store(
        &mut self,
        cache: &dyn Cache,
        cpu: Cpu,
        swap_page: SwapPage,
        memcg: usize,
        fill: Fill,
    ) -> Result<(), String> {
        let mut page = [0; PAGE_SIZE];
        fill.render(&mut page);
        let before = cache.totals();
        let stored = cache.store(cpu, swap_page, memcg, &page);
        // To make room, the cache may have written back other pages, or the replaced page.
        let old = self.held.get(&swap_page).copied();
        let evicted = self.written(0)? != (0, 0);
        let after = cache.totals();
        self.duplicates += after.duplicates - before.duplicates;
        let duplicate = old.is_some() && stored.is_ok();
        let still = duplicate && self.held.contains_key(&swap_page);
        let counted = after.duplicates - before.duplicates;
        if counted > u64::from(duplicate) || counted < u64::from(still) {
            return Err(format!("{counted} duplicates are counted for a store onto {old:?}"));
        }
        self.drop_entry(swap_page);
        self.backed.remove(&swap_page);
        match stored {
            Ok(()) => {
                if let Some(wrong) = self.must_refuse(swap_page, &page) {
                    return Err(format!("a page was taken although {wrong}"));
                }
                // The page's own object is in two frames at most.
                if self.surely_full && after.pool_bytes > self.mark() + 2 * P {
                    let mark = self.mark();
                    return Err(format!("a page was taken above the mark of {mark}: {after:?}"));
                }
                if after.pool_bytes > limit(self.max_pool).max(P) {
                    return Err(format!("the limit is {}: {after:?}", self.max_pool));
                }
                // The cache may free earlier invalidated objects only now.
                self.surely_full = false;
                // The cache checks the limit before it knows the size of the object.
                let share = self.memcg_max[memcg];
                if before.memcg_bytes[memcg] >= share && !evicted && old.is_none() {
                    return Err(format!("memcg {memcg} may have {share}, and had {before:?}"));
                }
                self.held.insert(swap_page, Held { fill, memcg });
                if let Some(queue) = &mut self.queue {
                    queue.push(swap_page, false);
                }
                self.areas[swap_page.area].newest[swap_page.offset as usize] = Some(fill);
            }
            Err(refusal) => {
                self.refused += 1;
                if let Some(wrong) = self.must_not_refuse(swap_page, refusal, &page, &before, memcg)
                {
                    return Err(format!("{refusal:?} is no reason: {wrong}"));
                }
                if self.is_there(swap_page) {
                    // The user writes the page to the device itself.
                    let area = &mut self.areas[swap_page.area];
                    area.device_below.put(swap_page.offset, &page);
                    area.newest[swap_page.offset as usize] = Some(fill);
                }
            }
        }
        if stored == Err(Refusal::PoolLimit) {
            self.full = true;
            self.surely_full = true;
        }
        Ok(())
    }

    fn load(&mut self, cache: &dyn Cache, cpu: Cpu, swap_page: SwapPage) -> Result<(), String> {
        let mut page = [0xa5; PAGE_SIZE];
        let found = cache.load(cpu, swap_page, &mut page);
        match (found, self.held.get(&swap_page).copied()) {
            (Found::Page, Some(held)) => {
                same(held.fill, &page).map_err(|wrong| format!("{swap_page:?} {wrong}"))?;
                if self.exclusive {
                    self.drop_entry(swap_page);
                    self.backed.remove(&swap_page);
                    // The user has the page now, and the copy on the device is out of date.
                    self.areas[swap_page.area].newest[swap_page.offset as usize] = None;
                } else if let Some(queue) = &mut self.queue {
                    queue.touch(swap_page);
                }
                Ok(())
            }
            (Found::Nothing, None) => self.on_the_shelf(swap_page),
            (found, held) => Err(format!("{swap_page:?} is {found:?}; in the cache is {held:?}")),
        }
    }

    /// Checks that the device has the page that its user expects.
    fn on_the_shelf(&self, swap_page: SwapPage) -> Result<(), String> {
        if !self.is_there(swap_page) {
            return Ok(());
        }
        let area = &self.areas[swap_page.area];
        let Some(fill) = area.newest[swap_page.offset as usize] else { return Ok(()) };
        match area.device_below.peek(swap_page.offset) {
            Some(page) => {
                same(fill, &page).map_err(|wrong| format!("{swap_page:?}, on the device, {wrong}"))
            }
            None => Err(format!("{swap_page:?} is lost: neither in the cache nor on the device")),
        }
    }

    fn drop_entry(&mut self, swap_page: SwapPage) {
        self.held.remove(&swap_page);
        if let Some(queue) = &mut self.queue {
            queue.remove(swap_page);
        }
    }

    fn forget(&mut self, swap_page: SwapPage) {
        self.drop_entry(swap_page);
        self.backed.remove(&swap_page);
        if let Some(newest) = self.areas[swap_page.area].newest.get_mut(swap_page.offset as usize) {
            *newest = None;
        }
    }

    fn forget_area(&mut self, area: usize) {
        let swap_pages: Vec<SwapPage> =
            self.held.keys().filter(|swap_page| swap_page.area == area).copied().collect();
        swap_pages.into_iter().for_each(|swap_page| self.drop_entry(swap_page));
        self.backed.retain(|swap_page| swap_page.area != area);
        self.areas[area].newest.fill(None);
    }

    fn set(&mut self, policy: Policy) {
        match policy {
            Policy::Enabled(yes) => self.enabled = yes,
            Policy::Compressor(_) => {}
            Policy::MaxPool(bytes) => {
                self.max_pool = bytes;
                (self.full, self.surely_full) = (true, false);
            }
            Policy::Accept(percent) => {
                self.accept = percent;
                (self.full, self.surely_full) = (true, false);
            }
            Policy::Ratio(percent) => self.ratio = percent,
            Policy::Exclusive(yes) => self.exclusive = yes,
            Policy::SameFilled(yes) => self.same_filled = yes,
            Policy::NonSameFilled(yes) => self.non_same_filled = yes,
            Policy::Shrinker(yes) => self.shrinker = yes,
            Policy::InFlight(most) => self.in_flight = most,
            Policy::MemcgMax(memcg, bytes) => self.memcg_max[memcg] = bytes,
            Policy::MemcgWriteback(memcg, yes) => self.writeback[memcg] = yes,
        }
    }

    fn count(&self, totals: &Totals) -> Result<(), String> {
        let mut memcg_pages = [0; MEMCGS];
        self.held.values().for_each(|held| memcg_pages[held.memcg] += 1);
        let expected = Totals {
            stored: self.held.len() as u64,
            written_back: self.written_back,
            duplicates: self.duplicates,
            refused: self.refused,
            memcg_pages,
            ..*totals
        };
        if *totals != expected {
            return Err(format!("it counts {totals:?}, and should {expected:?}"));
        }
        let nothing = |n: usize| memcg_pages[n] == 0 && totals.memcg_bytes[n] != 0;
        match (0..MEMCGS).find(|n| nothing(*n)) {
            Some(n) => Err(format!("memcg {n} has no pages and is charged: {totals:?}")),
            None => Ok(()),
        }
    }
}

fn same(fill: Fill, page: &Page) -> Result<(), String> {
    let mut whole = [0; PAGE_SIZE];
    fill.render(&mut whole);
    match page.iter().zip(&whole).position(|(is, was)| is != was) {
        None => Ok(()),
        Some(at) => Err(format!("is not {fill:?}, which was stored, from byte {at}")),
    }
}
