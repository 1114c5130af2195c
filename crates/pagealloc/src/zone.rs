//! The plain design: one lock for the whole zone, and a stock of single frames per lane in front.
//!
//! Single frames come from the lane's stock and go back to the stock of the lane that frees them,
//! the last one first. Stocks are filled and emptied in batches and kept small, because what's in
//! them is resident and nobody's pool. Larger blocks pass the stocks by. Before the zone says that
//! memory is out it locks all stocks at once and empties them, so that `None` is exact.
//!
//! Locks are taken in this order: housekeeping, stocks by ascending lane, free blocks. System calls
//! that may take long (releasing, settling) are made under the housekeeping lock alone, with the
//! block concerned out of the free blocks.
//!
//! A byte per frame says with what order it was lent, so that freeing what was not lent is found
//! out: in a debug build by a panic, otherwise the call is counted and has no effect. Two threads
//! that free the same frame at the same instant are not told apart: to do so would cost an atomic
//! exchange on every free, about as much as the rest of it.
//!
//! # Why unsafe
//! [`Frames`] is a promise about addresses; the frames are never touched here, but for what
//! [`watch`] does.

use core::ptr::NonNull;

use sync::atomic::{AtomicU8, AtomicU64, Ordering};
use sync::{CachePadded, Mutex, PerLane};
use units::{BLOCK_SIZE, FRAMES_PER_BLOCK, Frame, Lane, Order, PAGE_SIZE};

use crate::buddy::{Buddy, Chore, PIECES};
use crate::lane_pages::{self, LanePages};
use crate::{Frames, LazyTable, NoMemory, Region, World, Zeroed, ZoneStats, watch};

/// How much of its addresses a zone asks for at a time: 32 MiB. Untouched, they cost nothing.
const GROWTH: u32 = 16 * FRAMES_PER_BLOCK;

// SAFETY: an atomic integer has the representation of the integer, for which zeroes are valid.
unsafe impl Zeroed for AtomicU8 {}

/// How a [`Zone`] is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneOptions {
    /// Lanes that have a stock of their own; at least one is made.
    pub lanes: usize,
    /// The most frames there can ever be: addresses, not memory.
    pub max_frames: u32,
    /// Frames moved between a stock and the zone at a time: 1 up to `cache_high`.
    pub batch: usize,
    /// The most frames in a stock, 1 to 64. What lies outside is moved to the nearest limit.
    pub cache_high: usize,
    /// Free 2 MiB blocks that keep their memory, against giving back what is wanted again at once.
    pub keep_free_blocks: u32,
    /// Whether a 2 MiB block is settled ([`crate::RegionKeeper::settle`]) when all of it has been
    /// lent for the first time since it was last given back to the system.
    pub settle: bool,
}

impl ZoneOptions {
    /// For `lanes` lanes and at most `max_frames` frames; the rest as it does best.
    #[must_use]
    pub const fn new(lanes: usize, max_frames: u32) -> ZoneOptions {
        ZoneOptions {
            lanes,
            max_frames,
            batch: 16,
            cache_high: 48,
            keep_free_blocks: 1,
            settle: false,
        }
    }
}

/// A zone with one lock. See the module's documentation for what is shared and what is not.
pub struct Zone {
    region: Region,
    options: ZoneOptions,
    /// One more than the order with which the frame was lent; zero if no lent block begins here.
    lent: LazyTable<AtomicU8>,
    lanes: PerLane<Mutex<LanePages>>,
    free: CachePadded<Mutex<Buddy>>,
    housekeeping: Mutex<()>,
    bad_frees: AtomicU64,
}

impl Zone {
    /// Reserves the addresses of `options.max_frames` frames and of the tables that describe them.
    ///
    /// # Errors
    /// [`NoMemory`] when the world has no such range.
    pub fn new(world: &dyn World, mut options: ZoneOptions) -> Result<Zone, NoMemory> {
        options.cache_high = options.cache_high.clamp(1, lane_pages::MOST);
        options.batch = options.batch.clamp(1, options.cache_high);
        let too_large = NoMemory { bytes: usize::MAX };
        let bytes = (options.max_frames as usize).checked_mul(PAGE_SIZE).ok_or(too_large)?;
        let bytes = bytes.max(1).checked_next_multiple_of(BLOCK_SIZE).ok_or(too_large)?;
        let free = Buddy::new(world, options.max_frames, options.settle)?;
        Ok(Zone {
            region: world.reserve(bytes)?,
            lent: LazyTable::new(world, options.max_frames as usize)?,
            lanes: PerLane::new(options.lanes, |_| Mutex::new(LanePages::EMPTY)),
            free: CachePadded::new(Mutex::new(free)),
            housekeeping: Mutex::new(()),
            bad_frees: AtomicU64::new(0),
            options,
        })
    }

