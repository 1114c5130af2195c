//! Single frames: out of the CPU's pcp list, which is filled from the pageblock that the CPU
//! reserves.

use sync::prefetch;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE};

use super::Zone;
use super::held::Held;
use super::pageblock::{FreeList, State};
use super::percpu::{CpuState, Reserved};
use super::runs::WORD_FRAMES;
use crate::LockTrace;

/// Frames for which a system call that fetches their memory pays.
const POPULATED: usize = 8;

impl<P: LockTrace> Zone<P> {
    #[inline]
    pub(super) fn alloc_single(&self, cpu: Cpu) -> Option<u32> {
        let mut own = self.cpus.get(cpu).lock();
        if let Some(frame) = own.pcp.pop() {
            return Some(frame);
        }
        self.refill(cpu, &mut own);
        let frame = own.pcp.pop();
        drop(own);
        frame.or_else(|| self.drain_all(cpu, 0))
    }

    /// Fills an empty pcp list with the lowest frames there are for it, the lowest of all on top.
    #[inline(never)]
    fn refill(&self, cpu: Cpu, own: &mut CpuState) {
        self.gather(own);
        if own.pcp.len() < self.few() {
            self.refill_from_shelves(cpu, own);
        }
        own.pcp.reverse();
    }

    /// Fewer frames than this are not enough for a pcp list that was filled.
    fn few(&self) -> usize {
        (self.options.batch / 4).max(1)
    }

    /// Takes from the CPU's own block what's missing to a batch.
    fn gather(&self, own: &mut CpuState) {
        let Some(mut reserved) = own.reserved else { return };
        let first = reserved.block * FRAMES_PER_PAGEBLOCK;
        let room = own.pcp.room(self.options.batch.saturating_sub(own.pcp.len()));
        let count = self.block(reserved.block).pick(first, room);
        let (Some(lowest), Some(highest)) = (room[..count].first(), room[..count].last()) else {
            return;
        };
        // The bytes in which it will be noted that they are allocated: of these frames and the
        // next.
        prefetch(self.allocated.address_of(*lowest as usize));
        prefetch(self.allocated.address_of((*lowest + WORD_FRAMES) as usize));
        if *highest >= first + reserved.dry_from {
            let from = (*lowest).max(first + reserved.dry_from);
            reserved.dry_from = *highest + 1 - first;
            if count >= POPULATED {
                let bytes = (*highest + 1 - from) as usize * PAGE_SIZE;
                self.region.populate(from as usize * PAGE_SIZE, bytes);
            }
            own.reserved = Some(reserved);
        }
        own.pcp.grew(count);
    }

    /// Reserves another pageblock: the lowest one that is free in part, else the lowest that's free
    /// as a whole, else there must be more. Blocks with next to nothing free are emptied under one
    /// hold of the lock.
    #[cold]
    fn refill_from_shelves(&self, cpu: Cpu, own: &mut CpuState) {
        let mut index = self.lock_index(cpu);
        let mut from = 0;
        while own.pcp.len() < self.few() {
            self.let_go(&mut index, &mut own.reserved);
            let Some(number) = self.next_block(&mut index, from, own.pcp.len() == 0) else {
                break;
            };
            from = number + 1;
            if self.reserve(&mut index, own, number) as usize >= self.options.batch {
                break;
            }
            self.gather(own);
        }
        drop(index);
        if own.pcp.len() < self.few() {
            self.gather(own);
        }
        if own.pcp.len() == 0 {
            self.borrow_from_others(own);
        }
    }

    /// A block to reserve. None is broken up for the sake of a few frames more.
    fn next_block(&self, index: &mut Held<'_, P>, from: u32, wanted: bool) -> Option<u32> {
        loop {
            let found = index.partial(from).or_else(|| self.lendable(index, 0).filter(|_| wanted));
            if found.is_some() || !wanted || !self.grow(index) {
                return found;
            }
        }
    }

    /// Reserves a shelved block, and tells how many frames of it are free.
    fn reserve(&self, index: &mut Held<'_, P>, own: &mut CpuState, number: u32) -> u32 {
        let block = self.block(number);
        // What it says of memory changes under the zone's lock only.
        let before = block.state();
        let count = block.change(State::reserved).count();
        index.put(number, FreeList::Off);
        index.pages += u64::from(count);
        let dry = self.options.collapse && (!before.is_resident() || before.was_trimmed());
        let dry_from = if dry { 0 } else { FRAMES_PER_PAGEBLOCK };
        own.reserved = Some(Reserved { block: number, dry_from });
        count
    }

    /// Ends a reservation, and puts the pageblock where it belongs now.
    pub(super) fn let_go(&self, index: &mut Held<'_, P>, reserved: &mut Option<Reserved>) {
        if let Some(Reserved { block, .. }) = reserved.take() {
            let state = self.block(block).change(State::unreserved);
            index.put(block, state.free_list());
            index.pages += u64::from(state.count());
        }
    }

    /// All blocks are reserved. What others have reserved is taken from if nobody is at it.
    #[cold]
    fn borrow_from_others(&self, own: &mut CpuState) {
        for other in (0..self.cpus.count() as u32).map(Cpu) {
            // Our own lock is not to be had either.
            let Some(other) = self.cpus.get(other).try_lock() else { continue };
            let Some(Reserved { block, .. }) = other.reserved else { continue };
            let room = own.pcp.room(self.options.batch);
            let count = self.block(block).pick(block * FRAMES_PER_PAGEBLOCK, room);
            own.pcp.grew(count);
            if count > 0 {
                return;
            }
        }
    }
}
