//! Requests to the device, for pages and byte ranges.
//!
//! A request is a reader of the device while it uses the engine. While it waits for the backing
//! device it is none, but shares the engine: a shrink, a change of codecs and a reset wait for
//! readers, and must not wait for a slow backing device. Afterwards it enters again.

use alloc::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit, Wait};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};

use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::make_room::Patience;
use crate::page_ops::Loaded;
use crate::ranges::{self, Change, Pass, Stopped, Why};
use crate::read_backing::Fetcher;
use crate::request::Request;
use crate::resources::Design;
use crate::when_full::WhenFull;

impl<D: Design> Disk<D> {
    /// Stores page `index` on this thread. `cpu` is the CPU it runs on; any number is allowed.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `NoSpace`, `NoMemory`; the page is unchanged.
    #[inline]
    pub fn store_page(&self, cpu: Cpu, index: u64, page: &Page) -> Result<(), IoError> {
        let stored = self.begin(Context::waiting(cpu), (index, 1), |request| {
            match request.store(index as usize, page) {
                Err(IoError::NoSpace) => None,
                stored => Some(request.count_write(stored)),
            }
        })?;
        match stored {
            Some(stored) => stored,
            // Another try, which makes room if it has to and may.
            None => {
                let range = (index * PAGE_SIZE as u64, PAGE_SIZE as u64);
                self.change(Context::waiting(cpu), range, Change::Write(page))
            }
        }
    }

    /// Loads page `index` on this thread. A page that was never stored reads as zeroes.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `Corrupt`; the contents of `page` are undefined then.
    #[inline]
    pub fn load_page(&self, cpu: Cpu, index: u64, page: &mut Page) -> Result<(), IoError> {
        let backed = self.begin(Context::waiting(cpu), (index, 1), |request| {
            match request.load(index as usize, page) {
                Ok(Loaded::Backed(_)) => Ok(Some(request.shared.clone())),
                loaded => request.count_read(loaded.map(|_| ())).map(|()| None),
            }
        })??;
        match backed {
            None => Ok(()),
            Some(engine) => self.fetcher(engine, cpu).fetch(index as usize, page),
        }
    }

    /// Empties `count` pages from `first` on. They read as zeroes afterwards.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`.
    pub fn discard_pages(&self, cpu: Cpu, first: u64, count: u64) -> Result<(), IoError> {
        self.begin(Context::waiting(cpu), (first, count), |request| {
            request.engine.discard(cpu, first as usize, count as usize);
            self.counts.add(cpu, Count::NotifyFree, count as i64);
        })
    }

