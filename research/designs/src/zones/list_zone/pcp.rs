//! A CPU's own pcp list of single frames, as Linux's per-CPU lists are: the newest comes out first,
//! the oldest goes back to the zone first.

use std::boxed::Box;

/// The most a pcp list can hold.
pub(super) const MOST: usize = 512;

const MASK: usize = MOST - 1;

/// Frames in the order in which they came.
pub(super) struct PcpList {
    oldest: usize,
    count: usize,
    ring: Box<[u32; MOST]>,
    /// A batch on its way to the zone: frames with their orders.
    batch: Box<[(u32, u8); MOST]>,
}

impl PcpList {
    pub fn new() -> PcpList {
        PcpList { oldest: 0, count: 0, ring: Box::new([0; MOST]), batch: Box::new([(0, 0); MOST]) }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The frames, the oldest first.
    pub fn frames(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count).map(|n| self.ring[(self.oldest + n) & MASK])
    }

    /// Takes the newest.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        Some(self.ring[(self.oldest + self.count) & MASK])
    }

    /// Puts the newest in. The caller sees to it that there is room.
    #[inline]
    pub fn push(&mut self, frame: u32) {
        debug_assert!(self.count < MOST);
        self.ring[(self.oldest + self.count) & MASK] = frame;
        self.count += 1;
    }

    /// Puts one in that is to come out after all others. The caller sees to it that there is room.
    #[inline]
    pub fn push_under(&mut self, frame: u32) {
        debug_assert!(self.count < MOST);
        self.oldest = self.oldest.wrapping_sub(1) & MASK;
        self.ring[self.oldest] = frame;
        self.count += 1;
    }

    /// Takes the `n` oldest out, or all if there are fewer, with their orders, which are zero.
    pub fn take_oldest(&mut self, n: usize) -> &mut [(u32, u8)] {
        let n = n.min(self.count);
        for (at, place) in self.batch[..n].iter_mut().enumerate() {
            *place = (self.ring[(self.oldest + at) & MASK], 0);
        }
        self.oldest = (self.oldest + n) & MASK;
        self.count -= n;
        &mut self.batch[..n]
    }
}

/// Merges the blocks of a batch with each other, and tells how many are left, at its beginning.
///
/// In ascending order, buddies come one behind the other, and so do their buddies when they have
/// been merged: each block is compared with the last one that is left.
pub(super) fn merge_batch(batch: &mut [(u32, u8)], max_order: u8) -> usize {
    batch.sort_unstable();
    let mut left = 0;
    for at in 0..batch.len() {
        let mut block = batch[at];
        while left > 0 && block.1 < max_order {
            let before = batch[left - 1];
            let are_buddies =
                before.1 == block.1 && before.0 ^ block.0 == 1 << block.1 && before.0 < block.0;
            if !are_buddies {
                break;
            }
            block = (before.0, before.1 + 1);
            left -= 1;
        }
        batch[left] = block;
        left += 1;
    }
    left
}
