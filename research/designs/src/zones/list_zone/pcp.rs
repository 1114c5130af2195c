//! A CPU's own pcp list of single frames, like Linux's per-CPU lists. An allocation takes the
//! newest frame; the oldest frames go back to the zone first.

use std::collections::VecDeque;

/// The most frames that a pcp list can hold.
pub(super) const MOST: usize = 512;

/// Single frames, the oldest first. There is room for [`MOST`], so that no push allocates.
pub(super) struct PcpList {
    pub frames: VecDeque<u32>,
    /// A batch on its way to the zone: frames with their orders.
    batch: Vec<(u32, u8)>,
}

impl PcpList {
    pub fn new() -> PcpList {
        PcpList { frames: VecDeque::with_capacity(MOST), batch: Vec::with_capacity(MOST) }
    }

    /// Takes the `n` oldest frames, or all if there are fewer. Each has its order, which is zero.
    pub fn take_oldest(&mut self, n: usize) -> &mut [(u32, u8)] {
        self.batch.clear();
        let n = n.min(self.frames.len());
        self.batch.extend(self.frames.drain(..n).map(|frame| (frame, 0)));
        &mut self.batch
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
