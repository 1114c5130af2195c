//! The free blocks of a zone: a list for each order, like Linux's `free_area`.
//!
//! Methods with `&self` may run concurrently. Methods with `&mut self` need the lock in exclusive
//! mode.

use std::marker::PhantomData;
use std::sync::Arc;

use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{CachePadded, WaitQueues};
use units::{FRAMES_PER_PAGEBLOCK, Frame, MAX_ORDER};

use super::clusters::Clusters;
use super::design::{Batch, Design, Merge};
use super::pages::{self, FREE, NOTHING, ORDERS, Pages, frame, head, node};
use super::passage::Watch;
use crate::zones::smp_list::{Chain, Links, SmpLists};
use pagealloc::{LazyTable, LockClass, LockTrace, MemoryProvider, NoMemory};

/// Free blocks, by order.
pub(super) struct FreeLists<D> {
    pub(super) lists: SmpLists<Arc<Pages>>,
    counts: [CachePadded<AtomicU64>; ORDERS],
    /// The locks of ranges of 4 MiB, and the queues of their waiters.
    ranges: LazyTable<AtomicU64>,
    queues: WaitQueues,
    pub(super) clusters: Clusters,
    /// True if two free buddies may be unmerged.
    unmerged: CachePadded<AtomicBool>,
    /// While this is not zero, single frames are merged at once and no clusters are taken.
    pub(super) disabled: u32,
    /// The zone manages the frames `0..managed`.
    pub(super) managed: u32,
    design: PhantomData<fn() -> D>,
}

