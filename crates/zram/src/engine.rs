//! The store of pages: compress, store, commit, free.
//!
//! A stored object is never modified. A store makes a new object and swaps one word; all that can
//! fail comes before that, all that frees comes after.

mod post_processing;

use alloc::{boxed::Box, format, sync::Arc};
use core::ops::{ControlFlow, Range};

use block::{Extent, ExtentKind, IoError, Visit};
use control::{Errno, Fault};
use sync::{CachePadded, Mutex, Reader};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{Bank, Chosen, Corrupt, MakeStreams, NotInstalled, OneStream, Streams};
use zcomp::{fill, same_filled};
use zsmalloc::{Handle, Pool, StoreError};

use crate::access::{Accesses, TIME_BYTES};
use crate::blocks::Backing;
use crate::counts::{Count, Counts};
use crate::slot::Backed;
use crate::slots::SlotTable;
use crate::store::{Export, Loaded, PageStore, Recompressed, Recompression};
use crate::{Kind, Slot};

/// What an engine is made of.
pub struct EngineParts<T, S> {
    /// Its slots.
    pub slots: T,
    /// Its objects.
    pub pool: Pool,
    /// How streams of a codec are made.
    pub make_streams: MakeStreams<S>,
}

/// What a device gives its engine.
pub(crate) struct Shared {
    pub(crate) counts: Arc<Counts>,
    pub(crate) accesses: Option<Accesses>,
    pub(crate) backing: Option<Arc<Backing>>,
    /// Streams of each codec that may be used at once.
    pub(crate) streams: usize,
}

/// The engine under a slot scheme and a policy of streams.
pub struct Engine<T, S> {
    slots: T,
    pool: Pool,
    codecs: Bank<S>,
    counts: Arc<Counts>,
    accesses: Option<Accesses>,
    backing: Option<Arc<Backing>>,
    /// Whoever prepares a replacement from present contents holds the turn of the page, so that a
    /// claim has one owner.
    turns: Box<[CachePadded<Mutex<()>>]>,
}

const TURNS: usize = 64;

/// The bytes of a page that are prefetched before it is stored: first these, then `SEQUEL` once the
/// first of them are in the cache. Each time it is as many misses as a processor keeps in flight.
/// After that its own prefetcher follows.
const BEGINNING: Range<usize> = 0..10 * 64;
const SEQUEL: Range<usize> = BEGINNING.end..24 * 64;

/// Who discards so many pages at once wants the memory back, and can wait a moment for readers.
const MANY: usize = 64;

impl<T: SlotTable + 'static, S: Streams + 'static> Engine<T, S> {
    /// Joins the parts.
    pub(crate) fn new(
        parts: EngineParts<T, S>,
        shared: Shared,
        readers: Arc<sync::ReaderEpochs>,
    ) -> Engine<T, S> {
        let turns = (0..TURNS).map(|_| CachePadded::new(Mutex::new(()))).collect();
        let EngineParts { slots, pool, make_streams } = parts;
        let Shared { counts, accesses, backing, streams } = shared;
        let codecs = Bank::new(make_streams, streams, readers);
        Engine { slots, pool, codecs, counts, accesses, backing, turns }
    }

    /// Makes an object of a page, and the slot that names it. `replacing` tells the slot the page
    /// has; it is asked for after the page was first looked at, so that both are fetched at once.
    #[inline]
    fn make(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        page: &Page,
        replacing: impl FnOnce() -> Slot,
    ) -> Result<Slot, IoError> {
        let pattern = same_filled(page);
        let replacing = handle_of(replacing());
        if let Some(handle) = replacing {
            self.pool.prefetch(handle);
        }
        if let Some(slot) = pattern.and_then(Slot::same_filled) {
            return Ok(slot);
        }
        self.with_space(cpu, || match pattern {
            Some(pattern) => self
                .pool
                .store(reader, cpu, &pattern.to_ne_bytes(), replacing)
                .map(Slot::same_filled_object)
                .map_err(refused),
            None => self.pack(reader, cpu, page, replacing),
        })
    }

