//! Zones with one fault each. The suite has to find every one of them, and for the right reason.
//!
//! Their promises to [`Frames`] are broken on purpose; the suite touches nothing that was not
//! committed, so the damage stays within the zone's own memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use pagealloc::{Frames, MemoryProvider, Region, Zone, ZoneOptions, ZoneStats};
use units::{Cpu, Frame, MAX_ORDER, PAGE_SIZE};

use crate::checks;
use crate::model::{Lender, Make};
use crate::naive::{Flaw, Naive};

#[track_caller]
fn is_rejected(make: Make, because: &str) {
    let result = catch_unwind(AssertUnwindSafe(|| checks::conforms(make)));
    let panic = result.expect_err("the suite passed a broken zone");
    let text = panic.downcast_ref::<String>().expect("a panic with a text");
    assert!(text.contains(because), "rejected for another reason: {text}");
}

fn sound(provider: &dyn MemoryProvider, options: ZoneOptions) -> Zone {
    Zone::new(provider, options).unwrap()
}

/// Passes on to a sound zone whatever the fault doesn't concern.
macro_rules! pass_on {
    ($($name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&self, $($arg: $kind),*) $(-> $result)? { self.zone.$name($($arg),*) })*
    };
}

/// For a zone of single frames.
macro_rules! has_single_frames {
    ($($broken:ident)*) => {
        $(impl Lender for $broken {
            fn largest(&self) -> u8 {
                0
            }
            fn lend(&self, cpu: Cpu, _: u8) -> Option<Frame> {
                self.alloc(cpu)
            }
            fn take_back(&self, cpu: Cpu, frame: Frame, _: u8) {
                self.free(cpu, frame);
            }
        })*
    };
}

has_single_frames! { LendsTwice Leaks ReleasesWhatIsLent Hoards ForgetsOtherCpus }

/// Now and then allocates a frame that somebody has already.
struct LendsTwice {
    zone: Zone,
    calls: AtomicU32,
    /// A frame that's allocated, or `NONE`.
    last: AtomicU32,
}

const NONE: u32 = u32::MAX;

// SAFETY: not kept, on purpose.
unsafe impl Frames for LendsTwice {
    pass_on! {
        base() -> NonNull<u8>;
        capacity() -> u32;
        drain();
        stats() -> ZoneStats;
        free_blocks(see: &mut dyn FnMut(Frame, u8));
        validate();
    }
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        let last = self.last.load(Ordering::Relaxed);
        if self.calls.fetch_add(1, Ordering::Relaxed) % 100 == 99 && last != NONE {
            return Some(Frame(last));
        }
        let frame = self.zone.alloc(cpu)?;
        self.last.store(frame.0, Ordering::Relaxed);
        Some(frame)
    }
    fn free(&self, cpu: Cpu, frame: Frame) {
        if frame.0 == self.last.load(Ordering::Relaxed) {
            self.last.store(NONE, Ordering::Relaxed);
        }
        self.zone.free(cpu, frame);
    }
}

#[test]
fn a_zone_that_lends_twice() {
    is_rejected(
        |provider, options| {
            let (calls, last) = (AtomicU32::new(0), AtomicU32::new(NONE));
            Box::new(LendsTwice { zone: sound(provider, options), calls, last })
        },
        "twice",
    );
}

/// Loses a block that's freed, now and then.
struct Leaks {
    zone: Zone,
    calls: AtomicU32,
}

// SAFETY: kept; what is lost is allocated to nobody.
unsafe impl Frames for Leaks {
    pass_on! {
        base() -> NonNull<u8>;
        capacity() -> u32;
        alloc(cpu: Cpu) -> Option<Frame>;
        drain();
        stats() -> ZoneStats;
        free_blocks(see: &mut dyn FnMut(Frame, u8));
        validate();
    }
    fn free(&self, cpu: Cpu, frame: Frame) {
        if self.calls.fetch_add(1, Ordering::Relaxed) % 100 != 99 {
            self.zone.free(cpu, frame);
        }
    }
}

#[test]
fn a_zone_that_leaks() {
    is_rejected(
        |provider, options| {
            Box::new(Leaks { zone: sound(provider, options), calls: AtomicU32::new(0) })
        },
        "frames allocated",
    );
}

