//! The blocks of a backing device: free, used, and in quarantine.
//!
//! A reader that looked at a slot earlier may still read a block that the page gave up. Such a
//! block is not free but *in quarantine*, until every reader of that time has left. A reader enters
//! before it looks at a slot, and leaves when the block has arrived.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use alloc::{string::String, sync::Arc};
use core::ops::Range;

use block::{BlockDevice, Geometry, IoError, Job, Operation};
use pagealloc::{Bits, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, Reader, ReaderEpochs};
use units::{Cpu, PAGE_SIZE};

use crate::backed::{Backed, StoredAt};
use crate::backing::{Backing, Misclaimed};
use crate::room::Places;
use crate::run::Run;
use crate::wanted::{AT_ONCE, Wanted};

const P: u64 = PAGE_SIZE as u64;

/// A backing device and the state of its blocks. Any number of threads may call every method at
/// once.
pub struct BackingBlocks {
    device: Arc<dyn BlockDevice>,
    path: String,
    readers: ReaderEpochs,
    blocks: u64,
    state: Mutex<State>,
    /// Held by the thread that waits for readers of blocks in quarantine. Taken before `state`.
    recycling: Mutex<()>,
    /// Pages that were written.
    written: AtomicU64,
}

struct State {
    /// Sets of blocks: those claimed, and three that take turns at being free, stale and empty.
    sets: Bits<4>,
    /// The set of free blocks below `fresh`.
    free: usize,
    /// The set of the blocks that come into quarantine now.
    stale: usize,
    /// The set that is empty, or whose blocks in quarantine wait for their readers.
    other: usize,
    /// Blocks from this one on were never taken. They are free, but for those claimed.
    fresh: u64,
}

/// The set of blocks that slots named when the process began.
const CLAIMED: usize = 0;

impl State {
    fn take(&mut self, blocks: u64) -> Option<u32> {
        if let Some(block) = self.sets.next(self.free, 0) {
            self.sets.remove(self.free, block);
            return Some(block as u32);
        }
        while self.fresh < blocks {
            let block = self.fresh;
            self.fresh += 1;
            if !self.sets.contains(CLAIMED, block as usize) {
                return Some(block as u32);
            }
        }
        None
    }
}

impl BackingBlocks {
    /// Takes `device`, opened as `path`, with all blocks free. Slots number blocks with 32 bits: a
    /// device beyond 16 TiB is used only up to that size.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for its tables is out.
    pub fn new(
        provider: &dyn MemoryProvider,
        device: Arc<dyn BlockDevice>,
        path: &str,
        cpus: usize,
    ) -> Result<BackingBlocks, NoMemory> {
        let Geometry { bytes, .. } = device.geometry();
        let blocks = (bytes / P).min(1 << 32);
        let sets = Bits::new(provider, [blocks as usize; 4])?;
        Ok(BackingBlocks {
            device,
            path: path.into(),
            readers: ReaderEpochs::new(cpus),
            blocks,
            state: Mutex::new(State { sets, free: 1, stale: 2, other: 3, fresh: 0 }),
            recycling: Mutex::new(()),
            written: AtomicU64::new(0),
        })
    }

    /// Takes the first free block, or `None` if no block is free. The calling thread must not be a
    /// reader.
    pub fn take(&self) -> Option<u32> {
        if let Some(block) = self.take_free() {
            return Some(block);
        }
        // While another thread recycles, what was given up is neither free nor in quarantine.
        let _one_at_a_time = self.recycling.lock();
        self.take_free().or_else(|| self.recycle())
    }

    fn take_free(&self) -> Option<u32> {
        self.state.lock().take(self.blocks)
    }

    /// Gives back a block that no slot ever named.
    pub fn give_back(&self, block: u32) {
        let state = &mut *self.state.lock();
        state.sets.insert(state.free, block as usize);
    }