    /// Compresses a page into an object.
    #[inline]
    fn pack(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        page: &Page,
        replacing: Option<Handle>,
    ) -> Result<Slot, IoError> {
        let pool = &self.pool;
        let (number, codec) = self.codecs.current(reader, 0).ok_or(IoError::NotReady)?;
        sync::prefetch_bytes(page.as_ptr(), SEQUEL);
        let mut stream = codec.streams.get(cpu);
        let stream = &mut *stream;
        let compressed = stream.context.compress(page, &mut stream.output[..]);
        match compressed {
            Some(length) if length <= pool.raw_threshold() => pool
                .store(reader, cpu, &stream.output[..length], replacing)
                .map(|handle| Slot::compressed(handle, length, number)),
            _ => pool.store(reader, cpu, page, replacing).map(Slot::huge),
        }
        .map_err(refused)
    }

    /// Makes an object. When there is no space for it, but objects wait to be freed, they are freed
    /// and it is made again. By then `make` must have let go of its stream, for a reader who is
    /// waited for may want it.
    #[inline]
    fn with_space<R>(
        &self,
        cpu: Cpu,
        mut make: impl FnMut() -> Result<R, IoError>,
    ) -> Result<R, IoError> {
        match make() {
            Err(IoError::NoSpace | IoError::NoMemory) if self.quiesce(cpu) => make(),
            made => made,
        }
    }

    /// Frees what waits to be freed; tells whether there was anything.
    #[cold]
    fn quiesce(&self, cpu: Cpu) -> bool {
        self.slots.quiesce(|slot| self.release(cpu, slot))
    }

    /// Frees what a displaced slot named.
    #[inline]
    fn release(&self, cpu: Cpu, slot: Slot) {
        match slot.kind() {
            Kind::WrittenBack(place) => self.release_block(place),
            _ => {
                if let Some(handle) = handle_of(slot) {
                    self.pool.free(cpu, handle);
                }
            }
        }
    }

    #[cold]
    fn release_block(&self, place: Backed) {
        if let Some(backing) = &self.backing {
            backing.retire(place.block);
        }
    }

    /// Makes `new` the slot of a page, whatever it was.
    #[inline]
    fn commit(&self, cpu: Cpu, index: usize, new: Slot) {
        if let Ok(old) = self.slots.update(index, |_| Some(new)) {
            self.slots.retire(cpu, old, |slot| self.release(cpu, slot));
            self.account(cpu, old, new);
        }
    }

    /// Counts the difference a commit made.
    #[inline]
    fn account(&self, cpu: Cpu, old: Slot, new: Slot) {
        let add = |which, amount| {
            if amount != 0 {
                self.counts.add(cpu, which, amount);
            }
        };
        let (was, is) = (Shape::of(old), Shape::of(new));
        add(Count::ComprBytes, is.bytes - was.bytes);
        add(Count::PagesStored, is.stored - was.stored);
        add(Count::SamePages, is.same - was.same);
        add(Count::ZeroPages, is.zero - was.zero);
        add(Count::HugePages, is.huge - was.huge);
        add(Count::HugePagesSince, is.huge);
        add(Count::WrittenBackPages, is.backed - was.backed);
    }

    /// Fills `page` with what a slot stands for, or tells where that is. The slot's object must be
    /// live.
    #[inline]
    fn expand(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        slot: Slot,
        page: &mut Page,
    ) -> Result<Loaded, IoError> {
        let pool = &self.pool;
        match slot.kind() {
            Kind::Empty => page.fill(0),
            Kind::SameFilled(pattern) => fill(page, pattern),
            Kind::SameFilledObject(handle) => {
                let mut pattern = [0; 8];
                pool.read(reader, handle, 8, |object| {
                    object.copy_to(&mut pattern);
                });
                fill(page, u64::from_ne_bytes(pattern));
            }
            Kind::Huge(handle) => pool.read(reader, handle, PAGE_SIZE, |object| {
                object.copy_to(page);
            }),
            Kind::Compressed { handle, length, codec } => pool
                .read(reader, handle, length, |object| {
                    object.joined(|bytes| self.codecs.decompress(reader, cpu, codec, bytes, page))
                })
                .map_err(|Corrupt| IoError::Corrupt)?,
            Kind::WrittenBack(place) => return Ok(Loaded::Backed(place)),
        }
        Ok(Loaded::Page)
    }

    /// Claims the slot of a page and reads its contents; `None` if it was displaced meanwhile.
    fn claim(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &mut Page,
    ) -> Option<(Slot, Result<Loaded, IoError>)> {
        let slots = &self.slots;
        let held = match slots.update(index, |slot| Some(slot.claimed())) {
            Ok(was) | Err(was) => was.claimed(),
        };
        let read = slots.load(cpu, index, |now| {
            (now == held).then(|| self.expand(reader, cpu, now.unclaimed(), page))
        });
        read.map(|result| (held, result))
    }

