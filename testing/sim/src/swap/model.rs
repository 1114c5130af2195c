//! What must hold of a cache, after each event.

mod leaving;
mod limits;
mod refusals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};

use super::{
    AREAS, Cache, Event, FaultMode, Found, PAGES, Policy, Queue, Refusal, Shelf, Spot, TENANTS,
    Totals,
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
    tenant: usize,
}

/// What is known of an area.
struct Area {
    on: bool,
    shelf: Arc<Shelf>,
    /// What each page is to its user: the page stored last, unless nobody needs it any more or its
    /// user has taken it out.
    newest: Vec<Option<Fill>>,
}

/// What a cache must hold, and what may be on the devices behind it.
pub struct Model {
    areas: Vec<Area>,
    held: BTreeMap<Spot, Held>,
    /// Written back, and neither replaced nor given up since.
    backed: BTreeSet<Spot>,
    /// The order in which they leave, where there is but one CPU, one tenant and one area.
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
    writeback: [bool; TENANTS],
    tenant_max: [u64; TENANTS],
    short: bool,
    /// It may have been full, and not have been seen below the mark since.
    full: bool,
    /// It was full, and has not been below the mark since.
    surely_full: bool,
    written_back: u64,
    duplicates: u64,
    refused: u64,
    failed_writes: u64,
    steps: u32,
}

