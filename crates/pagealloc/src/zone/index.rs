//! The shelves of a zone: which blocks are free in part, and which as a whole. They are the only
//! thing that CPUs share a lock for, and it's taken when a block changes hands or shelves.

use units::FRAMES_PER_BLOCK;

use super::block::Shelf;
use crate::bits::Bits;
use crate::{NoMemory, World};

/// Sets of blocks: free in part; free as a whole; those of them with memory. And pairs of
/// neighbours that are both free as a whole.
const PARTIAL: usize = 0;
const FREE: usize = 1;
const IDLE: usize = 2;
const PAIRS: usize = 3;
const SETS: usize = 4;

/// What the zone's lock guards.
pub(super) struct Index {
    sets: Bits<SETS>,
    blocks: u32,
    pub managed: u32,
    pub idle: u32,
    pub returned: u64,
    /// Where a block of each order was last found.
    pub found: [u32; 9],
}

impl Index {
    /// Empty shelves for `blocks` blocks.
    ///
    /// # Errors
    /// [`NoMemory`] when the world has no addresses.
    pub fn new(world: &dyn World, blocks: u32) -> Result<Index, NoMemory> {
        let members = blocks as usize;
        let sets = Bits::new(world, [members, members, members, members.div_ceil(2)])?;
        Ok(Index { sets, blocks, managed: 0, idle: 0, returned: 0, found: [0; 9] })
    }

    /// Blocks of which there are frames.
    pub fn managed_blocks(&self) -> u32 {
        self.managed.div_ceil(FRAMES_PER_BLOCK)
    }

    /// The lowest block from `from` on that is free in part.
    pub fn partial(&self, from: u32) -> Option<u32> {
        self.sets.next(PARTIAL, from as usize).map(|block| block as u32)
    }

    /// Whether this block is free in part.
    pub fn is_partial(&self, block: u32) -> bool {
        self.sets.contains(PARTIAL, block as usize)
    }

    /// The lowest block from `from` on that is free as a whole.
    pub fn free(&self, from: u32) -> Option<u32> {
        self.sets.next(FREE, from as usize).map(|block| block as u32)
    }

    /// The lowest block from `from` on that is free as a whole and has memory.
    pub fn idle_from(&self, from: u32) -> Option<u32> {
        self.sets.next(IDLE, from as usize).map(|block| block as u32)
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

    /// The first of the lowest two neighbours from block `from` on that are free as a whole, and
    /// aligned.
    pub fn pair(&self, from: u32) -> Option<u32> {
        self.sets.next(PAIRS, from.div_ceil(2) as usize).map(|pair| pair as u32 * 2)
    }

    /// The highest block that is free as a whole and has memory.
    pub fn last_idle(&self) -> Option<u32> {
        self.sets.last(IDLE).map(|block| block as u32)
    }

    /// Whether more than `keep` blocks have memory that they do not need.
    #[inline]
    pub fn has_chores(&self, keep: u32) -> bool {
        self.idle > keep
    }

    /// Where a block is now.
    pub fn shelf_of(&self, block: u32) -> Shelf {
        let is_in = |set| self.sets.contains(set, block as usize);
        match (is_in(PARTIAL), is_in(FREE)) {
            (true, _) => Shelf::Partial,
            (_, true) => Shelf::Free { idle: is_in(IDLE) },
            _ => Shelf::Off,
        }
    }

    /// Puts a block where it belongs, wherever it is now.
    pub fn put(&mut self, block: u32, shelf: Shelf) {
        let before = self.shelf_of(block);
        if before == shelf {
            return;
        }
        let member = block as usize;
        match before {
            Shelf::Off => (),
            Shelf::Partial => self.sets.remove(PARTIAL, member),
            Shelf::Free { idle } => {
                self.sets.remove(FREE, member);
                if self.sets.contains(PAIRS, member / 2) {
                    self.sets.remove(PAIRS, member / 2);
                }
                if idle {
                    self.sets.remove(IDLE, member);
                    self.idle -= 1;
                }
            }
        }
        match shelf {
            Shelf::Off => (),
            Shelf::Partial => self.sets.insert(PARTIAL, member),
            Shelf::Free { idle } => {
                self.sets.insert(FREE, member);
                if self.sets.contains(FREE, member ^ 1) {
                    self.sets.insert(PAIRS, member / 2);
                }
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
    /// Says what contradicts what.
    pub fn validate(&self) {
        self.sets.validate(PARTIAL, "blocks free in part");
        self.sets.validate(FREE, "blocks free as a whole");
        self.sets.validate(IDLE, "idle blocks");
        self.sets.validate(PAIRS, "pairs of free blocks");
        let mut idle = 0;
        for block in 0..self.blocks as usize {
            let is_in = |set| self.sets.contains(set, block);
            assert!(!(is_in(PARTIAL) && is_in(FREE)), "block {block} is on two shelves");
            assert!(!is_in(IDLE) || is_in(FREE), "block {block} is idle and not free");
            let pair = is_in(FREE) && self.sets.contains(FREE, block ^ 1);
            assert_eq!(self.sets.contains(PAIRS, block / 2), pair, "block {block} and its pair");
            idle += u32::from(is_in(IDLE));
        }
        assert_eq!(self.idle, idle, "idle blocks: count, set");
    }
}

#[cfg(test)]
mod tests;
