//! Reads of pages that are on the backing device.
//!
//! A reader of the backing device enters before the look at the slot and leaves after the block has
//! arrived. Until then the block holds the bytes of this page, whatever happens to the slot. No
//! lock is held during the I/O, and no reader of the device: a slow backing device holds up nobody
//! who waits for those readers. A block that holds a compressed page needs its codec, which stays
//! only while a slot needs it. So the slot is looked at again, by a new reader, before such a block
//! is decompressed. The pages of one request are fetched together.

use alloc::sync::Arc;

use block::{IoError, Job, Operation};
use sync::ReaderEpochs;
use units::{Cpu, PAGE_SIZE, Page};

use crate::blocks::BackingBlocks;
use crate::counts::{Count, Counts};
use crate::engine::Engine;
use crate::page_ops::Loaded;
use crate::ranges::parts;
use crate::request::Request;
use crate::resources::Design;
use crate::slot::Backed;

/// The most pages of a request that are fetched together.
const AT_ONCE: usize = 32;

const ELSEWHERE: Backed = Backed { block: 0, length: 0, codec: 0, huge: false };

/// A request that waits for the backing device. It shares the engine, and is no reader of the
/// device while it waits.
pub(crate) struct Fetcher<'a, D: Design> {
    pub(crate) engine: Arc<Engine<D>>,
    pub(crate) readers: &'a ReaderEpochs,
    pub(crate) counts: &'a Counts,
    pub(crate) cpu: Cpu,
}

impl<D: Design> Fetcher<'_, D> {
    /// Calls `f` with the request, as a reader of the device.
    fn as_reader<R>(&self, f: impl FnOnce(Request<'_, D>) -> R) -> R {
        let Fetcher { engine, readers, counts, cpu } = self;
        let reader = readers.enter(*cpu);
        f(Request { engine, shared: engine, counts, reader: &reader, cpu: *cpu })
    }

    /// The backing device.
    pub(crate) fn backing(&self) -> Result<&BackingBlocks, IoError> {
        self.engine.backing().map(|backing| &**backing).ok_or(IoError::Corrupt)
    }

    /// Reads one page that is on the backing device, or was a moment ago, and counts it.
    #[cold]
    pub(crate) fn fetch(&self, index: usize, page: &mut Page) -> Result<(), IoError> {
        let fetched = self.fetch_uncounted(index, page);
        self.count_read(fetched)
    }

    fn fetch_uncounted(&self, index: usize, page: &mut Page) -> Result<(), IoError> {
        let _reading = self.backing()?.reading(self.cpu);
        loop {
            match self.as_reader(|request| request.load(index, page))? {
                Loaded::Page => return Ok(()),
                Loaded::Backed(place) => {
                    self.fetch_block(place, page)?;
                    if self.unpack((index, place), page)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads a block. The caller is a reader of the backing device since before it found the place
    /// in a slot.
    pub(crate) fn fetch_block(&self, place: Backed, block: &mut Page) -> Result<(), IoError> {
        let read = Operation::Read { offset: offset(place), into: block };
        self.backing()?.device().submit(self.cpu, read)?;
        self.counts.add(self.cpu, Count::WritebackReads, 1);
        Ok(())
    }

    /// Turns the block that was read into `page` into the page itself. Returns false if that needs
    /// a codec and the slot no longer names the block: then the page must be loaded again.
    fn unpack(&self, (index, place): (usize, Backed), page: &mut Page) -> Result<bool, IoError> {
        if usize::from(place.length) == PAGE_SIZE {
            return Ok(true);
        }
        let block = *page;
        self.as_reader(|request| request.unpack((index, place), &block, page))
    }

    fn count_read(&self, fetched: Result<(), IoError>) -> Result<(), IoError> {
        self.counts.add_result(self.cpu, (Count::Reads, Count::FailedReads), fetched)
    }

    /// Reads a range of bytes, some of whose pages are on the backing device, and counts its pages.
    #[cold]
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let backing = self.backing()?;
        let (mut parts, mut rest) = (parts(offset, into.len() as u64).peekable(), into);
        while parts.peek().is_some() {
            let _reading = backing.reading(self.cpu);
            let mut batch = Batch::new();
            self.as_reader(|request| -> Result<(), IoError> {
                while batch.count < AT_ONCE
                    && let Some(part) = parts.next_if(|part| part.is_whole())
                {
                    let (page, after) = core::mem::take(&mut rest).split_at_mut(PAGE_SIZE);
                    rest = after;
                    let page: &mut Page = page.try_into().map_err(|_| IoError::Unaligned)?;
                    match request.load(part.page as usize, page) {
                        Ok(Loaded::Backed(place)) => batch.add(part.page as usize, place, page),
                        loaded => request.count_read(loaded.map(|_| ()))?,
                    }
                }
                Ok(())
            })?;
            self.carry_out(backing, batch)?;
            if let Some(part) = parts.next_if(|part| !part.is_whole()) {
                let (piece, after) = core::mem::take(&mut rest).split_at_mut(part.within.len());
                rest = after;
                let mut page = [0; PAGE_SIZE];
                self.fetch(part.page as usize, &mut page)?;
                piece.copy_from_slice(&page[part.within]);
            }
        }
        Ok(())
    }

    /// Fetches all pages of a batch; returns the error of the first that failed.
    fn carry_out(&self, backing: &BackingBlocks, mut batch: Batch<'_>) -> Result<(), IoError> {
        if batch.count == 0 {
            return Ok(());
        }
        let jobs = &mut batch.jobs[..batch.count];
        backing.device().submit_all(self.cpu, jobs);
        let mut all = Ok(());
        for (job, (index, place)) in jobs.iter_mut().zip(batch.places) {
            let fetched = job.result.and_then(|()| {
                self.counts.add(self.cpu, Count::WritebackReads, 1);
                match &mut job.operation {
                    Operation::Read { into, .. } => {
                        let page: &mut Page =
                            (&mut **into).try_into().map_err(|_| IoError::Unaligned)?;
                        match self.unpack((index, place), page)? {
                            true => Ok(()),
                            false => self.fetch_uncounted(index, page),
                        }
                    }
                    _ => Ok(()),
                }
            });
            all = all.and(self.count_read(fetched));
        }
        all
    }
}

fn offset(place: Backed) -> u64 {
    u64::from(place.block) * PAGE_SIZE as u64
}

/// Pages of one read that are fetched together.
struct Batch<'a> {
    jobs: [Job<'a>; AT_ONCE],
    places: [(usize, Backed); AT_ONCE],
    count: usize,
}

impl<'a> Batch<'a> {
    fn new() -> Batch<'a> {
        let jobs = core::array::from_fn(|_| Job::new(Operation::Flush));
        Batch { jobs, places: [(0, ELSEWHERE); AT_ONCE], count: 0 }
    }

    /// Adds page `index`, found at `place`. There is room for it.
    fn add(&mut self, index: usize, place: Backed, into: &'a mut Page) {
        self.jobs[self.count] = Job::new(Operation::Read { offset: offset(place), into });
        self.places[self.count] = (index, place);
        self.count += 1;
    }
}