/// Allocates blocks that are not aligned to their size.
struct Misaligns {
    zone: Box<dyn Lender>,
}

// SAFETY: kept, but for the alignment, which is not a matter of safety.
unsafe impl Frames for Misaligns {
    pass_on! {
        base() -> NonNull<u8>;
        capacity() -> u32;
        alloc(cpu: Cpu) -> Option<Frame>;
        free(cpu: Cpu, frame: Frame);
        drain();
        stats() -> ZoneStats;
        free_blocks(see: &mut dyn FnMut(Frame, u8));
        validate();
    }
}

impl Lender for Misaligns {
    fn largest(&self) -> u8 {
        MAX_ORDER
    }
    fn lend(&self, cpu: Cpu, order: u8) -> Option<Frame> {
        match order {
            1 => self.zone.lend(cpu, 2).map(|frame| Frame(frame.0 + 1)),
            order => self.zone.lend(cpu, order),
        }
    }
    fn take_back(&self, cpu: Cpu, frame: Frame, order: u8) {
        match order {
            1 => self.zone.take_back(cpu, Frame(frame.0 - 1), 2),
            order => self.zone.take_back(cpu, frame, order),
        }
    }
}

#[test]
fn a_zone_that_misaligns() {
    let make: Make = |provider, options| {
        Box::new(Misaligns { zone: Naive::boxed(provider, options, Flaw::None) })
    };
    // With frames to spare, so that it isn't found out by running short.
    let result = catch_unwind(|| checks::random_steps(make));
    let panic = result.expect_err("the suite passed a broken zone");
    assert!(panic.downcast_ref::<String>().unwrap().contains("misaligned"));
}

/// Wipes a page that may be allocated, as if it had been released.
struct ReleasesWhatIsLent {
    zone: Zone,
}

// SAFETY: not kept, on purpose.
unsafe impl Frames for ReleasesWhatIsLent {
    pass_on! {
        base() -> NonNull<u8>;
        capacity() -> u32;
        alloc(cpu: Cpu) -> Option<Frame>;
        free(cpu: Cpu, frame: Frame);
        stats() -> ZoneStats;
        free_blocks(see: &mut dyn FnMut(Frame, u8));
        validate();
    }
    fn drain(&self) {
        self.zone.drain();
        if self.zone.stats().managed > 0 {
            // SAFETY: the page is committed. That it's somebody else's is the fault to be found.
            unsafe { self.zone.base().as_ptr().write_bytes(0, PAGE_SIZE) };
        }
    }
}

#[test]
fn a_zone_that_releases_what_is_allocated() {
    is_rejected(
        |provider, options| Box::new(ReleasesWhatIsLent { zone: sound(provider, options) }),
        "somebody else wrote",
    );
}

/// Never gives anything back to the operating system.
struct Hoards {
    zone: Zone,
}

// SAFETY: kept.
unsafe impl Frames for Hoards {
    pass_on! {
        base() -> NonNull<u8>;
        capacity() -> u32;
        alloc(cpu: Cpu) -> Option<Frame>;
        free(cpu: Cpu, frame: Frame);
        drain();
        stats() -> ZoneStats;
        free_blocks(see: &mut dyn FnMut(Frame, u8));
        validate();
    }
}

#[test]
fn a_zone_that_hoards() {
    is_rejected(
        |provider, options| {
            let options = ZoneOptions { keep_free_blocks: u32::MAX, ..options };
            Box::new(Hoards { zone: sound(provider, options) })
        },
        "free blocks keep their memory",
    );
}

/// Has a cache per CPU and looks only into its own.
struct ForgetsOtherCpus {
    zone: Zone,
    caches: [Mutex<Vec<Frame>>; 4],
}

impl ForgetsOtherCpus {
    fn cached(&self) -> u64 {
        self.caches.iter().map(|cache| cache.lock().unwrap().len() as u64).sum()
    }
}

