//! Provides memory ahead of its use, and gives back memory beyond that.
//!
//! A frame without memory is withheld ([`super::withheld`]), or lies in a pageblock that is free as
//! a whole and has no memory. Such a pageblock is taken off its free list, with all of its frames
//! withheld. Memory is asked for piece by piece. Each piece with memory is given to the zone like
//! freed frames, and any CPU may allocate it from then on. If the system refuses a piece, it stays
//! withheld, and the next call continues with it.
//!
//! Memory goes back by whole pageblocks where that is possible, and else by frames: in a pool that
//! has shrunk, few pageblocks are free as a whole.

use sync::atomic::Ordering;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE, PAGEBLOCK_SIZE};

use super::Zone;
use super::pageblock::State;
use super::runs::{self, WORD_FRAMES, WORDS};
use super::withheld::Withheld;
use crate::LockTrace;

/// Free frames beyond the requested number that keep their memory, because freed memory is often
/// needed again soon: half as many as are requested, and no more than these.
const MOST_SPARE: u64 = 4 * FRAMES_PER_PAGEBLOCK as u64;

impl<P: LockTrace> Zone<P> {
    /// See [`crate::Frames::provide`].
    pub(super) fn provide_ahead(&self, cpu: Cpu, free: u64) -> u64 {
        let mut withheld = self.housekeeping.lock();
        loop {
            let now = self.free_with_memory();
            if now >= free {
                self.give_back_beyond(cpu, &mut withheld, now, free);
                return self.free_with_memory();
            }
            let end = self.lock_index(cpu).managed_blocks();
            let Some(piece) = withheld.first(end) else {
                if self.withhold_dry_block(cpu, &mut withheld) {
                    continue;
                }
                return now;
            };
            if !self.fill_piece(cpu, piece) {
                return now;
            }
            withheld.clear(piece.0, piece.1);
        }
    }

    /// Free frames with memory, including those in pcp lists.
    pub(super) fn free_with_memory(&self) -> u64 {
        let blocks = self.lock_index(Cpu(0)).managed_blocks();
        let resident = (0..blocks).map(|number| self.block(number).state());
        let resident = resident.filter(|state| state.is_resident());
        let free: u64 = resident.map(|state| u64::from(state.count())).sum();
        free + self.cpus.iter().map(|own| own.lock().pcp.len() as u64).sum::<u64>()
    }

    /// Takes a pageblock without memory off its list, and withholds its frames; commits addresses
    /// for one if there is none. Returns false if there can be no more.
    fn withhold_dry_block(&self, cpu: Cpu, withheld: &mut Withheld) -> bool {
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
        let Some((block, state)) = dry.and_then(|it| Some((it, self.block(it).take_whole()?)))
        else {
            return false;
        };
        index.put(block, state.free_list());
        withheld.add(block, &[!0; WORDS]);
        true
    }

    /// Provides the memory of the withheld frames of a word, and makes them free. Returns false if
    /// the system refuses.
    fn fill_piece(&self, cpu: Cpu, (number, word, mask): (u32, usize, u64)) -> bool {
        let start = number * FRAMES_PER_PAGEBLOCK + word as u32 * WORD_FRAMES;
        // One call for all of them: what lies between has memory.
        let first = start + mask.trailing_zeros();
        let span = WORD_FRAMES - mask.leading_zeros() - mask.trailing_zeros();
        if !self.region.populate(first as usize * PAGE_SIZE, span as usize * PAGE_SIZE) {
            return false;
        }
        let frames = mask.count_ones();
        self.memory.fetch_add(u64::from(frames), Ordering::Relaxed);
        let mut words = [0; WORDS];
        words[word] = mask;
        runs::each_run(&words, |at, frames| {
            self.poison(number * FRAMES_PER_PAGEBLOCK + at, frames);
        });
        let block = self.block(number);
        let state = block.add(frames);
        block.set(word, mask);
        if state.is_to_be_filed(frames) {
            // The state after our addition may be out of date.
            self.lock_index(cpu).put(number, block.state().free_list());
        }
        true
    }

    /// Gives the memory of free frames beyond `free` and the spare ones back, of those that are
    /// `now` free. Called under the housekeeping lock.
    fn give_back_beyond(&self, cpu: Cpu, withheld: &mut Withheld, now: u64, free: u64) {
        let whole = u64::from(FRAMES_PER_PAGEBLOCK);
        let mut beyond = (now - free).saturating_sub(MOST_SPARE.min(free / 2));
        let (idle, blocks) = {
            let index = self.lock_index(cpu);
            (index.idle, index.managed_blocks())
        };
        let left = idle.saturating_sub((beyond / whole) as u32);
        self.release_idle(cpu, left);
        let still = self.lock_index(cpu).idle;
        beyond = beyond.saturating_sub(u64::from(idle.saturating_sub(still)) * whole);
        for number in (0..blocks).rev() {
            if beyond < u64::from(WORD_FRAMES) {
                return;
            }
            let most = beyond.min(whole) as u32;
            beyond -= u64::from(self.withhold_free(cpu, withheld, number, most));
        }
    }

    /// Gives the memory of at most `most` free frames of a pageblock back, the highest, and
    /// withholds them. Returns their number.
    fn withhold_free(&self, cpu: Cpu, withheld: &mut Withheld, number: u32, most: u32) -> u32 {
        let block = self.block(number);
        {
            let mut index = self.lock_index(cpu);
            if !block.state().can_be_withheld() {
                return 0;
            }
            self.take_off(&mut index, number);
        }
        let mut words = block.take_out();
        let mut stay = runs::count(&words).saturating_sub(most);
        for (word, mask) in words.iter_mut().enumerate() {
            let back = runs::lowest(*mask, stay);
            block.set(word, back);
            stay -= back.count_ones();
            *mask ^= back;
        }
        let taken = runs::count(&words);
        self.memory.fetch_sub(u64::from(taken), Ordering::Relaxed);
        let offset = number as usize * PAGEBLOCK_SIZE;
        runs::each_run(&words, |at, frames| {
            self.region.release(offset + at as usize * PAGE_SIZE, frames as usize * PAGE_SIZE);
        });
        withheld.add(number, &words);
        let is_empty = withheld.of(number) == [!0; WORDS];
        if is_empty {
            // None is in use, so nobody frees one meanwhile.
            for word in 0..WORDS {
                withheld.clear(number, word);
                block.set(word, !0);
            }
        }
        let mut index = self.lock_index(cpu);
        let state = block.change(|state| match is_empty {
            true => State::dry(),
            false => state.withheld(taken),
        });
        index.returned += u64::from(is_empty);
        index.put(number, state.free_list());
        taken
    }
}

#[cfg(test)]
mod tests;
