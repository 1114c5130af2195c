//! A zone as the kernel has it: free lists linked through the table of frames, one lock round them,
//! and a pcp list of single frames for each CPU in front.
//!
//! [`ListZone`] is one zone in several designs ([`Design`]). A design chooses the kind of lock,
//! when buddies are merged, and how batches move. The designs come from two series of patches for
//! Linux 4.19: Aaron Lu, "Improve zone lock scalability using Daniel Jordan's list work" (linux-mm,
//! September 2018), and "Eliminate zone->lock contention" (October 2018); behaviour.
//!
//! In all designs single frames come from the CPU's pcp list, the newest first, and go back to the
//! pcp list of the CPU that frees them. An empty pcp list is filled. When a pcp list has
//! [`ZoneOptions::cache_high`] frames, its oldest batch goes back to the zone. Linux's own
//! numbers are a batch of 63 and at most 378 frames in a pcp list.
//!
//! The lock order is: pcp lists by ascending CPU, the zone's lock, the lock of a range, the head of
//! a list. Only [`Frames::drain`] gives memory back to the operating system. It holds the zone's
//! lock alone, for one 2 MiB block at a time. The zone ignores [`ZoneOptions::keep_free_blocks`]
//! and [`ZoneOptions::collapse`]. A design that leaves buddies unmerged merges them in `drain`, and
//! before an allocation fails for lack of memory. Larger blocks are not allocated: the engine wants
//! none.
//!
//! The state of a frame says whether it is allocated, so the zone detects a free of one that is
//! not. A debug build panics; any other build counts the call and ignores it. The zone does not
//! detect two threads that free the same frame at the same instant.
//!
//! # Why unsafe
//! [`Frames`] is a promise about addresses. The zone never touches the frames, except through
//! [`watch`].

use std::ptr::NonNull;
use std::sync::Arc;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::{Backoff, CachePadded, Mutex, PerCpu};
use units::{Cpu, FRAMES_PER_PAGEBLOCK, Frame, PAGE_SIZE, PAGEBLOCK_SIZE};

use crate::locks::{RwLock, WriteGuard};
use crate::zones::smp_list::{Chain, Links};
use pagealloc::{
    Frames, LockClass, LockTrace, MemoryProvider, NoMemory, Region, ZoneOptions, ZoneStats, watch,
};

mod clusters;
mod design;
mod free_lists;
mod pages;
mod passage;
mod pcp;

pub use design::{Batch, Cluster, Design, Merge, NoMerge, Premerge, RangeRw, Spin, Splice};
use free_lists::FreeLists;
use pages::{ALLOCATED, NOTHING, Pages};
use passage::{Hold, Watch};
use pcp::PcpList;

/// The frames that a zone commits at a time: 32 MiB. Untouched frames cost no memory.
const GROWTH: u32 = 16 * FRAMES_PER_PAGEBLOCK;

/// A zone of free lists; the module's documentation describes it.
pub struct ListZone<D: Design, P: LockTrace = ()> {
    region: Region,
    options: ZoneOptions,
    pages: Arc<Pages>,
    cpus: PerCpu<Mutex<PcpList>>,
    free: CachePadded<RwLock<FreeLists<D>>>,
    /// Clusters that have left the list, while their frames are still marked free.
    in_progress: CachePadded<AtomicU32>,
    returned: AtomicU64,
    bad_frees: AtomicU64,
    trace: P,
}

impl<D: Design> ListZone<D> {
    /// The name of the design.
    pub const NAME: &'static str = D::NAME;

    /// Reserves the addresses of `options.max_frames` frames and of the tables that describe them.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no such range, or for 2^32 - 96 frames and more.
    pub fn new(
        provider: &dyn MemoryProvider,
        options: ZoneOptions,
    ) -> Result<ListZone<D>, NoMemory> {
        ListZone::with_probe(provider, options, ())
    }
}

