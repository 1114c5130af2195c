//! A CPU's own pcp list of single frames, like Linux's per-CPU lists. An allocation takes the
//! newest frame; the oldest frames go back to the zone first.

use std::boxed::Box;

/// The most frames that a pcp list can hold.
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

    /// Takes the newest frame.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        Some(self.ring[(self.oldest + self.count) & MASK])
    }

    /// Adds a frame as the newest. The caller makes sure of room.
    #[inline]
    pub fn push(&mut self, frame: u32) {
        debug_assert!(self.count < MOST);
        self.ring[(self.oldest + self.count) & MASK] = frame;
        self.count += 1;
    }

    /// Adds a frame as the oldest, so that it comes out after all others. The caller makes sure of
    /// room.
    #[inline]
    pub fn push_under(&mut self, frame: u32) {
        debug_assert!(self.count < MOST);
        self.oldest = self.oldest.wrapping_sub(1) & MASK;
        self.ring[self.oldest] = frame;
        self.count += 1;
    }

    /// Takes the `n` oldest frames, or all if there are fewer. Each has its order, which is zero.
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

/// Merges the blocks of a batch with each other. The remaining blocks are at the beginning of the
/// batch; returns their number.
///
/// In ascending order buddies are neighbours, and so are merged blocks and their buddies. So each
/// block is compared only with the last remaining one.
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