impl<D: Design> FreeLists<D> {
    /// Makes lists that manage no frames yet.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no addresses for the tables.
    pub fn new(
        provider: &dyn MemoryProvider,
        pages: Arc<Pages>,
        capacity: u32,
        batch: usize,
    ) -> Result<FreeLists<D>, NoMemory> {
        let ranges = if D::MERGE == Merge::InRange { capacity >> MAX_ORDER } else { 0 };
        let clustered = if D::BATCH == Batch::Clusters { capacity } else { 0 };
        let mut lists = SmpLists::new(pages);
        (0..=MAX_ORDER).for_each(|order| lists.make_list(head(order)));
        Ok(FreeLists {
            lists,
            counts: core::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))),
            ranges: LazyTable::new(provider, ranges as usize + 1)?,
            queues: WaitQueues::default(),
            clusters: Clusters::new(provider, clustered, batch as u32)?,
            unmerged: CachePadded::new(AtomicBool::new(false)),
            disabled: 0,
            managed: 0,
            design: PhantomData,
        })
    }

    #[inline]
    pub fn pages(&self) -> &Arc<Pages> {
        self.lists.links()
    }

    /// Free blocks by order.
    pub fn counts(&self) -> [u64; ORDERS] {
        core::array::from_fn(|order| self.counts[order].load(Ordering::Relaxed))
    }

    /// The number of frames in free blocks.
    pub fn free_frames(&self) -> u64 {
        self.counts().iter().enumerate().map(|(order, blocks)| blocks << order).sum()
    }

    /// Whether a free block of `order` begins at `frame`, which may be beyond the last frame.
    #[inline]
    fn is_free(&self, frame: u32, order: u8) -> bool {
        // Acquire pairs with the Release in `publish`: the block is in its list.
        self.pages()
            .state_of_any(frame)
            .is_some_and(|state| state.load(Ordering::Acquire) == FREE | u32::from(order))
    }

    /// The buddy of a block, if the two can be merged.
    #[inline]
    fn free_buddy(&self, frame: u32, order: u8) -> Option<u32> {
        let buddy = frame ^ 1 << order;
        (order < MAX_ORDER && self.is_free(buddy, order)).then_some(buddy)
    }

    // Shared mode.

    /// Gives a block back under the lock of its range.
    pub fn give_in_range<P: LockTrace>(&self, frame: u32, order: u8, watch: &Watch<'_, P>) {
        let range = (frame >> MAX_ORDER) as usize;
        let word = self.ranges.get(range);
        let pages = 1 << order;
        let hold = watch.pass(
            LockClass::Range,
            || self.queues.try_lock(word),
            || self.queues.lock(word, range),
        );
        let (frame, order) = self.merge_beside(frame, order);
        self.counts[order as usize].fetch_add(1, Ordering::Relaxed);
        let mut chain = Chain::EMPTY;
        self.lists.chain(&mut chain, node(frame));
        self.put_behind_head(order, chain, watch);
        self.publish(frame, order);
        watch.leave(hold, pages, |_| self.queues.unlock(word, range, 0));
    }

    /// Gives the blocks of a batch back: merges each with its free buddies, then splices all blocks
    /// of one order into the list of that order at once.
    pub fn give_spliced<P: LockTrace>(&self, batch: &[(u32, u8)], watch: &Watch<'_, P>) {
        // The load comes first, because CPUs share the cache line while the word does not change.
        if !self.unmerged.load(Ordering::Relaxed) {
            self.unmerged.store(true, Ordering::Relaxed);
        }
        let mut chains = [Chain::EMPTY; ORDERS];
        for (frame, order) in batch {
            let (frame, order) = self.merge_beside(*frame, *order);
            self.lists.chain(&mut chains[order as usize], node(frame));
        }
        for (order, chain) in (0..).zip(chains).filter(|(_, chain)| chain.len > 0) {
            self.counts[order as usize].fetch_add(u64::from(chain.len), Ordering::Relaxed);
            self.put_behind_head(order, chain, watch);
            self.publish_chain(order, chain);
        }
    }

    /// Takes the buddies of a block out and merges the block with them, as long as they are free.
    /// No other thread may take them, because only the owner of a block takes its buddy.
    fn merge_beside(&self, mut frame: u32, mut order: u8) -> (u32, u8) {
        while let Some(buddy) = self.free_buddy(frame, order) {
            self.lists.del(node(buddy));
            self.pages().state(buddy).store(NOTHING, Ordering::Relaxed);
            self.counts[order as usize].fetch_sub(1, Ordering::Relaxed);
            frame &= !(1 << order);
            order += 1;
        }
        (frame, order)
    }

    fn put_behind_head<P: LockTrace>(&self, order: u8, chain: Chain, watch: &Watch<'_, P>) {
        let head = head(order);
        let hold =
            watch.pass(LockClass::Head, || self.lists.try_hold(head), || self.lists.hold(head));
        let pages = u64::from(chain.len) << order;
        watch.leave(hold, pages, |held| held.put(chain.first, chain.last));
    }

    /// Publishes a block that is in its list. After this the owner of its buddy may take it out.
    #[inline]
    fn publish(&self, frame: u32, order: u8) {
        // Release pairs with the Acquire in `is_free`. Order and flag are one word, so a thread
        // sees both or neither.
        self.pages().state(frame).store(FREE | u32::from(order), Ordering::Release);
    }

    fn publish_chain(&self, order: u8, chain: Chain) {
        let mut at = chain.first;
        for left in (0..chain.len).rev() {
            // The link is read before the publication. Afterwards another thread may take the block
            // out, and its link may lead anywhere.
            let next = if left > 0 { self.pages().next(at).load(Ordering::Relaxed) } else { at };
            self.publish(frame(at), order);
            at = next;
        }
    }

    // Exclusive mode.

    /// Takes a frame: splits the first block of the smallest order, and puts the rest back.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        let (found, first) =
            (0..=MAX_ORDER).find_map(|found| Some((found, self.lists.first(head(found))?)))?;
        let first = frame(first);
        self.remove(first, found);
        for half in (0..found).rev() {
            self.insert(first + (1 << half), half);
        }
        self.pages().mark_resident(first);
        Some(first)
    }

    /// Takes whole clusters out, up to `wanted` single frames.
    pub fn take_clusters(&mut self, wanted: usize) -> Chain {
        let mut chain = Chain::EMPTY;
        if self.disabled > 0 {
            return chain;
        }
        let mut next = self.lists.first(head(0));
        while let Some(first) = next {
            let cluster = self.pages().cluster(frame(first)).load(Ordering::Relaxed);
            let count = self.clusters.count(cluster);
            if cluster == 0 || (chain.len + count) as usize > wanted {
                break;
            }
            chain.len += count;
            chain.last = node(self.clusters.last(cluster));
            self.clusters.close(cluster);
            next = self.lists.behind(head(0), chain.last);
        }
        if chain.len > 0 {
            chain.first = self.lists.cut(head(0), chain.last);
            *self.counts[0].get_mut() -= u64::from(chain.len);
        }
        chain
    }

    /// Gives a block back as the design does.
    #[inline]
    pub fn give(&mut self, frame: u32, order: u8) {
        if D::MERGE == Merge::Late && order == 0 && self.disabled == 0 {
            *self.unmerged.get_mut() = true;
            self.insert(frame, 0);
        } else {
            self.give_merged(frame, order);
        }
    }

    /// Gives a batch of single frames back as one cluster, if that is possible now.
    pub fn give_cluster(&mut self, batch: &[(u32, u8)]) -> bool {
        let Some((last, _)) = batch.first().filter(|_| self.disabled == 0) else { return false };
        let cluster = self.clusters.open(*last, batch.len() as u32);
        for (frame, _) in batch {
            self.pages().cluster(*frame).store(cluster, Ordering::Relaxed);
            self.link(*frame, 0);
        }
        *self.unmerged.get_mut() = true;
        true
    }

    /// Merges a block with its free buddies and puts the result in.
    pub fn give_merged(&mut self, mut frame: u32, mut order: u8) {
        while let Some(buddy) = self.free_buddy(frame, order) {
            self.remove(buddy, order);
            frame &= !(1 << order);
            order += 1;
        }
        self.insert(frame, order);
    }

    /// Merges all unmerged buddies. The caller has waited for clusters in progress.
    pub fn merge_late(&mut self) {
        if !core::mem::take(self.unmerged.get_mut()) {
            return;
        }
        // The loop meets a merged block again with the next order.
        for order in 0..MAX_ORDER {
            let mut next = self.lists.first(head(order));
            while let Some(at) = next {
                next = self.lists.behind(head(order), at);
                let (block, buddy) = (frame(at), frame(at) ^ 1 << order);
                if !self.is_free(buddy, order) {
                    continue;
                }
                if next == Some(node(buddy)) {
                    next = self.lists.behind(head(order), node(buddy));
                }
                self.remove(block, order);
                self.remove(buddy, order);
                self.insert(block.min(buddy), order + 1);
            }
        }
    }

    /// Whether there may be something for [`FreeLists::merge_late`].
    pub fn is_unmerged(&mut self) -> bool {
        *self.unmerged.get_mut()
    }

    /// Adds `frames` frames to the managed ones.
    pub fn extend(&mut self, frames: u32) {
        let end = self.managed + frames;
        while self.managed < end {
            let (at, left) = (self.managed, end - self.managed);
            let order = at.trailing_zeros().min(left.ilog2()).min(u32::from(MAX_ORDER)) as u8;
            self.managed += 1 << order;
            self.give_merged(at, order);
        }
    }

    /// Calls `see` for each free block.
    pub fn each(&mut self, see: &mut dyn FnMut(Frame, u8)) {
        for order in 0..=MAX_ORDER {
            let head = head(order);
            let mut next = self.lists.first(head);
            while let Some(at) = next {
                see(Frame(frame(at)), order);
                next = self.lists.behind(head, at);
            }
        }
    }

    /// Calls `see` for each free part of a 2 MiB block that is not free as a whole. Returns the
    /// number of its free frames.
    pub fn parts(&mut self, block: u32, see: &mut dyn FnMut(u32, u8)) -> u32 {
        let start = block * FRAMES_PER_PAGEBLOCK;
        let end = (start + FRAMES_PER_PAGEBLOCK).min(self.managed);
        let block_order = FRAMES_PER_PAGEBLOCK.ilog2() as u8;
        let is_whole =
            (block_order..=MAX_ORDER).any(|order| self.is_free(start & !((1 << order) - 1), order));
        if is_whole {
            return FRAMES_PER_PAGEBLOCK;
        }
        let (mut at, mut free) = (start, 0);
        while at < end {
            let state = self.pages().state(at).load(Ordering::Relaxed);
            let is_free = state & FREE != 0;
            let order = if is_free { (state & pages::ORDER) as u8 } else { 0 };
            if is_free {
                free += 1 << order;
                see(at, order);
            }
            at += 1 << order;
        }
        free
    }

    #[inline]
    fn insert(&mut self, frame: u32, order: u8) {
        if D::BATCH == Batch::Clusters && order == 0 {
            let neighbour = self.lists.first(head(0)).map(pages::frame);
            let pages = self.lists.links();
            if self.disabled == 0 {
                self.clusters.add(pages, neighbour, frame);
            } else {
                pages.cluster(frame).store(0, Ordering::Relaxed);
            }
        }
        self.link(frame, order);
    }

    #[inline]
    fn link(&mut self, frame: u32, order: u8) {
        self.lists.push(head(order), node(frame));
        self.pages().state(frame).store(FREE | u32::from(order), Ordering::Relaxed);
        *self.counts[order as usize].get_mut() += 1;
    }

    #[inline]
    fn remove(&mut self, frame: u32, order: u8) {
        if D::BATCH == Batch::Clusters && order == 0 {
            let before = self.lists.before(node(frame));
            let before = (before != head(0)).then(|| pages::frame(before));
            self.clusters.remove(self.lists.links(), before, frame);
        }
        self.lists.remove(node(frame));
        self.pages().state(frame).store(NOTHING, Ordering::Relaxed);
        *self.counts[order as usize].get_mut() -= 1;
    }
}
