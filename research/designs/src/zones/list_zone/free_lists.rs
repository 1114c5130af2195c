//! The free blocks of a zone: a list for each order, as Linux's `free_area` has them.
//!
//! Methods that take `&self` may run beside each other; those that take `&mut self` need the lock
//! held alone.

use std::marker::PhantomData;
use std::sync::Arc;

use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{CachePadded, WaitQueues};
use units::{FRAMES_PER_PAGEBLOCK, Frame, MAX_ORDER, Order};

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
    /// The locks of ranges of 4 MiB, and where those wait who want one.
    ranges: LazyTable<AtomicU64>,
    queues: WaitQueues,
    pub(super) clusters: Clusters,
    /// Two buddies may both be free and not merged.
    unmerged: CachePadded<AtomicBool>,
    /// While this is not zero single frames are merged at once, and none are taken by clusters.
    pub(super) disabled: u32,
    /// Frames asked for so far: `0..managed`.
    pub(super) managed: u32,
    design: PhantomData<fn() -> D>,
}

impl<D: Design> FreeLists<D> {
    /// Manages nothing yet.
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

    /// Frames in free blocks.
    pub fn free_frames(&self) -> u64 {
        self.counts().iter().enumerate().map(|(order, blocks)| blocks << order).sum()
    }

    /// Whether a free block of `order` begins at `frame`, which may be beyond all.
    #[inline]
    fn is_free(&self, frame: u32, order: u8) -> bool {
        // Acquire pairs with the Release of who published it: it is in its list.
        self.pages()
            .state_of_any(frame)
            .is_some_and(|state| state.load(Ordering::Acquire) == FREE | u32::from(order))
    }

    // Beside others.

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

    /// Gives the blocks of a batch back: merges each with what is free beside it, and puts all that
    /// have the same order then into the list of that order at once.
    pub fn give_spliced<P: LockTrace>(&self, batch: &[(u32, u8)], watch: &Watch<'_, P>) {
        // Looked at first: the line of a word that does not change is everybody's.
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

    /// Takes the buddies of a block out and merges it with them, as long as they are free. They
    /// are nobody else's to take: each block has one buddy, and here that is ours.
    fn merge_beside(&self, mut frame: u32, mut order: u8) -> (u32, u8) {
        while order < MAX_ORDER {
            let buddy = frame ^ 1 << order;
            if !self.is_free(buddy, order) {
                break;
            }
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

    /// From now on whoever has the buddy of this block, which is in its list, may take it out.
    #[inline]
    fn publish(&self, frame: u32, order: u8) {
        // Release pairs with the Acquire in `is_free`. Order and flag are one word, so nobody sees
        // one of them without the other.
        self.pages().state(frame).store(FREE | u32::from(order), Ordering::Release);
    }

    fn publish_chain(&self, order: u8, chain: Chain) {
        let mut at = chain.first;
        for left in (0..chain.len).rev() {
            // Before it is published: afterwards others may take it out, and its link leads
            // anywhere.
            let next = if left > 0 { self.pages().next(at).load(Ordering::Relaxed) } else { at };
            self.publish(frame(at), order);
            at = next;
        }
    }

    // Alone.

    /// Takes a block out: the first of the smallest order that will do, and puts back all but its
    /// first part.
    #[inline]
    pub fn take(&mut self, order: u8) -> Option<u32> {
        let (found, first) =
            (order..=MAX_ORDER).find_map(|found| Some((found, self.lists.first(head(found))?)))?;
        let first = frame(first);
        self.remove(first, found);
        for half in (order..found).rev() {
            self.insert(first + (1 << half), half);
        }
        self.pages().mark_resident(first, order);
        Some(first)
    }

    /// Takes up to `wanted` single frames out by whole clusters.
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

    /// Gives a block back as the design would have it.
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
        while order < MAX_ORDER {
            let buddy = frame ^ 1 << order;
            if !self.is_free(buddy, order) {
                break;
            }
            self.remove(buddy, order);
            frame &= !(1 << order);
            order += 1;
        }
        self.insert(frame, order);
    }

    /// Merges whatever was left unmerged. No cluster may be on its way out.
    pub fn merge_late(&mut self) {
        if !core::mem::take(self.unmerged.get_mut()) {
            return;
        }
        // What comes of two blocks is looked at again with the next order.
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

    /// Manages `frames` more.
    pub fn extend(&mut self, frames: u32) {
        let end = self.managed + frames;
        while self.managed < end {
            let (at, left) = (self.managed, end - self.managed);
            let order = at.trailing_zeros().min(left.ilog2()).min(u32::from(MAX_ORDER)) as u8;
            self.managed += 1 << order;
            self.give_merged(at, order);
        }
    }

    /// Shows each free block to `see`.
    pub fn each(&mut self, see: &mut dyn FnMut(Frame, Order)) {
        for order in (0..=MAX_ORDER).filter_map(Order::new) {
            let head = head(order.get());
            let mut next = self.lists.first(head);
            while let Some(at) = next {
                see(Frame(frame(at)), order);
                next = self.lists.behind(head, at);
            }
        }
    }

    /// Shows each part of a 2 MiB block that is free, if it is not free as a whole; gives back how
    /// many frames of it are free.
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