/// What a run came to: a run in which nothing happens shows nothing.
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
    /// The model of a cache that was just made, and whose settings are those of
    /// [`Model::settings`]. With one CPU, the order in which pages leave is judged; events must be
    /// those of [`Mix::ORDER`] then.
    #[must_use]
    pub fn new(seed: u64, cpus: u32) -> Model {
        let mut rng = Rng::new(seed);
        let area = |_| Area {
            on: false,
            shelf: Shelf::new(PAGES, rng.next_u64(), 0),
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
            writeback: [true; TENANTS],
            tenant_max: [u64::MAX; TENANTS],
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
        for tenant in 0..TENANTS {
            settings.push(Policy::TenantMax(tenant, u64::MAX));
            settings.push(Policy::TenantWriteback(tenant, true));
        }
        settings
    }

    /// Turns every area on.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn begin(&mut self, cache: &dyn Cache) -> Result<(), String> {
        Model::settings().into_iter().for_each(|policy| cache.set(policy));
        (0..AREAS).try_for_each(|area| self.step(cache, &Event::Swapon(area)))
    }

    /// What it came to so far.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome {
            written_back: self.written_back,
            failed_writes: self.failed_writes,
            duplicates: self.duplicates,
            refused: self.refused,
        }
    }

    /// Lets an event happen, and compares.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn step(&mut self, cache: &dyn Cache, event: &Event) -> Result<(), String> {
        self.steps = self.steps.wrapping_add(1);
        let cpu = Cpu(self.steps % self.cpus);
        match *event {
            Event::Swapon(area) => self.swapon(cache, area)?,
            Event::Swapoff(area) => self.swapoff(cache, area)?,
            Event::Store(spot, tenant, fill) => self.store(cache, cpu, spot, tenant, fill)?,
            Event::Load(spot) => self.load(cache, cpu, spot)?,
            Event::InvalidatePage(spot) => {
                cache.invalidate_page(cpu, spot);
                self.forget(spot);
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
            Event::Set(policy) => {
                cache.set(policy);
                self.set(policy);
            }
            Event::FaultMode(area, fault_mode) => self.areas[area].shelf.set_mood(fault_mode),
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

    /// Looks everything through, and takes everything away: nothing may be left.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn end(&mut self, cache: &dyn Cache) -> Result<(), String> {
        let step = |model: &mut Model, event| model.step(cache, &event);
        step(self, Event::LeaveFrames(u32::MAX))?;
        (0..AREAS).try_for_each(|area| step(self, Event::FaultMode(area, FaultMode::Well)))?;
        cache.validate();
        for area in 0..AREAS {
            for offset in 0..PAGES {
                step(self, Event::Load(Spot { area, offset }))?;
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
        let done = cache.swapon(number, area.shelf.clone());
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
        let left = self.held.keys().chain(&self.backed).any(|spot| spot.area == number);
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

    fn is_there(&self, spot: Spot) -> bool {
        self.areas[spot.area].on && spot.offset < PAGES
    }

    fn store(
        &mut self,
        cache: &dyn Cache,
        cpu: Cpu,
        spot: Spot,
        tenant: usize,
        fill: Fill,
    ) -> Result<(), String> {
        let mut page = [0; PAGE_SIZE];
        fill.render(&mut page);
        let before = cache.totals();
        let stored = cache.store(cpu, spot, tenant, &page);
        // To make room, others may have been written back; also the one that is replaced.
        let old = self.held.get(&spot).copied();
        let evicted = self.written(0)? != (0, 0);
        let after = cache.totals();
        self.duplicates += after.duplicates - before.duplicates;
        let duplicate = old.is_some() && stored.is_ok();
        let still = duplicate && self.held.contains_key(&spot);
        let counted = after.duplicates - before.duplicates;
        if counted > u64::from(duplicate) || counted < u64::from(still) {
            return Err(format!("{counted} duplicates are counted for a store onto {old:?}"));
        }
        self.drop_entry(spot);
        self.backed.remove(&spot);
        match stored {
            Ok(()) => {
                if let Some(wrong) = self.must_refuse(spot, &page) {
                    return Err(format!("a page was taken although {wrong}"));
                }
                // Its own object lies in two frames at most.
                if self.surely_full && after.pool_bytes > self.mark() + 2 * P {
                    let mark = self.mark();
                    return Err(format!("a page was taken above the mark of {mark}: {after:?}"));
                }
                if after.pool_bytes > limit(self.max_pool).max(P) {
                    return Err(format!("the limit is {}: {after:?}", self.max_pool));
                }
                // What was given up before may only now have been freed.
                self.surely_full = false;
                // It is asked before it is known how many bytes there will be.
                let share = self.tenant_max[tenant];
                if before.tenant_bytes[tenant] >= share && !evicted && old.is_none() {
                    return Err(format!("tenant {tenant} may have {share}, and had {before:?}"));
                }
                self.held.insert(spot, Held { fill, tenant });
                if let Some(queue) = &mut self.queue {
                    queue.push(spot, false);
                }
                self.areas[spot.area].newest[spot.offset as usize] = Some(fill);
            }
            Err(refusal) => {
                self.refused += 1;
                if let Some(wrong) = self.must_not_refuse(spot, refusal, &page, &before, tenant) {
                    return Err(format!("{refusal:?} is no reason: {wrong}"));
                }
                if self.is_there(spot) {
                    // The user goes to the device itself.
                    let area = &mut self.areas[spot.area];
                    area.shelf.put(spot.offset, &page);
                    area.newest[spot.offset as usize] = Some(fill);
                }
            }
        }
        if stored == Err(Refusal::PoolLimit) {
            self.full = true;
            self.surely_full = true;
        }
        Ok(())
    }

    fn load(&mut self, cache: &dyn Cache, cpu: Cpu, spot: Spot) -> Result<(), String> {
        let mut page = [0xa5; PAGE_SIZE];
        let found = cache.load(cpu, spot, &mut page);
        match (found, self.held.get(&spot).copied()) {
            (Found::Page, Some(held)) => {
                same(held.fill, &page).map_err(|wrong| format!("{spot:?} {wrong}"))?;
                if self.exclusive {
                    self.drop_entry(spot);
                    self.backed.remove(&spot);
                    // Its user has it now, and what is on the device is out of date.
                    self.areas[spot.area].newest[spot.offset as usize] = None;
                } else if let Some(queue) = &mut self.queue {
                    queue.touch(spot);
                }
                Ok(())
            }
            (Found::Nothing, None) => self.on_the_shelf(spot),
            (found, held) => Err(format!("{spot:?} is {found:?}; in the cache is {held:?}")),
        }
    }

    /// What its user finds on the device must be the page.
    fn on_the_shelf(&self, spot: Spot) -> Result<(), String> {
        if !self.is_there(spot) {
            return Ok(());
        }
        let area = &self.areas[spot.area];
        let Some(fill) = area.newest[spot.offset as usize] else { return Ok(()) };
        match area.shelf.peek(spot.offset) {
            Some(page) => {
                same(fill, &page).map_err(|wrong| format!("{spot:?}, on the device, {wrong}"))
            }
            None => Err(format!("{spot:?} is lost: neither in the cache nor on the device")),
        }
    }

    fn drop_entry(&mut self, spot: Spot) {
        self.held.remove(&spot);
        if let Some(queue) = &mut self.queue {
            queue.remove(spot);
        }
    }

    fn forget(&mut self, spot: Spot) {
        self.drop_entry(spot);
        self.backed.remove(&spot);
        if let Some(newest) = self.areas[spot.area].newest.get_mut(spot.offset as usize) {
            *newest = None;
        }
    }

    fn forget_area(&mut self, area: usize) {
        let spots: Vec<Spot> = self.held.keys().filter(|spot| spot.area == area).copied().collect();
        spots.into_iter().for_each(|spot| self.drop_entry(spot));
        self.backed.retain(|spot| spot.area != area);
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
            Policy::TenantMax(tenant, bytes) => self.tenant_max[tenant] = bytes,
            Policy::TenantWriteback(tenant, yes) => self.writeback[tenant] = yes,
        }
    }

    fn count(&self, totals: &Totals) -> Result<(), String> {
        let mut tenant_pages = [0; TENANTS];
        self.held.values().for_each(|held| tenant_pages[held.tenant] += 1);
        let expected = Totals {
            stored: self.held.len() as u64,
            written_back: self.written_back,
            duplicates: self.duplicates,
            refused: self.refused,
            tenant_pages,
            ..*totals
        };
        if *totals != expected {
            return Err(format!("it counts {totals:?}, and should {expected:?}"));
        }
        let nothing = |n: usize| tenant_pages[n] == 0 && totals.tenant_bytes[n] != 0;
        match (0..TENANTS).find(|n| nothing(*n)) {
            Some(n) => Err(format!("tenant {n} has no pages and is charged: {totals:?}")),
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
