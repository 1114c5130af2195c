//! Growth of the zone, and the last resort.

use units::{Cpu, FRAMES_PER_PAGEBLOCK, PAGE_SIZE, PAGEBLOCK_SIZE};

use super::held::Held;
use super::{Zone, runs};
use crate::LockTrace;

/// Frames that a zone asks for at a time: 32 MiB. Untouched frames use no memory.
const GROWTH: u32 = 16 * FRAMES_PER_PAGEBLOCK;

impl<P: LockTrace> Zone<P> {
    /// The lowest block that is free as a whole and may be allocated.
    pub(super) fn lendable(&self, index: &Held<'_, P>) -> Option<u32> {
        if self.ahead { index.lowest_idle() } else { index.free(0) }
    }

    /// Takes the lowest frame of the free lists. Returns it and the number of frames that the zone
    /// manages.
    fn take_lowest(&self, cpu: Cpu) -> (Option<u32>, u32) {
        let mut index = self.lock_index(cpu);
        let (mut frame, mut next) = (None, index.partial(0));
        // A thread may have counted frames of a pageblock and not yet set their bits.
        while let (None, Some(number)) = (frame, next) {
            frame = self.take_from(&mut index, number);
            next = index.partial(number + 1);
        }
        if frame.is_none() {
            let whole = self.lendable(&index);
            frame = whole.and_then(|number| self.take_from(&mut index, number));
        }
        index.pages += u64::from(frame.is_some());
        (frame, index.managed)
    }

    /// Takes from a block that no CPU has reserved, and puts it on the right free list.
    fn take_from(&self, index: &mut Held<'_, P>, number: u32) -> Option<u32> {
        let (at, state) = self.block(number).take_lowest()?;
        index.put(number, state.free_list());
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
                block.set((at / runs::WORD_FRAMES) as usize, runs::ones(count));
                at += count;
            }
            index.put(number, state.free_list());
            index.managed += frames;
        }
    }

    /// The last resort. It holds every CPU's lock, puts back every pcp list and reservation, and no
    /// pageblock is on its way to the system. A frame that is not on the free lists then does not
    /// exist.
    #[cold]
    pub(super) fn drain_all(&self, cpu: Cpu) -> Option<u32> {
        // If memory is provided ahead, no thread waits here for a thread that asks the system for
        // memory: that memory is not there yet.
        let housekeeping = (!self.ahead).then(|| self.housekeeping.lock());
        let frame = loop {
            let (frame, managed) = self.scrape_from(cpu, 0);
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
    fn scrape_from(&self, cpu: Cpu, next: usize) -> (Option<u32>, u32) {
        if next == self.cpus.count() {
            return self.take_lowest(cpu);
        }
        let mut own = self.cpus.get(Cpu(next as u32)).lock();
        self.empty(cpu, &mut own);
        self.scrape_from(cpu, next + 1)
    }
}
