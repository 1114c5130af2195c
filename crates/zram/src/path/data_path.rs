//! Requests to the device, for pages and byte ranges.
//!
//! A request is a reader of the device while it uses the engine. While it waits for the backing
//! device it is none, but shares the engine: a shrink, a change of codecs and a reset wait for
//! readers, and must not wait for a slow backing device. Afterwards it enters again.

use alloc::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit, Wait};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};
use zsmalloc::Room;

use crate::counts::Count;
use crate::disk::{Disk, Place, WhenFull};
use crate::engine::{Engine, Fetched, Loaded};
use crate::path::ranges::{self, Change, Pages, Pass, Stopped, Why};
use crate::path::read_backing::Fetcher;
use crate::path::request::Request;

const P: u64 = PAGE_SIZE as u64;

impl Disk {
    /// Stores page `index` on this thread. `cpu` is the CPU it runs on; any number is allowed.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `NoSpace`, `NoMemory`; the page is unchanged.
    #[inline]
    pub fn store_page(&self, cpu: Cpu, index: u64, page: &Page) -> Result<(), IoError> {
        let context = Context::waiting(cpu);
        let stored =
            self.begin(context, Pages::one(index), |request| match request.store(index, page) {
                Err(IoError::NoSpace) => None,
                stored => Some(request.count_write(stored)),
            })?;
        match stored {
            Some(stored) => stored,
            // Another try, which makes room if it has to and may.
            None => self.change(context, index * P, P, Change::Write(page)),
        }
    }

    /// Loads page `index` on this thread. A page that was never stored reads as zeroes.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `Corrupt`; the contents of `page` are undefined then.
    #[inline]
    pub fn load_page(&self, cpu: Cpu, index: u64, page: &mut Page) -> Result<(), IoError> {
        let context = Context::waiting(cpu);
        let backed =
            self.begin(context, Pages::one(index), |request| match request.load(index, page) {
                Ok(Loaded::Backed(_)) => Ok(Some((request.shared.clone(), request.base))),
                loaded => request.count_read(loaded.map(|_| ())).map(|()| None),
            })??;
        match backed {
            None => Ok(()),
            Some((engine, base)) => self.fetcher(engine, base, cpu).fetch(index, page),
        }
    }

    /// Empties `count` pages from `first` on. They read as zeroes afterwards.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`.
    pub fn discard_pages(&self, cpu: Cpu, first: u64, count: u64) -> Result<(), IoError> {
        self.begin(Context::waiting(cpu), Pages { first, count }, |request| {
            request.engine.discard(request.by(), request.slot(first), count as usize);
            self.counts.add(cpu, Count::NotifyFree, count as i64);
        })
    }

