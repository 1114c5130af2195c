//! The store of pages: it compresses, stores, commits and frees them.
//!
//! A stored object is never modified. A store makes a new object and swaps one word. Every step
//! that can fail comes before the swap; every free comes after it.

mod access;
mod cut;
mod kept_windows;
mod page_ops;
mod slot;
mod tables;
mod windows;

pub use access::Clock;
pub(crate) use cloning::ToFetch;
pub(crate) use cut::Cut;
pub(crate) use kept_windows::LeftWindow;
pub use page_ops::Select;
pub(crate) use page_ops::{Ahead, By, Fetched, Loaded, Maker, Recompression};
pub(crate) use slot::SLOT_BITS;
pub use slot::{Kind, Part, Slot};
pub(crate) use tables::Table;

mod cloning;
mod compaction;
mod contents;
mod cutting;
mod filling;
mod gauges;
mod marks;
mod packing;
mod post_processing;
mod recovery;
mod sharing;

pub(crate) use self::packing::{Packable, Packed};
pub(crate) use self::sharing::Alike;

use alloc::{boxed::Box, format, sync::Arc};
use core::ops::{ControlFlow, Range};

use block::{Extent, ExtentKind, IoError, Visit};
use control::{ControlError, Errno};
use objects::{Object, Objects, SharedObjects};
use pagealloc::NoMemory;
use pagelog::{Backed, Backing, Coded};
use sync::{CachePadded, Mutex, MutexGuard, Published, Reader, ReaderEpochs};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{Chosen, OneStream, prefetch_beginning};
use zsmalloc::{Limits, Pool};

use crate::counts::Counts;
use crate::record::Record;
use crate::resources::Resources;
use crate::slots::Slots;
use access::Accesses;
use windows::Windows;

/// The options of an engine.
pub(crate) struct EngineOptions<'a> {
    /// Pages it must hold.
    pub(crate) pages: usize,
    /// Pages it should reserve addresses for, so that the device can grow.
    pub(crate) room: usize,
    /// The codec of each priority.
    pub(crate) codecs: &'a [Option<Chosen>],
    /// The limits of its pool.
    pub(crate) limits: Limits,
    /// Streams of each codec that may be used at once, at first.
    pub(crate) streams: u32,
    /// The readers of the device.
    pub(crate) readers: Arc<ReaderEpochs>,
    /// The clock that dates the pages; `None` if the times of last use are not kept.
    pub(crate) clock: Option<Arc<Clock>>,
    /// The counters of the device.
    pub(crate) counts: Arc<Counts>,
    /// The backing device.
    pub(crate) backing: Option<Arc<dyn Backing>>,
    /// The name of its tables, if they outlive the process.
    pub(crate) name: &'a str,
    /// The record of the device, if it outlives the process.
    pub(crate) record: Option<Record>,
}

/// The store of pages. Indices must be below its capacity. Any number of threads may call every
/// method at once. A reader passed in must belong to the `readers` of its options.
pub(crate) struct Engine {
    slots: Slots,
    shared: SharedObjects,
    /// Held by a thread that moves shared objects, or makes an object a shared one.
    moving: Mutex<()>,
    objects: Objects,
    readers: Arc<ReaderEpochs>,
    counts: Arc<Counts>,
    /// The parts of the slots that clones have.
    windows: Windows,
    accesses: Option<Accesses>,
    backing: Option<Arc<dyn Backing>>,
    record: Option<Record>,
    /// What pages were at the instant of a snapshot that is under way.
    cut: Published<Cut>,
    /// A thread that prepares a replacement from the present contents holds the lock of the page:
    /// a claim has one owner.
    page_locks: Box<[CachePadded<Mutex<()>>]>,
}

const PAGE_LOCKS: usize = 64;

/// What is in the place of a page that was claimed.
#[derive(Clone, Copy)]
enum Contents {
    /// Other contents.
    Other,
    /// The same in another form.
    Same,
}

/// A caller that discards at least this many pages at once wants the memory back, and can wait a
/// moment for readers.
const MANY: usize = 64;