    #[inline]
    fn alloc_single(&self, lane: Lane) -> Option<u32> {
        let mut stock = self.lanes.get(lane).lock();
        if let Some(frame) = stock.pop() {
            return Some(frame);
        }
        let chores = self.refill(&mut stock);
        let frame = stock.pop();
        drop(stock);
        if chores {
            self.tidy(self.options.keep_free_blocks);
        }
        frame.or_else(|| self.scrape(Order::ZERO))
    }

    /// Fills an empty stock with the lowest frames, the lowest of all on top.
    #[cold]
    fn refill(&self, stock: &mut LanePages) -> bool {
        let mut batch = [0; lane_pages::MOST];
        let batch = &mut batch[..self.options.batch];
        let mut free = self.free.lock();
        let mut count = free.take_singles(batch);
        if count == 0 && self.grow(&mut free) {
            count = free.take_singles(batch);
        }
        for frame in batch[..count].iter().rev() {
            stock.push(*frame);
        }
        free.has_chores(self.options.keep_free_blocks)
    }

    fn alloc_block(&self, order: Order) -> Option<u32> {
        let mut free = self.free.lock();
        let frame = self.take_or_grow(&mut free, order);
        let chores = free.has_chores(self.options.keep_free_blocks);
        drop(free);
        if chores {
            self.tidy(self.options.keep_free_blocks);
        }
        frame.or_else(|| self.scrape(order))
    }

    fn take_or_grow(&self, free: &mut Buddy, order: Order) -> Option<u32> {
        loop {
            let frame = free.take(order.get());
            if frame.is_some() || !self.grow(free) {
                return frame;
            }
        }
    }

    /// Asks the world for more, and tells whether there is more now.
    #[cold]
    fn grow(&self, free: &mut Buddy) -> bool {
        let left = self.options.max_frames - free.managed();
        // A whole step or, if the system refuses that, a single 2 MiB block.
        [GROWTH, FRAMES_PER_BLOCK].into_iter().map(|step| step.min(left)).any(|frames| {
            let offset = free.managed() as usize * PAGE_SIZE;
            let bytes = (frames as usize * PAGE_SIZE).next_multiple_of(BLOCK_SIZE);
            let grown = frames > 0 && self.region.commit(offset, bytes).is_ok();
            if grown {
                if cfg!(asan) {
                    self.shut(free.managed(), frames);
                }
                free.extend(frames);
            }
            grown
        })
    }

    /// The last resort: with every stock emptied and held, and no block on its way to the system,
    /// what the zone doesn't have does not exist.
    #[cold]
    fn scrape(&self, order: Order) -> Option<u32> {
        let housekeeping = self.housekeeping.lock();
        let frame = self.scrape_from(0, order);
        drop(housekeeping);
        let chores = self.free.lock().has_chores(self.options.keep_free_blocks);
        if chores {
            self.tidy(self.options.keep_free_blocks);
        }
        frame
    }

    /// Holds the stock of one lane and goes on to the next: a guard per lane needs a place, and
    /// here the stack is the place that's not the heap.
    fn scrape_from(&self, lane: usize, order: Order) -> Option<u32> {
        if lane == self.lanes.count() {
            return self.take_or_grow(&mut self.free.lock(), order);
        }
        let mut stock = self.lanes.get(Lane(lane as u32)).lock();
        self.empty(&mut stock, lane_pages::MOST);
        self.scrape_from(lane + 1, order)
    }

    /// Gives the `count` oldest frames of a stock to the zone, and tells whether there are chores.
    #[cold]
    fn empty(&self, stock: &mut LanePages, count: usize) -> bool {
        let mut free = self.free.lock();
        stock.give_oldest(count, |frame| free.give(frame, 0));
        free.has_chores(self.options.keep_free_blocks)
    }

    /// Makes the system calls that are due; `keep` idle blocks may stay.
    #[cold]
    fn tidy(&self, keep: u32) {
        let _housekeeping = self.housekeeping.lock();
        loop {
            let chore = self.free.lock().chore(keep);
            match chore {
                None => break,
                // Nobody can release this block before it's settled: that needs our lock.
                Some(Chore::Settle(block)) => self.region.settle(block as usize * BLOCK_SIZE),
                Some(Chore::Release(block)) => {
                    self.region.release(block as usize * BLOCK_SIZE, BLOCK_SIZE);
                    self.free.lock().released(block);
                }
            }
        }
    }

    /// Gives what is free of 2 MiB blocks in use back to the system, piece by piece.
    #[cold]
    fn trim(&self) {
        let mut pieces = [(0, 0); PIECES];
        let blocks = self.free.lock().managed().div_ceil(FRAMES_PER_BLOCK);
        for block in 0..blocks {
            // Anew for each: those who free or are out of memory wait for it.
            let _housekeeping = self.housekeeping.lock();
            let count = self.free.lock().trim(block, &mut pieces);
            let pieces = &pieces[..count];
            if pieces.is_empty() {
                continue;
            }
            for (frame, order) in pieces {
                self.region.release(*frame as usize * PAGE_SIZE, PAGE_SIZE << order);
            }
            self.free.lock().trimmed(block, pieces);
        }
    }