impl<D: Design, P: LockTrace> ListZone<D, P> {
    /// Makes a zone as [`ListZone::new`] does. The zone reports its lock operations to `trace`.
    ///
    /// # Errors
    /// Those of [`ListZone::new`].
    pub fn with_probe(
        provider: &dyn MemoryProvider,
        mut options: ZoneOptions,
        trace: P,
    ) -> Result<ListZone<D, P>, NoMemory> {
        options.cache_high = options.cache_high.clamp(1, pcp::MOST);
        options.batch = options.batch.clamp(1, options.cache_high);
        let too_large = NoMemory { bytes: usize::MAX };
        let bytes = (options.max_frames as usize).checked_mul(PAGE_SIZE).ok_or(too_large)?;
        let bytes = bytes.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE).ok_or(too_large)?;
        let pages = Arc::new(Pages::new(provider, options.max_frames)?);
        let free = FreeLists::new(provider, pages.clone(), options.max_frames, options.batch)?;
        Ok(ListZone {
            region: provider.reserve(bytes)?,
            pages,
            cpus: PerCpu::new(options.cpus, |_| Mutex::new(PcpList::new())),
            free: CachePadded::new(RwLock::new(free)),
            in_progress: CachePadded::new(AtomicU32::new(0)),
            returned: AtomicU64::new(0),
            bad_frees: AtomicU64::new(0),
            options,
            trace,
        })
    }

    /// The trace of the zone's locks.
    pub fn trace(&self) -> &P {
        &self.trace
    }

    #[inline]
    fn watch(&self, cpu: Cpu) -> Watch<'_, P> {
        Watch { trace: &self.trace, cpu }
    }

    #[inline]
    fn alone(&self, watch: &Watch<'_, P>) -> Hold<WriteGuard<'_, FreeLists<D>>> {
        watch.pass(LockClass::Write, || self.free.try_write(), || self.free.write())
    }

    #[inline]
    fn alloc_single(&self, cpu: Cpu) -> Option<u32> {
        let mut pcp = self.cpus.get(cpu).lock();
        if let Some(frame) = pcp.frames.pop_back() {
            return Some(frame);
        }
        self.refill(cpu, &mut pcp);
        let frame = pcp.frames.pop_back();
        drop(pcp);
        frame.or_else(|| self.scrape_from(0, cpu))
    }

    /// Fills an empty pcp list: with whole clusters if the design has them, and then frame by
    /// frame.
    #[cold]
    fn refill(&self, cpu: Cpu, pcp: &mut PcpList) {
        let watch = self.watch(cpu);
        let mut hold = self.alone(&watch);
        let free = &mut *hold.guard;
        let chain = match D::BATCH {
            Batch::Clusters => free.take_clusters(self.options.batch),
            Batch::Pages | Batch::Premerged => Chain::EMPTY,
        };
        if chain.len > 0 {
            self.in_progress.fetch_add(1, Ordering::Relaxed);
        }
        let mut count = chain.len as usize;
        while count < self.options.batch {
            if let Some(frame) = free.take() {
                pcp.frames.push_front(frame);
                count += 1;
            } else if count > 0 || !self.grow(free) {
                break;
            }
        }
        watch.leave(hold, count as u64, drop);
        if chain.len > 0 {
            self.unpack(chain, pcp);
        }
    }

    /// Moves the frames of a chain of clusters to a pcp list. The frames are marked free until
    /// then, so a thread that merges waits.
    fn unpack(&self, chain: Chain, pcp: &mut PcpList) {
        let mut at = chain.first;
        for left in (0..chain.len).rev() {
            let frame = pages::frame(at);
            if left > 0 {
                at = self.pages.next(at).load(Ordering::Relaxed);
            }
            self.pages.state(frame).store(NOTHING, Ordering::Relaxed);
            self.pages.cluster(frame).store(0, Ordering::Relaxed);
            self.pages.mark_resident(frame);
            pcp.frames.push_front(frame);
        }
        // Release pairs with the Acquire in `wait_for_clusters`.
        self.in_progress.fetch_sub(1, Ordering::Release);
    }

    /// Waits until no cluster is in progress. The caller holds the lock, so none begins.
    fn wait_for_clusters(&self) {
        let mut backoff = Backoff::new();
        // Acquire pairs with the Release in `unpack`.
        while self.in_progress.load(Ordering::Acquire) > 0 {
            backoff.wait();
        }
    }

    /// Asks the provider for more frames. True if the zone has more now.
    #[cold]
    fn grow(&self, free: &mut FreeLists<D>) -> bool {
        let left = self.options.max_frames - free.managed;
        // A whole step or, if the system refuses that, a single 2 MiB block.
        [GROWTH, FRAMES_PER_PAGEBLOCK].into_iter().map(|step| step.min(left)).any(|frames| {
            let offset = free.managed as usize * PAGE_SIZE;
            let bytes = (frames as usize * PAGE_SIZE).next_multiple_of(PAGEBLOCK_SIZE);
            let grown = frames > 0 && self.region.commit(offset, bytes).is_ok();
            if grown {
                if cfg!(asan) {
                    self.poison(free.managed, frames);
                }
                free.extend(frames);
            }
            grown
        })
    }

    /// The last resort of an allocation: empties and holds the pcp list of a CPU and of those after
    /// it, then merges all buddies. If the zone then has no frame, none is free. The recursion
    /// keeps a guard for each CPU on the stack, without the heap.
    #[cold]
    fn scrape_from(&self, next: usize, cpu: Cpu) -> Option<u32> {
        if next < self.cpus.count() {
            let mut pcp = self.cpus.get(Cpu(next as u32)).lock();
            self.empty(cpu, &mut pcp, pcp::MOST);
            return self.scrape_from(next + 1, cpu);
        }
        let watch = self.watch(cpu);
        let mut hold = self.alone(&watch);
        let free = &mut *hold.guard;
        self.wait_for_clusters();
        free.merge_late();
        let mut frame = free.take();
        if frame.is_none() && self.grow(free) {
            frame = free.take();
        }
        watch.leave(hold, u64::from(frame.is_some()), drop);
        frame
    }

    /// Gives the `count` oldest frames of a pcp list to the zone.
    #[cold]
    fn empty(&self, cpu: Cpu, pcp: &mut PcpList, count: usize) {
        let batch = pcp.take_oldest(count);
        if batch.is_empty() {
            return;
        }
        let pages = batch.len() as u64;
        let left = match D::BATCH {
            Batch::Premerged => pcp::merge_batch(batch, units::MAX_ORDER),
            Batch::Pages | Batch::Clusters => batch.len(),
        };
        let batch = &batch[..left];
        if D::MERGE != Merge::Late {
            // Prefetches the buddies' entries, which are read under the lock. Linux does so since
            // 4.17.
            for (frame, order) in batch.iter().take(self.options.batch) {
                self.pages.prefetch_frame(*frame ^ 1 << *order);
            }
        }
        self.give(cpu, batch, pages);
    }

    /// Gives the blocks of a batch to the zone as the design does. They have `pages` frames in
    /// total.
    fn give(&self, cpu: Cpu, batch: &[(u32, u8)], pages: u64) {
        let watch = self.watch(cpu);
        let beside = || watch.pass(LockClass::Read, || self.free.try_read(), || self.free.read());
        match D::MERGE {
            Merge::InRange => {
                let hold = beside();
                for (frame, order) in batch {
                    hold.guard.give_in_range(*frame, *order, &watch);
                }
                watch.leave(hold, pages, drop);
            }
            Merge::Beside => {
                let hold = beside();
                hold.guard.give_spliced(batch, &watch);
                watch.leave(hold, pages, drop);
            }
            Merge::Alone | Merge::Late => {
                let mut hold = self.alone(&watch);
                let free = &mut *hold.guard;
                let is_cluster = D::BATCH == Batch::Clusters
                    && batch.len() == self.options.batch
                    && batch[0].1 == 0
                    && free.give_cluster(batch);
                if !is_cluster {
                    batch.iter().for_each(|(frame, order)| free.give(*frame, *order));
                }
                watch.leave(hold, pages, drop);
            }
        }
    }

    /// Disables clusters: the zone merges single frames at once and hands out no clusters. Each
    /// call needs a call of [`ListZone::enable`] to end this.
    fn disable(&self, watch: &Watch<'_, P>) {
        let mut hold = self.alone(watch);
        hold.guard.disabled += 1;
        self.wait_for_clusters();
        watch.leave(hold, 0, drop);
    }

    fn enable(&self, watch: &Watch<'_, P>) {
        let mut hold = self.alone(watch);
        hold.guard.disabled -= 1;
        watch.leave(hold, 0, drop);
    }

    /// Gives the memory of the free frames of a 2 MiB block back to the system. Skips a block from
    /// which no frame was taken, and to which none came back, since the last time.
    fn trim(&self, free: &mut FreeLists<D>, block: u32) {
        let entry = self.pages.block(block);
        let known = entry.load(Ordering::Relaxed);
        if known == 0 {
            return;
        }
        let count = free.parts(block, &mut |_, _| ());
        if count == FRAMES_PER_PAGEBLOCK {
            self.region.release(block as usize * PAGEBLOCK_SIZE, PAGEBLOCK_SIZE);
            entry.store(0, Ordering::Relaxed);
            self.returned.fetch_add(1, Ordering::Relaxed);
        } else if count > 0 && known != pages::RESIDENT | count {
            free.parts(block, &mut |frame, order| {
                self.region.release(frame as usize * PAGE_SIZE, PAGE_SIZE << order);
            });
            entry.store(pages::RESIDENT | count, Ordering::Relaxed);
        }
    }

    /// Marks the frame as not allocated. False if it was not allocated.
    #[inline]
    fn take_back(&self, frame: Frame) -> bool {
        let state = self.pages.state_of_any(frame.0);
        if let Some(state) = state.filter(|state| state.load(Ordering::Relaxed) == ALLOCATED) {
            state.store(NOTHING, Ordering::Relaxed);
            return true;
        }
        self.refuse(frame);
        false
    }

    #[cold]
    fn refuse(&self, frame: Frame) {
        self.bad_frees.fetch_add(1, Ordering::Relaxed);
        if cfg!(debug_assertions) {
            let n = frame.0;
            assert!(
                n < self.capacity(),
                "frame {n} was freed in a zone of {} frames",
                self.capacity()
            );
            panic!("frame {n} was freed and is not allocated");
        }
    }

    /// Forbids access to these frames, because they are not allocated.
    #[inline]
    fn poison(&self, first: u32, frames: u32) {
        if watch::WATCHED {
            let offset = first as usize * PAGE_SIZE;
            // SAFETY: the frames lie within the region, their memory was committed, and the zone
            // alone owns frames that are not allocated.
            unsafe { watch::poison(self.region.base().add(offset), frames as usize * PAGE_SIZE) };
        }
    }

    /// Permits access to these frames, because they are allocated now.
    #[inline]
    fn open(&self, first: u32, frames: u32) {
        if watch::WATCHED {
            let offset = first as usize * PAGE_SIZE;
            // SAFETY: the frames lie within the region.
            let start = unsafe { self.region.base().add(offset) };
            watch::unpoison(start, frames as usize * PAGE_SIZE);
        }
    }
}

