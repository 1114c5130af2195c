//! A device behind an area that fails on request.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Job, Operation, Visit,
    ZeroMode,
};
use sync::atomic::{AtomicU64, Ordering};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};

const P: u64 = PAGE_SIZE as u64;

/// The operations of a device that fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultMode {
    /// Nothing fails.
    Well,
    /// This number of a million writes fail.
    FailsWrites(u32),
    /// This number of a million reads fail.
    FailsReads(u32),
    /// A write fails if the page was never written before.
    Full,
    /// Every operation fails.
    Gone,
}

/// An attempt to write a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The page.
    pub page: u64,
    /// The contents of the write.
    pub contents: Box<Page>,
    /// Whether the write and all other writes of the same operation succeeded.
    pub made: bool,
    /// The number of the batch. Later batches have higher numbers.
    pub batch: u64,
}

/// A device in memory that fails on request and records each attempt to write. It reads and writes
/// each page at one instant. It runs jobs that are submitted together in any order.
pub struct FaultyDevice {
    state: Mutex<State>,
    /// Accessed at the beginning and the end of an operation, so that other threads may run there.
    moment: AtomicU64,
    slowness: u64,
    writing: AtomicU64,
    most: AtomicU64,
}

struct State {
    pages: Vec<Option<Box<Page>>>,
    fault_mode: FaultMode,
    rng: Rng,
    remembers: bool,
    attempts: Vec<Attempt>,
    batch: u64,
}

impl FaultyDevice {
    /// Makes an empty device of `pages` pages. `slowness` is the number of moments in an operation
    /// at which other threads may run.
    #[must_use]
    pub fn new(pages: u64, seed: u64, slowness: u64) -> Arc<FaultyDevice> {
        let state = State {
            pages: vec![None; pages as usize],
            fault_mode: FaultMode::Well,
            rng: Rng::new(seed),
            remembers: true,
            attempts: Vec::new(),
            batch: 0,
        };
        Arc::new(FaultyDevice {
            state: Mutex::new(state),
            moment: AtomicU64::new(0),
            slowness,
            writing: AtomicU64::new(0),
            most: AtomicU64::new(0),
        })
    }

    fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock().expect("nobody panics under this lock"))
    }

    /// Changes the operations that fail.
    pub fn set_mood(&self, fault_mode: FaultMode) {
        self.with(|state| state.fault_mode = fault_mode);
    }

    /// Turns the record of attempts on or off. It is on at first.
    pub fn remember(&self, remembers: bool) {
        self.with(|state| state.remembers = remembers);
    }

    /// The attempts since the last call.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        self.with(|state| std::mem::take(&mut state.attempts))
    }

    /// Writes a page without faults, as the user of a refused page does.
    pub fn put(&self, page: u64, contents: &Page) {
        self.pass();
        self.with(|state| state.pages[page as usize] = Some(Box::new(*contents)));
        self.pass();
    }

    /// Reads a page without faults; `None` if it was never written.
    #[must_use]
    pub fn peek(&self, page: u64) -> Option<Box<Page>> {
        self.pass();
        let found = self.with(|state| state.pages[page as usize].clone());
        self.pass();
        found
    }

    /// The most writes that were under way at once since the last call.
    #[must_use]
    pub fn most_writes(&self) -> u64 {
        self.most.swap(0, Ordering::Relaxed)
    }

    fn pass(&self) {
        for n in 0..self.slowness {
            self.moment.fetch_add(1, Ordering::Relaxed);
            if n + 1 == self.slowness && !cfg!(shuttle) {
                std::thread::yield_now();
            }
        }
    }

    fn begin(&self, writes: u64) {
        let writing = self.writing.fetch_add(writes, Ordering::Relaxed) + writes;
        self.most.fetch_max(writing, Ordering::Relaxed);
        self.pass();
    }

    fn end(&self, writes: u64) {
        self.pass();
        self.writing.fetch_sub(writes, Ordering::Relaxed);
    }

    fn carry_out(&self, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        if !offset.is_multiple_of(P) || !length.is_multiple_of(P) {
            return Err(IoError::Unaligned);
        }
        self.with(|state| {
            if offset.saturating_add(length) > state.pages.len() as u64 * P {
                return Err(IoError::OutOfRange);
            }
            let first = (offset / P) as usize;
            let range = first..first + (length / P) as usize;
            match operation {
                Operation::Read { into, .. } => {
                    let (pages, _) = into.as_chunks_mut::<PAGE_SIZE>();
                    for (page, into) in range.zip(pages) {
                        state.may_read()?;
                        match &state.pages[page] {
                            Some(contents) => into.copy_from_slice(&**contents),
                            None => into.fill(0),
                        }
                    }
                }
                Operation::Write { from, .. } => state.write(range, from.as_chunks().0)?,
                Operation::Discard { .. }
                | Operation::WriteZeroes { mode: ZeroMode::MayPunch, .. } => {
                    state.alive()?;
                    state.pages[range].fill(None);
                }
                Operation::WriteZeroes { .. } => {
                    state.alive()?;
                    state.pages[range].fill(Some(Box::new([0; PAGE_SIZE])));
                }
                Operation::Flush => state.alive()?,
            }
            Ok(())
        })
    }
}

