//! Takes over the frames that another process left in memory.

use sync::atomic::Ordering;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE, PAGEBLOCK_SIZE};

use super::pageblock::State;
use super::runs::{self, WORDS};
use super::withheld::Withheld;
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
        let mut withheld = self.housekeeping.lock();
        let _growing = self.growing.lock();
        let managed = self.lock_index(Cpu(0)).managed;
        assert_eq!(managed, 0, "a zone that is in use cannot adopt frames");
        let (end, all) = (live.end(), self.options.max_frames);
        assert!(end <= all, "frame {} is none of {all}", end.saturating_sub(1));
        let blocks = end.div_ceil(FRAMES_PER_PAGEBLOCK);
        let bytes = blocks as usize * PAGEBLOCK_SIZE;
        self.region.commit(0, bytes)?;
        if self.ahead {
            let used = |number: &u32| live_words(live, *number) != [0; WORDS];
            for number in (0..blocks).filter(used) {
                self.keep_memory(number, live, &mut withheld)?;
            }
        }
        // What the other process had beyond is free.
        self.region.release(bytes, self.region.bytes() - bytes);
        let mut index = self.lock_index(Cpu(0));
        for number in 0..blocks {
            self.adopt_block(&mut index, number, live, &withheld);
        }
        index.managed = (blocks * FRAMES_PER_PAGEBLOCK).min(all);
        Ok(())
    }

    /// Withholds the free frames of a pageblock in use that have no memory: where memory is short,
    /// this must not ask for more. Has all others present.
    fn keep_memory(
        &self,
        number: u32,
        live: &FrameSet,
        withheld: &mut Withheld,
    ) -> Result<(), NoMemory> {
        let (free, live) = (self.free_words(number, live), live_words(live, number));
        let offset = number as usize * PAGEBLOCK_SIZE;
        let part =
            |at: u32, frames: u32| (offset + at as usize * PAGE_SIZE, frames as usize * PAGE_SIZE);
        let mut without = [0; WORDS];
        if !self.region.has_memory(offset, PAGEBLOCK_SIZE) {
            runs::each_run(&free, |at, frames| {
                let (offset, bytes) = part(at, frames);
                if !self.region.has_memory(offset, bytes) {
                    // A part of it may have some.
                    self.region.release(offset, bytes);
                    runs::insert(&mut without, at, frames);
                }
            });
        }
        let with = core::array::from_fn(|at| (live[at] | free[at]) & !without[at]);
        let mut are_present = true;
        runs::each_run(&with, |at, frames| {
            let (offset, bytes) = part(at, frames);
            are_present &= self.region.populate(offset, bytes);
        });
        if !are_present {
            return Err(NoMemory { bytes: PAGEBLOCK_SIZE });
        }
        withheld.add(number, &without);
        self.memory.fetch_add(u64::from(runs::count(&with)), Ordering::Relaxed);
        Ok(())
    }

    /// The frames of a pageblock that are not live.
    fn free_words(&self, number: u32, live: &FrameSet) -> [u64; WORDS] {
        let frames = self.options.max_frames - number * FRAMES_PER_PAGEBLOCK;
        let mut all = [0; WORDS];
        runs::insert(&mut all, 0, frames.min(FRAMES_PER_PAGEBLOCK));
        let live = live_words(live, number);
        core::array::from_fn(|at| all[at] & !live[at])
    }

    /// Files a pageblock. No other thread uses the zone yet, so its lock may be held through the
    /// system calls.
    fn adopt_block(&self, index: &mut Index, number: u32, live: &FrameSet, withheld: &Withheld) {
        let first = number * FRAMES_PER_PAGEBLOCK;
        let mut free = self.free_words(number, live);
        if self.ahead {
            let without = withheld.of(number);
            free.iter_mut().zip(without).for_each(|(free, without)| *free &= !without);
        }
        let live = live_words(live, number);
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

/// The live frames of a pageblock.
fn live_words(live: &FrameSet, number: u32) -> [u64; WORDS] {
    core::array::from_fn(|at| live.word(number * WORDS as u32 + at as u32))
}
