//! A control: the plainest buddy allocator, with linked lists under one mutex and no pcp lists.
//!
//! Every call takes the lock for one block. The control shows the use of pcp lists and batches, and
//! that the lab detects contention.
//!
//! # Why unsafe
//! [`Frames`] is a promise about addresses. This module never touches the frames.

use std::ptr::NonNull;

use designs::zones::Blocks;
use pagealloc::{
    Frames, LockClass, LockTrace, MemoryProvider, NoMemory, Region, ZoneOptions, ZoneStats,
};
use sync::{CachePadded, Mutex};
use units::{Cpu, Frame, MAX_ORDER, PAGE_SIZE, PAGEBLOCK_SIZE};

const ORDERS: usize = MAX_ORDER as usize + 1;
/// The end of a list.
const NIL: u32 = u32::MAX;

/// The zone.
pub struct MutexBuddy<P: LockTrace = ()> {
    region: Region,
    frames: u32,
    lists: CachePadded<Mutex<Lists>>,
    trace: P,
}

/// The state of a frame; it describes the block that begins there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum State {
    /// No block begins there.
    #[default]
    Within,
    Free(u8),
    Allocated(u8),
}

/// Free blocks, doubly linked by the numbers of their first frames.
struct Lists {
    heads: [u32; ORDERS],
    links: Vec<(u32, u32)>,
    states: Vec<State>,
    counts: [u64; ORDERS],
    allocated: u64,
    bad_frees: u64,
}

impl Lists {
    fn insert(&mut self, frame: u32, order: u8) {
        let next = std::mem::replace(&mut self.heads[order as usize], frame);
        self.links[frame as usize] = (NIL, next);
        if next != NIL {
            self.links[next as usize].0 = frame;
        }
        self.states[frame as usize] = State::Free(order);
        self.counts[order as usize] += 1;
    }

    fn remove(&mut self, frame: u32, order: u8) {
        let (before, next) = self.links[frame as usize];
        match before {
            NIL => self.heads[order as usize] = next,
            before => self.links[before as usize].1 = next,
        }
        if next != NIL {
            self.links[next as usize].0 = before;
        }
        self.states[frame as usize] = State::Within;
        self.counts[order as usize] -= 1;
    }

    fn take(&mut self, order: u8) -> Option<u32> {
        let found = (order..=MAX_ORDER).find(|order| self.heads[*order as usize] != NIL)?;
        let frame = self.heads[found as usize];
        self.remove(frame, found);
        for half in (order..found).rev() {
            self.insert(frame + (1 << half), half);
        }
        self.states[frame as usize] = State::Allocated(order);
        self.allocated += 1 << order;
        Some(frame)
    }

    fn give(&mut self, frame: u32, order: u8) {
        if self.states.get(frame as usize) != Some(&State::Allocated(order)) {
            self.bad_frees += 1;
            return;
        }
        self.states[frame as usize] = State::Within;
        self.allocated -= 1 << order;
        self.put(frame, order);
    }

    /// Frees a block, and merges it as far as possible.
    fn put(&mut self, mut frame: u32, mut order: u8) {
        while order < MAX_ORDER {
            let buddy = frame ^ (1 << order);
            if self.states.get(buddy as usize) != Some(&State::Free(order)) {
                break;
            }
            self.remove(buddy, order);
            frame &= !(1 << order);
            order += 1;
        }
        self.insert(frame, order);
    }
}

impl<P: LockTrace> MutexBuddy<P> {
    /// Its name.
    pub const NAME: &'static str = "mutex-buddy";

    /// A zone with all frames free. Of the options it uses only the number of frames.
    ///
    /// # Errors
    /// The provider has no such range.
    pub fn with_probe(
        provider: &dyn MemoryProvider,
        options: ZoneOptions,
        trace: P,
    ) -> Result<MutexBuddy<P>, NoMemory> {
        let frames = options.max_frames;
        let bytes = (frames as usize * PAGE_SIZE).next_multiple_of(PAGEBLOCK_SIZE);
        let region = provider.reserve(bytes)?;
        region.commit(0, bytes)?;
        let mut lists = Lists {
            heads: [NIL; ORDERS],
            links: vec![(NIL, NIL); frames as usize],
            states: vec![State::Within; frames as usize],
            counts: [0; ORDERS],
            allocated: 0,
            bad_frees: 0,
        };
        let mut frame = 0;
        while frame < frames {
            let fits = (frames - frame).ilog2().min(frame.trailing_zeros());
            let order = fits.min(u32::from(MAX_ORDER)) as u8;
            lists.insert(frame, order);
            frame += 1 << order;
        }
        Ok(MutexBuddy { region, frames, lists: CachePadded::new(Mutex::new(lists)), trace })
    }