    /// Calls `f`, as a reader, with a request for pages that lie within the device. Every operation
    /// begins here. The calling thread is no reader: it may wait for a change of the size.
    #[inline]
    pub(crate) fn begin<R>(
        &self,
        context: Context,
        pages: Pages,
        f: impl FnOnce(Request<'_>) -> R,
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

    /// Calls `f` with a request for a page on a thread that may wait, if the device still has this
    /// engine.
    ///
    /// # Errors
    /// `NotReady` if it has not: it was reset or resized meanwhile; those of `f`.
    pub(crate) fn begin_with<R>(
        &self,
        engine: &Arc<Engine>,
        cpu: Cpu,
        index: u64,
        f: impl FnOnce(Request<'_>) -> Result<R, IoError>,
    ) -> Result<R, IoError> {
        self.begin(Context::waiting(cpu), Pages::one(index), |request| {
            match Arc::ptr_eq(request.shared, engine) {
                true => f(request),
                false => Err(IoError::NotReady),
            }
        })?
    }

    /// A request for these pages; `None` if they pass the end of the device.
    #[inline]
    fn request<'a>(
        &'a self,
        reader: &'a Reader<'a>,
        cpu: Cpu,
        pages: Pages,
    ) -> Result<Option<Request<'a>>, IoError> {
        let is_within = self.holds(pages);
        let Place { engine, base } = self.place.get(reader).ok_or(IoError::NotReady)?;
        let (base, counts, room) = (*base, &self.counts, Room::Open);
        Ok(is_within.then_some(Request { engine, base, shared: engine, counts, reader, cpu, room }))
    }

    #[inline]
    fn holds(&self, Pages { first, count }: Pages) -> bool {
        let pages = self.bytes() / P;
        first.checked_add(count).is_some_and(|end| end <= pages)
    }

    /// Fails if the pages pass the end of the device. A device that shrinks shows its new size
    /// before it is certain to get it, and holds the settings meanwhile. So the size counts that is
    /// there after that. The calling thread is no reader.
    #[cold]
    fn look_again(&self, context: Context, pages: Pages) -> Result<(), IoError> {
        let settings = match context.wait {
            Wait::Yes => Some(self.family().settings.lock()),
            Wait::No => self.family().settings.try_lock(),
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

    pub(crate) fn fetcher(&self, engine: Arc<Engine>, base: usize, cpu: Cpu) -> Fetcher<'_> {
        Fetcher { engine, base, readers: &self.readers, counts: &self.counts, cpu }
    }

    #[inline]
    fn read(&self, context: Context, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let pages = ranges::touched_pages(offset, into.len() as u64);
        let rest = self.begin(context, pages, |request| {
            let (engine, base) = (request.shared, request.base);
            let read = Pass { request, context }.read(offset, into);
            read.map(|stopped| stopped.map(|done| (done, engine.clone(), base)))
        })??;
        match rest {
            None => Ok(()),
            Some((done, engine, base)) => self
                .fetcher(engine, base, context.cpu)
                .read(offset + done as u64, &mut into[done..]),
        }
    }

    #[inline]
    fn change(
        &self,
        context: Context,
        offset: u64,
        length: u64,
        change: Change<'_>,
    ) -> Result<(), IoError> {
        let mut done = 0;
        loop {
            let (offset, length) = (offset + done, length - done);
            let pages = ranges::touched_pages(offset, length);
            let rest = change.after(done as usize);
            let stopped = self.begin(context, pages, |request| {
                if done == 0 {
                    self.look_for_room(request.engine, context, pages.count)?;
                }
                Pass { request, context }.change(offset, length, rest, done > 0)
            })??;
            let Some(stopped) = stopped else { return Ok(()) };
            let has_begun = done > 0 || stopped.of_range.start > 0;
            self.finish_part(context, &stopped, rest, has_begun)?;
            done += stopped.of_range.end as u64;
            if stopped.of_range.end as u64 == length {
                return Ok(());
            }
        }
    }

    /// Changes the part of a page at which a change stopped, and counts it. The calling thread is
    /// no reader.
    ///
    /// # Errors
    /// `NoSpace` if there will be no room; those of [`Disk::spill`]. They are counted. `WouldBlock`
    /// if the thread must not wait and nothing has changed.
    #[cold]
    fn finish_part(
        &self,
        context: Context,
        stopped: &Stopped,
        rest: Change<'_>,
        has_begun: bool,
    ) -> Result<(), IoError> {
        let (cpu, policy) = (context.cpu, self.when_full());
        let is_refused = stopped.why == Why::Full && policy == WhenFull::Fail;
        // A thread that has begun ends what it does: others were busy after its look.
        if !is_refused && !has_begun {
            context.may_wait()?;
        }
        let change = || {
            if is_refused {
                return Err(IoError::NoSpace);
            }
            let mut edit = |page: &mut Page| {
                rest.put(stopped.of_range.clone(), &mut page[stopped.within.clone()]);
            };
            match stopped.within.len() {
                PAGE_SIZE => {
                    let mut page = [0; PAGE_SIZE];
                    edit(&mut page);
                    self.replace(cpu, stopped, policy, &page)
                }
                _ => self.in_room(&mut |room| self.fetch_and_modify(cpu, room, stopped, &mut edit)),
            }
        };
        let changed = match change() {
            // No write fails because of a snapshot.
            Err(IoError::NoSpace) if stopped.engine.break_cut(cpu) => change(),
            changed => changed,
        };
        self.counts.add_write(cpu, changed)
    }

    /// Replaces a whole page for which there was no room.
    fn replace(
        &self,
        cpu: Cpu,
        stopped: &Stopped,
        policy: WhenFull,
        page: &Page,
    ) -> Result<(), IoError> {
        if policy == WhenFull::Spill {
            match self.spill(stopped, cpu, page) {
                // Nor is there on the backing device.
                Err(IoError::NoSpace) => {}
                spilt => return spilt,
            }
        }
        self.in_room(&mut |room| {
            self.begin(Context::waiting(cpu), Pages::one(stopped.page), |request| {
                Request { room, ..request }.store(stopped.page, page)
            })?
        })
    }

    /// Does what needs room: makes it if there is none.
    ///
    /// # Errors
    /// `NoSpace` if there will be none; those of `store`.
    fn in_room(&self, store: &mut dyn FnMut(Room) -> Result<(), IoError>) -> Result<(), IoError> {
        match store(Room::Open) {
            Err(IoError::NoSpace) if self.when_full() != WhenFull::Fail => self.make_room(store),
            stored => stored,
        }
    }

    /// Changes a part of a page that may be on the backing device.
    fn fetch_and_modify(
        &self,
        cpu: Cpu,
        room: Room,
        stopped: &Stopped,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<(), IoError> {
        let Stopped { engine, base, page: index, .. } = stopped;
        let (index, fetcher) = (*index, self.fetcher(engine.clone(), *base, cpu));
        // The reader keeps the block from reuse. If the slot still names the block in the next
        // round, the page has the contents that were read from it.
        let _reading = stopped.engine.backing().map(|backing| backing.reading(cpu));
        let (mut page, mut known) = ([0; PAGE_SIZE], None);
        loop {
            let modified = self.begin_with(&stopped.engine, cpu, stopped.page, |request| {
                let known = known.map(|place| Fetched { place, page: &page });
                Request { room, ..request }.modify(index, known, edit)
            })?;
            match modified {
                Loaded::Page => return Ok(()),
                Loaded::Backed(place) => {
                    known = fetcher.fetch_at(index, place, &mut page)?.then_some(place);
                }
            }
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes(), minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { discard: true, fast_zero: true, ..Abilities::default() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        match operation {
            Operation::Read { offset, into } => self.read(context, offset, into),
            Operation::Write { offset, from } => {
                self.change(context, offset, from.len() as u64, Change::Write(from))
            }
            Operation::WriteZeroes { offset, length, mode } => {
                self.change(context, offset, length, Change::Zero(mode))
            }
            Operation::Discard { offset, length } => {
                self.begin(context, ranges::touched_pages(offset, length), |request| {
                    Pass { request, context }.give_up(offset, length);
                })
            }
            Operation::Flush => Ok(()),
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let pages @ Pages { first, count } = ranges::touched_pages(offset, length);
        self.begin(Context::waiting(cpu), pages, |request| {
            ranges::clip(offset, length, visit, |visit| {
                request.engine.extents(request.slot(first), count as usize, visit);
            });
        })
    }
}
