//! A borrower that knows what it was allocated, and believes nothing it can check.

use std::sync::Arc;

use pagealloc::{Frames, ZoneOptions};
use units::{Cpu, FRAMES_PER_PAGEBLOCK, Frame, PAGE_SIZE};

pub use crate::design::{Lender, Make};
use crate::free::Free;
use crate::provider::{HeapProvider, Record};

/// Random numbers from a seed.
pub struct Random(testkit::Rng);

impl Random {
    /// From the test's seed. Parts of one test that must not do the same have other numbers.
    pub fn seeded(what: &str, part: u64) -> Random {
        Random::new(testkit::seed(what), part)
    }

    /// Part `part` of what is drawn from `seed`.
    pub fn new(seed: u64, part: u64) -> Random {
        Random(testkit::Rng::new(seed.wrapping_add(part)))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit as u64) as usize
    }
}

/// A block that was allocated.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub frame: Frame,
    pub order: u8,
    stamp: u64,
}

impl Held {
    /// How many frames it has.
    pub fn frames(self) -> u32 {
        1 << self.order
    }
}

/// Writes into the pages of a block what only its borrower can know.
pub fn stamp(zone: &dyn Frames, frame: Frame, order: u8, stamp: u64) -> Held {
    let held = Held { frame, order, stamp };
    for (place, value) in stamped_places(zone, held) {
        // SAFETY: the block is allocated to us, so it's ours to write.
        unsafe { place.write(value) };
    }
    held
}

/// Checks that nobody else has written to a block.
pub fn check_stamp(zone: &dyn Frames, held: Held) {
    for (place, value) in stamped_places(zone, held) {
        // SAFETY: the block is allocated to us, so it's ours to read.
        let found = unsafe { place.read() };
        assert_eq!(found, value, "somebody else wrote to {held:?}");
    }
}

/// The first and the last word of pages of a block: of all of them, or of three if it's large.
fn stamped_places(zone: &dyn Frames, held: Held) -> impl Iterator<Item = (*mut u64, u64)> {
    let frames = held.frames() as usize;
    let step = if frames > 16 { frames / 2 - 1 } else { 1 };
    let base = zone.base().as_ptr();
    (0..frames).step_by(step).flat_map(move |n| {
        let page = (held.frame.0 as usize + n) * PAGE_SIZE;
        [page, page + PAGE_SIZE - 8]
            .map(|offset| (base.wrapping_add(offset).cast(), held.stamp ^ offset as u64))
    })
}

/// One zone, what it allocated, and its record.
pub struct Borrower {
    pub zone: Box<dyn Lender>,
    pub provider: HeapProvider,
    pub record: Arc<Record>,
    pub held: Vec<Held>,
    allocated: Vec<bool>,
    stamps: u64,
}

impl Borrower {
    pub fn new(make: Make, options: ZoneOptions) -> Borrower {
        let provider = HeapProvider::default();
        let zone = make(&provider, options);
        assert_eq!(zone.capacity(), options.max_frames);
        let record = provider.record_of(zone.base());
        let allocated = vec![false; options.max_frames as usize];
        Borrower { zone, provider, record, held: Vec::new(), allocated, stamps: 0 }
    }

    /// Asks for a block. `None` is believed only if there is no such block.
    pub fn borrow(&mut self, cpu: u32, order: u8) -> bool {
        let size = 1 << order;
        let Some(frame) = self.zone.lend(Cpu(cpu), order) else {
            // What the system refuses cannot be allocated.
            let there = match self.provider.is_refusing() {
                true => self.zone.stats().managed as usize,
                false => self.allocated.len(),
            };
            let mut blocks = self.allocated[..there].chunks_exact(size);
            let left = blocks.position(|block| block.iter().all(|allocated| !allocated));
            assert_eq!(left, None, "None for order {order} while that block is free");
            return false;
        };
        let (start, end) = (frame.0 as usize, frame.0 as usize + size);
        assert_eq!(start % size, 0, "{frame:?} of order {order} is misaligned");
        assert!(end <= self.allocated.len(), "{frame:?} of order {order} ends beyond all");
        assert!(self.record.is_committed(start, end), "{frame:?} was not committed");
        for n in start..end {
            assert!(!self.allocated[n], "frame {n} was allocated twice");
            self.allocated[n] = true;
        }
        self.stamps += 1;
        let stamp_value = self.stamps.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.held.push(stamp(&*self.zone, frame, order, stamp_value));
        true
    }

    /// Gives back what's at `index` of the held blocks.
    pub fn give_back(&mut self, cpu: u32, index: usize) {
        let held = self.held.swap_remove(index);
        check_stamp(&*self.zone, held);
        let start = held.frame.0 as usize;
        self.allocated[start..start + held.frames() as usize].fill(false);
        self.zone.take_back(Cpu(cpu), held.frame, held.order);
    }

    /// Asks for a block of 2 MiB, or for as many single frames if it has no such blocks.
    pub fn borrow_pageblock(&mut self, cpu: u32) {
        let single = self.zone.largest() == 0;
        let (times, order) = if single { (FRAMES_PER_PAGEBLOCK, 0) } else { (1, 9) };
        (0..times).for_each(|_| assert!(self.borrow(cpu, order)));
    }

    /// Which frames are allocated.
    pub fn allocated(&self) -> &[bool] {
        &self.allocated
    }

    pub fn frames_held(&self) -> u64 {
        self.held.iter().map(|held| u64::from(held.frames())).sum()
    }

    /// Checks the zone against itself and against what is held.
    pub fn check(&self) {
        self.zone.validate();
        let stats = self.zone.stats();
        assert_eq!(
            stats.allocated,
            self.frames_held(),
            "frames allocated: the zone's count, the borrower's"
        );
        Free::of(&*self.zone, &self.allocated);
        assert_eq!(stats.returned_blocks, self.record.blocks_released(), "blocks returned");
    }

    /// Gives everything back, and checks that the zone comes to rest: all merged, all returned.
    pub fn rest(&mut self, mut cpu_of: impl FnMut(usize) -> u32) {
        while let Some(last) = self.held.len().checked_sub(1) {
            self.give_back(cpu_of(last), last);
        }
        self.zone.drain();
        self.check();
        let stats = self.zone.stats();
        assert_eq!(stats.cached, 0, "frames are left in the cpus' caches");
        assert_eq!(stats.free_blocks, blocks_of(stats.managed), "everything free is merged");
    }
}

/// The blocks that `0..frames` consists of when nothing of it is allocated.
fn blocks_of(frames: u64) -> [u64; 11] {
    std::array::from_fn(|order| if order == 10 { frames >> 10 } else { frames >> order & 1 })
}