    /// Waits for all present readers, then frees the blocks that were put in quarantine before, and
    /// takes one of them before anybody else can. `None` if there were none. The calling thread
    /// must not be a reader, and holds `recycling`.
    fn recycle(&self) -> Option<u32> {
        {
            let state = &mut *self.state.lock();
            state.sets.next(state.stale, 0)?;
            core::mem::swap(&mut state.stale, &mut state.other);
        }
        self.readers.wait_for_readers();
        let state = &mut *self.state.lock();
        core::mem::swap(&mut state.free, &mut state.other);
        // Few were given back since the caller found none free.
        while let Some(block) = state.sets.next(state.other, 0) {
            state.sets.remove(state.other, block);
            state.sets.insert(state.free, block);
        }
        state.take(self.blocks)
    }
}

impl Backing for BackingBlocks {
    fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn reading(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    fn read(&self, cpu: Cpu, wanted: &mut [Option<Wanted<'_>>]) {
        let mut jobs: [Job<'_>; AT_ONCE] = core::array::from_fn(|_| Job::new(Operation::Flush));
        let mut count = 0;
        for (job, wanted) in jobs.iter_mut().zip(wanted.iter_mut().flatten()) {
            let offset = u64::from(wanted.place.at.block()) * P;
            *job = Job::new(Operation::Read { offset, into: &mut wanted.into[..] });
            count += 1;
        }
        self.device.submit_all(cpu, &mut jobs[..count]);
        let results = jobs.map(|job| job.result);
        for (result, wanted) in results.into_iter().zip(wanted.iter_mut().flatten()) {
            wanted.result = result;
        }
    }

    fn has_room(&self) -> bool {
        let state = &*self.state.lock();
        let has = |set| state.sets.next(set, 0).is_some();
        state.fresh < self.blocks || has(state.free) || has(state.stale) || has(state.other)
    }

    fn run(&self, pages: usize, used: Option<Run>) -> Result<Run, TryReserveError> {
        Run::of_blocks(pages, used)
    }

    fn write(
        &self,
        _: &dyn Places,
        cpu: Cpu,
        run: &mut Run,
        _: u32,
        commit: &mut dyn FnMut(&mut Run),
    ) -> Result<(), IoError> {
        let (mut jobs, mut outcome) = (Vec::new(), Ok(()));
        let Run { bytes, entries, .. } = run;
        jobs.try_reserve_exact(entries.len()).map_err(|_| IoError::NoMemory)?;
        for entry in entries.iter_mut() {
            let Some(block) = self.take() else {
                outcome = Err(IoError::NoSpace);
                break;
            };
            entry.at = Some(StoredAt::in_block(block));
            let (offset, from) = (u64::from(block) * P, &bytes[entry.from..entry.from + PAGE_SIZE]);
            jobs.push(Job::new(Operation::Write { offset, from }));
        }
        self.device.submit_all(cpu, &mut jobs);
        for (entry, job) in entries.iter_mut().zip(&jobs) {
            if let Err(error) = job.result {
                outcome = Err(error);
                entry.at.take().into_iter().for_each(|at| self.give_back(at.block()));
                continue;
            }
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        drop(jobs);
        commit(run);
        for entry in run.entries().iter().filter(|entry| !entry.is_named) {
            // No slot ever named the block.
            entry.at.into_iter().for_each(|at| self.give_back(at.block()));
        }
        run.keep_unwritten();
        outcome
    }

    /// Puts the block in quarantine. A reader that looked at the slot earlier may still read it.
    fn retire(&self, place: Backed) {
        let state = &mut *self.state.lock();
        state.sets.insert(state.stale, place.at.block() as usize);
    }

    fn span(&self, place: Backed) -> Range<u64> {
        let start = u64::from(place.at.block()) * P;
        start..start + P
    }

    fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed) * P
    }

    fn claim(&self, place: Backed) -> Result<(), Misclaimed> {
        let block = place.at.block();
        if u64::from(block) >= self.blocks {
            return Err(Misclaimed::Outside(block, self.blocks));
        }
        let mut state = self.state.lock();
        if state.sets.contains(CLAIMED, block as usize) {
            return Err(Misclaimed::Taken(block));
        }
        state.sets.insert(CLAIMED, block as usize);
        Ok(())
    }
}
