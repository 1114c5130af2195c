//! Reads of pages that are on the backing device.
//!
//! A reader of the backing device enters before the look at the slot and leaves after the block has
//! arrived. Until then the block holds the bytes of this page, whatever happens to the slot. No
//! lock is held meanwhile. The pages of one request are fetched together.

use block::{IoError, Job, Operation};
use sync::Reader;
use units::{PAGE_SIZE, Page};

use crate::blocks::BackingBlocks;
use crate::counts::Count;
use crate::page_ops::Loaded;
use crate::request::Request;
use crate::resources::Design;
use crate::slot::Backed;

/// The most pages of a request that are fetched together.
const AT_ONCE: usize = 32;

const ELSEWHERE: Backed = Backed { block: 0, length: 0, codec: 0, huge: false };

fn offset(place: Backed) -> u64 {
    u64::from(place.block) * PAGE_SIZE as u64
}

impl<D: Design> Request<'_, D> {
    /// Reads one page that is on the backing device, or was a moment ago.
    #[cold]
    pub(crate) fn fetch(&self, index: usize, page: &mut Page) -> Result<(), IoError> {
        let backing = self.engine.backing().ok_or(IoError::Corrupt)?;
        let _reading = backing.reading(self.cpu);
        match self.load(index, page)? {
            Loaded::Page => Ok(()),
            Loaded::Backed(place) => self.fetch_block(place, page),
        }
    }

    /// Changes a part of a page that is on the backing device, or was a moment ago.
    #[cold]
    pub(crate) fn fetch_and_modify(
        &self,
        index: usize,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<(), IoError> {
        let backing = self.engine.backing().ok_or(IoError::Corrupt)?;
        let _reading = backing.reading(self.cpu);
        let mut page = [0; PAGE_SIZE];
        let mut known = None;
        loop {
            match self.modify(index, known.map(|place| (place, &page)), edit)? {
                Loaded::Page => return Ok(()),
                // The reader keeps the block from reuse. If the slot still names the block in the
                // next round, the page has the contents that were read from it.
                Loaded::Backed(place) => {
                    self.fetch_block(place, &mut page)?;
                    known = Some(place);
                }
            }
        }
    }

    fn fetch_block(&self, place: Backed, page: &mut Page) -> Result<(), IoError> {
        let backing = self.engine.backing().ok_or(IoError::Corrupt)?;
        let read = Operation::Read { offset: offset(place), into: page };
        backing.device().submit(self.cpu, read)?;
        self.counts.add(self.cpu, Count::WritebackReads, 1);
        self.unpack(place, page)
    }

    /// Turns the block that was read into `page` into the page itself.
    fn unpack(&self, place: Backed, page: &mut Page) -> Result<(), IoError> {
        if usize::from(place.length) == PAGE_SIZE {
            return Ok(());
        }
        let block = *page;
        self.engine.unpack(self.reader, self.cpu, place, &block, page)
    }
}

/// The pages of one read that wait to be fetched.
pub(crate) struct Fetches<'a, 'e, D: Design> {
    request: &'e Request<'e, D>,
    backing: &'e BackingBlocks,
    _reading: Reader<'e>,
    jobs: [Job<'a>; AT_ONCE],
    places: [Backed; AT_ONCE],
    count: usize,
}

impl<'a, 'e, D: Design> Fetches<'a, 'e, D> {
    #[cold]
    pub(crate) fn new(request: &'e Request<'e, D>) -> Result<Fetches<'a, 'e, D>, IoError> {
        let backing = request.engine.backing().ok_or(IoError::Corrupt)?;
        Ok(Fetches {
            request,
            backing,
            _reading: backing.reading(request.cpu),
            jobs: core::array::from_fn(|_| Job::new(Operation::Flush)),
            places: [ELSEWHERE; AT_ONCE],
            count: 0,
        })
    }

    /// Adds a page, which must have been found at `place` after this value was made.
    pub(crate) fn add(&mut self, place: Backed, into: &'a mut Page) {
        self.jobs[self.count] = Job::new(Operation::Read { offset: offset(place), into });
        self.places[self.count] = place;
        self.count += 1;
    }

    /// Whether the pages must be fetched before another is added.
    pub(crate) fn is_full(&self) -> bool {
        self.count == AT_ONCE
    }

    /// Fetches all pages; returns the error of the first that failed.
    pub(crate) fn carry_out(&mut self) -> Result<(), IoError> {
        let Request { counts, cpu, .. } = *self.request;
        let jobs = &mut self.jobs[..self.count];
        self.count = 0;
        self.backing.device().submit_all(cpu, jobs);
        let mut all = Ok(());
        for (job, place) in jobs.iter_mut().zip(self.places) {
            let job = core::mem::replace(job, Job::new(Operation::Flush));
            let fetched = job.result.and_then(|()| {
                counts.add(cpu, Count::WritebackReads, 1);
                match job.operation {
                    Operation::Read { into, .. } => {
                        let page = into.try_into().map_err(|_| IoError::Unaligned)?;
                        self.request.unpack(place, page)
                    }
                    _ => Ok(()),
                }
            });
            all = all.and(self.request.count_read(fetched));
        }
        all
    }
}
