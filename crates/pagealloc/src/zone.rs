//! Our own design, `bitfield`: a bit for each free frame, 2 MiB pageblocks reserved by CPUs, and
//! one shared lock, which is taken about once for each 512 frames.
//!
//! There are known ways to make a zone's lock scale: lists that several threads may change at once,
//! larger caches per CPU, parts of the zone with locks of their own, and reservations (LLFree:
//! Wrenger et al., USENIX ATC '23). Lists need a cache line for each frame. Batches of frames hold
//! back frames that could be merged. Parts run empty one by one. Here:
//!
//! * **A bit per frame, and nothing to merge.** A block of 2 MiB is one cache line of bits
//!   ([`pageblock`]). Frames that are freed beside each other *are* a larger block at that moment
//!   ([`runs`]). A free touches only the word of the frame and the count of the pageblock.
//! * **A CPU reserves a pageblock** and fills its pcp list of single frames from it, a word at a
//!   time, under its own lock only. Any CPU may free frames into any block, without a lock.
//! * **The zone's lock** guards the free lists ([`index`]): the pageblocks that are free in part,
//!   and those that are free as a whole. It is taken when a pageblock is reserved, when the first
//!   frame of a used-up pageblock is freed, and when the last one is.
//! * **The lowest first, and partial ones before whole ones**, so that allocated frames are dense,
//!   and high pageblocks become free and can be given back to the operating system.
//! * **`None` is exact.** Before the zone reports that memory is out, it takes every lock and puts
//!   all pcp lists and reservations back. A frame that is not found then does not exist.
//!
//! Locks are taken in this order: unwanted, housekeeping, growing, CPUs ascending, the zone's. A
//! CPU without frames may look into the reservations of other CPUs, but only tries their locks. No
//! system call is made under the lock of a CPU or of the zone. Memory is released and collapsed
//! under the housekeeping lock, with the pageblock reserved; addresses are committed under the
//! growing lock.
//!
//! A byte per frame says whether it is allocated, so that a free of a frame that is not allocated
//! is detected. In a debug build it panics; otherwise the call is counted and has no effect. Two
//! threads that free the same frame at the same instant are not told apart here, because that would
//! cost an atomic exchange on every free. They may be detected when the bit is set for the second
//! time.
//!
//! All tables together take 641 bytes for each 2 MiB: 0.03 %. Where memory is provided ahead they
//! take 64 more.
//!
//! If memory is provided ahead, only frames with memory are allocated, and a thread that may wait
//! provides it ([`provide`]). No call of `alloc` or `free` asks the system for anything. `None`
//! then means that no free frame has memory.
//!
//! # Why unsafe
//! [`Frames`] is a promise about addresses. Of the frames only those are touched here that are
//! being freed, by [`ZoneOptions::init_on_free`] and by [`watch`]. Tables begin as zeroed memory.

use core::ptr::NonNull;

use sync::atomic::{AtomicU8, AtomicU64, Ordering};
use sync::{CachePadded, Mutex, PerCpu};
use units::{Cpu, FRAMES_PER_PAGEBLOCK, Frame, PAGE_SIZE, PAGEBLOCK_SIZE};

use self::index::Index;
use self::pageblock::Pageblock;
use self::percpu::CpuState;
use self::unwanted::Unwanted;
use self::withheld::Withheld;
use crate::{
    Frames, LazyTable, LockTrace, MemoryProvider, NoMemory, Region, Zeroed, ZoneStats, watch,
};

mod adopt;
mod check;
mod give;
mod grow;
mod held;
mod index;
mod pageblock;
mod percpu;
mod provide;
mod refill;
mod release_idle;
mod runs;
mod unwanted;
mod withheld;

// SAFETY: an atomic integer has the representation of the integer, for which all bytes are valid.
unsafe impl Zeroed for AtomicU8 {}
// SAFETY: a pageblock is made of atomic integers; all zeroes is a pageblock without free frames.
unsafe impl Zeroed for Pageblock {}

