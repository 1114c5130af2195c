//! A zone as plain as can be: one lock, sets, and a cache of three frames for each CPU. It is
//! right, unless it is made with a flaw.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagealloc::{Frames, MemoryProvider, Region, ZoneOptions, ZoneStats};
use units::{Cpu, Frame, MAX_ORDER, PAGE_SIZE};

use crate::design::Lender;
use crate::free::blocks_of;

/// The most frames in the cache of a CPU.
const CACHED: usize = 3;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Looks only into the CPU's own cache before it says that memory is out.
    ForgetsOtherCpus,
    /// Says that memory is out once in 64 calls.
    GivesUp,
    /// Allocates a frame that somebody has, once in 64 calls.
    LendsTwice,
    /// Loses a frame when two CPUs with frames in their caches are drained.
    LosesOnDrain,
    /// Keeps a frame in a cache that it also drains, under the same conditions.
    KeepsOnDrain,
    /// Merges with a buddy that is allocated with the same order.
    MergesAllocated,
    /// Never merges.
    NeverMerges,
    /// Merges once when something is freed, and not the result.
    MergesOnce,
    /// Looks for large blocks only among those that are whole already.
    HidesHuge,
    /// Counts a block of order 0 too many while something is in a cache.
    Miscounts,
    /// Shows an allocated frame as free.
    ShowsLent,
    /// Is silent on bad frees.
    Silent,
    /// Finds bad frees, and takes what is freed all the same, where it lies in the zone.
    TakesAnything,
    /// Takes a block back under any order.
    TakesAnyOrder,
    /// Says that something is wrong, but not what.
    Vague,
}

/// See the module.
pub struct Naive {
    region: Region,
    frames: u32,
    flaw: Flaw,
    inner: Mutex<Inner>,
}

struct Inner {
    free: BTreeSet<(u32, u8)>,
    caches: Vec<Vec<u32>>,
    allocated: BTreeMap<u32, u8>,
    bad_frees: u64,
    calls: u32,
}

impl Naive {
    pub fn boxed(
        provider: &dyn MemoryProvider,
        options: ZoneOptions,
        flaw: Flaw,
    ) -> Box<dyn Lender> {
        let region = provider.reserve((options.max_frames as usize * PAGE_SIZE).max(1)).unwrap();
        region.commit(0, region.bytes()).unwrap();
        let inner = Inner {
            free: blocks_of(&vec![true; options.max_frames as usize]),
            caches: vec![Vec::new(); options.cpus.max(1)],
            allocated: BTreeMap::new(),
            bad_frees: 0,
            calls: 0,
        };
        Box::new(Naive { region, frames: options.max_frames, flaw, inner: Mutex::new(inner) })
    }

    /// A panic under the lock is a bad free that was found.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn take(&mut self, order: u8) -> Option<u32> {
        let fits = |block: &&(u32, u8)| block.1 >= order;
        let (first, found) = *self.free.iter().find(fits)?;
        self.free.remove(&(first, found));
        for half in order..found {
            self.free.insert((first + (1 << half), half));
        }
        Some(first)
    }

    fn give(&mut self, mut first: u32, mut order: u8, flaw: Flaw) {
        let times = match flaw {
            Flaw::NeverMerges => 0,
            Flaw::MergesOnce => 1,
            _ => MAX_ORDER,
        };
        for _ in 0..times {
            let buddy = first ^ 1 << order;
            let is_allocated =
                flaw == Flaw::MergesAllocated && self.allocated.get(&buddy) == Some(&order);
            if order == MAX_ORDER || !self.free.remove(&(buddy, order)) && !is_allocated {
                break;
            }
            first &= !(1 << order);
            order += 1;
        }
        self.free.insert((first, order));
    }

    fn empty(&mut self, cache: usize, flaw: Flaw) {
        for frame in std::mem::take(&mut self.caches[cache]) {
            self.give(frame, 0, flaw);
        }
    }

    fn empty_all(&mut self, flaw: Flaw) {
        (0..self.caches.len()).for_each(|cache| self.empty(cache, flaw));
    }
}