    /// Gives a claim back.
    fn unclaim(&self, index: usize, held: Slot) {
        // Displaced meanwhile: then the claim is gone already.
        let _ = self.slots.update(index, |now| (now == held).then_some(now.unclaimed()));
    }

    /// The page is used now.
    #[inline]
    fn note(&self, index: usize) {
        if let Some(accesses) = &self.accesses {
            accesses.note(index);
        }
    }
}

/// What a slot adds to the gauges.
#[derive(Default)]
struct Shape {
    bytes: i64,
    stored: i64,
    same: i64,
    zero: i64,
    huge: i64,
    backed: i64,
}

impl Shape {
    #[inline]
    fn of(slot: Slot) -> Shape {
        let (bytes, same, zero, huge, backed) = match slot.kind() {
            Kind::Empty => return Shape::default(),
            Kind::SameFilled(pattern) => (0, 1, i64::from(pattern == 0), 0, 0),
            Kind::SameFilledObject(_) => (8, 1, 0, 0, 0),
            Kind::Compressed { length, .. } => (length as i64, 0, 0, 0, 0),
            Kind::Huge(_) => (PAGE_SIZE as i64, 0, 0, 1, 0),
            Kind::WrittenBack(_) => (0, 0, 0, 0, 1),
        };
        Shape { bytes, stored: 1, same, zero, huge, backed }
    }
}

#[inline]
fn handle_of(slot: Slot) -> Option<Handle> {
    match slot.kind() {
        Kind::Empty | Kind::SameFilled(_) | Kind::WrittenBack(_) => None,
        Kind::SameFilledObject(handle) | Kind::Huge(handle) | Kind::Compressed { handle, .. } => {
            Some(handle)
        }
    }
}

fn refused(error: StoreError) -> IoError {
    match error {
        StoreError::OverLimit => IoError::NoSpace,
        StoreError::NoMemory => IoError::NoMemory,
    }
}

fn extent_kind(slot: Slot) -> ExtentKind {
    match slot.kind() {
        Kind::Empty => ExtentKind::Hole,
        Kind::SameFilled(0) => ExtentKind::Zero,
        _ => ExtentKind::Data,
    }
}

impl<T: SlotTable + 'static, S: Streams + 'static> PageStore for Engine<T, S> {
    fn store(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &Page,
    ) -> Result<(), IoError> {
        self.slots.prefetch(index);
        sync::prefetch_bytes(page.as_ptr(), BEGINNING);
        let new = self.make(reader, cpu, page, || self.slots.peek(index))?;
        // Before it can be seen: a page without a time is as old as can be.
        self.note(index);
        self.commit(cpu, index, new);
        Ok(())
    }

    fn load(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &mut Page,
    ) -> Result<Loaded, IoError> {
        let (loaded, slot) =
            self.slots.load(cpu, index, |slot| (self.expand(reader, cpu, slot, page), slot));
        if slot.notices_readers() {
            self.alter(index, &mut |now| now.notices_readers().then(|| now.touched()));
        }
        // Reading what was never written must not cost memory.
        if !slot.is_empty() {
            self.note(index);
        }
        loaded
    }

    fn unpack(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        place: Backed,
        bytes: &Page,
        page: &mut Page,
    ) -> Result<(), IoError> {
        match usize::from(place.length) {
            PAGE_SIZE => page.copy_from_slice(bytes),
            length => self
                .codecs
                .decompress(reader, cpu, place.codec, &bytes[..length], page)
                .map_err(|Corrupt| IoError::Corrupt)?,
        }
        Ok(())
    }

