//! The table of frames, like Linux's `struct page`: links, state and cluster of each frame.
//!
//! Threads that hold the zone's lock in any mode access the entries; other threads do so where a
//! comment says it. The place of a frame decides the owner of its entry: allocated, in a pcp list,
//! in a free list.

use std::sync::Arc;

use sync::atomic::{AtomicU32, Ordering};
use sync::prefetch;
use units::{FRAMES_PER_PAGEBLOCK, MAX_ORDER};

use crate::zones::smp_list::{Links, NIL};
use pagealloc::{LazyTable, MemoryProvider, NoMemory};

pub(super) const ORDERS: usize = MAX_ORDER as usize + 1;

/// The words of an entry.
const NEXT: usize = 0;
const PREV: usize = 1;
const STATE: usize = 2;
const CLUSTER: usize = 3;

/// Entries between two heads, so that each head has its own cache lines.
const HEAD_STEP: u32 = 8;
/// The node of frame 0. The heads come before it.
const FIRST: u32 = HEAD_STEP * (ORDERS as u32 + 1);

/// The most frames of a zone: each needs a number as a node that is not [`NIL`].
pub(super) const MOST_FRAMES: u32 = NIL - FIRST;

/// The state of a frame that begins no block: it is inside a block, in a pcp list, in a batch that
/// moves, or was taken and is not allocated yet.
pub(super) const NOTHING: u32 = 0;
/// With an order: the frame is the first of a free block that is in a list.
pub(super) const FREE: u32 = 0x100;
/// The frame is allocated.
pub(super) const ALLOCATED: u32 = 0x200;
/// The order in a state.
pub(super) const ORDER: u32 = 0xff;

/// For a 2 MiB block: a frame of it was taken since its memory was last given back.
pub(super) const RESIDENT: u32 = 1 << 16;

/// The entries of all frames and of all 2 MiB blocks.
pub(super) struct Pages {
    entries: LazyTable<[AtomicU32; 4]>,
    /// [`RESIDENT`], and the number of free frames when the block's free memory was given back. The
    /// next allocation from the block clears that number.
    blocks: LazyTable<AtomicU32>,
    capacity: u32,
}

impl Pages {
    /// Makes the table for `capacity` frames, none of which has a place yet.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no addresses for the table, or the table would be too
    /// long.
    pub fn new(provider: &dyn MemoryProvider, capacity: u32) -> Result<Pages, NoMemory> {
        if capacity > MOST_FRAMES {
            return Err(NoMemory { bytes: usize::MAX });
        }
        let blocks = capacity.div_ceil(FRAMES_PER_PAGEBLOCK) as usize;
        Ok(Pages {
            entries: LazyTable::new(provider, FIRST as usize + capacity as usize)?,
            blocks: LazyTable::new(provider, blocks)?,
            capacity,
        })
    }

    /// The state of `frame`, which must be one of the zone's.
    #[inline]
    pub fn state(&self, frame: u32) -> &AtomicU32 {
        &self.entries.get(node(frame) as usize)[STATE]
    }

    /// The state of a frame, or `None` for a frame beyond the last.
    #[inline]
    pub fn state_of_any(&self, frame: u32) -> Option<&AtomicU32> {
        (frame < self.capacity).then(|| self.state(frame))
    }

    /// The cluster of a single free frame; zero for none.
    #[inline]
    pub fn cluster(&self, frame: u32) -> &AtomicU32 {
        &self.entries.get(node(frame) as usize)[CLUSTER]
    }

    /// Prefetches the entry of a frame, which may be beyond the last frame.
    #[inline]
    pub fn prefetch_frame(&self, frame: u32) {
        prefetch(self.entries.address_of(FIRST as usize + frame as usize));
    }

    /// The word of a 2 MiB block.
    #[inline]
    pub fn block(&self, block: u32) -> &AtomicU32 {
        self.blocks.get(block as usize)
    }

    /// Marks the 2 MiB block of a frame that was taken.
    #[inline]
    pub fn mark_resident(&self, frame: u32) {
        let entry = self.block(frame / FRAMES_PER_PAGEBLOCK);
        if entry.load(Ordering::Relaxed) != RESIDENT {
            entry.store(RESIDENT, Ordering::Relaxed);
        }
    }
}

/// The head of the list of free blocks of an order.
#[inline]
pub(super) fn head(order: u8) -> u32 {
    u32::from(order) * HEAD_STEP
}

/// The node of a frame.
#[inline]
pub(super) fn node(frame: u32) -> u32 {
    frame + FIRST
}

/// The frame of a node that is not a head.
#[inline]
pub(super) fn frame(node: u32) -> u32 {
    node - FIRST
}

impl Links for Arc<Pages> {
    #[inline]
    fn next(&self, node: u32) -> &AtomicU32 {
        &self.entries.get(node as usize)[NEXT]
    }
    #[inline]
    fn prev(&self, node: u32) -> &AtomicU32 {
        &self.entries.get(node as usize)[PREV]
    }
    #[inline]
    fn prefetch(&self, node: u32) {
        prefetch(self.entries.address_of(node as usize));
    }
}
