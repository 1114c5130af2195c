//! A design of the plain kind, with a pcp list for each CPU and one lock for the free blocks, which
//! is right without a flaw.

use std::ptr::NonNull;

use pagealloc::{Frames, MemoryProvider, Region, ZoneOptions, ZoneStats};
use sync::atomic::{AtomicU8, AtomicU64, Ordering};
use sync::{Mutex, MutexGuard};
use units::{Cpu, Frame, MAX_ORDER, PAGE_SIZE};

use crate::design::Lender;
use crate::free::blocks_of;

/// The fault of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// No fault.
    None,
    /// The zone finds a free block under the lock, and takes it under the lock a second time.
    TakesInSteps,
    /// The frames of a batch are still marked free for a moment after the unlock. Threads that
    /// merge do not know that the batch is in progress.
    DropsInProgress,
    /// The frames of a pcp list go back to the zone, and the list is emptied later.
    DrainsInSteps,
    /// Before an allocation fails, the zone empties pcp lists one after the other, and does not
    /// hold them.
    LooksInTurn,
    /// The zone unlocks between the look for a buddy and the end of the merge.
    MergesInSteps,
    /// A block is marked free before it is in the list.
    ShowsEarly,
}

type List = Vec<(u32, u8)>;

/// The zone that the module describes.
pub struct Toy {
    region: Region,
    options: ZoneOptions,
    flaw: Flaw,
    /// One more than the order of the free block that begins here.
    looks_free: Vec<AtomicU8>,
    list: Mutex<List>,
    pcps: Vec<Mutex<Vec<u32>>>,
    allocated: AtomicU64,
}

impl Toy {
    pub fn boxed(
        scenario: &dyn MemoryProvider,
        options: ZoneOptions,
        flaw: Flaw,
    ) -> Box<dyn Lender> {
        let frames = options.max_frames as usize;
        let region = scenario.reserve(frames * PAGE_SIZE).expect("there are addresses");
        region.commit(0, region.bytes()).expect("there is memory");
        let toy = Toy {
            region,
            options,
            flaw,
            looks_free: (0..frames).map(|_| AtomicU8::new(0)).collect(),
            list: Mutex::new(Vec::new()),
            pcps: (0..options.cpus).map(|_| Mutex::new(Vec::new())).collect(),
            allocated: AtomicU64::new(0),
        };
        for (first, order) in blocks_of(&vec![true; frames]) {
            toy.put(&mut toy.list.lock(), first, order);
        }
        Box::new(toy)
    }

    fn mark(&self, first: u32, value: u8) {
        // The lock, if held, orders the access.
        self.looks_free[first as usize].store(value, Ordering::Relaxed);
    }

    fn put(&self, list: &mut List, first: u32, order: u8) {
        self.mark(first, order + 1);
        list.push((first, order));
    }

    /// Takes a block out of the list. The caller marks it.
    fn find(list: &mut List, order: u8) -> Option<(u32, u8)> {
        let fit = list.iter().filter(|block| block.1 >= order).min_by_key(|block| block.1);
        let fit = fit.copied()?;
        list.retain(|block| *block != fit);
        Some(fit)
    }

    /// Takes a block of `order` from the zone. With `mark` the block is no longer marked free.
    fn take(&self, list: &mut List, order: u8, mark: bool) -> Option<u32> {
        let (first, found) = Toy::find(list, order)?;
        if mark || found > order {
            self.mark(first, 0);
        }
        for half in order..found {
            self.put(list, first + (1 << half), half);
        }
        Some(first)
    }

    fn take_alone(&self, order: u8) -> Option<u32> {
        if self.flaw == Flaw::TakesInSteps {
            let seen = self.list.lock().iter().find(|block| block.1 == order).copied();
            if let Some((first, _)) = seen {
                let mut list = self.list.lock();
                list.retain(|block| block.0 != first);
                self.mark(first, 0);
                return Some(first);
            }
        }
        self.take(&mut self.list.lock(), order, true)
    }

