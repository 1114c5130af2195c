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
    BLOCK_BYTES, Generation, HEADER_BYTES, Header, Key, Layout, LayoutError, MOST_DEVICE_BYTES,
    Segments, TAG_BYTES, UNIT_BYTES, Victim,
};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, ReaderEpochs, lock_one};
use twox_hash::XxHash3_64;
use units::{Cpu, PAGE_SIZE};

use crate::backed::{Backed, StoredAt};
use crate::run::{Part, RUN_PAGES, Run};
use crate::wanted::{AT_ONCE, Wanted};
use crate::words::{LARGE, Left};

/// The blocks that an object and its header lie in, at most.
const SPAN_BYTES: usize = 2 * BLOCK;
pub(crate) const BLOCK: usize = BLOCK_BYTES as usize;
/// The most segments that are punched after one wait for readers.
const PUNCHES: usize = 16;
/// The most requests that read at once. More wait for one of them.
const READS: usize = 8;

/// The most pages that a log can name: of 16 TiB.
pub const MOST_PAGES: u64 = 1 << Key::BITS;

/// The log of pages below [`MOST_PAGES`]. Any number of threads may call every method at once.
pub struct PageLog {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) path: String,
    pub(crate) readers: ReaderEpochs,
    pub(crate) account: Mutex<Segments>,
    /// Memory for what is read. Held by a thread that reads.
    reads: Box<[Mutex<Vec<u8>>]>,
    /// Held by the thread that cleans.
    pub(crate) cleaning: Mutex<CleanMemory>,
    /// Held by the thread that punches.
    punching: Mutex<()>,
    /// What another process left, until the log has taken it over.
    pub(crate) left: Mutex<Option<Left>>,
    pub(crate) counts: LogCounts,
}

/// The memory of the thread that cleans.
pub(crate) struct CleanMemory {
    /// A segment.
    pub(crate) segment: Vec<u8>,
    pub(crate) survivors: Run,
}

#[derive(Default)]
pub(crate) struct LogCounts {
    pub(crate) written: AtomicU64,
    pub(crate) copied: AtomicU64,
    pub(crate) cleaned: AtomicU64,
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
        let layout = Layout { bytes, segment_bytes };
        let account = Segments::new(layout).map_err(NoLog::Layout)?;
        let no_memory = |_: TryReserveError| NoLog::NoMemory;
        let (mut reads, count) = (Vec::new(), cpus.clamp(1, READS));
        reads.try_reserve_exact(count).map_err(no_memory)?;
        for _ in 0..count {
            reads.push(Mutex::new(zeroes(AT_ONCE * SPAN_BYTES).map_err(no_memory)?));
        }
        Ok(PageLog {
            device,
            path: path.into(),
            readers: ReaderEpochs::new(cpus),
            account: Mutex::new(account),
            reads: reads.into_boxed_slice(),
            cleaning: Mutex::new(CleanMemory {
                segment: zeroes(segment_bytes as usize).map_err(no_memory)?,
                survivors: Run::new(RUN_PAGES).map_err(no_memory)?,
            }),
            punching: Mutex::new(()),
            left: Mutex::new(None),
            counts: LogCounts::default(),
        })
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

    /// [`Backing::read`](crate::Backing::read).
    pub(crate) fn fetch(&self, cpu: Cpu, wanted: &mut [Option<Wanted<'_>>]) {
        // If no memory is free, waits until the request that has this CPU's is done.
        let mut memory = lock_one(&self.reads, cpu);
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

    /// Takes an object out of the blocks that were read, and checks that it is this one.
    fn open(&self, wanted: &mut Wanted<'_>, blocks: &[u8]) -> Result<(), IoError> {
        let Wanted { index, place, into, .. } = wanted;
        let (at, length) = (span(*place).skip as usize, usize::from(place.form.length));
        let generation = self.account.lock().generation(place.at.place());
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

    /// What threads have written and cleaned so far: another number each time one gets on.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.counts.written), count(&self.counts.cleaned))
    }

    /// Whether there is room for `bytes`, at most a segment, before anything is cleaned.
    pub(crate) fn has_room_for(&self, bytes: u32) -> bool {
        self.account.lock().has_room(bytes)
    }

    /// Whether objects take half of the log at most.
    pub(crate) fn is_half_empty(&self) -> bool {
        let account = self.account.lock();
        account.live_bytes() <= account.capacity() / 2
    }

    /// Writes the objects of a run, dated `now`. Each has a place afterwards if it was written. The
    /// caller lets slots name the places, and then calls [`PageLog::committed`].
    ///
    /// # Errors
    /// `NoSpace` if no place is left for some of them, or the first error of the device.
    pub(crate) fn append(&self, cpu: Cpu, run: &mut Run, now: u32) -> Result<(), IoError> {
        let reserved = self.reserve(run, None, now);
        self.write_reserved(cpu, run).and(reserved)
    }

    pub(crate) fn reserve(
        &self,
        run: &mut Run,
        of: Option<&Victim>,
        now: u32,
    ) -> Result<(), IoError> {
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
    pub(crate) fn write_reserved(&self, cpu: Cpu, run: &mut Run) -> Result<(), IoError> {
        let parts = run.arrange();
        for n in 0..run.entries().len() {
            let entry = &run.entries()[n];
            let Some(pending) = &entry.pending else { break };
            let place = Backed { at: StoredAt::in_log(pending.place()), form: entry.form };
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
            let in_second = parts[1].memory.contains(&entry.from);
            match results[usize::from(in_second)] {
                Ok(()) => {
                    entry.at = Some(StoredAt::in_log(pending.place()));
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
        self.readers.wait_for_readers();
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
}

pub(crate) fn span(place: Backed) -> segments::Span {
    place.at.place().span(place.form.length, BLOCK_BYTES)
}

/// The header of an object at a place.
pub(crate) fn header_of(
    index: usize,
    place: Backed,
    generation: Generation,
    object: &[u8],
) -> Header {
    Header {
        // Below `MOST_PAGES`.
        key: index as u32,
        length: place.form.length,
        codec: place.form.codec,
        generation,
        tag: tag(place.at, object),
    }
}

/// The tag of an object: a checksum (XXH3, 64 bits) of it and of its place.
pub(crate) fn tag(at: StoredAt, object: &[u8]) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    let sum = XxHash3_64::oneshot_with_seed(u64::from(at.place().word()), object);
    tag[..8].copy_from_slice(&sum.to_le_bytes());
    tag
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
