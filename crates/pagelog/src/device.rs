//! A block device of pages that are in a log: what a cache of swap areas writes back to.
//!
//! The table of places is the commit point: a write compresses its pages, writes them together, and
//! then swaps the word of each. What was there before is freed afterwards. A read is a reader of
//! the log from before it looks at the table until the objects have arrived.
//!
//! Pages that come compressed ([`PackedPages`]) are written as they are. The codec of the device
//! makes the smallest objects, so a log that is more than half full takes no others.
//!
//! All memory is taken when the device is made.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::{ControlFlow, Range};

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Job, Operation, Packed,
    PackedPages, Visit,
};
use pagealloc::{MemoryProvider, NoMemory};
use sync::atomic::{AtomicU32, Ordering};
use sync::{Mutex, lock_one};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{CodecError, Compressor, fill, same_filled};

use crate::backed::{Backed, Coded};
use crate::backing::Backing;
use crate::codecs::{Codecs, NONE};
use crate::log::{LogStats, MOST_PAGES, PageLog};
use crate::room::Places;
use crate::run::Run;
use crate::table::{Table, Whereabouts};
use crate::wanted::{AT_ONCE, Wanted};

const P: u64 = PAGE_SIZE as u64;
/// Pages that are written together, if they do not shrink: as many as a cache writes back at once.
const RUN_PAGES: usize = 64;
/// Threads that write at once. More wait for one of them.
const RUNS: usize = 4;

/// Why there is no such device.
#[derive(Debug)]
pub enum NoDevice {
    /// Memory is out.
    NoMemory(NoMemory),
    /// There are no streams of the codec.
    Codec(CodecError),
    /// It would have this many pages: a log names [`MOST_PAGES`] at most.
    Pages(u64),
}

/// A block device whose pages are in a log, compressed. It may have more pages than the log has
/// room for: a write for which there is no room fails with [`IoError::NoSpace`], and changes
/// nothing. Operations are of whole pages, each of them atomic. Any number of threads may call
/// every method at once. No operation takes memory from the heap.
pub struct LogDevice {
    pub(crate) log: PageLog,
    pub(crate) table: Table,
    codecs: Codecs,
    /// Memory for pages that are written together. Held by a thread that writes.
    runs: Box<[Mutex<Run>]>,
    /// The number of runs that were written: the clock of the log.
    pub(crate) written: AtomicU32,
}

/// A page that is read, and the result of the job that it belongs to.
type Read<'a> = (Wanted<'a>, &'a Cell<Result<(), IoError>>);

impl LogDevice {
    /// A device of `pages` pages in `log`, all of them holes. Its pages are compressed by `codec`.
    /// `provider` gives the memory of the table, 8 bytes a page. If another process left a table
    /// there, see [`LogDevice::recover`].
    ///
    /// # Errors
    /// See [`NoDevice`].
    pub fn new(
        log: PageLog,
        provider: &dyn MemoryProvider,
        pages: u64,
        codec: &dyn Compressor,
        cpus: usize,
    ) -> Result<LogDevice, NoDevice> {
        if pages > MOST_PAGES {
            return Err(NoDevice::Pages(pages));
        }
        let no_run = |_| NoDevice::NoMemory(NoMemory { bytes: RUN_PAGES * PAGE_SIZE });
        let mut runs = Vec::new();
        runs.try_reserve_exact(RUNS).map_err(no_run)?;
        for _ in 0..RUNS {
            runs.push(Mutex::new(Run::new(RUN_PAGES).map_err(no_run)?));
        }
        Ok(LogDevice {
            log,
            table: Table::new(provider, pages).map_err(NoDevice::NoMemory)?,
            codecs: Codecs::new(codec, cpus).map_err(NoDevice::Codec)?,
            runs: runs.into_boxed_slice(),
            written: AtomicU32::new(0),
        })
    }

