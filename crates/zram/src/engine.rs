//! The store of pages: compress, store, commit, free.
//!
//! A stored object is never modified. A store makes a new object and swaps one word; all that can
//! fail comes before that, all that frees comes after.

use alloc::{boxed::Box, sync::Arc};
use core::ops::ControlFlow;

use block::{Extent, ExtentKind, IoError, Visit};
use sync::{CachePadded, Mutex, Pin};
use units::{Lane, PAGE_SIZE, Page};
use zcomp::{Compressor, Corrupt, Streams};
use zsmalloc::{Handle, Pool, StoreError};

use crate::counts::{Count, Counts};
use crate::filled::{fill, same_filled};
use crate::slots::SlotTable;
use crate::{Kind, Slot};

/// A store of pages, whatever its variants. Indices must be below the number of pages.
/// Every method may be called by any number of threads at once; the pin is one of the pins the
/// store's pool was made with.
pub trait PageStore: Send + Sync {
    /// Replaces a page.
    ///
    /// # Errors
    /// `NoSpace` or `NoMemory`; the page is as it was.
    fn store(&self, pin: &Pin<'_>, lane: Lane, index: usize, page: &Page) -> Result<(), IoError>;

    /// Reads a page.
    ///
    /// # Errors
    /// `Corrupt`; what `page` holds then is undefined.
    fn load(&self, pin: &Pin<'_>, lane: Lane, index: usize, page: &mut Page)
    -> Result<(), IoError>;

    /// Replaces a page by what `edit` makes of it, as one step: no other change to the page comes
    /// between. `edit` may be run more than once, each time on the contents of the moment.
    ///
    /// # Errors
    /// As of `store` and `load`; the page is as it was.
    fn modify(
        &self,
        pin: &Pin<'_>,
        lane: Lane,
        index: usize,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<(), IoError>;

    /// Empties `count` pages from `first` on.
    fn discard(&self, pin: &Pin<'_>, lane: Lane, first: usize, count: usize);

    /// Makes a page one of zeroes that is allocated.
    fn store_zeroes(&self, lane: Lane, index: usize);

    /// Tells what `count` pages from `first` on are, in runs of one kind.
    fn extents(&self, first: usize, count: usize, visit: Visit<'_>);

    /// The pool of objects.
    fn pool(&self) -> &Pool;

    /// Bytes of memory the slot table takes by now.
    fn table_bytes(&self) -> u64;

    /// The name of the slot scheme.
    fn scheme(&self) -> &'static str;

    /// How many streams there are.
    fn streams(&self) -> usize;
}

/// What an engine is made of.
pub struct EngineParts<T, S> {
    /// Its slots.
    pub slots: T,
    /// Its objects.
    pub pool: Pool,
    /// The codec of new objects.
    pub compressor: Arc<dyn Compressor>,
    /// That codec's streams.
    pub streams: S,
}

/// The engine under a slot scheme and a policy of streams.
pub struct Engine<T, S> {
    parts: EngineParts<T, S>,
    counts: Arc<Counts>,
    /// Whoever prepares a replacement from present contents holds the turn of the page, so that a
    /// claim has one owner.
    turns: Box<[CachePadded<Mutex<()>>]>,
}

const TURNS: usize = 64;

impl<T: SlotTable + 'static, S: Streams + 'static> Engine<T, S> {
    /// Joins the parts.
    pub(crate) fn with_counts(parts: EngineParts<T, S>, counts: Arc<Counts>) -> Engine<T, S> {
        let turns = (0..TURNS).map(|_| CachePadded::new(Mutex::new(()))).collect();
        Engine { parts, counts, turns }
    }

    /// Makes an object of a page, and the slot that names it. `replacing` tells the slot the page
    /// has; it is asked for after the page was first looked at, so that both are fetched at once.
    #[inline]
    fn make(
        &self,
        pin: &Pin<'_>,
        lane: Lane,
        page: &Page,
        replacing: impl FnOnce() -> Slot,
    ) -> Result<Slot, IoError> {
        let pool = &self.parts.pool;
        let pattern = same_filled(page);
        let replacing = handle_of(replacing());
        if let Some(handle) = replacing {
            pool.prefetch(handle);
        }
        if let Some(pattern) = pattern {
            return match Slot::filled(pattern) {
                Some(slot) => Ok(slot),
                None => pool
                    .store(pin, lane, &pattern.to_ne_bytes(), replacing)
                    .map(Slot::filled_object)
                    .map_err(refused),
            };
        }
        let mut stream = self.parts.streams.get(lane);
        let stream = &mut *stream;
        let compressed = stream.context.compress(page, &mut stream.output[..]);
        match compressed {
            Some(length) if length <= pool.raw_threshold() => pool
                .store(pin, lane, &stream.output[..length], replacing)
                .map(|handle| Slot::compressed(handle, length, 0)),
            _ => pool.store(pin, lane, page, replacing).map(Slot::raw),
        }
        .map_err(refused)
    }

    /// Frees what a displaced slot named.
    #[inline]
    fn release(&self, lane: Lane, slot: Slot) {
        if let Some(handle) = handle_of(slot) {
            self.parts.pool.free(lane, handle);
        }
    }

    /// Makes `new` the slot of a page, whatever it was.
    #[inline]
    fn commit(&self, lane: Lane, index: usize, new: Slot) {
        if let Ok(old) = self.parts.slots.update(index, |_| Some(new)) {
            self.parts.slots.retire(old, |slot| self.release(lane, slot));
            self.account(lane, old, new);
        }
    }

    /// Counts the difference a commit made.
    #[inline]
    fn account(&self, lane: Lane, old: Slot, new: Slot) {
        let add = |which, amount| {
            if amount != 0 {
                self.counts.add(lane, which, amount);
            }
        };
        let (was, is) = (Shape::of(old), Shape::of(new));
        add(Count::ComprBytes, is.bytes - was.bytes);
        add(Count::PagesStored, is.stored - was.stored);
        add(Count::SamePages, is.same - was.same);
        add(Count::ZeroPages, is.zero - was.zero);
        add(Count::HugePages, is.huge - was.huge);
        add(Count::HugePagesSince, is.huge);
    }

    /// Fills `page` with what a slot stands for. The slot's object must be live.
    #[inline]
    fn expand(
        &self,
        pin: &Pin<'_>,
        lane: Lane,
        slot: Slot,
        page: &mut Page,
    ) -> Result<(), IoError> {
        let pool = &self.parts.pool;
        match slot.kind() {
            Kind::Empty => page.fill(0),
            Kind::Filled(pattern) => fill(page, pattern),
            Kind::FilledObject(handle) => {
                let mut pattern = [0; 8];
                pool.read(pin, handle, 8, |object| {
                    object.copy_to(&mut pattern);
                });
                fill(page, u64::from_ne_bytes(pattern));
            }
            Kind::Raw(handle) => pool.read(pin, handle, PAGE_SIZE, |object| {
                object.copy_to(page);
            }),
            Kind::Compressed { handle, length, .. } => pool
                .read(pin, handle, length, |object| {
                    object.joined(|bytes| self.decompress(lane, bytes, page))
                })
                .map_err(|Corrupt| IoError::Corrupt)?,
        }
        Ok(())
    }

    #[inline]
    fn decompress(&self, lane: Lane, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        match self.parts.compressor.decompress_bare(bytes, page) {
            Some(result) => result,
            None => self.parts.streams.get(lane).context.decompress(bytes, page),
        }
    }

    /// Claims the slot of a page and reads its contents; `None` if it was displaced meanwhile.
    fn claim(
        &self,
        pin: &Pin<'_>,
        lane: Lane,
        index: usize,
        page: &mut Page,
    ) -> Option<(Slot, Result<(), IoError>)> {
        let slots = &self.parts.slots;
        let held = match slots.update(index, |slot| Some(slot.claimed())) {
            Ok(was) | Err(was) => was.claimed(),
        };
        let read = slots.load(index, |now| {
            (now == held).then(|| self.expand(pin, lane, now.unclaimed(), page))
        });
        read.map(|result| (held, result))
    }
}

/// What a slot adds to the gauges.
struct Shape {
    bytes: i64,
    stored: i64,
    same: i64,
    zero: i64,
    huge: i64,
}

impl Shape {
    #[inline]
    fn of(slot: Slot) -> Shape {
        let (bytes, same, zero, huge) = match slot.kind() {
            Kind::Empty => return Shape { bytes: 0, stored: 0, same: 0, zero: 0, huge: 0 },
            Kind::Filled(pattern) => (0, 1, i64::from(pattern == 0), 0),
            Kind::FilledObject(_) => (8, 1, 0, 0),
            Kind::Compressed { length, .. } => (length as i64, 0, 0, 0),
            Kind::Raw(_) => (PAGE_SIZE as i64, 0, 0, 1),
        };
        Shape { bytes, stored: 1, same, zero, huge }
    }
}

#[inline]
fn handle_of(slot: Slot) -> Option<Handle> {
    match slot.kind() {
        Kind::Empty | Kind::Filled(_) => None,
        Kind::FilledObject(handle) | Kind::Raw(handle) | Kind::Compressed { handle, .. } => {
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
        Kind::Filled(0) => ExtentKind::Zero,
        _ => ExtentKind::Data,
    }
}

impl<T: SlotTable + 'static, S: Streams + 'static> PageStore for Engine<T, S> {
    fn store(&self, pin: &Pin<'_>, lane: Lane, index: usize, page: &Page) -> Result<(), IoError> {
        self.parts.slots.prefetch(index);
        let new = self.make(pin, lane, page, || self.parts.slots.peek(index))?;
        self.commit(lane, index, new);
        Ok(())
    }

    fn load(
        &self,
        pin: &Pin<'_>,
        lane: Lane,
        index: usize,
        page: &mut Page,
    ) -> Result<(), IoError> {
        self.parts.slots.load(index, |slot| self.expand(pin, lane, slot, page))
    }

    fn modify(
        &self,
        pin: &Pin<'_>,
        lane: Lane,
        index: usize,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<(), IoError> {
        let _turn = self.turns[index % TURNS].lock();
        let mut page = [0; PAGE_SIZE];
        loop {
            let Some((held, read)) = self.claim(pin, lane, index, &mut page) else { continue };
            let made = read.and_then(|()| {
                edit(&mut page);
                self.make(pin, lane, &page, || held)
            });
            let new = made.unwrap_or(held.unclaimed());
            let swapped = self.parts.slots.update(index, |now| (now == held).then_some(new));
            match (made, swapped) {
                (Err(error), _) => return Err(error),
                (Ok(new), Ok(old)) => {
                    self.parts.slots.retire(old, |slot| self.release(lane, slot));
                    self.account(lane, old, new);
                    return Ok(());
                }
                // Somebody stored meanwhile: what was made is of contents that are gone.
                (Ok(new), Err(_)) => self.release(lane, new),
            }
        }
    }

    fn discard(&self, _pin: &Pin<'_>, lane: Lane, first: usize, count: usize) {
        let end = first + count;
        let mut index = self.parts.slots.next_touched(first);
        while index < end {
            if self.parts.slots.peek(index) != Slot::EMPTY {
                self.commit(lane, index, Slot::EMPTY);
            }
            index = self.parts.slots.next_touched(index + 1);
        }
    }

    fn store_zeroes(&self, lane: Lane, index: usize) {
        if let Some(zeroes) = Slot::filled(0) {
            self.commit(lane, index, zeroes);
        }
    }

    fn extents(&self, first: usize, count: usize, visit: Visit<'_>) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let start = at;
            // What was never touched is one hole, found without looking at its slots.
            at = self.parts.slots.next_touched(start).min(end);
            let kind = if at > start {
                ExtentKind::Hole
            } else {
                let kind = extent_kind(self.parts.slots.peek(start));
                at += 1;
                while at < end && extent_kind(self.parts.slots.peek(at)) == kind {
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

    fn pool(&self) -> &Pool {
        &self.parts.pool
    }

    fn table_bytes(&self) -> u64 {
        self.parts.slots.resident_bytes()
    }

    fn scheme(&self) -> &'static str {
        T::NAME
    }

    fn streams(&self) -> usize {
        self.parts.streams.count()
    }
}
