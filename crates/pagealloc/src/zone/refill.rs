//! Frames: taken from the CPU's pcp list, which is filled from the pageblock that the CPU
//! has reserved.

use core::ops::Range;

use sync::{MutexGuard, prefetch};
use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE};

use super::Zone;
use super::held::Held;
use super::pageblock::{FreeList, State};
use super::percpu::{CpuState, Reserved};
use super::runs::WORD_FRAMES;
use crate::LockTrace;

/// The number of frames from which on a system call that fetches their memory pays.
const POPULATED: usize = 8;

/// Frames that may have no memory, of those that were put on a pcp list. Their memory is asked for
/// when no lock is held.
type Dry = Option<Range<u32>>;

impl<P: LockTrace> Zone<P> {
    #[inline]
    pub(super) fn take(&self, cpu: Cpu) -> Option<u32> {
        let mut own = self.cpus.get(cpu).lock();
        if let Some(frame) = own.pcp.pop() {
            return Some(frame);
        }
        self.alloc_refilling(cpu, own)
    }

    /// Fills an empty pcp list, and takes its first frame. The system is asked for addresses and
    /// for memory while no lock is held that an allocation or a free wants.
    #[inline(never)]
    fn alloc_refilling<'a>(&'a self, cpu: Cpu, mut own: MutexGuard<'a, CpuState>) -> Option<u32> {
        loop {
            let mut dry = None;
            let managed = self.refill(cpu, &mut own, &mut dry);
            let frame = own.pcp.pop();
            drop(own);
            if let Some(dry) = dry {
                // A thread of this CPU may take one of these frames before it has memory. The
                // thread's first touch brings the memory then.
                let bytes = dry.len() * PAGE_SIZE;
                self.region.populate(dry.start as usize * PAGE_SIZE, bytes);
            }
            if frame.is_some() {
                return frame;
            }
            let grown = self.grow(cpu, managed);
            own = self.cpus.get(cpu).lock();
            if !grown && own.pcp.len() == 0 {
                self.borrow_from_others(&mut own);
            }
            let frame = own.pcp.pop();
            if frame.is_some() {
                return frame;
            }
            if !grown {
                drop(own);
                return self.drain_all(cpu);
            }
        }
    }

    /// Fills an empty pcp list with the lowest frames it can get, the lowest of all on top. Returns
    /// the number of frames that the zone managed then.
    fn refill(&self, cpu: Cpu, own: &mut CpuState, dry: &mut Dry) -> u32 {
        self.gather(own, dry);
        let mut managed = 0;
        if own.pcp.len() < self.few() {
            managed = self.refill_from_free_lists(cpu, own, dry);
        }
        own.pcp.reverse();
        managed
    }

    /// The fewest frames that are enough to fill a pcp list.
    fn few(&self) -> usize {
        (self.options.batch / 4).max(1)
    }

    /// Fills the list up to a batch from the CPU's own block.
    fn gather(&self, own: &mut CpuState, dry: &mut Dry) {
        let Some(mut reserved) = own.reserved else { return };
        let first = reserved.block * FRAMES_PER_PAGEBLOCK;
        let room = own.pcp.room(self.options.batch.saturating_sub(own.pcp.len()));
        let count = self.block(reserved.block).pick(first, room);
        let (Some(lowest), Some(highest)) = (room[..count].first(), room[..count].last()) else {
            return;
        };
        // Prefetches the bytes that record the allocation of these frames and the next ones.
        prefetch(self.allocated.address_of(*lowest as usize));
        prefetch(self.allocated.address_of((*lowest + WORD_FRAMES) as usize));
        if *highest >= first + reserved.dry_from {
            let from = (*lowest).max(first + reserved.dry_from);
            reserved.dry_from = *highest + 1 - first;
            if count >= POPULATED {
                *dry = Some(from..*highest + 1);
            }
            own.reserved = Some(reserved);
        }
        own.pcp.grew(count);
    }

    /// Reserves another pageblock: the lowest that is free in part, else the lowest that is free as
    /// a whole. Several almost used-up pageblocks are emptied under one hold of the lock. Returns
    /// the number of frames that the zone manages.
    #[cold]
    fn refill_from_free_lists(&self, cpu: Cpu, own: &mut CpuState, dry: &mut Dry) -> u32 {
        let mut index = self.lock_index(cpu);
        let mut from = 0;
        while own.pcp.len() < self.few() {
            self.let_go(&mut index, &mut own.reserved);
            let Some(number) = self.next_block(&index, from, own.pcp.len() == 0) else {
                break;
            };
            from = number + 1;
            if self.reserve(&mut index, own, number) as usize >= self.options.batch {
                break;
            }
            self.gather(own, dry);
        }
        let managed = index.managed;
        drop(index);
        if own.pcp.len() < self.few() {
            self.gather(own, dry);
        }
        managed
    }

    /// A block to reserve. A free block is broken up only if the list is empty.
    fn next_block(&self, index: &Held<'_, P>, from: u32, wanted: bool) -> Option<u32> {
        index.partial(from).or_else(|| self.lendable(index).filter(|_| wanted))
    }

    /// Reserves an unreserved block, and returns the number of its free frames.
    fn reserve(&self, index: &mut Held<'_, P>, own: &mut CpuState, number: u32) -> u32 {
        let block = self.block(number);
        // The memory flags of the state change only under the zone's lock.
        let before = block.state();
        let count = block.change(State::reserved).count();
        index.put(number, FreeList::Off);
        index.pages += u64::from(count);
        let dry = self.options.collapse && (!before.is_resident() || before.was_trimmed());
        let dry_from = if dry { 0 } else { FRAMES_PER_PAGEBLOCK };
        own.reserved = Some(Reserved { block: number, dry_from });
        count
    }

    /// Ends a reservation, and puts the pageblock on the right free list.
    pub(super) fn let_go(&self, index: &mut Held<'_, P>, reserved: &mut Option<Reserved>) {
        if let Some(Reserved { block, .. }) = reserved.take() {
            let state = self.block(block).change(State::unreserved);
            index.put(block, state.free_list());
            index.pages += u64::from(state.count());
        }
    }

    /// Fills an empty list from the reservations of other CPUs, because all pageblocks are
    /// reserved. Skips a CPU whose lock is held.
    #[cold]
    fn borrow_from_others(&self, own: &mut CpuState) {
        for other in (0..self.cpus.count() as u32).map(Cpu) {
            // This also skips our own CPU, whose lock we hold.
            let Some(other) = self.cpus.get(other).try_lock() else { continue };
            let Some(Reserved { block, .. }) = other.reserved else { continue };
            let room = own.pcp.room(self.options.batch);
            let count = self.block(block).pick(block * FRAMES_PER_PAGEBLOCK, room);
            own.pcp.grew(count);
            own.pcp.reverse();
            if count > 0 {
                return;
            }
        }
    }
}