    /// Calls `f`, as a reader, with a request for pages that lie within the device: a number of
    /// pages from a first one on. Every operation begins here. The calling thread is no reader: it
    /// may wait for a change of the size.
    #[inline]
    pub(crate) fn begin<R>(
        &self,
        context: Context,
        pages: (u64, u64),
        f: impl FnOnce(Request<'_, D>) -> R,
    ) -> Result<R, IoError> {
        loop {
            {
                let reader = self.readers.enter(context.cpu);
                if let Some(request) = self.request(&reader, context.cpu, pages)? {
                    return Ok(f(request));
                }
            }
            self.look_again(context, pages)?;
        }
    }

    /// A request for these pages; `None` if they pass the end of the device.
    #[inline]
    fn request<'a>(
        &'a self,
        reader: &'a Reader<'a>,
        cpu: Cpu,
        pages: (u64, u64),
    ) -> Result<Option<Request<'a, D>>, IoError> {
        let is_within = self.holds(pages);
        let engine = self.engine.get(reader).ok_or(IoError::NotReady)?;
        let counts = &self.counts;
        Ok(is_within.then_some(Request { engine, shared: engine, counts, reader, cpu }))
    }

    #[inline]
    fn holds(&self, (first, count): (u64, u64)) -> bool {
        let pages = self.bytes() / PAGE_SIZE as u64;
        first.checked_add(count).is_some_and(|end| end <= pages)
    }

    /// Fails if the pages pass the end of the device. A device that shrinks shows its new size
    /// before it is certain to get it, and holds the settings meanwhile. So the size counts that is
    /// there after that. The calling thread is no reader.
    #[cold]
    fn look_again(&self, context: Context, pages: (u64, u64)) -> Result<(), IoError> {
        let settings = match context.wait {
            Wait::Yes => Some(self.settings.lock()),
            Wait::No => self.settings.try_lock(),
        };
        let Some(_settings) = settings else { return Err(IoError::WouldBlock) };
        if self.holds(pages) {
            return Ok(());
        }
        if self.bytes() == 0 {
            return Err(IoError::NotReady);
        }
        self.counts.add(context.cpu, Count::InvalidIo, 1);
        Err(IoError::OutOfRange)
    }

    pub(crate) fn fetcher(&self, engine: Arc<Engine<D>>, cpu: Cpu) -> Fetcher<'_, D> {
        Fetcher { engine, readers: &self.readers, counts: &self.counts, cpu }
    }

    #[inline]
    fn read(&self, context: Context, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let pages = ranges::touched_pages(offset, into.len() as u64);
        let rest = self.begin(context, pages, |request| {
            let engine = request.shared;
            let read = Pass { request, context }.read(offset, into);
            read.map(|stopped| stopped.map(|done| (done, engine.clone())))
        })??;
        match rest {
            None => Ok(()),
            Some((done, engine)) => {
                self.fetcher(engine, context.cpu).read(offset + done as u64, &mut into[done..])
            }
        }
    }

    #[inline]
    fn change(
        &self,
        context: Context,
        (offset, length): (u64, u64),
        change: Change<'_>,
    ) -> Result<(), IoError> {
        let (mut done, mut patience) = (0, Patience::default());
        loop {
            let range = (offset + done, length - done);
            let pages = ranges::touched_pages(range.0, range.1);
            let stopped = self.begin(context, pages, |request| {
                if done == 0 {
                    self.look_for_room(request.engine, context, pages.1)?;
                }
                Pass { request, context }.change(range, change.after(done as usize), done > 0)
            })??;
            let Some(stopped) = stopped else { return Ok(()) };
            let rest = change.after(done as usize);
            if stopped.why == Why::Full {
                done += stopped.of_range.start as u64;
                if self.go_on_when_full(context, done, &stopped, rest, &mut patience)? {
                    done += stopped.within.len() as u64;
                }
                if done == length {
                    return Ok(());
                }
                continue;
            }
            self.fetch_and_modify(context.cpu, &stopped, &mut |page| {
                rest.put(stopped.of_range.clone(), &mut page[stopped.within.clone()]);
            })?;
            done += stopped.next as u64;
            if done == length {
                return Ok(());
            }
        }
    }

    /// Lets a change that was refused for a page go on: makes room, or writes the page to the
    /// backing device. Returns whether the page is done. `done` bytes were changed before it.
    ///
    /// # Errors
    /// `NoSpace` if there will be no room; those of [`Disk::spill`]. They are counted. `WouldBlock`
    /// if the thread must not wait and nothing has changed.
    #[cold]
    fn go_on_when_full(
        &self,
        context: Context,
        done: u64,
        stopped: &Stopped<D>,
        rest: Change<'_>,
        patience: &mut Patience,
    ) -> Result<bool, IoError> {
        let policy = self.when_full();
        // A thread that has begun ends what it does: others filled the device after its look.
        if policy != WhenFull::Fail && done == 0 && matches!(rest, Change::Write(_)) {
            context.may_wait()?;
        }
        #[cfg(any(shuttle, asan))]
        if self.resources.without.old_contents {
            stopped.engine.discard(context.cpu, stopped.page as usize, 1);
        }
        let is_whole = stopped.within.len() == PAGE_SIZE;
        let gone = if policy == WhenFull::Spill && is_whole {
            let mut buffer = [0; PAGE_SIZE];
            rest.put(stopped.of_range.clone(), &mut buffer);
            self.spill(&stopped.engine, context.cpu, stopped.page, &buffer).map(|()| true)
        } else {
            self.make_room(stopped.page, patience).map(|()| false)
        };
        // A page that is not done yet is counted when it is.
        match gone {
            Ok(false) => Ok(false),
            gone => {
                let counted = (Count::Writes, Count::FailedWrites);
                self.counts.add_result(context.cpu, counted, gone.map(drop))?;
                Ok(true)
            }
        }
    }

    /// Changes a part of a page that is on the backing device, or was a moment ago, and counts it.
    #[cold]
    fn fetch_and_modify(
        &self,
        cpu: Cpu,
        stopped: &Stopped<D>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<(), IoError> {
        let mut patience = Patience::default();
        let modified = loop {
            match self.fetch_and_modify_uncounted(cpu, stopped, edit) {
                Err(IoError::NoSpace) => {
                    if let Err(error) = self.make_room(stopped.page, &mut patience) {
                        break Err(error);
                    }
                }
                modified => break modified,
            }
        };
        self.counts.add_result(cpu, (Count::Writes, Count::FailedWrites), modified)
    }

    fn fetch_and_modify_uncounted(
        &self,
        cpu: Cpu,
        stopped: &Stopped<D>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<(), IoError> {
        let (index, fetcher) = (stopped.page as usize, self.fetcher(stopped.engine.clone(), cpu));
        // The reader keeps the block from reuse. If the slot still names the block in the next
        // round, the page has the contents that were read from it.
        let _reading = fetcher.backing()?.reading(cpu);
        let (mut block, mut page, mut known) = ([0; PAGE_SIZE], [0; PAGE_SIZE], None);
        loop {
            // The device may have shrunk meanwhile.
            let modified = self.begin(Context::waiting(cpu), (stopped.page, 1), |request| {
                if !Arc::ptr_eq(request.shared, &stopped.engine) {
                    return Err(IoError::NotReady);
                }
                let there = match known {
                    Some(place) => request.unpack((index, place), &block, &mut page)?,
                    None => false,
                };
                let known = known.filter(|_| there).map(|place| (place, &page));
                request.modify(index, known, edit)
            })??;
            match modified {
                Loaded::Page => return Ok(()),
                Loaded::Backed(place) => {
                    fetcher.fetch_block(index, place, &mut block)?;
                    known = Some(place);
                }
            }
        }
    }
}

impl<D: Design> BlockDevice for Disk<D> {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes(), minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { read_only: false, discard: true, fast_zero: true, flush: false }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let range = operation.range();
        match operation {
            Operation::Read { offset, into } => self.read(context, offset, into),
            Operation::Write { from, .. } => self.change(context, range, Change::Write(from)),
            Operation::WriteZeroes { mode, .. } => self.change(context, range, Change::Zero(mode)),
            Operation::Discard { offset, length } => {
                self.begin(context, ranges::touched_pages(offset, length), |request| {
                    let _ = Pass { request, context }.give_up(offset, length);
                })
            }
            Operation::Flush => Ok(()),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let (first, count) = ranges::touched_pages(offset, length);
        self.begin(Context::waiting(cpu), (first, count), |request| {
            ranges::clip(offset, length, visit, |visit| {
                request.engine.extents(first as usize, count as usize, visit);
            });
        })
    }
}