    fn give(&self, mut first: u32, mut order: u8) {
        let mut list = self.list.lock();
        while order < MAX_ORDER {
            let buddy = first ^ 1 << order;
            let state = self.looks_free.get(buddy as usize);
            if state.is_none_or(|state| state.load(Ordering::Relaxed) != order + 1) {
                break;
            }
            list.retain(|block| *block != (buddy, order));
            self.mark(buddy, 0);
            first &= !(1 << order);
            order += 1;
        }
        if self.flaw == Flaw::MergesInSteps {
            drop(list);
            list = self.list.lock();
        }
        if self.flaw == Flaw::ShowsEarly {
            self.mark(first, order + 1);
            drop(list);
            list = self.list.lock();
        }
        self.put(&mut list, first, order);
    }

    fn empty(&self, pcp: &mut Vec<u32>) {
        pcp.drain(..).for_each(|frame| self.give(frame, 0));
    }

    fn single(&self, cpu: Cpu) -> Option<u32> {
        let mut pcp = self.pcps[cpu.index(self.pcps.len())].lock();
        if let Some(frame) = pcp.pop() {
            return Some(frame);
        }
        if self.flaw == Flaw::TakesInSteps {
            return self.take_alone(0);
        }
        let in_time = self.flaw != Flaw::DropsInProgress;
        let mut list = self.list.lock();
        let batch: Vec<u32> =
            (0..self.options.batch).map_while(|_| self.take(&mut list, 0, in_time)).collect();
        drop(list);
        if !in_time {
            batch.iter().for_each(|frame| self.mark(*frame, 0));
        }
        pcp.extend(batch);
        pcp.pop()
    }

    /// The last resort: empties every pcp list and holds it until the result is certain.
    fn drain_all(&self, order: u8) -> Option<u32> {
        if self.flaw == Flaw::LooksInTurn {
            self.pcps.iter().for_each(|pcp| self.empty(&mut pcp.lock()));
            return self.take_alone(order);
        }
        let mut pcps: Vec<MutexGuard<'_, Vec<u32>>> = self.pcps.iter().map(Mutex::lock).collect();
        pcps.iter_mut().for_each(|pcp| self.empty(pcp));
        self.take_alone(order)
    }
}

// SAFETY: kept, unless it has a flaw. Then it may not be, on purpose: what is allocated lies within
// committed memory all the same, and one thread runs at a time.
unsafe impl Frames for Toy {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn capacity(&self) -> u32 {
        self.options.max_frames
    }

    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        self.lend(cpu, 0)
    }

    fn free(&self, cpu: Cpu, frame: Frame) {
        self.take_back(cpu, frame, 0);
    }

    fn drain(&self) {
        for pcp in &self.pcps {
            if self.flaw == Flaw::DrainsInSteps {
                let frames = pcp.lock().clone();
                frames.iter().for_each(|frame| self.give(*frame, 0));
                pcp.lock().retain(|frame| !frames.contains(frame));
            } else {
                self.empty(&mut pcp.lock());
            }
        }
    }

    fn stats(&self) -> ZoneStats {
        let mut stats = ZoneStats {
            allocated: self.allocated.load(Ordering::Relaxed),
            cached: self.pcps.iter().map(|pcp| pcp.lock().len() as u64).sum(),
            managed: u64::from(self.options.max_frames),
            ..ZoneStats::default()
        };
        self.list.lock().iter().for_each(|block| stats.free_blocks[block.1 as usize] += 1);
        stats
    }

    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8)) {
        self.list.lock().iter().for_each(|(first, n)| see(Frame(*first), *n));
    }

    fn validate(&self) {}
}

impl Lender for Toy {
    fn largest(&self) -> u8 {
        MAX_ORDER
    }

    fn lend(&self, cpu: Cpu, order: u8) -> Option<Frame> {
        let frame = match order {
            0 => self.single(cpu),
            order => self.take_alone(order),
        };
        let frame = frame.or_else(|| self.drain_all(order))?;
        self.allocated.fetch_add(1 << order, Ordering::Relaxed);
        Some(Frame(frame))
    }

    fn take_back(&self, cpu: Cpu, frame: Frame, order: u8) {
        self.allocated.fetch_sub(1 << order, Ordering::Relaxed);
        if order == 0 {
            let mut pcp = self.pcps[cpu.index(self.pcps.len())].lock();
            if pcp.len() < self.options.cache_high {
                return pcp.push(frame.0);
            }
        }
        self.give(frame.0, order);
    }
}