    /// The state of the log.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        self.log.stats()
    }

    /// The pages of a byte range, if the device has all of them.
    fn judge(&self, (offset, length): (u64, u64)) -> Result<Range<usize>, IoError> {
        if !(offset | length).is_multiple_of(P) {
            return Err(IoError::Unaligned);
        }
        let end = offset.checked_add(length).ok_or(IoError::OutOfRange)? / P;
        match end <= self.table.len() as u64 {
            true => Ok((offset / P) as usize..end as usize),
            false => Err(IoError::OutOfRange),
        }
    }

    fn read_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        let mut reads: [Option<Read<'_>>; AT_ONCE] = [const { None }; AT_ONCE];
        let mut count = 0;
        let mut reading = self.log.reading(cpu);
        for Job { operation, result } in jobs {
            let pages = self.judge(operation.range());
            let Operation::Read { into, .. } = operation else { continue };
            *result = pages.as_ref().map(|_| ()).map_err(|error| *error);
            let (result, Ok(pages)) = (Cell::from_mut(result), pages) else { continue };
            for (index, into) in pages.zip(into.as_chunks_mut::<PAGE_SIZE>().0) {
                match self.table.get(index) {
                    Whereabouts::Hole => into.fill(0),
                    Whereabouts::Filled(pattern) => fill(into, pattern),
                    Whereabouts::Lost => result.set(Err(IoError::Corrupt)),
                    Whereabouts::Logged(place) => {
                        let wanted = Wanted { index, place, into, result: Ok(()) };
                        reads[count] = Some((wanted, result));
                        count += 1;
                    }
                }
                if count == AT_ONCE {
                    self.fetch(cpu, &mut reads);
                    // A thread that punches a segment waits for readers: it goes on in between.
                    drop(reading);
                    reading = self.log.reading(cpu);
                    count = 0;
                }
            }
        }
        self.fetch(cpu, &mut reads);
        drop(reading);
    }

    /// Reads pages that are in the log, and takes them out of the list.
    fn fetch(&self, cpu: Cpu, reads: &mut [Option<Read<'_>>; AT_ONCE]) {
        let mut results = [None; AT_ONCE];
        let mut wanted = [const { None }; AT_ONCE];
        for (read, (wanted, result)) in reads.iter_mut().zip(wanted.iter_mut().zip(&mut results)) {
            let Some((page, of)) = read.take() else { break };
            (*wanted, *result) = (Some(page), Some(of));
        }
        if wanted[0].is_none() {
            return;
        }
        self.log.read(cpu, &mut wanted);
        for (wanted, result) in wanted.into_iter().flatten().zip(results.into_iter().flatten()) {
            let Wanted { place: Backed { form, .. }, into, result: read, .. } = wanted;
            let opened = read.and_then(|()| {
                let expanded = self.codecs.expand(cpu, form, into);
                expanded.map_err(|_| IoError::Corrupt)
            });
            result.set(result.get().and(opened));
        }
    }

    fn write_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        let mut pages = [const { Packed::whole(0, &[0; PAGE_SIZE]) }; RUN_PAGES];
        let (mut results, mut count) = ([None; RUN_PAGES], 0);
        for Job { operation, result } in jobs {
            let range = self.judge(operation.range());
            let Operation::Write { from, .. } = operation else { continue };
            *result = range.as_ref().map(|_| ()).map_err(|error| *error);
            let (result, Ok(range)) = (Cell::from_mut(result), range) else { continue };
            for (index, page) in range.zip(from.as_chunks::<PAGE_SIZE>().0) {
                pages[count] = Packed::whole(index as u64, page);
                results[count] = Some(result);
                count += 1;
                if count == RUN_PAGES {
                    self.write_batch(cpu, &mut pages, &results);
                    count = 0;
                }
            }
        }
        self.write_batch(cpu, &mut pages[..count], &results);
    }

    /// Writes pages of jobs, which have these results.
    fn write_batch(
        &self,
        cpu: Cpu,
        pages: &mut [Packed<'_>],
        results: &[Option<&Cell<Result<(), IoError>>>],
    ) {
        self.write_packed(cpu, pages);
        for (page, result) in pages.iter().zip(results.iter().flatten()) {
            result.set(result.get().and(page.result));
        }
    }

    /// Adds a page to a run that has room for it.
    fn add(&self, cpu: Cpu, page: &Packed<'_>, run: &mut Run) -> Result<(), IoError> {
        let Packed { page: index, codec, bytes, .. } = *page;
        let index = usize::try_from(index).ok().filter(|index| *index < self.table.len());
        let index = index.ok_or(IoError::OutOfRange)?;
        if let Some(name) = codec {
            let known = self.codecs.number(name).filter(|_| (1..PAGE_SIZE).contains(&bytes.len()));
            let codec = known.ok_or(IoError::Unsupported)?;
            run.page()[..bytes.len()].copy_from_slice(bytes);
            run.add(index, Coded { length: bytes.len() as u16, codec, huge: false });
            return Ok(());
        }
        let page: &Page = bytes.try_into().map_err(|_| IoError::Unaligned)?;
        if let Some(filled) = same_filled(page).and_then(Whereabouts::filled) {
            self.commit(index, filled);
            return Ok(());
        }
        let (mut stream, codec) = self.codecs.compress(cpu);
        let into = run.page();
        let form = match stream.compress(page) {
            Some(object) if object.len() < PAGE_SIZE => {
                into[..object.len()].copy_from_slice(object);
                Coded { length: object.len() as u16, codec, huge: false }
            }
            _ => {
                *into = *page;
                Coded { codec: NONE, ..Coded::NOT }
            }
        };
        run.add(index, form);
        Ok(())
    }

    /// Writes a run of these pages. Those that could not be written fail.
    fn write_run(&self, cpu: Cpu, run: &mut Run, pages: &mut [Packed<'_>]) {
        if run.entries().is_empty() {
            return;
        }
        let now = self.written.fetch_add(1, Ordering::Relaxed);
        let mut commit = |run: &mut Run| {
            for entry in run.entries_mut() {
                let Some(place) = entry.written() else { continue };
                entry.is_named = true;
                self.commit(entry.index, Whereabouts::Logged(place));
            }
        };
        if let Err(error) = self.log.write(self, cpu, run, now, &mut commit) {
            let is_left = |page: u64| run.entries().iter().any(|it| it.index as u64 == page);
            for page in pages.iter_mut().filter(|page| is_left(page.page)) {
                page.result = page.result.and(Err(error));
            }
        }
        run.clear();
    }

    /// Lets a page be elsewhere, and frees what it was.
    fn commit(&self, index: usize, to: Whereabouts) {
        if let Whereabouts::Logged(old) = self.table.set(index, to) {
            self.log.retire(old);
        }
    }

    fn discard(&self, range: (u64, u64)) -> Result<(), IoError> {
        for index in self.judge(range)? {
            if self.table.get(index) != Whereabouts::Hole {
                self.commit(index, Whereabouts::Hole);
            }
        }
        Ok(())
    }

    fn kind(&self, index: usize) -> ExtentKind {
        match self.table.get(index) {
            Whereabouts::Hole => ExtentKind::Hole,
            Whereabouts::Filled(0) => ExtentKind::Zero,
            _ => ExtentKind::Data,
        }
    }
}

impl Places for LogDevice {
    fn backed_at(&self, index: usize) -> Option<Backed> {
        match index < self.table.len() {
            true => match self.table.get(index) {
                Whereabouts::Logged(place) => Some(place),
                _ => None,
            },
            false => None,
        }
    }

    fn move_backed(&self, _: Cpu, index: usize, old: Backed, new: Backed) -> bool {
        let moved = self.table.replace(index, old, new);
        if moved {
            self.log.retire(old);
        }
        moved
    }
}

impl BlockDevice for LogDevice {
    fn geometry(&self) -> Geometry {
        let page = PAGE_SIZE as u32;
        let bytes = self.table.len() as u64 * P;
        Geometry { bytes, minimum_block: page, preferred_block: page }
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            discard: true,
            fast_zero: true,
            checked: true,
            quick_discard: true,
            ..self.log.device().abilities()
        }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { .. } | Operation::Write { .. } => {
                context.may_wait()?;
                let mut jobs = [Job::new(operation)];
                self.submit_all(context.cpu, &mut jobs);
                jobs[0].result
            }
            Operation::Discard { offset, length }
            | Operation::WriteZeroes { offset, length, .. } => self.discard((offset, length)),
            Operation::Flush => self.log.device().perform(context, Operation::Flush),
        }
    }

    /// Reads come before writes, and all writes go to the log together.
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        let has = |is: fn(&Operation<'_>) -> bool| jobs.iter().any(|job| is(&job.operation));
        let reads = has(|it| matches!(it, Operation::Read { .. }));
        let writes = has(|it| matches!(it, Operation::Write { .. }));
        if reads {
            self.read_all(cpu, jobs);
        }
        if writes {
            self.write_all(cpu, jobs);
        }
        for Job { operation, result } in jobs {
            if !matches!(operation, Operation::Read { .. } | Operation::Write { .. }) {
                *result = self.perform(Context::waiting(cpu), operation.reborrow());
            }
        }
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let mut pages = self.judge((offset, length))?;
        while let Some(first) = pages.next() {
            let kind = self.kind(first);
            let mut count = 1;
            while pages.start < pages.end && self.kind(pages.start) == kind {
                (pages.start, count) = (pages.start + 1, count + 1);
            }
            if let ControlFlow::Break(()) = visit(Extent { length: count * P, kind }) {
                break;
            }
        }
        Ok(())
    }

    fn packed(&self) -> Option<&dyn PackedPages> {
        Some(self)
    }
}

impl PackedPages for LogDevice {
    fn takes(&self, codec: &str) -> bool {
        let number = self.codecs.number(codec);
        number.is_some_and(|number| self.codecs.is_own(number) || self.log.is_half_empty())
    }

    fn write_packed(&self, cpu: Cpu, pages: &mut [Packed<'_>]) {
        // If no run is free, waits until the thread that has this CPU's has written.
        let mut run = lock_one(&self.runs, cpu);
        // The pages from this one on are in the run.
        let mut first = 0;
        for n in 0..pages.len() {
            if !run.has_room() {
                self.write_run(cpu, &mut run, &mut pages[first..n]);
                first = n;
            }
            pages[n].result = self.add(cpu, &pages[n], &mut run);
        }
        self.write_run(cpu, &mut run, &mut pages[first..]);
    }
}
