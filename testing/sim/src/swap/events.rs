//! Random events from a seed.

use testkit::Rng;
use units::PAGE_SIZE;

use super::{AREAS, FaultMode, MEMCGS, PAGES, Policy, SwapPage};
use crate::content::Fill;

/// One thing that happens to a cache or to the devices behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An area is turned on.
    Swapon(usize),
    /// An area is turned off.
    Swapoff(usize),
    /// A memcg stores a page.
    Store(SwapPage, usize, Fill),
    /// A page is loaded.
    Load(SwapPage),
    /// A page is invalidated.
    InvalidatePage(SwapPage),
    /// An area is invalidated.
    InvalidateArea(usize),
    /// A reclaim of some pages.
    Reclaim(u64),
    /// The background worker takes a step.
    Work,
    /// Memory is short.
    Shrink(u64),
    /// Every page is recompressed that would be smaller then.
    Recompress,
    /// A setting changes.
    Set(Policy),
    /// The fault mode of a device changes.
    FaultMode(usize, FaultMode),
    /// All frames except this number are taken away, or all are given back.
    LeaveFrames(u32),
}

/// The kinds of events besides stores, loads, invalidations of pages and reclaims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Areas are turned on and off, and invalidated whole.
    pub areas: bool,
    /// The pool and the memcgs have limits, and workers keep them.
    pub limits: bool,
    /// Settings change.
    pub policies: bool,
    /// Devices fail.
    pub faults: bool,
    /// Memory is out at times.
    pub memory: bool,
    /// The number of memcgs.
    pub memcgs: usize,
    /// The number of areas with pages.
    pub used_areas: usize,
}

impl Mix {
    /// All kinds of events.
    pub const ALL: Mix = Mix {
        areas: true,
        limits: true,
        policies: true,
        faults: true,
        memory: true,
        memcgs: MEMCGS,
        used_areas: AREAS,
    };
    /// Only limits.
    pub const LIMITS: Mix = Mix {
        areas: false,
        limits: true,
        policies: false,
        faults: false,
        memory: false,
        memcgs: MEMCGS,
        used_areas: AREAS,
    };
    /// Only failing devices; a model with one CPU can check the order of writeback.
    pub const ORDER: Mix = Mix {
        areas: false,
        limits: false,
        policies: false,
        faults: true,
        memory: false,
        memcgs: 1,
        used_areas: 1,
    };
}

/// An endless sequence of events.
#[derive(Clone, Debug)]
pub struct Events {
    rng: Rng,
    mix: Mix,
}

const P: u64 = PAGE_SIZE as u64;

impl Events {
    /// Makes the events of this seed.
    #[must_use]
    pub fn new(seed: u64, mix: Mix) -> Events {
        Events { rng: Rng::new(seed), mix }
    }

    /// Draws a page. Half of the pages are a few hot ones.
    fn swap_page(&mut self) -> SwapPage {
        let used = self.mix.used_areas as u64;
        let area = if self.rng.one_in(4) { self.rng.below(used) as usize } else { 0 };
        let pages = if self.rng.one_in(2) { 6 } else { PAGES };
        let offset = self.rng.below(pages);
        // Sometimes the page is beyond the area.
        let beyond = self.mix.areas && self.rng.one_in(200);
        SwapPage { area, offset: if beyond { PAGES + offset } else { offset } }
    }

    fn policy(&mut self) -> Policy {
        let rng = &mut self.rng;
        let mostly = !rng.one_in(4);
        match rng.below(8) {
            0 => Policy::Enabled(mostly),
            1 => Policy::Compressor(rng.below(8) as usize),
            2 => Policy::Ratio(if mostly { 100 } else { rng.below(101) as u32 }),
            3 => Policy::Exclusive(rng.one_in(2)),
            4 => Policy::SameFilled(mostly),
            5 => Policy::NonSameFilled(mostly),
            6 => Policy::Shrinker(mostly),
            _ => Policy::InFlight(1 + rng.below(9) as u32),
        }
    }

    fn limit(&mut self) -> Event {
        let rng = &mut self.rng;
        let memcg = rng.below(self.mix.memcgs as u64) as usize;
        match rng.below(12) {
            0 => Event::Set(Policy::MaxPool(0)),
            1 | 2 => Event::Set(Policy::MaxPool((1 + rng.below(40)) * P)),
            3 => Event::Set(Policy::Accept(*rng.pick(&[0, 50, 90, 100]))),
            4 => {
                let bytes = if rng.one_in(2) { u64::MAX } else { rng.below(20) * P };
                Event::Set(Policy::MemcgMax(memcg, bytes))
            }
            5 => Event::Set(Policy::MemcgWriteback(memcg, !rng.one_in(3))),
            _ => Event::Work,
        }
    }

    fn fault_mode(&mut self) -> Event {
        let rng = &mut self.rng;
        let fault_mode = match rng.below(8) {
            0 => FaultMode::FailsWrites(1_000_000),
            1 => FaultMode::FailsWrites(300_000),
            2 => FaultMode::FailsReads(300_000),
            3 => FaultMode::Full,
            4 => FaultMode::Gone,
            _ => FaultMode::Well,
        };
        Event::FaultMode(rng.below(AREAS as u64) as usize, fault_mode)
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mix = self.mix;
        Some(match self.rng.below(100) {
            0..=39 => {
                let memcg = self.rng.below(mix.memcgs as u64) as usize;
                Event::Store(self.swap_page(), memcg, Fill::draw(&mut self.rng))
            }
            40..=65 => Event::Load(self.swap_page()),
            66..=71 => Event::InvalidatePage(self.swap_page()),
            72..=76 => Event::Reclaim(1 + self.rng.below(12)),
            77 | 78 if mix.areas => match self.rng.below(16) {
                0 | 1 => Event::InvalidateArea(self.rng.below(AREAS as u64) as usize),
                2..=4 => Event::Swapoff(self.rng.below(AREAS as u64) as usize),
                _ => Event::Swapon(self.rng.below(AREAS as u64) as usize),
            },
            79..=84 if mix.limits => self.limit(),
            85..=89 if mix.policies => Event::Set(self.policy()),
            90..=92 if mix.faults => self.fault_mode(),
            93 | 94 if mix.memory => Event::LeaveFrames(match self.rng.below(3) {
                0 => self.rng.below(4) as u32,
                _ => u32::MAX,
            }),
            95 if mix.limits => Event::Shrink(1 + self.rng.below(20)),
            96 if mix.policies => Event::Recompress,
            _ => Event::Store(self.swap_page(), 0, Fill::draw(&mut self.rng)),
        })
    }
}