    /// Whether this was lent; from now on it isn't.
    #[inline]
    fn take_back(&self, frame: Frame, order: Order) -> bool {
        let index = frame.0 as usize;
        if index < self.lent.len() {
            let entry = self.lent.get(index);
            if entry.load(Ordering::Relaxed) == order.get() + 1 {
                entry.store(0, Ordering::Relaxed);
                return true;
            }
        }
        self.refuse(frame, order);
        false
    }

    /// Nobody may touch these frames: they are lent no more, or not yet.
    #[inline]
    fn shut(&self, first: u32, frames: u32) {
        if watch::WATCHED {
            let offset = first as usize * PAGE_SIZE;
            // SAFETY: they lie within the region, their memory was committed, and what is not lent
            // is the zone's alone.
            unsafe { watch::shut(self.region.base().add(offset), frames as usize * PAGE_SIZE) };
        }
    }

    /// These frames are lent now.
    #[inline]
    fn open(&self, first: u32, frames: u32) {
        if watch::WATCHED {
            let offset = first as usize * PAGE_SIZE;
            // SAFETY: they lie within the region.
            let start = unsafe { self.region.base().add(offset) };
            watch::open(start, frames as usize * PAGE_SIZE);
        }
    }

    #[cold]
    fn refuse(&self, frame: Frame, order: Order) {
        self.bad_frees.fetch_add(1, Ordering::Relaxed);
        if cfg!(debug_assertions) {
            let lent = (frame.0 < self.capacity())
                .then(|| self.lent.get(frame.0 as usize).load(Ordering::Relaxed));
            let (n, order) = (frame.0, order.get());
            match lent {
                None => panic!("frame {n} was freed in a zone of {} frames", self.capacity()),
                Some(0) => panic!("frame {n} was freed with order {order} and is not lent"),
                Some(lent) => {
                    panic!(
                        "frame {n} was freed with order {order} and lent with order {}",
                        lent - 1
                    )
                }
            }
        }
    }
}

// SAFETY: blocks are handed out only by `Buddy`, which has each managed frame in one free block or
// none, and by the stocks, which got theirs from it; frames are managed only after their memory was
// committed, and the region outlives the zone's promises, being owned by it. `take_back` lets back
// in only what was lent.
unsafe impl Frames for Zone {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn capacity(&self) -> u32 {
        self.options.max_frames
    }

    #[inline]
    fn alloc(&self, lane: Lane, order: Order) -> Option<Frame> {
        let frame = match order {
            Order::ZERO => self.alloc_single(lane)?,
            order => self.alloc_block(order)?,
        };
        self.lent.get(frame as usize).store(order.get() + 1, Ordering::Relaxed);
        self.open(frame, 1 << order.get());
        Some(Frame(frame))
    }

    #[inline]
    fn free(&self, lane: Lane, frame: Frame, order: Order) {
        if !self.take_back(frame, order) {
            return;
        }
        self.shut(frame.0, 1 << order.get());
        let chores = if order == Order::ZERO {
            let mut stock = self.lanes.get(lane).lock();
            let full = stock.len() >= self.options.cache_high;
            let chores = full && self.empty(&mut stock, self.options.batch);
            stock.push(frame.0);
            chores
        } else {
            let mut free = self.free.lock();
            free.give(frame.0, order.get());
            free.has_chores(self.options.keep_free_blocks)
        };
        if chores {
            self.tidy(self.options.keep_free_blocks);
        }
    }

    fn drain(&self) {
        for stock in self.lanes.iter() {
            self.empty(&mut stock.lock(), lane_pages::MOST);
        }
        self.tidy(0);
        self.trim();
    }

    fn stats(&self) -> ZoneStats {
        let cached = self.lanes.iter().map(|stock| stock.lock().len() as u64).sum();
        let free = self.free.lock();
        ZoneStats {
            lent: free.taken().saturating_sub(cached),
            cached,
            free_blocks: free.free_blocks(),
            managed: u64::from(free.managed()),
            returned_blocks: free.returned(),
            bad_frees: self.bad_frees.load(Ordering::Relaxed),
        }
    }

    fn free_blocks(&self, see: &mut dyn FnMut(Frame, Order)) {
        self.free.lock().each_free(see);
    }

    fn validate(&self) {
        self.check();
    }
}

#[cfg(asan)]
impl Drop for Zone {
    fn drop(&mut self) {
        // The addresses may be anybody's from now on.
        let managed = self.free.lock().managed();
        self.open(0, managed);
    }
}

mod check;
#[cfg(test)]
mod tests;