/// The options of a [`Zone`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneOptions {
    /// CPUs with a pcp list of their own; at least one is made.
    pub cpus: usize,
    /// The highest possible number of frames: address space, not memory.
    pub max_frames: u32,
    /// Frames moved between a pcp list and the zone at a time: 1 up to `cache_high`.
    pub batch: usize,
    /// The most frames in a pcp list, 1 to 64. A value outside a limit is moved to the limit.
    pub cache_high: usize,
    /// Free 2 MiB pageblocks that keep their memory, because memory that is given back is often
    /// needed again at once.
    pub keep_free_blocks: u32,
    /// Whether memory is fetched from the system in large pieces before it is allocated
    /// ([`crate::RegionKeeper::populate`]), and 2 MiB pageblocks of which every frame is allocated
    /// are collapsed ([`crate::RegionKeeper::collapse`]). The collapse happens in [`Frames::drain`]
    /// and [`Frames::maintain`].
    pub collapse: bool,
    /// Frames are zeroed when they are freed, as with the kernel's `init_on_free`: who gets a frame
    /// next finds nothing of its last owner in it.
    pub init_on_free: bool,
}

impl ZoneOptions {
    /// Options for `cpus` CPUs and at most `max_frames` frames, with the best defaults.
    #[must_use]
    pub const fn new(cpus: usize, max_frames: u32) -> ZoneOptions {
        // A batch is half a word of bits: one atomic instruction takes or gives back 32 frames.
        ZoneOptions {
            cpus,
            max_frames,
            batch: 32,
            cache_high: 64,
            keep_free_blocks: 1,
            collapse: false,
            init_on_free: false,
        }
    }
}

/// The design `bitfield`. The module's documentation describes which parts are shared.
pub struct Zone<P: LockTrace = ()> {
    region: Region,
    options: ZoneOptions,
    /// One for each frame that is allocated.
    allocated: LazyTable<AtomicU8>,
    blocks: LazyTable<Pageblock>,
    cpus: PerCpu<Mutex<CpuState>>,
    index: CachePadded<Mutex<Index>>,
    /// Held by a thread that asks the system for something. It holds the frames without memory.
    housekeeping: CachePadded<Mutex<Withheld>>,
    /// Held by a thread that looks for memory to give back, before any other lock.
    unwanted: Mutex<Unwanted>,
    /// Held by a thread that asks the provider for more frames.
    growing: CachePadded<Mutex<()>>,
    /// Whether memory is provided ahead.
    ahead: bool,
    /// Frames with memory, if memory is provided ahead.
    memory: CachePadded<AtomicU64>,
    bad_frees: CachePadded<AtomicU64>,
    trace: P,
}

impl Zone<()> {
    /// The name of the design.
    pub const NAME: &str = "bitfield";

    /// Reserves the addresses of `options.max_frames` frames and of the tables that describe them.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no such range.
    pub fn new(provider: &dyn MemoryProvider, options: ZoneOptions) -> Result<Zone, NoMemory> {
        Zone::with_probe(provider, options, ())
    }

    /// As [`Zone::new`]; the frames are those of `frames`, and the tables that describe them are of
    /// `tables`. Frames that another process left there have no effect until [`Zone::adopt`].
    ///
    /// # Errors
    /// [`NoMemory`] when a provider has no such range.
    pub fn over(
        frames: &dyn MemoryProvider,
        tables: &dyn MemoryProvider,
        options: ZoneOptions,
    ) -> Result<Zone, NoMemory> {
        Zone::build(frames, tables, options, ())
    }
}

impl<P: LockTrace> Zone<P> {
    /// Reserves as [`Zone::new`] does, with a trace.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no such range.
    pub fn with_probe(
        provider: &dyn MemoryProvider,
        options: ZoneOptions,
        trace: P,
    ) -> Result<Zone<P>, NoMemory> {
        Zone::build(provider, provider, options, trace)
    }

