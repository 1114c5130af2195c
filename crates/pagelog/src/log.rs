//! A log of compressed pages on a backing device.
//!
//! Objects lie one behind the other in segments of 1 or 4 MiB, which are written from front to
//! back, many objects at a time. A slot names the place of its object; nothing else says whether an
//! object is in use. [`segments::Segments`] keeps account. Its lock is held for that, and never
//! during I/O.
//!
//! A reader of the log enters before it looks at a slot, and leaves when the object has arrived. A
//! segment without objects is punched and used again after all readers of that time have left.

use alloc::collections::TryReserveError;
use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};

use block::{BlockDevice, Context, IoError, Job, Operation};
use segments::{
    BLOCK_BYTES, Cleaned, Found, Generation, HEADER_BYTES, Header, Layout, LayoutError,
    MOST_DEVICE_BYTES, NoVictim, Place, Segments, Survivors, TAG_BYTES, UNIT_BYTES, Victim,
};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, MutexGuard, Reader, ReaderEpochs};
use twox_hash::XxHash3_64;
use units::{Cpu, PAGE_SIZE};

use crate::backed::Backed;
use crate::run::{Part, RUN_PAGES, Run};
use crate::wanted::{AT_ONCE, Wanted};

/// The blocks that an object and its header lie in, at most.
const SPAN_BYTES: usize = 2 * BLOCK;
const BLOCK: usize = BLOCK_BYTES as usize;
/// Devices from this size on have segments of 4 MiB.
const LARGE: u64 = 1 << 30;
/// The most segments that are punched after one wait for readers.
const PUNCHES: usize = 16;
/// The most requests that read at once. More wait for one of them.
const READS: usize = 8;

/// The log. Any number of threads may call every method at once.
pub struct PageLog {
    device: Arc<dyn BlockDevice>,
    path: String,
    readers: ReaderEpochs,
    pub(crate) account: Mutex<Segments>,
    /// Memory for what is read. Held by a thread that reads.
    reads: Box<[Mutex<Vec<u8>>]>,
    /// Held by the thread that cleans.
    cleaning: Mutex<CleanMemory>,
    /// Held by the thread that punches.
    punching: Mutex<()>,
    counts: LogCounts,
    /// If set, a segment is used again although it may be read.
    #[cfg(any(shuttle, asan))]
    without_readers: bool,
}

/// The memory of the thread that cleans.
struct CleanMemory {
    /// A segment.
    segment: Vec<u8>,
    survivors: Run,
}

#[derive(Default)]
struct LogCounts {
    written: AtomicU64,
    copied: AtomicU64,
    cleaned: AtomicU64,
}

/// The state of a log. Bytes are of the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogStats {
    /// Bytes that objects may take, with headers, while there is always room for more.
    pub capacity_bytes: u64,
    /// Bytes of all objects in use, with headers.
    pub live_bytes: u64,
    /// Bytes that were written, with copies and padding.
    pub written_bytes: u64,
    /// Bytes of them that copied objects when segments were cleaned.
    pub copied_bytes: u64,
    /// Segments that were cleaned.
    pub cleaned_segments: u64,
    /// Segments that nothing is written to.
    pub free_segments: u64,
    /// All segments.
    pub segments: u64,
}

/// Why there is no log on a device.
#[derive(Debug)]
pub enum NoLog {
    /// The device is too small.
    Layout(LayoutError),
    /// Memory is out.
    NoMemory,
}

impl PageLog {
    /// An empty log on `device`, opened as `path`. Only the first 256 GiB are used.
    ///
    /// # Errors
    /// The device is too small, or memory is out.
    pub fn new(device: Arc<dyn BlockDevice>, path: &str, cpus: usize) -> Result<PageLog, NoLog> {
        let bytes = device.geometry().bytes.min(MOST_DEVICE_BYTES);
        let segment_bytes = if bytes >= LARGE { 4 << 20 } else { 1 << 20 };
        let layout = Layout { bytes, segment_bytes, survivors: Survivors::Apart };
        let account = Segments::new(layout).map_err(NoLog::Layout)?;
        let no_memory = |_: TryReserveError| NoLog::NoMemory;
        let (mut reads, count) = (Vec::new(), cpus.clamp(1, READS));
        reads.try_reserve_exact(count).map_err(no_memory)?;
        for _ in 0..count {
            reads.push(Mutex::new(zeroes(AT_ONCE * SPAN_BYTES).map_err(no_memory)?));
        }
        let memory = CleanMemory {
            segment: zeroes(segment_bytes as usize).map_err(no_memory)?,
            survivors: Run::new(RUN_PAGES).map_err(no_memory)?,
        };
        Ok(PageLog {
            device,
            path: path.into(),
            readers: ReaderEpochs::new(cpus),
            account: Mutex::new(account),
            reads: reads.into_boxed_slice(),
            cleaning: Mutex::new(memory),
            punching: Mutex::new(()),
            counts: LogCounts::default(),
            #[cfg(any(shuttle, asan))]
            without_readers: false,
        })
    }