// SAFETY: the zone hands out blocks only from the free lists, in which each managed frame is in at
// most one block, and from the pcp lists, which are filled from the free lists. The zone manages
// frames only after their memory was committed. The zone owns the region, so the region outlives
// its promises. `take_back` accepts only
// allocated frames.
unsafe impl<D: Design, P: LockTrace> Frames for ListZone<D, P> {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn capacity(&self) -> u32 {
        self.options.max_frames
    }

    #[inline]
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        let frame = self.alloc_single(cpu)?;
        self.pages.state(frame).store(ALLOCATED, Ordering::Relaxed);
        self.open(frame, 1);
        Some(Frame(frame))
    }

    #[inline]
    fn free(&self, cpu: Cpu, frame: Frame) {
        if !self.take_back(frame) {
            return;
        }
        self.poison(frame.0, 1);
        let mut pcp = self.cpus.get(cpu).lock();
        pcp.frames.push_back(frame.0);
        if pcp.frames.len() >= self.options.cache_high {
            self.empty(cpu, &mut pcp, self.options.batch);
        }
    }

    fn drain(&self) {
        let watch = self.watch(Cpu(0));
        self.disable(&watch);
        for (cpu, pcp) in (0..).map(Cpu).zip(self.cpus.iter()) {
            self.empty(cpu, &mut pcp.lock(), pcp::MOST);
        }
        let mut hold = self.alone(&watch);
        hold.guard.merge_late();
        let blocks = hold.guard.managed.div_ceil(FRAMES_PER_PAGEBLOCK);
        watch.leave(hold, 0, drop);
        for block in 0..blocks {
            // Takes the lock anew for each block, because all other threads wait for it.
            let mut hold = self.alone(&watch);
            self.trim(&mut hold.guard, block);
            watch.leave(hold, 0, drop);
        }
        self.enable(&watch);
    }

    fn stats(&self) -> ZoneStats {
        let cached = self.cpus.iter().map(|pcp| pcp.lock().frames.len() as u64).sum();
        let free = self.free.write();
        let managed = u64::from(free.managed);
        ZoneStats {
            allocated: managed.saturating_sub(cached + free.free_frames()),
            cached,
            free_blocks: free.counts(),
            managed,
            returned_blocks: self.returned.load(Ordering::Relaxed),
            bad_frees: self.bad_frees.load(Ordering::Relaxed),
        }
    }

    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        self.free.write().each(see);
    }

    fn validate(&self) {
        self.check();
    }
}

#[cfg(asan)]
impl<D: Design, P: LockTrace> Drop for ListZone<D, P> {
    fn drop(&mut self) {
        // After this the system may give the addresses to other users.
        let managed = self.free.write().managed;
        self.open(0, managed);
    }
}

mod check;
#[cfg(test)]
mod tests;
