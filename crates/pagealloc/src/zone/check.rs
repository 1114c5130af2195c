//! The check of a zone: every frame is in exactly one place.

use alloc::vec;
use alloc::vec::Vec;

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Free,
    PcpList(usize),
    Allocated,
    /// Without memory, in a pageblock with memory.
    Withheld,
}

impl<P: LockTrace> Zone<P> {
    pub(super) fn check(&self) {
        let index = self.index.lock();
        index.validate();
        let managed = index.managed as usize;
        let mut places = vec![Place::Nowhere; managed];
        let mut reserved = vec![false; index.managed_blocks() as usize];
        let mut put = |frame: usize, place: Place| {
            assert!(frame < managed, "frame {frame} is {place:?} but only {managed} are managed");
            let before = core::mem::replace(&mut places[frame], place);
            assert_eq!(before, Place::Nowhere, "frame {frame} is {place:?} as well");
        };
        for (cpu, own) in self.cpus.iter().enumerate() {
            // The locks are not taken in order, but no thread allocates or frees.
            let own = own.lock();
            assert!(own.pcp.len() <= self.options.cache_high, "cpu {cpu}: {}", own.pcp.len());
            for frame in own.pcp.frames() {
                put(*frame as usize, Place::PcpList(cpu));
            }
            if let Some(block) = own.reserved.map(|reserved| reserved.block as usize) {
                assert!(!reserved[block], "cpu {cpu} has reserved 2 MiB pageblock {block} as well");
                reserved[block] = true;
            }
        }
        for frame in 0..managed {
            if self.allocated.get(frame).load(Ordering::Relaxed) != 0 {
                put(frame, Place::Allocated);
            }
        }
        for number in 0..if self.ahead { index.managed_blocks() } else { 0 } {
            let first = number * FRAMES_PER_PAGEBLOCK;
            runs::each_run(&self.housekeeping.lock().of(number), |at, frames| {
                let start = first + at;
                (start..start + frames).for_each(|frame| put(frame as usize, Place::Withheld));
            });
        }
        for (number, reserved) in reserved.into_iter().enumerate() {
            self.check_block(&index, number as u32, reserved);
            let first = number * FRAMES_PER_PAGEBLOCK as usize;
            runs::each_run(&self.block(number as u32).words(), |at, frames| {
                let start = first + at as usize;
                (start..start + frames as usize).for_each(|frame| put(frame, Place::Free));
            });
        }
        let lost: Vec<usize> =
            (0..managed).filter(|frame| places[*frame] == Place::Nowhere).collect();
        assert!(lost.is_empty(), "frame {} is lost: not free, cached or allocated", lost[0]);
    }

    fn check_block(&self, index: &Index, number: u32, reserved: bool) {
        let block = self.block(number);
        let state = block.state();
        let free = runs::count(&block.words());
        assert_eq!(state.count(), free, "free frames of 2 MiB pageblock {number}: count, bits");
        assert_eq!(
            state.is_reserved(),
            reserved,
            "2 MiB pageblock {number} ({state:?}) and its cpu"
        );
        let free_list = index.backing_of(number);
        assert_eq!(
            free_list,
            state.free_list(),
            "2 MiB pageblock {number} ({state:?}): its free list, its word"
        );
        let frames = (index.managed - number * FRAMES_PER_PAGEBLOCK).min(FRAMES_PER_PAGEBLOCK);
        let touched = free < frames || reserved;
        assert!(state.is_resident() || !touched, "2 MiB pageblock {number} has no memory");
        let collapsed = state.is_collapsed();
        assert!(
            !collapsed || state.is_resident(),
            "2 MiB pageblock {number} is collapsed, without memory"
        );
    }
}
