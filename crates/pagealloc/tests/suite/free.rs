//! What a zone says is free, against what it has allocated: every frame is free, allocated or in a CPU's
//! cache, and one of these only.

use std::collections::BTreeSet;

use pagealloc::Frames;
use units::MAX_ORDER;

/// The free blocks of a zone at one moment, while nobody allocates or frees.
pub struct Free {
    /// The first frame of each, and its order.
    pub blocks: BTreeSet<(u32, u8)>,
    /// Which of the managed frames are free.
    pub frames: Vec<bool>,
}

impl Free {
    /// Asks the zone, and compares with what is allocated, its own counts among them.
    pub fn of(zone: &dyn Frames, allocated: &[bool]) -> Free {
        let mut shown = Vec::new();
        zone.free_blocks(&mut |frame, order| shown.push((frame.0, order)));
        let stats = zone.stats();
        let managed = stats.managed as usize;
        assert!(managed <= allocated.len(), "{managed} frames are managed, of {}", allocated.len());
        assert!(
            !allocated[managed..].contains(&true),
            "a frame beyond all {managed} managed is allocated"
        );
        let (mut frames, mut counts) = (vec![false; managed], [0; MAX_ORDER as usize + 1]);
        for &(first, order) in &shown {
            let (start, end) = (first as usize, first as usize + (1 << order));
            assert_eq!(start % (1 << order), 0, "block {start} of order {order} is misaligned");
            assert!(end <= managed, "block {start} of order {order} is free beyond {managed}");
            for n in start..end {
                assert!(!allocated[n], "frame {n} is free and allocated");
                assert!(!std::mem::replace(&mut frames[n], true), "frame {n} is free twice");
            }
            counts[order as usize] += 1;
        }
        assert_eq!(counts, stats.free_blocks, "free blocks by order: as shown, as counted");
        let count = |of: &[bool]| of.iter().filter(|yes| **yes).count() as u64;
        let (free, allocated) = (count(&frames), count(allocated));
        assert_eq!(allocated, stats.allocated, "frames allocated: by the borrower, by the zone");
        assert_eq!(
            free + allocated + stats.cached,
            stats.managed,
            "frames that are free ({free}), allocated ({allocated}) and cached, and frames managed: {stats:?}"
        );
        Free { blocks: shown.into_iter().collect(), frames }
    }

    /// No two free buddies are there that could be one block.
    pub fn is_merged(&self) {
        for &(first, order) in &self.blocks {
            let buddy = (first ^ 1 << order, order);
            let unmerged = order < MAX_ORDER && self.blocks.contains(&buddy);
            assert!(!unmerged, "blocks {first} and {} of order {order} are not merged", buddy.0);
        }
    }

    /// The zone is at rest: nothing is in a cache, so what is not allocated is free, in as few blocks as
    /// there can be.
    pub fn is_at_rest(&self, allocated: &[bool]) {
        self.is_merged();
        let not_allocated: Vec<bool> =
            allocated[..self.frames.len()].iter().map(|allocated| !allocated).collect();
        assert_eq!(
            self.blocks,
            blocks_of(&not_allocated),
            "free blocks at rest, and what is not allocated"
        );
    }
}

/// The fewest aligned blocks that these frames consist of.
pub fn blocks_of(frames: &[bool]) -> BTreeSet<(u32, u8)> {
    let mut blocks = BTreeSet::new();
    let mut first = 0;
    while first < frames.len() {
        let fits = |order: &u8| {
            let size = 1_usize << *order;
            let block = frames.get(first..first + size);
            first.is_multiple_of(size) && block.is_some_and(|block| !block.contains(&false))
        };
        let order = (0..=MAX_ORDER).rev().find(fits);
        blocks.extend(order.map(|order| (first as u32, order)));
        first += 1_usize << order.unwrap_or(0);
    }
    blocks
}

#[test]
fn frames_are_cut_into_the_fewest_blocks() {
    let mut frames = vec![true; 2048 + 3];
    assert_eq!(blocks_of(&frames).into_iter().map(|it| it.1).collect::<Vec<_>>(), [10, 10, 1, 0]);
    frames[5] = false;
    let blocks: Vec<(u32, u8)> = blocks_of(&frames).into_iter().take(5).collect();
    assert_eq!(blocks, [(0, 2), (4, 0), (6, 1), (8, 3), (16, 4)]);
    assert!(blocks_of(&[false, false]).is_empty());
}