impl Engine {
    /// An empty store of pages.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    pub(crate) fn new(
        resources: &Resources,
        options: EngineOptions<'_>,
    ) -> Result<Engine, ControlError> {
        let cpus = resources.cpus;
        let EngineOptions { pages, room, codecs: chosen, limits, streams, .. } = options;
        let EngineOptions { readers, clock, counts, backing, name, record, .. } = options;
        let memory = |table| resources.memory_of(name, table);
        let (frames, zspages) = (resources.frames.clone(), memory(Table::Zspages));
        let objects = Objects::new(&*zspages, frames, readers.clone(), cpus, streams as usize);
        let register = record.as_ref().map(|record| record.register());
        let objects =
            objects.map_err(no_memory)?.registered(register).with_streams(resources.streams);
        objects.pool().set_limits(limits);
        // If addresses are short, the device has no room to grow.
        let slots = |count| resources.slots_of(&*memory(Table::Slots), count);
        let slots = slots(room).or_else(|_| slots(pages)).map_err(|_| {
            let bytes = pages as u128 * PAGE_SIZE as u128;
            let message =
                format!("there are no addresses for the slots of a disk of {bytes} bytes");
            ControlError::new(Errno::ENOMEM, message)
        })?;
        // Each object has two pages at least, but for moments.
        let shared = |count: usize| SharedObjects::new(&*memory(Table::Shared), count);
        let shared = shared(slots.count() / 2 + 2).map_err(no_memory)?;
        let accesses = match clock {
            Some(clock) => {
                let times = Accesses::new(&*memory(Table::Times), clock, slots.count());
                Some(times.map_err(no_memory)?)
            }
            None => None,
        };
        let page_locks = (0..PAGE_LOCKS).map(|_| CachePadded::new(Mutex::new(()))).collect();
        let engine = Engine {
            slots,
            shared,
            moving: Mutex::new(()),
            objects,
            cut: Published::new(readers.clone()),
            readers,
            counts,
            windows: Windows::default(),
            accesses,
            backing,
            record,
            page_locks,
        };
        for (priority, codec) in chosen.iter().enumerate() {
            if let Some(codec) = codec {
                engine.install(priority as u8, codec.clone(), 0)?;
            }
        }
        Ok(engine)
    }

    /// Makes `new` the slot of a page, whatever the slot was.
    #[inline]
    fn commit(&self, by: By<'_>, index: usize, new: Slot) {
        self.replace(by, index, new, move |_| Some(new));
    }

    /// Makes `new` the slot of a page, as `to` has it for the slot there is, and gives up what that
    /// named: the end of every change. Returns false if `to` has none; nothing has changed then.
    /// Under a snapshot the old contents may be wanted. The calling thread is a reader.
    #[inline]
    fn replace(
        &self,
        by: By<'_>,
        index: usize,
        new: Slot,
        to: impl FnMut(Slot) -> Option<Slot>,
    ) -> bool {
        match self.cut.is_there() {
            false => self.reform(by, index, new, to),
            true => self.replace_beside_cut(by, index, new, to),
        }
    }

    /// The same, if the new slot names other forms of the same contents.
    #[inline]
    fn reform(
        &self,
        by: By<'_>,
        index: usize,
        new: Slot,
        to: impl FnMut(Slot) -> Option<Slot>,
    ) -> bool {
        let Ok(old) = self.slots.update(index, to) else { return false };
        self.retire(by.cpu, old);
        self.account(by, index, old, new);
        true
    }

    /// Gives up what a displaced slot named, once no reader can hold it. A slot that names nothing
    /// has no reader to wait for.
    #[inline]
    fn retire(&self, cpu: Cpu, old: Slot) {
        if old.names_something() {
            self.slots.retire(cpu, old, move |slot| self.release(cpu, slot));
        }
    }

    /// Replaces a page that the caller has claimed as `held` by what was made of it: other
    /// contents, or only another form of them. Returns false if the page was used meanwhile: what
    /// was made may have outdated contents.
    ///
    /// # Errors
    /// That of `made`; the page is unchanged.
    fn put(
        &self,
        by: By<'_>,
        index: usize,
        held: Slot,
        made: Result<Slot, IoError>,
        contents: Contents,
    ) -> Result<bool, IoError> {
        let new = made.inspect_err(|_| self.unclaim(index))?;
        let to = |now| (now == held).then_some(new);
        let is_put = match contents {
            Contents::Other => self.replace(by, index, new, to),
            Contents::Same => self.reform(by, index, new, to),
        };
        if !is_put {
            self.unclaim(index);
            self.release(by.cpu, new);
        }
        Ok(is_put)
    }

    /// Takes the lock of a page. Waits for the thread that prepares a replacement of it.
    #[inline]
    fn page_lock(&self, index: usize) -> MutexGuard<'_, ()> {
        self.page_locks[index % PAGE_LOCKS].lock()
    }

    /// Claims the slot of a page and reads its contents; `None` if the page was used meanwhile.
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
        if read.is_none() {
            self.unclaim(index);
        }
        read.map(|result| (held, result))
    }

    /// Clears the claim of the calling thread, which holds the lock of the page. If the slot was
    /// displaced meanwhile, the claim is gone already; if the page was read, it is still there.
    fn unclaim(&self, index: usize) {
        let _ = self.slots.update(index, |now| now.is_claimed().then_some(now.unclaimed()));
    }

    /// Notes that the page is used now.
    #[inline]
    fn note(&self, index: usize) {
        if let Some(accesses) = &self.accesses {
            match self.windows.is_of_origin(index) {
                true => accesses.note(index),
                false => accesses.note_clone_now(index),
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Only who resets a device gives it up. Another process finds it as it was otherwise.
        if self.record.as_ref().is_some_and(|record| record.bytes() != 0) {
            self.objects.leave();
        }
    }
}

fn no_memory(error: NoMemory) -> ControlError {
    ControlError::new(Errno::ENOMEM, format!("{error}"))
}

fn extent_kind(slot: Slot) -> ExtentKind {
    match slot.kind() {
        Kind::Empty => ExtentKind::Hole,
        Kind::SameFilled(0) => ExtentKind::Zero,
        _ => ExtentKind::Data,
    }
}

impl Engine {
    /// Replaces a page by an object.
    ///
    /// # Errors
    /// `NoSpace` or `NoMemory`; the page is unchanged.
    #[inline]
    pub(crate) fn store(&self, maker: Maker<'_>, index: usize, page: &Page) -> Result<(), IoError> {
        self.slots.prefetch(index);
        prefetch_beginning(page);
        let new = self.make(maker, page, || self.slots.peek(index))?;
        // The time is set before the page can be seen: a page without a time counts as the oldest.
        self.note(index);
        self.commit(maker.by, index, new);
        Ok(())
    }

    /// Reads a page, or returns its place on the backing device.
    ///
    /// # Errors
    /// `Corrupt`; the contents of `page` are undefined then.
    #[inline]
    pub(crate) fn load(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &mut Page,
    ) -> Result<Loaded, IoError> {
        let (loaded, slot) =
            self.slots.load(cpu, index, |slot| (self.expand(reader, cpu, slot, page), slot));
        if slot.notices_readers() {
            self.alter(index, |now| now.notices_readers().then(|| now.touched()));
        }
        // A read of a page that was never written must not cost memory.
        if !slot.is_empty() {
            self.note(index);
        }
        loaded
    }

    /// Turns the bytes that were fetched into a page.
    ///
    /// # Errors
    /// `Corrupt`; the contents of `page` are undefined then.
    pub(crate) fn unpack(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        fetched: Fetched<'_>,
        page: &mut Page,
    ) -> Result<(), IoError> {
        let form @ Coded { length, codec, .. } = fetched.place.form;
        if !form.is_compressed() {
            page.copy_from_slice(fetched.page);
            return Ok(());
        }
        let (codecs, bytes) = (self.objects.codecs(), &fetched.page[..usize::from(length)]);
        codecs.decompress(reader, cpu, codec, bytes, page).map_err(|_| IoError::Corrupt)
    }

    /// Replaces a page by the result of `edit`, in one step: no other change to the page comes
    /// between. `edit` may run more than once, each time on the present contents. For a page on the
    /// backing device the function only returns its place, unless `known` was read from there.
    ///
    /// # Errors
    /// Those of `store` and `load`; the page is unchanged.
    pub(crate) fn modify(
        &self,
        maker: Maker<'_>,
        index: usize,
        known: Option<Fetched<'_>>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<Loaded, IoError> {
        let Maker { reader, by, .. } = maker;
        let _lock = self.page_lock(index);
        let mut page = [0; PAGE_SIZE];
        loop {
            let Some((held, read)) = self.claim(reader, by.cpu, index, &mut page) else { continue };
            if let Ok(Loaded::Backed(place)) = read {
                match known {
                    Some(known) if known.place == place => page = *known.page,
                    _ => {
                        self.unclaim(index);
                        return Ok(Loaded::Backed(place));
                    }
                }
            }
            let made = read.and_then(|_| {
                edit(&mut page);
                self.make(maker, &page, || held)
            });
            if self.put(by, index, held, made, Contents::Other)? {
                self.note(index);
                return Ok(Loaded::Page);
            }
        }
    }

    /// Empties `count` pages from `first` on.
    pub(crate) fn discard(&self, by: By<'_>, first: usize, count: usize) {
        let (mut from, end) = (first, (first + count).min(self.capacity()));
        while from < end {
            let index = self.slots.next_touched(from, end);
            from = ((index | 7) + 1).min(end);
            // From the last one on: of a clone, the slots before it stay a run.
            for index in (index..from).rev() {
                if self.slots.peek(index) != Slot::EMPTY {
                    self.commit(by, index, Slot::EMPTY);
                }
            }
        }
        if count >= MANY {
            self.quiesce(by.cpu);
        }
    }

    /// Stores a page of zeroes that counts as allocated.
    pub(crate) fn store_zeroes(&self, by: By<'_>, index: usize) {
        if let Some(zeroes) = Slot::same_filled(0) {
            self.note(index);
            self.commit(by, index, zeroes);
        }
    }

    /// Reports `count` pages from `first` on, in runs of one kind.
    pub(crate) fn extents(&self, first: usize, count: usize, visit: Visit<'_>) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let start = at;
            // Pages that were never touched are one hole, found without a look at their slots.
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

    /// The slot of a page as it was a moment ago. The caller must not touch what it names.
    pub(crate) fn peek(&self, index: usize) -> Slot {
        self.slots.peek(index)
    }

    /// Whether a page was written back to this place, a moment ago.
    pub(crate) fn is_at(&self, index: usize, place: Backed) -> bool {
        self.slots.peek(index).kind() == Kind::WrittenBack(place)
    }

    /// The pages of a range that may have contents. Since the caller took its share of this engine,
    /// the device may have got another, larger engine: pages that this one has not are left out.
    pub(crate) fn touched(&self, pages: Range<usize>) -> impl Iterator<Item = usize> {
        let (mut from, end) = (pages.start, pages.end.min(self.capacity()));
        core::iter::from_fn(move || {
            let index = if from < end { self.next_touched(from, end) } else { end };
            from = index + 1;
            (index < end).then_some(index)
        })
    }

    /// The first index from `from` on that may have contents; `end` if no index before it has.
    pub(crate) fn next_touched(&self, from: usize, end: usize) -> usize {
        self.slots.next_touched(from, end)
    }

    /// Changes the flags of a slot, not its contents. `next` declines with `None`, and may run more
    /// than once. Returns whether the slot changed.
    pub(crate) fn alter(&self, index: usize, mut next: impl FnMut(Slot) -> Option<Slot>) -> bool {
        self.slots.update(index, |now| next(now).filter(|new| new.same_contents(now))).is_ok()
    }

    /// Makes `chosen` the codec of a priority, for all objects made from now on. Present objects
    /// keep their codec. The function searches the first `pages` pages for codecs that no page
    /// needs any more. The calling thread must not be a reader.
    ///
    /// # Errors
    /// `ENOMEM`, or `EBUSY` when present objects use too many codecs; nothing has changed then.
    pub(crate) fn install(
        &self,
        priority: u8,
        chosen: Chosen,
        pages: usize,
    ) -> Result<(), ControlError> {
        self.objects.install(priority, chosen, || self.codecs_in_use(pages))
    }

    /// The priority of a codec, or the one it had when its objects were made.
    pub(crate) fn priority_of(&self, reader: &Reader<'_>, codec: u8) -> u8 {
        self.objects.codecs().get(reader, codec).map_or(0, |codec| codec.priority)
    }

    /// Whether a shared object was compressed again; a guess if no slot names it any more.
    pub(crate) fn is_again(&self, reader: &Reader<'_>, entry: u32) -> bool {
        match self.shared.peek(entry).map(|shared| shared.object) {
            Some(Object::Compressed { codec, .. }) => self.priority_of(reader, codec) > 0,
            _ => false,
        }
    }

    /// Lets at most `count` streams of each codec be used at once.
    ///
    /// # Errors
    /// [`OneStream`]; nothing has changed then.
    pub(crate) fn limit_streams(&self, reader: &Reader<'_>, count: usize) -> Result<(), OneStream> {
        self.objects.codecs().limit(reader, count)
    }

    /// The time when a page was last used, in seconds of the machine's clock; `None` if times are
    /// not kept.
    pub(crate) fn last_access(&self, index: usize) -> Option<u32> {
        self.accesses.as_ref().map(|accesses| match self.windows.is_of_origin(index) {
            true => accesses.last(index),
            false => accesses.last_of_clone(index),
        })
    }

    /// The backing device.
    pub(crate) fn backing(&self) -> Option<&Arc<dyn Backing>> {
        self.backing.as_ref()
    }

    /// The record of the device, if it outlives the process.
    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// The objects.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The pool of objects. It may still hold objects that their pages gave up.
    pub(crate) fn pool(&self) -> &Pool {
        self.objects.pool()
    }

    /// Frees the objects that pages gave up before. Waits for their readers if necessary.
    pub(crate) fn give_back(&self, cpu: Cpu) {
        self.quiesce(cpu);
    }

    /// The table of shared objects.
    pub(crate) fn shared(&self) -> &SharedObjects {
        &self.shared
    }

    /// The number of pages it has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.count()
    }

    /// The parts of the slots that clones have.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The number of streams for new objects.
    pub(crate) fn streams(&self, reader: &Reader<'_>) -> usize {
        self.objects.codecs().current(reader, 0).map_or(0, |(_, codec)| codec.streams.count())
    }
}
