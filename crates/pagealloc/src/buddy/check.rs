//! Every structure of the free blocks against every other.

use alloc::vec;
use alloc::vec::Vec;

use super::*;

impl Buddy {
    /// Checks sets against summaries and counts, blocks against each other, and 2 MiB blocks
    /// against the frames in them. Gives back which of the managed frames are free.
    ///
    /// # Panics
    /// Says what contradicts what.
    pub fn validate(&self) -> Vec<bool> {
        let mut free = vec![false; self.managed as usize];
        for order in 0..ORDERS {
            self.validate_order(order, &mut free);
        }
        self.bits.validate(IDLE, "idle blocks");
        let not_free = free.iter().filter(|free| !**free).count() as u64;
        let leaving = u64::from(self.leaving) * u64::from(FRAMES_PER_BLOCK);
        assert_eq!(not_free, self.taken + leaving, "frames that aren't free, and taken frames");
        self.validate_blocks(&free);
        free
    }

    fn validate_order(&self, order: usize, free: &mut [bool]) {
        self.bits.validate(order, format_args!("free blocks of order {order}"));
        let lowest = self.bits.iter(order).next().map_or(NONE, |index| (index << order) as u32);
        assert_eq!(self.first[order], lowest, "lowest free block of order {order}: noted, set");
        let mut count = 0;
        for index in self.bits.iter(order) {
            count += 1;
            let (start, end) = (index << order, (index + 1) << order);
            assert!(
                end <= free.len(),
                "the free block {start}..{end} of order {order} goes beyond the {} managed frames",
                free.len()
            );
            for (frame, free) in (start..end).zip(&mut free[start..end]) {
                assert!(!*free, "frame {frame} is free twice, once in order {order}");
                *free = true;
            }
            let buddy = index ^ 1;
            assert!(
                order == ORDERS - 1 || !self.bits.contains(order, buddy),
                "blocks {index} and {buddy} of order {order} are both free and were not merged"
            );
        }
        assert_eq!(self.free_blocks[order], count, "free blocks of order {order}: count, set");
    }

    fn validate_blocks(&self, free: &[bool]) {
        let (mut idle, mut leaving) = (0, 0);
        for (block, frames) in free.chunks(FRAMES_PER_BLOCK as usize).enumerate() {
            let value = self.blocks.get(block).load(Ordering::Relaxed);
            let has = |flag| value & flag != 0;
            let taken = frames.iter().filter(|free| !**free).count() as u32;
            assert_eq!(value & word::TAKEN, taken, "frames taken of 2 MiB block {block}");
            let is_idle = taken == 0 && has(word::RESIDENT) && self.is_whole(block as u32);
            assert_eq!(
                self.bits.contains(IDLE, block),
                is_idle,
                "2 MiB block {block} ({value:#x}) and the set of idle blocks"
            );
            assert!(
                taken == 0 || has(word::RESIDENT) != has(word::LEAVING),
                "2 MiB block {block} ({value:#x}) is taken, so it's resident or leaving"
            );
            assert!(!has(word::SETTLED) || has(word::RESIDENT), "2 MiB block {block} is settled");
            idle += u32::from(is_idle);
            leaving += u32::from(has(word::LEAVING));
        }
        assert_eq!(self.idle, idle, "idle blocks: count, set");
        assert_eq!(self.leaving, leaving, "leaving blocks: count, words");
    }
}