    /// A copy that does not wait for its readers: a race checker must find the error.
    #[cfg(any(shuttle, asan))]
    pub fn without_readers(self) -> PageLog {
        PageLog { without_readers: true, ..self }
    }

    /// The backing device.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// The path it was opened as.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Enters a reader: an object that a slot names from now on stays while the reader lives.
    pub fn reading(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    /// The state of the log.
    pub fn stats(&self) -> LogStats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let account = self.account.lock();
        LogStats {
            capacity_bytes: account.capacity(),
            live_bytes: account.live_bytes(),
            written_bytes: count(&self.counts.written),
            copied_bytes: count(&self.counts.copied),
            cleaned_segments: count(&self.counts.cleaned),
            free_segments: account.free_segments().into(),
            segments: account.count().into(),
        }
    }

    /// An object is not in use any more: no slot names it.
    pub fn free(&self, place: Backed) {
        let freed = self.account.lock().free(Place::from_word(place.block), place.length);
        debug_assert!(freed.is_ok(), "{freed:?}");
    }

    /// Reads pages and sets the result of each. The caller is a reader since before it found the
    /// places in slots.
    pub fn read(&self, cpu: Cpu, wanted: &mut [Option<Wanted<'_>>]) {
        let mut memory = self.memory(cpu);
        let mut jobs: [Job<'_>; AT_ONCE] = core::array::from_fn(|_| Job::new(Operation::Flush));
        let count = wanted.iter().flatten().count().min(AT_ONCE);
        let spans = memory.chunks_exact_mut(SPAN_BYTES);
        for ((job, wanted), into) in jobs.iter_mut().zip(wanted.iter().flatten()).zip(spans) {
            let span = span(wanted.place);
            let into = &mut into[..span.bytes as usize];
            *job = Job::new(Operation::Read { offset: span.start, into });
        }
        self.device.submit_all(cpu, &mut jobs[..count]);
        for (job, wanted) in jobs.iter().zip(wanted.iter_mut().flatten()) {
            wanted.result = job.result.and_then(|()| match &job.operation {
                Operation::Read { into, .. } => self.open(wanted, into),
                _ => Err(IoError::Corrupt),
            });
        }
    }

    /// Memory to read into. If none is free, waits until the request that has this CPU's is done.
    fn memory(&self, cpu: Cpu) -> MutexGuard<'_, Vec<u8>> {
        let own = cpu.0 as usize % self.reads.len();
        let (before, from) = self.reads.split_at(own);
        let free = from.iter().chain(before).find_map(Mutex::try_lock);
        free.unwrap_or_else(|| self.reads[own].lock())
    }

    /// Takes an object out of the blocks that were read, and checks that it is this one.
    fn open(&self, wanted: &mut Wanted<'_>, blocks: &[u8]) -> Result<(), IoError> {
        let Wanted { index, place, into, .. } = wanted;
        let (at, length) = (span(*place).skip as usize, usize::from(place.length));
        let generation = self.account.lock().generation(Place::from_word(place.block));
        let blocks = blocks.get(at..).ok_or(IoError::Corrupt)?;
        let (header, object) = blocks.split_first_chunk().ok_or(IoError::Corrupt)?;
        let object = object.get(..length).ok_or(IoError::Corrupt)?;
        let generation = generation.ok_or(IoError::Corrupt)?;
        if Header::decode(header) != Some(header_of(*index, *place, generation, object)) {
            return Err(IoError::Corrupt);
        }
        into[..length].copy_from_slice(object);
        into[length..].fill(0);
        Ok(())
    }

    /// Whether there is room for so many bytes, at most a segment, before anything is cleaned.
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        self.account.lock().has_room(bytes)
    }

    /// Writes the objects of a run, dated `now`. Each has a place afterwards if it was written. The
    /// caller lets slots name the places, and then calls [`PageLog::committed`].
    ///
    /// # Errors
    /// `NoSpace` if no place is left for some of them, or the first error of the device.
    pub(crate) fn write(&self, cpu: Cpu, run: &mut Run, now: u32) -> Result<(), IoError> {
        let reserved = self.reserve(run, None, now);
        self.write_reserved(cpu, run).and(reserved)
    }

