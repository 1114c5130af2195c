//! Allocation of blocks of more than one frame, growth of the zone, and the last resort.

use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE, PAGEBLOCK_SIZE};

use super::held::Held;
use super::runs::BLOCK_ORDER;
use super::{Zone, runs};
use crate::LockTrace;

/// Frames that a zone asks for at a time: 32 MiB. Untouched frames use no memory.
const GROWTH: u32 = 16 * FRAMES_PER_PAGEBLOCK;
/// Partial blocks that are searched before a free block is broken up.
const LOOKS: u32 = 32;

impl<P: LockTrace> Zone<P> {
    pub(super) fn alloc_larger(&self, cpu: Cpu, order: u8) -> Option<u32> {
        if order < BLOCK_ORDER {
            let own = self.cpus.get(cpu).lock();
            if let Some(reserved) = own.reserved
                && let Some(at) = self.block(reserved.block).take_run(order)
            {
                return Some(reserved.block * FRAMES_PER_PAGEBLOCK + at);
            }
        }
        loop {
            let (frame, managed) = self.take_larger(cpu, order);
            if frame.is_some() {
                return frame;
            }
            if !self.grow(cpu, managed) {
                return self.drain_all(cpu, order);
            }
        }
    }

    /// Takes a block from the free lists. Returns it and the number of frames that the zone
    /// manages.
    fn take_larger(&self, cpu: Cpu, order: u8) -> (Option<u32>, u32) {
        let mut index = self.lock_index(cpu);
        let frame = match order {
            0..BLOCK_ORDER => self.take_part(&mut index, order),
            BLOCK_ORDER => self.take_whole(&mut index),
            _ => self.take_pair(&mut index),
        };
        if frame.is_some() {
            index.pages += 1 << order;
        }
        (frame, index.managed)
    }

    /// Takes a part of a pageblock. The lowest partial pageblocks are tried first, then the one
    /// where this order was last found. Then a free pageblock is broken up. If there is none, all
    /// partial ones are tried.
    fn take_part(&self, index: &mut Held<'_, P>, order: u8) -> Option<u32> {
        let (mut from, mut looks) = (0, 0);
        while let Some(number) = index.partial(from) {
            if let Some(frame) = self.take_from(index, number, order) {
                return Some(frame);
            }
            from = number + 1;
            looks += 1;
            if looks == LOOKS {
                let last = index.found[usize::from(order)];
                if index.is_partial(last)
                    && let Some(frame) = self.take_from(index, last, order)
                {
                    return Some(frame);
                }
                if let Some(frame) = self.break_up(index, order) {
                    return Some(frame);
                }
            }
        }
        self.break_up(index, order)
    }

    fn break_up(&self, index: &mut Held<'_, P>, order: u8) -> Option<u32> {
        let number = self.lendable(index, 0)?;
        self.take_from(index, number, order)
    }

    /// The lowest block from `from` on that is free as a whole and may be allocated.
    pub(super) fn lendable(&self, index: &Held<'_, P>, from: u32) -> Option<u32> {
        if self.ahead { index.idle_from(from) } else { index.free(from) }
    }

    fn take_whole(&self, index: &mut Held<'_, P>) -> Option<u32> {
        let mut from = 0;
        while let Some(number) = self.lendable(index, from) {
            if let Some(frame) = self.take_from(index, number, BLOCK_ORDER) {
                return Some(frame);
            }
            from = number + 1;
        }
        None
    }

    fn take_pair(&self, index: &mut Held<'_, P>) -> Option<u32> {
        let mut from = 0;
        while let Some(number) = index.pair(from) {
            // In either block, a thread may have added to the count and not yet set the bits.
            let lendable = |number| self.lendable(index, number) == Some(number);
            let both = lendable(number) && lendable(number + 1);
            if both && self.block(number).is_whole() && self.block(number + 1).is_whole() {
                let frame = self.take_from(index, number, BLOCK_ORDER);
                let second = self.take_from(index, number + 1, BLOCK_ORDER);
                debug_assert!(second.is_some(), "nobody takes from it without the lock");
                return frame;
            }
            from = number + 2;
        }
        None
    }