// SAFETY: kept, unless it has a flaw. Then it may not be, on purpose: what is allocated lies within
// committed memory all the same, and the suite touches nothing else.
unsafe impl Frames for Naive {
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

    fn drain(&self) {
        let mut inner = self.lock();
        if inner.caches.iter().filter(|cache| !cache.is_empty()).count() > 1 {
            match self.flaw {
                Flaw::LosesOnDrain => _ = inner.caches[0].pop(),
                Flaw::KeepsOnDrain => {
                    let kept = inner.caches[0].pop();
                    inner.caches[0].extend(kept);
                    inner.empty_all(self.flaw);
                    inner.caches[0].extend(kept);
                    return;
                }
                _ => {}
            }
        }
        inner.empty_all(self.flaw);
    }

    fn stats(&self) -> ZoneStats {
        let inner = self.lock();
        let cached = inner.caches.iter().map(|cache| cache.len() as u64).sum();
        let mut stats = ZoneStats {
            allocated: inner.allocated.values().map(|order| 1 << order).sum(),
            cached,
            managed: u64::from(self.frames),
            bad_frees: inner.bad_frees,
            ..ZoneStats::default()
        };
        for (_, order) in &inner.free {
            stats.free_blocks[*order as usize] += 1;
        }
        stats.free_blocks[0] += u64::from(self.flaw == Flaw::Miscounts && cached > 0);
        stats
    }

    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        let inner = self.lock();
        inner.free.iter().for_each(|(first, n)| see(Frame(*first), *n));
        let allocated = inner.allocated.iter().find(|allocated| *allocated.1 == 0);
        if let (Flaw::ShowsLent, Some((frame, _))) = (self.flaw, allocated) {
            see(Frame(*frame), 0);
        }
    }

    fn validate(&self) {}
}

impl Lender for Naive {
    fn largest(&self) -> u8 {
        MAX_ORDER
    }

    fn lend(&self, cpu: Cpu, order: u8) -> Option<Frame> {
        let mut inner = self.lock();
        let cache = cpu.index(inner.caches.len());
        inner.calls += 1;
        let turn = inner.calls.is_multiple_of(64);
        if turn && self.flaw == Flaw::GivesUp {
            return None;
        }
        if turn && self.flaw == Flaw::LendsTwice && order == 0 {
            let allocated = inner.allocated.iter().find(|allocated| *allocated.1 == 0);
            if let Some((frame, _)) = allocated {
                return Some(Frame(*frame));
            }
        }
        let cached = if order == 0 { inner.caches[cache].pop() } else { None };
        let frame = cached.or_else(|| inner.take(order)).or_else(|| {
            match self.flaw {
                Flaw::HidesHuge if order > 3 => {}
                Flaw::ForgetsOtherCpus => inner.empty(cache, self.flaw),
                _ => inner.empty_all(self.flaw),
            }
            inner.take(order)
        })?;
        inner.allocated.insert(frame, order);
        Some(Frame(frame))
    }

    fn take_back(&self, cpu: Cpu, frame: Frame, mut order: u8) {
        let mut inner = self.lock();
        let (cache, frame) = (cpu.index(inner.caches.len()), frame.0);
        let allocated = inner.allocated.get(&frame).copied();
        if let (Flaw::TakesAnyOrder, Some(allocated)) = (self.flaw, allocated) {
            order = allocated;
        }
        if allocated != Some(order) {
            if self.flaw == Flaw::TakesAnything && inner.free.contains(&(frame, order)) {
                inner.free.remove(&(frame, order));
            }
            if self.flaw == Flaw::Silent {
                return;
            }
            inner.bad_frees += 1;
            let what = if self.flaw == Flaw::Vague { "something" } else { "frame" };
            if cfg!(debug_assertions) {
                panic!("{what} {frame} was freed with order {order}, {allocated:?}");
            }
            return;
        }
        inner.allocated.remove(&frame);
        if order == 0 && inner.caches[cache].len() < CACHED {
            inner.caches[cache].push(frame);
        } else {
            inner.give(frame, order, self.flaw);
        }
    }
}