impl State {
    fn alive(&self) -> Result<(), IoError> {
        if self.fault_mode == FaultMode::Gone { Err(IoError::Failed) } else { Ok(()) }
    }

    fn may_read(&mut self) -> Result<(), IoError> {
        self.alive()?;
        match self.fault_mode {
            FaultMode::FailsReads(of_million) if self.rng.below(1_000_000) < of_million.into() => {
                Err(IoError::Failed)
            }
            _ => Ok(()),
        }
    }

    /// Writes the pages in order. The pages before a failed one are written.
    fn write(&mut self, range: Range<usize>, from: &[Page]) -> Result<(), IoError> {
        let mut made = Ok(());
        for (page, from) in range.clone().zip(from) {
            made = self.may_write(page);
            if made.is_err() {
                break;
            }
            self.pages[page] = Some(Box::new(*from));
        }
        if self.remembers {
            for (page, from) in range.zip(from) {
                let (page, contents) = (page as u64, Box::new(*from));
                let (made, batch) = (made.is_ok(), self.batch);
                self.attempts.push(Attempt { page, contents, made, batch });
            }
        }
        made
    }

    fn may_write(&mut self, page: usize) -> Result<(), IoError> {
        self.alive()?;
        match self.fault_mode {
            FaultMode::FailsWrites(of_million) if self.rng.below(1_000_000) < of_million.into() => {
                Err(IoError::Failed)
            }
            FaultMode::Full if self.pages[page].is_none() => Err(IoError::NoSpace),
            _ => Ok(()),
        }
    }
}

fn writes(operation: &Operation<'_>) -> u64 {
    match operation {
        Operation::Write { from, .. } => from.len() as u64 / P,
        _ => 0,
    }
}

impl BlockDevice for FaultyDevice {
    fn geometry(&self) -> Geometry {
        let bytes = self.with(|state| state.pages.len()) as u64 * P;
        Geometry { bytes, minimum_block: PAGE_SIZE as u32, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, fast_zero: true, flush: true, ..Abilities::default() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        context.may_wait()?;
        let writes = writes(&operation);
        self.begin(writes);
        self.with(|state| state.batch += 1);
        let result = self.carry_out(operation);
        self.end(writes);
        result
    }

    fn submit_all(&self, _: Cpu, jobs: &mut [Job<'_>]) {
        let writes = jobs.iter().map(|job| writes(&job.operation)).sum();
        self.begin(writes);
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        self.with(|state| {
            state.batch += 1;
            state.rng.shuffle(&mut order);
        });
        for job in order {
            let job = &mut jobs[job];
            job.result = self.carry_out(job.operation.reborrow());
            self.pass();
        }
        self.end(writes);
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let kinds: Vec<bool> = self.with(|state| state.pages.iter().map(Option::is_some).collect());
        if offset.saturating_add(length) > kinds.len() as u64 * P {
            return Err(IoError::OutOfRange);
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let stop = ((at / P + 1) * P).min(end);
            let held = kinds[(at / P) as usize];
            let kind = if held { ExtentKind::Data } else { ExtentKind::Hole };
            if visit(Extent { length: stop - at, kind }).is_break() {
                break;
            }
            at = stop;
        }
        Ok(())
    }
}