    fn reserve(&self, run: &mut Run, of: Option<&Victim>, now: u32) -> Result<(), IoError> {
        let mut account = self.account.lock();
        let mut all = Ok(());
        for entry in run.entries_mut() {
            let length = usize::from(entry.form.length);
            let pending = match of {
                None => account.append(length, now),
                Some(victim) => account.append_survivor(victim, length),
            };
            match pending {
                Ok(pending) => entry.pending = Some(pending),
                Err(_) => {
                    all = Err(IoError::NoSpace);
                    break;
                }
            }
        }
        account.pad(of);
        all
    }

    /// Writes the objects that have places.
    fn write_reserved(&self, cpu: Cpu, run: &mut Run) -> Result<(), IoError> {
        let parts = run.arrange();
        for n in 0..run.entries().len() {
            let entry = &run.entries()[n];
            let Some(pending) = &entry.pending else { break };
            let place = Backed { block: pending.place().word(), ..entry.form };
            let (index, generation) = (entry.index, pending.generation());
            let (header, object) = run.object(n);
            let bytes = header_of(index, place, generation, object).encode();
            header.copy_from_slice(&bytes.ok_or(IoError::Corrupt)?);
        }
        let mut results = [Ok(()); 2];
        {
            let mut jobs = parts.each_ref().map(|part| {
                Job::new(Operation::Write { offset: part.offset, from: run.memory(part) })
            });
            let count = parts.iter().filter(|part| !part.memory.is_empty()).count();
            self.device.submit_all(cpu, &mut jobs[..count]);
            for (result, job) in results.iter_mut().zip(&jobs[..count]) {
                *result = job.result;
            }
        }
        self.settle(run, &parts, results);
        results[0].and(results[1])
    }

    /// Ends the write of a run: the objects that no slot names are free.
    pub(crate) fn committed(&self, run: &mut Run) {
        let mut account = self.account.lock();
        for entry in run.entries_mut() {
            let Some(pending) = entry.pending.take() else { continue };
            let place = account.written(pending);
            if !entry.is_named {
                let freed = account.free(place, entry.form.length);
                debug_assert!(freed.is_ok(), "{freed:?}");
            }
        }
    }

    /// Notes what was written. Until slots name it, its segment is not cleaned.
    fn settle(&self, run: &mut Run, parts: &[Part; 2], results: [Result<(), IoError>; 2]) {
        for (part, result) in parts.iter().zip(results) {
            if result.is_ok() {
                let bytes = part.memory.len() as u64;
                self.counts.written.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        let mut account = self.account.lock();
        for entry in run.entries_mut() {
            let Some(pending) = entry.pending.take() else { break };
            let in_second = parts[1].memory.contains(&entry.at);
            match results[usize::from(in_second)] {
                Ok(()) => {
                    entry.place = Some(pending.place());
                    entry.pending = Some(pending);
                }
                Err(_) => account.abandon(pending),
            }
        }
    }

    /// Punches segments without objects, as many at most as one wait for readers is worth. Returns
    /// whether there were any. The calling thread must not be a reader of the log.
    pub(crate) fn punch(&self, cpu: Cpu) -> bool {
        let _one_at_a_time = self.punching.lock();
        let mut punches = [const { None }; PUNCHES];
        {
            let mut account = self.account.lock();
            punches.fill_with(|| account.punch());
        }
        if punches[0].is_none() {
            return false;
        }
        #[cfg(any(shuttle, asan))]
        let waits = !self.without_readers;
        #[cfg(not(any(shuttle, asan)))]
        let waits = true;
        if waits {
            self.readers.wait_for_readers();
        }
        for punch in punches.into_iter().flatten() {
            let bytes = punch.bytes();
            let (offset, length) = (bytes.start, bytes.end - bytes.start);
            if self.device.abilities().discard {
                // A hint: only headers of the next life are read.
                let discard = Operation::Discard { offset, length };
                let _ = self.device.perform(Context::waiting(cpu), discard);
            }
            self.account.lock().punched(punch);
        }
        true
    }

    /// Begins to clean the segment that is worth it most at the time `now`, to have room for
    /// `bytes`. If another thread cleans, waits for it.
    pub(crate) fn clean(&self, bytes: u32, now: u32) -> Clean<'_> {
        let memory = self.cleaning.lock();
        let mut account = self.account.lock();
        if account.has_room(bytes) {
            return Clean::NotNeeded;
        }
        match account.victim(now) {
            Ok(victim) => Clean::This(Cleaning { log: self, memory, victim }),
            Err(NoVictim::PunchFirst) => Clean::NotNeeded,
            Err(NoVictim::Busy | NoVictim::Nothing) => Clean::Nothing,
        }
    }
}

/// What there is to clean.
pub(crate) enum Clean<'a> {
    /// This segment.
    This(Cleaning<'a>),
    /// Others have made room, or it comes by punching.
    NotNeeded,
    /// No segment would gain enough.
    Nothing,
}

/// A segment that is being cleaned. It must go to [`Cleaning::end`] or [`Cleaning::give_up`].
pub(crate) struct Cleaning<'a> {
    log: &'a PageLog,
    memory: MutexGuard<'a, CleanMemory>,
    victim: Victim,
}