    fn modify(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        known: Option<(Backed, &Page)>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<Loaded, IoError> {
        let _turn = self.turns[index % TURNS].lock();
        let mut page = [0; PAGE_SIZE];
        loop {
            let Some((held, read)) = self.claim(reader, cpu, index, &mut page) else { continue };
            if let Ok(Loaded::Backed(place)) = read {
                match known {
                    Some((known, contents)) if known == place => page = *contents,
                    _ => {
                        self.unclaim(index, held);
                        return Ok(Loaded::Backed(place));
                    }
                }
            }
            let made = read.and_then(|_| {
                edit(&mut page);
                self.make(reader, cpu, &page, || held)
            });
            let new = made.unwrap_or(held.unclaimed());
            let swapped = self.slots.update(index, |now| (now == held).then_some(new));
            match (made, swapped) {
                (Err(error), _) => return Err(error),
                (Ok(new), Ok(old)) => {
                    self.slots.retire(cpu, old, |slot| self.release(cpu, slot));
                    self.account(cpu, old, new);
                    self.note(index);
                    return Ok(Loaded::Page);
                }
                // Somebody stored meanwhile: what was made is of contents that are gone.
                (Ok(new), Err(_)) => self.release(cpu, new),
            }
        }
    }

    fn discard(&self, _reader: &Reader<'_>, cpu: Cpu, first: usize, count: usize) {
        let end = first + count;
        let mut index = self.slots.next_touched(first, end);
        while index < end {
            if self.slots.peek(index) != Slot::EMPTY {
                self.commit(cpu, index, Slot::EMPTY);
            }
            index = self.slots.next_touched(index + 1, end);
        }
        if count >= MANY {
            self.quiesce(cpu);
        }
    }

    fn store_zeroes(&self, cpu: Cpu, index: usize) {
        if let Some(zeroes) = Slot::same_filled(0) {
            self.note(index);
            self.commit(cpu, index, zeroes);
        }
    }

    fn extents(&self, first: usize, count: usize, visit: Visit<'_>) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let start = at;
            // What was never touched is one hole, found without looking at its slots.
            at = self.slots.next_touched(start, end);
            let kind = if at > start {
                ExtentKind::Hole
            } else {
                let kind = extent_kind(self.slots.peek(start));
                at += 1;
                while at < end && extent_kind(self.slots.peek(at)) == kind {
                    at += 1;
                }
                kind
            };
            let length = ((at - start) * PAGE_SIZE) as u64;
            if let ControlFlow::Break(()) = visit(Extent { length, kind }) {
                return;
            }
        }
    }

    fn peek(&self, index: usize) -> Slot {
        self.slots.peek(index)
    }

    fn next_touched(&self, from: usize, end: usize) -> usize {
        self.slots.next_touched(from, end)
    }

    fn alter(&self, index: usize, next: &mut dyn FnMut(Slot) -> Option<Slot>) -> bool {
        self.slots.update(index, |now| next(now).filter(|new| new.same_contents(now))).is_ok()
    }

    fn export(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        to: Export<'_>,
    ) -> Result<Option<Backed>, IoError> {
        self.export_marked(reader, cpu, index, to)
    }

    fn finish_writeback(
        &self,
        _reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        place: Backed,
    ) -> bool {
        self.finish_marked(cpu, index, place)
    }

    fn recompress(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        how: Recompression,
    ) -> Result<Recompressed, IoError> {
        self.compress_again(reader, cpu, index, how)
    }

    fn install(&self, priority: u8, chosen: Chosen, pages: usize) -> Result<(), Fault> {
        self.codecs.install(priority, chosen, || self.codecs_in_use(pages)).map_err(|error| {
            let errno = match error {
                NotInstalled::Codec(_) => Errno::ENOMEM,
                NotInstalled::Full => Errno::EBUSY,
            };
            Fault::new(errno, format!("{error}"))
        })
    }

    fn priority_of(&self, reader: &Reader<'_>, codec: u8) -> u8 {
        self.codecs.get(reader, codec).map_or(0, |codec| codec.priority)
    }

    fn limit_streams(&self, reader: &Reader<'_>, count: usize) -> Result<(), OneStream> {
        self.codecs.limit(reader, count)
    }

    fn last_access(&self, index: usize) -> Option<u32> {
        self.accesses.as_ref().map(|accesses| accesses.last(index))
    }

    fn backing(&self) -> Option<&Arc<Backing>> {
        self.backing.as_ref()
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn give_back(&self, cpu: Cpu) {
        self.quiesce(cpu);
    }

    fn capacity(&self) -> usize {
        self.slots.count()
    }

    fn table_bytes(&self, pages: usize) -> u64 {
        let times = if self.accesses.is_some() { TIME_BYTES } else { 0 };
        self.slots.touched(pages) * (T::BYTES as u64 + times)
    }

    fn scheme(&self) -> &'static str {
        T::NAME
    }

    fn streams(&self, reader: &Reader<'_>) -> usize {
        self.codecs.current(reader, 0).map_or(0, |(_, codec)| codec.streams.count())
    }
}
