//! The work with system calls: giving memory back, and asking for huge pages.

use sync::atomic::Ordering;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE, PAGEBLOCK_SIZE};

use super::held::Held;
use super::pageblock::{FreeList, State};
use super::{Zone, runs};
use crate::LockTrace;

impl<P: LockTrace> Zone<P> {
    /// Called each second or so: gives the memory of free frames back if there were many of them
    /// the whole time. What is freed and soon allocated again keeps its memory.
    pub(super) fn give_back_unwanted(&self) {
        let Some(mut unwanted) = self.unwanted.try_lock() else { return };
        let blocks = self.lock_index(Cpu(0)).managed_blocks();
        let states = (0..blocks).map(|number| self.block(number).state());
        let (free, idle) =
            states.fold((0, 0), |(free, idle), it| (free + it.count(), idle + it.idle()));
        let allocated = (blocks * FRAMES_PER_PAGEBLOCK).saturating_sub(free);
        if unwanted.are_many(idle, allocated) {
            self.trim();
        }
    }

    /// Gives idle blocks back to the system; `keep` of them may stay. If another thread is doing
    /// this already, the work is left to that thread.
    #[cold]
    pub(super) fn try_release_idle(&self, cpu: Cpu, keep: u32) {
        loop {
            let Some(housekeeping) = self.housekeeping.try_lock() else { return };
            let done = self.release_idle(cpu, keep);
            drop(housekeeping);
            // Another thread may have left work to us just before we released the lock.
            if !done || !self.lock_index(cpu).has_chores(keep) {
                return;
            }
        }
    }

    /// Gives all idle blocks back to the system.
    pub(super) fn release_all_idle(&self) {
        let _housekeeping = self.housekeeping.lock();
        self.release_idle(Cpu(0), 0);
    }

    /// Gives idle blocks back until at most `keep` are left. Returns whether that is done. A block
    /// whose bits are not all set yet is left for the next time. Called under the housekeeping
    /// lock.
    pub(super) fn release_idle(&self, cpu: Cpu, keep: u32) -> bool {
        let mut released = None;
        loop {
            let mut index = self.lock_index(cpu);
            if let Some(number) = released {
                index.returned += 1;
                let state = self.block(number).change(State::released);
                index.put(number, state.free_list());
            }
            if !index.has_chores(keep) {
                return true;
            }
            let Some(number) = index.last_idle() else { return true };
            if !self.block(number).is_whole() {
                return false;
            }
            self.take_off(&mut index, number);
            drop(index);
            if self.ahead {
                self.memory.fetch_sub(u64::from(FRAMES_PER_PAGEBLOCK), Ordering::Relaxed);
            }
            self.region.release(number as usize * PAGEBLOCK_SIZE, PAGEBLOCK_SIZE);
            released = Some(number);
        }
    }

    /// Reserves a pageblock for housekeeping.
    pub(super) fn take_off(&self, index: &mut Held<'_, P>, number: u32) {
        self.block(number).change(State::reserved);
        index.put(number, FreeList::Off);
    }

    /// Gives the memory of free frames in partly used pageblocks back to the system, piece by
    /// piece.
    pub(super) fn trim(&self) {
        let blocks = self.lock_index(Cpu(0)).managed_blocks();
        for number in 0..blocks {
            if self.block(number).state().can_be_trimmed() {
                // The lock is taken anew for each block: an allocation that finds no memory waits
                // for it.
                let _housekeeping = self.housekeeping.lock();
                self.trim_block(number);
            }
        }
    }

    fn trim_block(&self, number: u32) {
        let block = self.block(number);
        let mut index = self.lock_index(Cpu(0));
        if !block.state().can_be_trimmed() {
            return;
        }
        self.take_off(&mut index, number);
        drop(index);
        let words = block.take_out();
        let offset = number as usize * PAGEBLOCK_SIZE;
        runs::each_run(&words, |at, frames| {
            self.region.release(offset + at as usize * PAGE_SIZE, frames as usize * PAGE_SIZE);
        });
        for (word, mask) in words.into_iter().enumerate() {
            block.set(word, mask);
        }
        let mut index = self.lock_index(Cpu(0));
        let state = match runs::count(&words) {
            // The last frames were freed meanwhile, and all went back.
            FRAMES_PER_PAGEBLOCK => {
                index.returned += 1;
                block.change(State::released)
            }
            frames => block.change(|state| state.trimmed(frames)),
        };
        index.put(number, state.free_list());
    }

    /// Asks for huge pages for at most `most` blocks that are allocated as a whole; returns the
    /// number of blocks.
    pub(super) fn collapse(&self, most: u32) -> u32 {
        if !self.options.collapse {
            return 0;
        }
        let mut done = 0;
        let managed = self.lock_index(Cpu(0)).managed;
        for number in 0..managed / FRAMES_PER_PAGEBLOCK {
            if done == most {
                break;
            }
            let block = self.block(number);
            if !block.state().can_collapse() {
                continue;
            }
            let _housekeeping = self.housekeeping.lock();
            if block.state().can_collapse() {
                // No thread can release the block before it is collapsed, because that takes the
                // lock we hold.
                self.region.collapse(number as usize * PAGEBLOCK_SIZE);
                // If a frame was freed meanwhile, the block is collapsed again when it is full
                // again.
                block.change(|now| if now.can_collapse() { now.collapsed() } else { now });
                done += 1;
            }
        }
        done
    }
}