impl Cleaning<'_> {
    /// Reads the segment and writes what lives to another one. `live` tells whether a page is at a
    /// place, and the form that its slot has. `commit` gets objects that were copied: the place of
    /// each in its form is the old one.
    ///
    /// # Errors
    /// Some objects could not be written, and stay where they are.
    pub(crate) fn copy(
        &mut self,
        cpu: Cpu,
        live: impl Fn(usize, Place) -> Option<Backed>,
        commit: impl Fn(&mut Run),
    ) -> Result<(), IoError> {
        let Cleaning { log, memory, victim } = self;
        let CleanMemory { segment, survivors } = &mut **memory;
        survivors.clear();
        let bytes = victim.bytes();
        let blocks = ((bytes.end - bytes.start) as usize).next_multiple_of(BLOCK);
        let segment = &mut segment[..blocks];
        log.read_segment(cpu, bytes.start, segment);
        let used = &segment[..(bytes.end - bytes.start) as usize];
        for found in segments::walk(used, victim.generation()).flatten() {
            let Found { header, object, offset } = found;
            let Some(place) = victim.place(offset) else { continue };
            let index = header.key as usize;
            let Some(form) = live(index, place) else { continue };
            // What rotted stays where it is: its readers get the error.
            if header != header_of(index, form, header.generation, object) {
                continue;
            }
            if !survivors.has_room() {
                let written = log.write_survivors(cpu, survivors, victim);
                commit(survivors);
                log.committed(survivors);
                survivors.clear();
                written?;
            }
            survivors.page()[..object.len()].copy_from_slice(object);
            survivors.add(index, form);
        }
        let written = log.write_survivors(cpu, survivors, victim);
        commit(survivors);
        log.committed(survivors);
        written
    }

    /// All that was found is copied. What was not found stays until it is freed.
    pub(crate) fn end(self) {
        self.log.counts.cleaned.fetch_add(1, Ordering::Relaxed);
        let _: Cleaned = self.log.account.lock().cleaned(self.victim);
    }

    /// The segment stays as it is.
    pub(crate) fn give_up(self) {
        self.log.account.lock().put_back(self.victim);
    }
}

impl PageLog {
    /// Reads blocks of a segment. Those that cannot be read are zeroes.
    fn read_segment(&self, cpu: Cpu, offset: u64, segment: &mut [u8]) {
        let context = Context::waiting(cpu);
        let read = Operation::Read { offset, into: &mut *segment };
        if self.device.perform(context, read).is_ok() {
            return;
        }
        for (n, block) in segment.chunks_mut(BLOCK).enumerate() {
            let offset = offset + n as u64 * u64::from(BLOCK_BYTES);
            let read = Operation::Read { offset, into: &mut *block };
            if self.device.perform(context, read).is_err() {
                block.fill(0);
            }
        }
    }

    fn write_survivors(&self, cpu: Cpu, run: &mut Run, of: &Victim) -> Result<(), IoError> {
        if run.entries().is_empty() {
            return Ok(());
        }
        let reserved = self.reserve(run, Some(of), 0);
        let bytes = u64::from(run.stored_bytes());
        self.write_reserved(cpu, run).and(reserved)?;
        self.counts.copied.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

fn span(place: Backed) -> segments::Span {
    Place::from_word(place.block).span(place.length, BLOCK_BYTES)
}

/// The header of an object at a place. Its tag is a checksum (XXH3, 64 bits) of the object and its
/// place.
fn header_of(index: usize, place: Backed, generation: Generation, object: &[u8]) -> Header {
    let seed = u64::from(place.block);
    let mut tag = [0; TAG_BYTES];
    tag[..8].copy_from_slice(&XxHash3_64::oneshot_with_seed(seed, object).to_le_bytes());
    Header {
        key: index as u32,
        length: place.length,
        codec: place.codec,
        extent: false,
        generation,
        tag,
    }
}

fn zeroes(bytes: usize) -> Result<Vec<u8>, TryReserveError> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes)?;
    memory.resize(bytes, 0);
    Ok(memory)
}

// An object begins with a unit.
const _: () = assert!(
    (BLOCK_BYTES - UNIT_BYTES) as usize + HEADER_BYTES + PAGE_SIZE <= SPAN_BYTES,
    "an object lies in two blocks"
);