    fn build(
        frames: &dyn MemoryProvider,
        tables: &dyn MemoryProvider,
        mut options: ZoneOptions,
        trace: P,
    ) -> Result<Zone<P>, NoMemory> {
        options.cache_high = options.cache_high.clamp(1, percpu::MOST);
        options.batch = options.batch.clamp(1, options.cache_high);
        let ahead = frames.is_ahead();
        if ahead {
            // The thread that provides memory also gives it back.
            options.keep_free_blocks = u32::MAX;
            options.collapse = false;
        }
        let too_large = NoMemory { bytes: usize::MAX };
        let bytes = (options.max_frames as usize).checked_mul(PAGE_SIZE).ok_or(too_large)?;
        let bytes = bytes.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE).ok_or(too_large)?;
        let blocks = options.max_frames.div_ceil(FRAMES_PER_PAGEBLOCK);
        let index = Index::new(tables, blocks)?;
        let withheld = Withheld::new(tables, if ahead { blocks } else { 0 })?;
        Ok(Zone {
            region: frames.reserve(bytes)?,
            allocated: LazyTable::provided(tables, options.max_frames as usize)?,
            blocks: LazyTable::provided(tables, blocks as usize)?,
            cpus: PerCpu::new(options.cpus, |_| Mutex::new(CpuState::default())),
            index: CachePadded::new(Mutex::new(index)),
            housekeeping: CachePadded::new(Mutex::new(withheld)),
            unwanted: Mutex::new(Unwanted::NEW),
            growing: CachePadded::new(Mutex::new(())),
            ahead,
            memory: CachePadded::new(AtomicU64::new(0)),
            bad_frees: CachePadded::new(AtomicU64::new(0)),
            options,
            trace,
        })
    }

    /// The trace of the zone.
    pub fn trace(&self) -> &P {
        &self.trace
    }

    #[inline]
    fn block(&self, number: u32) -> &Pageblock {
        self.blocks.get(number as usize)
    }

    /// Whether this frame was allocated; marks it as not allocated.
    #[inline]
    fn take_back(&self, frame: Frame) -> bool {
        let index = frame.0 as usize;
        if index < self.allocated.len() {
            let entry = self.allocated.get(index);
            if entry.load(Ordering::Relaxed) != 0 {
                entry.store(0, Ordering::Relaxed);
                return true;
            }
        }
        self.refuse(frame);
        false
    }

    /// Zeroes a frame that is being freed. It has memory: its owner wrote to it.
    #[inline]
    fn wipe(&self, frame: Frame) {
        // Its owner may have told a checker that parts of it are unused.
        self.open(frame.0, 1);
        let offset = frame.0 as usize * PAGE_SIZE;
        // SAFETY: the frame lies within the region and its memory is committed. It was allocated
        // until now, its owner has freed it, and no other thread can get it yet.
        unsafe {
            let start = self.region.base().add(offset);
            start.as_ptr().write_bytes(0, PAGE_SIZE);
        }
    }

    /// Poisons frames that are not allocated: no thread may touch them.
    #[inline]
    fn poison(&self, first: u32, frames: u32) {
        if watch::WATCHED {
            let offset = first as usize * PAGE_SIZE;
            // SAFETY: the frames lie within the region, their memory was committed, and only the
            // zone uses frames that are not allocated.
            unsafe { watch::poison(self.region.base().add(offset), frames as usize * PAGE_SIZE) };
        }
    }

    /// Unpoisons frames that are allocated now.
    #[inline]
    fn open(&self, first: u32, frames: u32) {
        if watch::WATCHED {
            let offset = first as usize * PAGE_SIZE;
            // SAFETY: the frames lie within the region.
            let start = unsafe { self.region.base().add(offset) };
            watch::unpoison(start, frames as usize * PAGE_SIZE);
        }
    }

    #[cold]
    fn refuse(&self, frame: Frame) {
        self.bad_frees.fetch_add(1, Ordering::Relaxed);
        if cfg!(debug_assertions) {
            let (n, capacity) = (frame.0, self.capacity());
            match n < capacity {
                true => panic!("frame {n} was freed and is not allocated"),
                false => panic!("frame {n} was freed in a zone of {capacity} frames"),
            }
        }
    }

    /// Passes every free block to `see`.
    fn each_free(&self, see: &mut dyn FnMut(u32, u8)) {
        let managed = self.lock_index(Cpu(0)).managed_blocks();
        let mut number = 0;
        while number < managed {
            let pair = number.is_multiple_of(2)
                && number + 1 < managed
                && self.block(number).is_whole()
                && self.block(number + 1).is_whole();
            let first = number * FRAMES_PER_PAGEBLOCK;
            if pair {
                see(first, runs::BLOCK_ORDER + 1);
            } else if self.block(number).state().count() > 0 {
                let words = self.block(number).words();
                runs::each_block(&words, &mut |at, order| see(first + at, order));
            }
            number += 1 + u32::from(pair);
        }
    }
}