// SAFETY: kept.
unsafe impl Frames for ForgetsOtherCpus {
    pass_on! {
        base() -> NonNull<u8>;
        capacity() -> u32;
        validate();
    }
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        let cached = self.caches[cpu.index(4)].lock().unwrap().pop();
        cached.or_else(|| self.zone.alloc(cpu))
    }
    fn free(&self, cpu: Cpu, frame: Frame) {
        let mut cache = self.caches[cpu.index(4)].lock().unwrap();
        if cache.len() < 8 {
            cache.push(frame);
            return;
        }
        drop(cache);
        self.zone.free(cpu, frame);
    }
    fn drain(&self) {
        for cache in &self.caches {
            for frame in cache.lock().unwrap().drain(..) {
                self.zone.free(Cpu(0), frame);
            }
        }
        self.zone.drain();
    }
    fn stats(&self) -> ZoneStats {
        let (stats, cached) = (self.zone.stats(), self.cached());
        ZoneStats { allocated: stats.allocated - cached, cached: stats.cached + cached, ..stats }
    }
    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        self.zone.free_blocks(see);
    }
}

#[test]
fn a_zone_that_forgets_the_caches_of_other_cpus() {
    is_rejected(
        |provider, options| {
            let caches = Default::default();
            Box::new(ForgetsOtherCpus { zone: sound(provider, options), caches })
        },
        "None for order",
    );
}

/// Splits blocks and never merges them.
struct NeverMerges {
    region: Region,
    frames: u32,
    free: Mutex<[Vec<u32>; MAX_ORDER as usize + 1]>,
    allocated: AtomicU32,
}

impl NeverMerges {
    fn new(provider: &dyn MemoryProvider, options: ZoneOptions) -> NeverMerges {
        let bytes = options.max_frames as usize * PAGE_SIZE;
        let region = provider.reserve(bytes).unwrap();
        region.commit(0, region.bytes()).unwrap();
        let mut free: [Vec<u32>; MAX_ORDER as usize + 1] = Default::default();
        let mut start = 0;
        for order in (0..=MAX_ORDER).rev() {
            while options.max_frames - start >= 1 << order {
                free[order as usize].push(start);
                start += 1 << order;
            }
        }
        let allocated = AtomicU32::new(0);
        NeverMerges { region, frames: options.max_frames, free: Mutex::new(free), allocated }
    }
}

// SAFETY: kept; a block that was split stays split, but is allocated once at a time.
unsafe impl Frames for NeverMerges {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }
    fn capacity(&self) -> u32 {
        self.frames
    }
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        self.lend(cpu, 0)
    }
    fn free(&self, cpu: Cpu, frame: Frame) {
        self.take_back(cpu, frame, 0);
    }
    fn drain(&self) {}
    fn stats(&self) -> ZoneStats {
        let free = self.free.lock().unwrap();
        ZoneStats {
            allocated: u64::from(self.allocated.load(Ordering::Relaxed)),
            managed: u64::from(self.frames),
            free_blocks: std::array::from_fn(|order| free[order].len() as u64),
            ..ZoneStats::default()
        }
    }
    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        let free = self.free.lock().unwrap();
        for (order, frames) in free.iter().enumerate() {
            frames.iter().for_each(|frame| see(Frame(*frame), order as u8));
        }
    }
    fn validate(&self) {}
}

impl Lender for NeverMerges {
    fn largest(&self) -> u8 {
        MAX_ORDER
    }
    fn lend(&self, _: Cpu, order: u8) -> Option<Frame> {
        let mut free = self.free.lock().unwrap();
        let wanted = order as usize;
        let found = (wanted..free.len()).find(|order| !free[*order].is_empty())?;
        let frame = free[found].pop()?;
        for half in wanted..found {
            free[half].push(frame + (1 << half));
        }
        self.allocated.fetch_add(1 << order, Ordering::Relaxed);
        Some(Frame(frame))
    }
    fn take_back(&self, _: Cpu, frame: Frame, order: u8) {
        self.allocated.fetch_sub(1 << order, Ordering::Relaxed);
        self.free.lock().unwrap()[order as usize].push(frame.0);
    }
}

#[test]
fn a_zone_that_never_merges() {
    is_rejected(
        |provider, options| Box::new(NeverMerges::new(provider, options)),
        "everything free is merged",
    );
}