    /// Takes from a block that no CPU has reserved, and puts it on the right free list.
    fn take_from(&self, index: &mut Held<'_, P>, number: u32, order: u8) -> Option<u32> {
        let (at, state) = self.block(number).take_listed(order)?;
        index.put(number, state.free_list());
        if let Some(found) = index.found.get_mut(usize::from(order)) {
            *found = number;
        }
        Some(number * FRAMES_PER_PAGEBLOCK + at)
    }

    /// Asks the provider for more frames. Returns whether the zone manages more than `managed` now.
    /// Called with no lock of a CPU or of the free lists: the provider makes a system call. If
    /// memory is provided ahead, the providing thread does this instead.
    #[cold]
    pub(super) fn grow(&self, cpu: Cpu, managed: u32) -> bool {
        if self.ahead {
            return false;
        }
        let _growing = self.growing.lock();
        // No other thread extends the zone meanwhile.
        let now = self.lock_index(cpu).managed;
        if now > managed {
            return true;
        }
        let left = self.options.max_frames - now;
        // A whole step or, if the system refuses that, a single 2 MiB pageblock.
        [GROWTH, FRAMES_PER_PAGEBLOCK].into_iter().map(|step| step.min(left)).any(|frames| {
            let bytes = (frames as usize * PAGE_SIZE).next_multiple_of(PAGEBLOCK_SIZE);
            let grown = frames > 0 && self.region.commit(now as usize * PAGE_SIZE, bytes).is_ok();
            if grown {
                if cfg!(asan) {
                    self.poison(now, frames);
                }
                self.extend(&mut self.lock_index(cpu), frames);
            }
            grown
        })
    }

    /// Manages `frames` more frames. The managed frames end at a pageblock boundary until the zone
    /// has its full size.
    pub(super) fn extend(&self, index: &mut Held<'_, P>, frames: u32) {
        let end = index.managed + frames;
        while index.managed < end {
            let number = index.managed / FRAMES_PER_PAGEBLOCK;
            let frames = (end - index.managed).min(FRAMES_PER_PAGEBLOCK);
            let block = self.block(number);
            let state = block.add(frames);
            let mut at = 0;
            while at < frames {
                let count = (frames - at).min(runs::WORD_FRAMES);
                block.set((at / runs::WORD_FRAMES) as usize, runs::ones(0, count));
                at += count;
            }
            index.put(number, state.free_list());
            index.managed += frames;
        }
    }

    /// The last resort. It holds every CPU's lock, puts back every pcp list and reservation, and no
    /// pageblock is on its way to the system. A block that is not on the free lists then does not
    /// exist.
    #[cold]
    pub(super) fn drain_all(&self, cpu: Cpu, order: u8) -> Option<u32> {
        // If memory is provided ahead, no thread waits here for a thread that asks the system for
        // memory: that memory is not there yet.
        let housekeeping = (!self.ahead).then(|| self.housekeeping.lock());
        let frame = loop {
            let (frame, managed) = self.scrape_from(cpu, 0, order);
            if frame.is_some() || !self.grow(cpu, managed) {
                break frame;
            }
        };
        drop(housekeeping);
        let keep = self.options.keep_free_blocks;
        let chores = self.lock_index(cpu).has_chores(keep);
        if chores {
            self.try_release_idle(cpu, keep);
        }
        frame
    }

    /// Holds the lock of one CPU and goes on to the next. A guard per CPU needs a place, and the
    /// stack avoids the heap.
    fn scrape_from(&self, cpu: Cpu, next: usize, order: u8) -> (Option<u32>, u32) {
        if next == self.cpus.count() {
            return self.take_larger(cpu, order);
        }
        let mut own = self.cpus.get(Cpu(next as u32)).lock();
        self.empty(cpu, &mut own);
        self.scrape_from(cpu, next + 1, order)
    }
}