    /// Runs `job` under the lock; `pages` is the number of frames it moves.
    #[inline]
    fn locked<R>(&self, cpu: Cpu, pages: u32, job: impl FnOnce(&mut Lists) -> R) -> R {
        if !P::WATCHES {
            return job(&mut self.lists.lock());
        }
        let (mut lists, waited) = match self.lists.try_lock() {
            Some(lists) => (lists, 0),
            None => {
                let asked = self.trace.now();
                let lists = self.lists.lock();
                (lists, self.trace.now().saturating_sub(asked).max(1))
            }
        };
        let begun = self.trace.now();
        let result = job(&mut lists);
        let held = self.trace.now().saturating_sub(begun);
        drop(lists);
        self.trace.took(cpu, LockClass::Write, waited);
        self.trace.left(cpu, LockClass::Write, held, u64::from(pages));
        result
    }
}

// SAFETY: each frame is in one free block or in one allocated block. Blocks leave the lists only by
// `take`, which marks them allocated, and return only if they are marked. All frames lie within the
// region, and its memory was committed.
unsafe impl<P: LockTrace> Frames for MutexBuddy<P> {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn capacity(&self) -> u32 {
        self.frames
    }

    #[inline]
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        self.alloc_block(cpu, 0)
    }

    #[inline]
    fn free(&self, cpu: Cpu, frame: Frame) {
        self.free_block(cpu, frame, 0);
    }

    fn drain(&self) {}

    fn stats(&self) -> ZoneStats {
        let lists = self.lists.lock();
        ZoneStats {
            allocated: lists.allocated,
            free_blocks: lists.counts,
            managed: u64::from(self.frames),
            bad_frees: lists.bad_frees,
            ..ZoneStats::default()
        }
    }

    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        for (frame, state) in (0..).zip(&self.lists.lock().states) {
            if let State::Free(order) = state {
                see(Frame(frame), *order);
            }
        }
    }

    fn validate(&self) {
        let lists = self.lists.lock();
        let mut next = 0;
        let mut counts = [0; ORDERS];
        for (frame, state) in (0u32..).zip(&lists.states) {
            let (State::Free(order) | State::Allocated(order)) = *state else {
                assert!(frame < next, "frame {frame} belongs to no block");
                continue;
            };
            assert!(frame >= next, "the block at {frame} begins within another");
            assert!(frame.is_multiple_of(1 << order), "the block at {frame} is of order {order}");
            next = frame + (1 << order);
            counts[order as usize] += u64::from(matches!(state, State::Free(_)));
        }
        assert_eq!(next, self.frames, "the last block does not end with the zone");
        assert_eq!(counts, lists.counts);
    }
}

impl<P: LockTrace> Blocks for MutexBuddy<P> {
    #[inline]
    fn alloc_block(&self, cpu: Cpu, order: u8) -> Option<Frame> {
        self.locked(cpu, 1 << order, |lists| lists.take(order)).map(Frame)
    }

    #[inline]
    fn free_block(&self, cpu: Cpu, frame: Frame, order: u8) {
        self.locked(cpu, 1 << order, |lists| lists.give(frame.0, order));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_overlaps_nothing_and_comes_back_whole() {
        let options = ZoneOptions::new(1, 4096 + 513);
        let zone = MutexBuddy::with_probe(&host::Mmap, options, ()).expect("a zone");
        let (mut random, mut allocated) = (fastrand::Rng::with_seed(7), Vec::<(Frame, u8)>::new());
        let mut taken = vec![false; zone.capacity() as usize];
        let mut mark = |frame: Frame, order: u8, to: bool| {
            for at in frame.0..frame.0 + (1 << order) {
                assert_eq!(std::mem::replace(&mut taken[at as usize], to), !to, "frame {at}");
            }
        };
        for _ in 0..4000 {
            let order = random.u8(..11);
            if random.bool()
                && let Some(frame) = zone.alloc_block(Cpu(0), order)
            {
                mark(frame, order, true);
                allocated.push((frame, order));
            } else if !allocated.is_empty() {
                let (frame, order) = allocated.swap_remove(random.usize(..allocated.len()));
                mark(frame, order, false);
                zone.free_block(Cpu(0), frame, order);
            }
        }
        zone.validate();
        for (frame, order) in allocated {
            zone.free_block(Cpu(0), frame, order);
        }
        zone.validate();
        let stats = zone.stats();
        assert_eq!((stats.allocated, stats.bad_frees), (0, 0));
        assert_eq!(stats.free_blocks, [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4]);
        zone.free(Cpu(0), Frame(0));
        zone.free(Cpu(0), Frame(1 << 20));
        assert_eq!(zone.stats().bad_frees, 2);
    }
}
