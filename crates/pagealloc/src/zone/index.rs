//! The free lists of a zone: the pageblocks that are free in part, and those that are free as a
//! whole. CPUs share a lock only for these. The lock is taken when a pageblock is reserved or
//! released, or changes free lists.

use units::FRAMES_PER_PAGEBLOCK;

use super::pageblock::FreeList;
use crate::bits::Bits;
use crate::{MemoryProvider, NoMemory};

/// The sets of pageblocks: free in part; free as a whole; free as a whole with memory.
const PARTIAL: usize = 0;
const FREE: usize = 1;
const IDLE: usize = 2;
const SETS: usize = 3;

/// The data that the zone's lock guards.
pub(super) struct Index {
    sets: Bits<SETS>,
    blocks: u32,
    pub managed: u32,
    pub idle: u32,
    pub returned: u64,
}

impl Index {
    /// Makes empty free lists for `blocks` blocks.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no address space.
    pub fn new(provider: &dyn MemoryProvider, blocks: u32) -> Result<Index, NoMemory> {
        let sets = Bits::new(provider, [blocks as usize; SETS])?;
        Ok(Index { sets, blocks, managed: 0, idle: 0, returned: 0 })
    }

    /// The number of blocks with managed frames.
    pub fn managed_blocks(&self) -> u32 {
        self.managed.div_ceil(FRAMES_PER_PAGEBLOCK)
    }

    /// The lowest block from `from` on that is free in part.
    pub fn partial(&self, from: u32) -> Option<u32> {
        self.sets.next(PARTIAL, from as usize).map(|block| block as u32)
    }

    /// The lowest block from `from` on that is free as a whole.
    pub fn free(&self, from: u32) -> Option<u32> {
        self.sets.next(FREE, from as usize).map(|block| block as u32)
    }

    /// The lowest block that is free as a whole and has memory.
    pub fn lowest_idle(&self) -> Option<u32> {
        self.sets.next(IDLE, 0).map(|block| block as u32)
    }

    /// The lowest block that is free as a whole and has no memory.
    pub fn dry(&self) -> Option<u32> {
        let mut from = 0;
        while let Some(block) = self.free(from) {
            if !self.sets.contains(IDLE, block as usize) {
                return Some(block);
            }
            from = block + 1;
        }
        None
    }

    /// The highest block that is free as a whole and has memory.
    pub fn last_idle(&self) -> Option<u32> {
        self.sets.last(IDLE).map(|block| block as u32)
    }

    /// Whether more than `keep` free blocks have memory.
    #[inline]
    pub fn has_chores(&self, keep: u32) -> bool {
        self.idle > keep
    }

    /// The free list of a pageblock.
    pub fn backing_of(&self, block: u32) -> FreeList {
        let is_in = |set| self.sets.contains(set, block as usize);
        match (is_in(PARTIAL), is_in(FREE)) {
            (true, _) => FreeList::Partial,
            (_, true) => FreeList::Free { idle: is_in(IDLE) },
            _ => FreeList::Off,
        }
    }

    /// Moves a pageblock to `free_list`.
    pub fn put(&mut self, block: u32, free_list: FreeList) {
        let before = self.backing_of(block);
        if before == free_list {
            return;
        }
        let member = block as usize;
        match before {
            FreeList::Off => (),
            FreeList::Partial => self.sets.remove(PARTIAL, member),
            FreeList::Free { idle } => {
                self.sets.remove(FREE, member);
                if idle {
                    self.sets.remove(IDLE, member);
                    self.idle -= 1;
                }
            }
        }
        match free_list {
            FreeList::Off => (),
            FreeList::Partial => self.sets.insert(PARTIAL, member),
            FreeList::Free { idle } => {
                self.sets.insert(FREE, member);
                if idle {
                    self.sets.insert(IDLE, member);
                    self.idle += 1;
                }
            }
        }
    }

    /// Checks the sets against their summaries and each other.
    ///
    /// # Panics
    /// The message names the sets that contradict each other.
    pub fn validate(&self) {
        self.sets.validate(PARTIAL, "blocks free in part");
        self.sets.validate(FREE, "blocks free as a whole");
        self.sets.validate(IDLE, "idle blocks");
        let mut idle = 0;
        for block in 0..self.blocks as usize {
            let is_in = |set| self.sets.contains(set, block);
            assert!(!(is_in(PARTIAL) && is_in(FREE)), "block {block} is on two free lists");
            assert!(!is_in(IDLE) || is_in(FREE), "block {block} is idle and not free");
            idle += u32::from(is_in(IDLE));
        }
        assert_eq!(self.idle, idle, "idle blocks: count, set");
    }
}

#[cfg(test)]
mod tests;