// SAFETY: the bit of a frame is set once when its memory is committed, and then only when the frame
// is freed; `take_back` allows this only for an allocated frame. Taking a bit is atomic, so one
// thread takes each bit, and the frame is then in one pcp list or allocated. The zone owns the
// region, so the region outlives the zone's promises.
unsafe impl<P: LockTrace> Frames for Zone<P> {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn capacity(&self) -> u32 {
        self.options.max_frames
    }

    #[inline]
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        let frame = self.take(cpu)?;
        self.allocated.get(frame as usize).store(1, Ordering::Relaxed);
        self.open(frame, 1);
        Some(Frame(frame))
    }

    #[inline]
    fn free(&self, cpu: Cpu, frame: Frame) {
        if !self.take_back(frame) {
            return;
        }
        if self.options.init_on_free {
            self.wipe(frame);
        }
        self.poison(frame.0, 1);
        self.give(cpu, frame.0);
    }

    fn drain(&self) {
        for cpu in (0..self.cpus.count() as u32).map(Cpu) {
            self.empty(cpu, &mut self.cpus.get(cpu).lock());
        }
        if !self.ahead {
            self.release_all_idle();
            self.trim();
            self.collapse(u32::MAX);
        }
    }

    fn maintain(&self, most: u32) -> u32 {
        if !self.ahead {
            self.give_back_unwanted();
        }
        self.collapse(most)
    }

    fn provide(&self, cpu: Cpu, free: u64) -> u64 {
        if self.ahead { self.provide_ahead(cpu, free) } else { u64::MAX }
    }

    fn provided(&self) -> u64 {
        if self.ahead { self.memory.load(Ordering::Relaxed) } else { u64::MAX }
    }

    fn stats(&self) -> ZoneStats {
        let cached = self.cpus.iter().map(|own| own.lock().pcp.len() as u64).sum();
        let (managed, blocks, returned_blocks) = {
            let index = self.lock_index(Cpu(0));
            (u64::from(index.managed), index.managed_blocks(), index.returned)
        };
        let allocated = match self.ahead {
            // Withheld frames look as if they were allocated.
            true => self.provided().saturating_sub(self.free_with_memory()),
            false => {
                let free = (0..blocks).map(|number| u64::from(self.block(number).state().count()));
                managed.saturating_sub(free.sum::<u64>() + cached)
            }
        };
        let mut stats = ZoneStats {
            allocated,
            cached,
            managed,
            returned_blocks,
            bad_frees: self.bad_frees.load(Ordering::Relaxed),
            ..ZoneStats::default()
        };
        self.each_free(&mut |_, order| stats.free_blocks[usize::from(order)] += 1);
        stats
    }

    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        self.each_free(&mut |frame, order| see(Frame(frame), order));
    }

    fn validate(&self) {
        self.check();
    }
}

#[cfg(asan)]
impl<P: LockTrace> Drop for Zone<P> {
    fn drop(&mut self) {
        // The addresses may belong to another owner from now on.
        let managed = self.index.lock().managed;
        self.open(0, managed);
    }
}

#[cfg(test)]
mod tests;
