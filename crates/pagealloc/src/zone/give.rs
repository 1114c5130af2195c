//! Frees frames: into the CPU's pcp list, and from there into the bits.

use sync::prefetch;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, Frame};

use super::Zone;
use super::pageblock::State;
use super::percpu::{self, CpuState, Reserved};
use super::runs::{self, WORD_FRAMES};
use crate::LockTrace;

impl<P: LockTrace> Zone<P> {
    #[inline]
    pub(super) fn give(&self, cpu: Cpu, frame: u32) {
        // When the frame leaves the pcp list, two words of its block are written: the bits, and the
        // state word after them.
        let block = self.blocks.address_of((frame / FRAMES_PER_PAGEBLOCK) as usize);
        prefetch(block);
        prefetch(block.cast::<u64>().wrapping_add(runs::WORDS));
        let mut own = self.cpus.get(cpu).lock();
        let full = own.pcp.len() >= self.options.cache_high;
        let chores = full && self.give_oldest(cpu, &mut own, self.options.batch);
        own.pcp.push(frame);
        drop(own);
        if chores {
            self.try_release_idle(cpu, self.options.keep_free_blocks);
        }
    }

    /// Gives the whole pcp list and the reservation back.
    pub(super) fn empty(&self, cpu: Cpu, own: &mut CpuState) {
        self.give_oldest(cpu, own, percpu::MOST);
        if own.reserved.is_some() {
            self.let_go(&mut self.lock_index(cpu), &mut own.reserved);
        }
    }

    /// Gives the `n` oldest frames of a pcp list back, and returns whether there are chores.
    #[inline(never)]
    fn give_oldest(&self, cpu: Cpu, own: &mut CpuState, n: usize) -> bool {
        let CpuState { pcp, reserved, .. } = own;
        let mut chores = false;
        // Frames that were freed one after the other mostly lie side by side, so runs are as good
        // as sorting.
        for frames in
            pcp.oldest(n).chunk_by(|a, b| a / FRAMES_PER_PAGEBLOCK == b / FRAMES_PER_PAGEBLOCK)
        {
            let (number, count) = (frames[0] / FRAMES_PER_PAGEBLOCK, frames.len() as u32);
            let state = self.block(number).add(count);
            for frames in frames.chunk_by(|a, b| a / WORD_FRAMES == b / WORD_FRAMES) {
                self.set_bits(number, frames);
            }
            chores |= self.file_if_moved(cpu, reserved, number, state, count);
        }
        pcp.forget_oldest(n);
        chores
    }

    /// Sets the bits of frames of one word.
    #[inline]
    fn set_bits(&self, number: u32, frames: &[u32]) {
        let mut mask = 0;
        let word = (frames[0] % FRAMES_PER_PAGEBLOCK / WORD_FRAMES) as usize;
        for frame in frames {
            let bit = 1 << (frame % WORD_FRAMES);
            if mask & bit != 0 {
                self.complain(number, word, bit);
            }
            mask |= bit;
        }
        let twice = self.block(number).set(word, mask);
        self.complain(number, word, twice);
    }

    /// Reports frames that were free already when they were given back. Two threads have freed them
    /// at the same instant, or the zone has a bug.
    #[inline]
    fn complain(&self, number: u32, word: usize, twice: u64) {
        if twice != 0 {
            self.block(number).unadd(twice.count_ones());
            let first = number * FRAMES_PER_PAGEBLOCK + word as u32 * WORD_FRAMES;
            self.refuse(Frame(first + twice.trailing_zeros()));
        }
    }

    /// Puts a pageblock on the right free list if it may have changed lists when `frames` frames
    /// were added. `state` is the word after the addition. Returns whether there are chores.
    #[inline]
    fn file_if_moved(
        &self,
        cpu: Cpu,
        reserved: &mut Option<Reserved>,
        number: u32,
        state: State,
        frames: u32,
    ) -> bool {
        let whole = state.count() == FRAMES_PER_PAGEBLOCK;
        let ours = whole && reserved.is_some_and(|reserved| reserved.block == number);
        (ours || state.is_to_be_filed(frames)) && self.file(cpu, reserved, number, ours)
    }

    #[cold]
    fn file(&self, cpu: Cpu, reserved: &mut Option<Reserved>, number: u32, ours: bool) -> bool {
        let mut index = self.lock_index(cpu);
        if ours {
            // Another CPU may prefer a lower pageblock.
            self.let_go(&mut index, reserved);
        } else {
            // The state after our addition may be out of date.
            let state = self.block(number).state();
            index.put(number, state.free_list());
            index.pages += u64::from(state.count());
        }
        index.has_chores(self.options.keep_free_blocks)
    }
}
