//! Provides memory ahead of its use, and gives back memory beyond that.
//!
//! A pageblock without memory is taken off its free list as if all of it were allocated. Its memory
//! is asked for piece by piece. Each piece with memory is given to the zone like freed frames, and
//! any CPU may allocate it from then on. If the system refuses a piece, the rest of the pageblock
//! stays off the free list, and the next call continues with it.

use sync::atomic::Ordering;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE, PAGEBLOCK_SIZE};

use super::Zone;
use super::filling::Filling;
use super::runs::{WORD_FRAMES, WORDS};
use crate::LockTrace;

/// Free blocks beyond the requested number that keep their memory, because freed memory is often
/// needed again soon.
const SPARE: u64 = 4;

impl<P: LockTrace> Zone<P> {
    /// See [`crate::Frames::provide`].
    pub(super) fn provide_ahead(&self, cpu: Cpu, free: u64) -> u64 {
        let mut filling = self.housekeeping.lock();
        loop {
            let now = self.free_with_memory();
            if now >= free {
                self.give_back_beyond(cpu, now, free);
                return self.free_with_memory();
            }
            let Some(at) = filling.take().or_else(|| self.begin_to_fill(cpu)) else { return now };
            if !self.fill_piece(cpu, at) {
                *filling = Some(at);
                return now;
            }
            let next = at.next + 1;
            *filling = (next < WORDS).then_some(Filling { next, ..at });
        }
    }

    /// Free frames with memory, including those in pcp lists.
    fn free_with_memory(&self) -> u64 {
        let blocks = self.lock_index(Cpu(0)).managed_blocks();
        let resident = (0..blocks).map(|number| self.block(number).state());
        let resident = resident.filter(|state| state.is_resident());
        let free: u64 = resident.map(|state| u64::from(state.count())).sum();
        free + self.cpus.iter().map(|own| own.lock().pcp.len() as u64).sum::<u64>()
    }

    /// Takes a pageblock without memory off its list; commits addresses for one if there is none.
    fn begin_to_fill(&self, cpu: Cpu) -> Option<Filling> {
        let mut index = self.lock_index(cpu);
        let mut dry = index.dry();
        if dry.is_none() {
            let managed = index.managed;
            drop(index);
            // Only whole blocks: a part of a block would look as if the rest were in use. No other
            // thread extends the zone, because that takes the housekeeping lock here.
            let end = managed + FRAMES_PER_PAGEBLOCK;
            let more = end <= self.options.max_frames
                && self.region.commit(managed as usize * PAGE_SIZE, PAGEBLOCK_SIZE).is_ok();
            index = self.lock_index(cpu);
            if more {
                self.extend(&mut index, FRAMES_PER_PAGEBLOCK);
                dry = index.dry();
            }
        }
        let block = dry?;
        let state = self.block(block).take_whole()?;
        index.put(block, state.free_list());
        Some(Filling { block, next: 0 })
    }

    /// Provides the memory of one piece, and makes it free. Returns false if the system refuses.
    fn fill_piece(&self, cpu: Cpu, at: Filling) -> bool {
        let first = at.block * FRAMES_PER_PAGEBLOCK + at.next as u32 * WORD_FRAMES;
        let bytes = WORD_FRAMES as usize * PAGE_SIZE;
        if !self.region.populate(first as usize * PAGE_SIZE, bytes) {
            return false;
        }
        self.memory.fetch_add(u64::from(WORD_FRAMES), Ordering::Relaxed);
        self.poison(first, WORD_FRAMES);
        let block = self.block(at.block);
        let state = block.add(WORD_FRAMES);
        block.set(at.next, !0);
        if state.is_to_be_filed(WORD_FRAMES) {
            // The state after our addition may be out of date.
            self.lock_index(cpu).put(at.block, block.state().free_list());
        }
        true
    }

    /// Gives back free blocks beyond `free` frames and the spare ones. Called under the
    /// housekeeping lock.
    fn give_back_beyond(&self, cpu: Cpu, now: u64, free: u64) {
        let beyond = (now - free) / u64::from(FRAMES_PER_PAGEBLOCK);
        if beyond <= SPARE {
            return;
        }
        let idle = self.lock_index(cpu).idle;
        self.release_idle(cpu, idle.saturating_sub((beyond - SPARE) as u32));
    }
}

#[cfg(test)]
mod tests;
