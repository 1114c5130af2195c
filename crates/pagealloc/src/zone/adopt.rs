//! Takes over the frames that another process left in memory.

use sync::atomic::Ordering;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE, PAGEBLOCK_SIZE};

use super::pageblock::State;
use super::runs::{self, WORD_FRAMES, WORDS};
use super::{Index, Zone};
use crate::{FrameSet, LockTrace, NoMemory};

impl<P: LockTrace> Zone<P> {
    /// Makes the frames of `live` allocated. They are the caller's, with their contents. All other
    /// frames are free, and their memory goes back to the system. If memory is provided ahead,
    /// frames of pageblocks that are in use get memory instead.
    ///
    /// Call it once, before the first allocation, on a zone over the frames of another process.
    ///
    /// # Errors
    /// [`NoMemory`] if the system refuses. Nothing is allocated then, and the contents of live
    /// frames are as they were.
    ///
    /// # Panics
    /// If the zone was used already, or has no such frames.
    pub fn adopt(&self, live: &FrameSet) -> Result<(), NoMemory> {
        let _housekeeping = self.housekeeping.lock();
        let _growing = self.growing.lock();
        let managed = self.lock_index(Cpu(0)).managed;
        assert_eq!(managed, 0, "a zone that is in use cannot adopt frames");
        let (end, all) = (live.end(), self.options.max_frames);
        assert!(end <= all, "frame {} is none of {all}", end.saturating_sub(1));
        let blocks = end.div_ceil(FRAMES_PER_PAGEBLOCK);
        let bytes = blocks as usize * PAGEBLOCK_SIZE;
        self.region.commit(0, bytes)?;
        if self.ahead {
            self.fill_used_blocks(blocks, live)?;
        }
        // What the other process had beyond is free.
        self.region.release(bytes, self.region.bytes() - bytes);
        let mut index = self.lock_index(Cpu(0));
        for number in 0..blocks {
            self.adopt_block(&mut index, number, live);
        }
        index.managed = (blocks * FRAMES_PER_PAGEBLOCK).min(all);
        Ok(())
    }

    /// Gives memory to every frame of the pageblocks with live frames.
    fn fill_used_blocks(&self, blocks: u32, live: &FrameSet) -> Result<(), NoMemory> {
        let used =
            |number: u32| (0..WORDS as u32).any(|at| live.word(number * WORDS as u32 + at) != 0);
        for number in (0..blocks).filter(|number| used(*number)) {
            if !self.region.populate(number as usize * PAGEBLOCK_SIZE, PAGEBLOCK_SIZE) {
                return Err(NoMemory { bytes: PAGEBLOCK_SIZE });
            }
            self.memory.fetch_add(u64::from(FRAMES_PER_PAGEBLOCK), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Files a pageblock. No other thread uses the zone yet, so its lock may be held through the
    /// system calls.
    fn adopt_block(&self, index: &mut Index, number: u32, live: &FrameSet) {
        let first = number * FRAMES_PER_PAGEBLOCK;
        let frames = (self.options.max_frames - first).min(FRAMES_PER_PAGEBLOCK);
        let live: [u64; WORDS] =
            core::array::from_fn(|at| live.word(number * WORDS as u32 + at as u32));
        let free: [u64; WORDS] = core::array::from_fn(|at| {
            let there = frames.saturating_sub(at as u32 * WORD_FRAMES).min(WORD_FRAMES);
            if there == 0 { 0 } else { !live[at] & runs::ones(there) }
        });
        let block = self.block(number);
        let count = runs::count(&free);
        block.add(count);
        for (word, bits) in free.into_iter().enumerate() {
            block.set(word, bits);
        }
        runs::each_run(&live, |at, frames| {
            for frame in first + at..first + at + frames {
                self.allocated.get(frame as usize).store(1, Ordering::Relaxed);
            }
        });
        let offset = number as usize * PAGEBLOCK_SIZE;
        runs::each_run(&free, |at, frames| {
            self.poison(first + at, frames);
            if !self.ahead || count == FRAMES_PER_PAGEBLOCK {
                self.region.release(offset + at as usize * PAGE_SIZE, frames as usize * PAGE_SIZE);
            }
        });
        let state = match count {
            FRAMES_PER_PAGEBLOCK => block.state(),
            _ if self.ahead => block.change(|state| state.reserved().unreserved()),
            _ => block.change(|state| State::trimmed(state.reserved(), count)),
        };
        index.put(number, state.free_list());
    }
}
