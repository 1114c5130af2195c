//! Reads of pages that are on the backing device.
//!
//! A reader of the backing device enters before the look at the slot and leaves after the block has
//! arrived. Until then the block holds the bytes of this page, whatever happens to the slot. No
//! lock is held during the I/O, and no reader of the device: a slow backing device holds up nobody
//! who waits for those readers. A block that holds a compressed page needs its codec, which stays
//! only while a slot needs it. So the slot is looked at again, by a new reader, before such a block
//! is decompressed. The pages of one request are fetched together.

use alloc::sync::Arc;

use block::IoError;
use pagelog::{AT_ONCE, Backed, Backing, Wanted};
use sync::ReaderEpochs;
use units::{Cpu, PAGE_SIZE, Page};
use zsmalloc::Room;

use crate::counts::{Count, Counts};
use crate::engine::{Engine, Fetched, Loaded};
use crate::path::ranges::parts;
use crate::path::request::Request;

/// A request that waits for the backing device. It shares the engine, and is no reader of the
/// device while it waits.
pub(crate) struct Fetcher<'a> {
    pub(crate) engine: Arc<Engine>,
    /// The slot of the first page of the device.
    pub(crate) base: usize,
    pub(crate) readers: &'a ReaderEpochs,
    pub(crate) counts: &'a Counts,
    pub(crate) cpu: Cpu,
}

impl Fetcher<'_> {
    /// Calls `f` with the request, as a reader of the device.
    fn as_reader<R>(&self, f: impl FnOnce(Request<'_>) -> R) -> R {
        let Fetcher { engine, base, readers, counts, cpu } = self;
        let reader = readers.enter(*cpu);
        let (base, reader, cpu, room) = (*base, &reader, *cpu, Room::Open);
        f(Request { engine, base, shared: engine, counts, reader, cpu, room })
    }

    /// The backing device.
    pub(crate) fn backing(&self) -> Result<&dyn Backing, IoError> {
        self.engine.backing().map(|backing| &**backing).ok_or(IoError::Corrupt)
    }

    /// Reads one page that is on the backing device, or was a moment ago, and counts it.
    #[cold]
    pub(crate) fn fetch(&self, index: u64, page: &mut Page) -> Result<(), IoError> {
        let fetched = self.fetch_uncounted(index, page);
        self.count_read(fetched)
    }

    fn fetch_uncounted(&self, index: u64, page: &mut Page) -> Result<(), IoError> {
        let _reading = self.backing()?.reading(self.cpu);
        loop {
            match self.as_reader(|request| request.load(index, page))? {
                Loaded::Page => return Ok(()),
                Loaded::Backed(place) if self.fetch_at(index, place, page)? => return Ok(()),
                Loaded::Backed(_) => {}
            }
        }
    }

    /// Reads the page that is at `place`. The caller is a reader of the backing device since before
    /// it found the place in the slot of page `index`. Returns false if the slot no longer names
    /// it, and its codec may be gone: then the page must be loaded again.
    pub(crate) fn fetch_at(
        &self,
        index: u64,
        place: Backed,
        page: &mut Page,
    ) -> Result<bool, IoError> {
        let slot = self.base + index as usize;
        let mut wanted = [Some(Wanted { index: slot, place, into: page, result: Ok(()) })];
        self.backing()?.read(self.cpu, &mut wanted);
        wanted.iter().flatten().try_for_each(|wanted| wanted.result)?;
        self.counts.add(self.cpu, Count::WritebackReads, 1);
        self.unpack(index, place, page)
    }

    /// Turns the block that was read into `page` into the page itself. Returns false if that needs
    /// a codec and the slot no longer names the block: then the page must be loaded again.
    fn unpack(&self, index: u64, place: Backed, page: &mut Page) -> Result<bool, IoError> {
        if !place.form.is_compressed() {
            return Ok(true);
        }
        let fetched = *page;
        let fetched = Fetched { place, page: &fetched };
        self.as_reader(|request| request.unpack(index, fetched, page))
    }

    fn count_read(&self, fetched: Result<(), IoError>) -> Result<(), IoError> {
        self.counts.add_read(self.cpu, fetched)
    }

    /// Reads a range of bytes, some of whose pages are on the backing device, and counts its pages.
    #[cold]
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let backing = self.backing()?;
        let (mut parts, mut rest) = (parts(offset, into.len() as u64).peekable(), into);
        while parts.peek().is_some() {
            let _reading = backing.reading(self.cpu);
            let mut batch = ReadBatch::new();
            self.as_reader(|request| -> Result<(), IoError> {
                while batch.count < AT_ONCE
                    && let Some(part) = parts.next_if(|part| part.is_whole())
                {
                    let (page, after) = core::mem::take(&mut rest).split_at_mut(PAGE_SIZE);
                    rest = after;
                    let page: &mut Page = page.try_into().map_err(|_| IoError::Unaligned)?;
                    match request.load(part.page, page) {
                        Ok(Loaded::Backed(place)) => {
                            batch.add(request.slot(part.page), place, page);
                        }
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
                self.fetch(part.page, &mut page)?;
                piece.copy_from_slice(&page[part.within]);
            }
        }
        Ok(())
    }

    /// Fetches all pages of a batch; returns the error of the first that failed.
    fn carry_out(&self, backing: &dyn Backing, mut batch: ReadBatch<'_>) -> Result<(), IoError> {
        if batch.count == 0 {
            return Ok(());
        }
        let wanted = &mut batch.wanted[..batch.count];
        backing.read(self.cpu, wanted);
        let mut all = Ok(());
        for Wanted { index, place, into, result } in wanted.iter_mut().flatten() {
            let fetched = result.and_then(|()| {
                self.counts.add(self.cpu, Count::WritebackReads, 1);
                let page = (*index - self.base) as u64;
                match self.unpack(page, *place, into)? {
                    true => Ok(()),
                    false => self.fetch_uncounted(page, into),
                }
            });
            all = all.and(self.count_read(fetched));
        }
        all
    }
}

/// Pages of one read that are fetched together.
struct ReadBatch<'a> {
    wanted: [Option<Wanted<'a>>; AT_ONCE],
    count: usize,
}

impl<'a> ReadBatch<'a> {
    fn new() -> ReadBatch<'a> {
        ReadBatch { wanted: [const { None }; AT_ONCE], count: 0 }
    }

    /// Adds the page of slot `index`, found at `place`. There is room for it.
    fn add(&mut self, index: usize, place: Backed, into: &'a mut Page) {
        self.wanted[self.count] = Some(Wanted { index, place, into, result: Ok(()) });
        self.count += 1;
    }
}
