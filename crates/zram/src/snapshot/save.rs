//! Takes a snapshot of a device that is in use.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::ops::Range;

use control::{ControlError, Errno};
use objects::{Object, Shared};
use pagelog::{AT_ONCE, Backed, Wanted};
use sync::Reader;
use units::{PAGE_SIZE, Page};
use zcomp::Chosen;

use super::format::{Codec, Of, begin, entry, put_beginning, put_entry, put_record, record};
use crate::disk::Disk;
use crate::engine::{Cut, Engine, Kind, Slot};
use crate::resources::CPU;

/// The most pages that are looked at by one reader of the device, for whom others may wait.
const AT_A_TIME: usize = 64;
/// The bytes after which a record of pages ends.
const ENOUGH: usize = 256 << 10;

/// A snapshot that is being taken. The device has the contents of that instant for it until it is
/// dropped, and is used meanwhile. One at a time.
pub struct Snapshot {
    disk: Arc<Disk>,
    /// Gone if the device was reset.
    engine: Weak<Engine>,
    step: Step,
    /// The slots of the device, and the next one.
    pages: Range<usize>,
    next: usize,
    /// Records so far.
    records: u64,
    /// The codecs of the file.
    codecs: Vec<Chosen>,
    /// The numbers of entries of shared objects in the file. It has a reference to each.
    shared: BTreeMap<u32, u32>,
    /// Pages with contents so far.
    stored: u64,
    entries: Vec<u8>,
    out: Vec<u8>,
    time: u64,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    Pages,
    Done,
}

impl Disk {
    /// Begins a snapshot: the contents are those of an instant within this call. `time` is what it
    /// says of that, in seconds since 1970. The calling thread is no reader.
    ///
    /// # Errors
    /// `EINVAL` for a device without a size, `EBUSY` while another snapshot of it is taken,
    /// `ENOMEM`.
    pub fn snapshot(self: &Arc<Disk>, time: u64) -> Result<Snapshot, ControlError> {
        let engine = self.ready_engine()?;
        let (bytes, pages) = (self.bytes(), self.window());
        let pages = pages.start..pages.end.min(engine.capacity());
        engine.begin_cut(&*self.resources.provider, pages.clone())?;
        Ok(Snapshot {
            disk: self.clone(),
            engine: Arc::downgrade(&engine),
            step: Step::Begin,
            next: pages.start,
            pages,
            records: 0,
            codecs: Vec::new(),
            shared: BTreeMap::new(),
            stored: 0,
            entries: Vec::new(),
            out: Vec::new(),
            time,
            bytes,
        })
    }

    /// Whether a snapshot of the device is being taken, or a clone made.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        let reader = self.readers.enter(CPU);
        let place = self.place.get(&reader);
        place.is_some_and(|it| it.engine.has_cut_from(&reader, it.base))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let Some(engine) = self.engine.upgrade() else { return };
        engine.end_cut(CPU);
        for entry in self.shared.keys() {
            engine.let_go(CPU, *entry);
        }
    }
}

impl Snapshot {
    /// The next bytes of the file; `None` after the last. It reads pages from the backing device,
    /// and waits for nobody else.
    ///
    /// # Errors
    /// `ENODEV` if the device was reset, `ENOSPC` if there was no room for what was overwritten
    /// meanwhile, `EIO` for a page that cannot be read from the backing device. What was returned
    /// so far is no snapshot then.
    pub fn next_bytes(&mut self) -> Result<Option<&[u8]>, ControlError> {
        self.out.clear();
        match self.step {
            Step::Done => return Ok(None),
            Step::Begin => self.begin()?,
            Step::Pages if self.next < self.pages.end => {
                let engine = self.engine()?;
                self.fill(&engine)?;
            }
            Step::Pages => self.end()?,
        }
        Ok(Some(&self.out))
    }

    /// The pages that were looked at, and all pages of the device.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        ((self.next - self.pages.start) as u64, self.pages.len() as u64)
    }

    /// The pages with contents so far.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// The engine of the device, if it is still the one.
    fn engine(&self) -> Result<Arc<Engine>, ControlError> {
        let (was, is) = (self.engine.upgrade(), self.disk.engine());
        match (was, is) {
            (Some(was), Some(is)) if Arc::ptr_eq(&was, &is) => Ok(was),
            _ => {
                let message =
                    format!("{} was reset while its snapshot was taken", self.disk.name());
                Err(ControlError::new(Errno::ENODEV, message))
            }
        }
    }

    fn begin(&mut self) -> Result<(), ControlError> {
        let engine = self.engine()?;
        put_beginning(&mut self.out, Of::Disk);
        let contents = begin(self.bytes, self.time, &self.disk.name());
        self.record(record::BEGIN, &contents);
        let reader = self.disk.readers.clone();
        let reader = reader.enter(CPU);
        for priority in 0..zcomp::PRIORITIES as u8 {
            if let Some((_, codec)) = engine.objects().codecs().current(&reader, priority) {
                self.put_codec(priority, true, codec.chosen.clone());
            }
        }
        self.step = Step::Pages;
        Ok(())
    }

    fn end(&mut self) -> Result<(), ControlError> {
        self.engine()?;
        let mut contents = Vec::new();
        contents.extend(self.stored.to_le_bytes());
        contents.extend((self.shared.len() as u64).to_le_bytes());
        self.record(record::END, &contents);
        self.step = Step::Done;
        Ok(())
    }

    fn record(&mut self, kind: u32, contents: &[u8]) {
        put_record(&mut self.out, self.records, kind, contents);
        self.records += 1;
    }

    fn put_codec(&mut self, priority: u8, is_current: bool, chosen: Chosen) {
        let params = chosen.params.clone();
        let codec = Codec { priority, is_current, name: chosen.compressor.name(), params };
        self.record(record::CODEC, &codec.to_bytes());
        self.codecs.push(chosen);
    }

    /// Makes a record of the next pages, and records of the codecs that it is the first to need.
    fn fill(&mut self, engine: &Engine) -> Result<(), ControlError> {
        self.entries.clear();
        while self.next < self.pages.end && self.entries.len() < ENOUGH {
            self.pass_some(engine)?;
        }
        if !self.entries.is_empty() {
            let entries = core::mem::take(&mut self.entries);
            self.record(record::PAGES, &entries);
            self.entries = entries;
        }
        Ok(())
    }

    /// Passes some pages, and appends their entries.
    fn pass_some(&mut self, engine: &Engine) -> Result<(), ControlError> {
        let mut backed: Vec<Fetch> = Vec::new();
        // Until this is dropped, blocks that were found in slots stay.
        let reading = engine.backing().map(|backing| backing.reading(CPU));
        let passed = {
            let readers = self.disk.readers.clone();
            let reader = readers.enter(CPU);
            let cut = engine.cut().get(&reader);
            let cut = cut.ok_or_else(|| failed("the snapshot has ended".into()))?;
            let passed = self.pass_pages(engine, cut, &reader, &mut backed);
            match cut.is_broken() {
                true => Err(self.broken()),
                false => passed,
            }
        };
        let fetched = passed.and_then(|()| self.fetch(engine, &backed));
        drop(reading);
        for fetch in &backed {
            if let Some(handed) = fetch.handed {
                engine.give_up(CPU, handed);
            }
        }
        fetched
    }

    fn broken(&self) -> ControlError {
        let message = format!(
            "the snapshot of {} was given up: there was no room to keep what was overwritten \
             meanwhile; take it while less is written, or with a higher mem_limit",
            self.disk.name()
        );
        ControlError::new(Errno::ENOSPC, message)
    }

    fn pass_pages(
        &mut self,
        engine: &Engine,
        cut: &Cut,
        reader: &Reader<'_>,
        backed: &mut Vec<Fetch>,
    ) -> Result<(), ControlError> {
        let mut page = Box::new([0; PAGE_SIZE]);
        for _ in 0..AT_A_TIME {
            let index = engine.next_touched(self.next, self.pages.end);
            self.next = index + 1;
            if index >= self.pages.end {
                self.next = self.pages.end;
                break;
            }
            let mut seen = Seen::default();
            let handed = engine.pass(CPU, cut, index, |slot| {
                seen.slot = slot;
                match slot.kind() {
                    Kind::Stored(object) => engine.copy_of(object, &mut page),
                    Kind::Shared(part) => {
                        let is_new = !self.shared.contains_key(&part.entry);
                        let shared = engine.shared_of(part.entry, is_new);
                        if is_new {
                            engine.copy_of(shared.object, &mut page);
                        }
                        seen.shared = is_new.then_some(shared);
                    }
                    _ => {}
                }
            });
            if let Kind::WrittenBack(place) = seen.slot.kind() {
                // Its bytes are fetched when this thread is no reader any more.
                backed.push(Fetch { index, place, at: 0, handed });
                let at = self.put_backed(engine, reader, index, place)?;
                if let Some(last) = backed.last_mut() {
                    last.at = at;
                }
                if backed.len() == AT_ONCE {
                    break;
                }
            } else {
                if let Some(handed) = handed {
                    engine.give_up(CPU, handed);
                }
                self.put_page(engine, reader, index, seen, &page)?;
            }
        }
        Ok(())
    }

    /// Appends what is known of a page in memory. `page` has what was copied of it.
    fn put_page(
        &mut self,
        engine: &Engine,
        reader: &Reader<'_>,
        index: usize,
        Seen { slot, shared }: Seen,
        page: &Page,
    ) -> Result<(), ControlError> {
        let number = self.number(index);
        match slot.kind() {
            Kind::Empty => return Ok(()),
            Kind::SameFilled(pattern) => {
                self.put(number, entry::FILLED, 0, &pattern.to_ne_bytes());
            }
            Kind::Lost => self.put(number, entry::LOST, 0, &[]),
            Kind::Stored(object) => {
                let kind = match object {
                    Object::SameFilled(_) => entry::FILLED,
                    Object::Compressed { .. } => entry::COMPRESSED,
                    Object::Huge(_) => entry::HUGE,
                };
                self.put_object(engine, reader, number, kind, object, page)?;
            }
            Kind::Shared(part) => {
                if let Some(shared) = shared {
                    self.shared.insert(part.entry, self.shared.len() as u32);
                    let kind = match shared.object {
                        Object::Huge(_) => entry::HUGE_OBJECT,
                        _ => entry::OBJECT,
                    };
                    let pages = shared.pages as u32;
                    self.put_object(engine, reader, pages, kind, shared.object, page)?;
                }
                let object = self.shared.get(&part.entry).copied().unwrap_or_default();
                self.put(number, entry::PART, part.part, &object.to_le_bytes());
            }
            Kind::WrittenBack(_) => {}
        }
        self.stored += 1;
        Ok(())
    }

    fn put_object(
        &mut self,
        engine: &Engine,
        reader: &Reader<'_>,
        number: u32,
        kind: u8,
        object: Object,
        page: &Page,
    ) -> Result<(), ControlError> {
        let codec = match object {
            Object::Compressed { codec, .. } => self.codec(engine, reader, codec)?,
            _ => 0,
        };
        self.put(number, kind, codec, &page[..object.bytes()]);
        Ok(())
    }

    /// Appends the entry of a page that is on the backing device, with room for its bytes. Returns
    /// where they go.
    fn put_backed(
        &mut self,
        engine: &Engine,
        reader: &Reader<'_>,
        index: usize,
        place: Backed,
    ) -> Result<usize, ControlError> {
        let form = place.form;
        let (kind, codec) = match form.is_compressed() {
            true => (entry::COMPRESSED, self.codec(engine, reader, form.codec)?),
            false if form.huge => (entry::HUGE, 0),
            false => (entry::PLAIN, 0),
        };
        let length = usize::from(form.length);
        let number = self.number(index);
        put_entry(&mut self.entries, number, kind, codec, length);
        let at = self.entries.len();
        self.entries.resize(at + length, 0);
        self.stored += 1;
        Ok(at)
    }

    /// The number of the page of a slot.
    fn number(&self, index: usize) -> u32 {
        (index - self.pages.start) as u32
    }

    fn put(&mut self, number: u32, kind: u8, codec: u8, own: &[u8]) {
        put_entry(&mut self.entries, number, kind, codec, own.len());
        self.entries.extend(own);
    }

    /// The number in the file of a codec of the engine, which stays while something in the cut
    /// needs it.
    fn codec(
        &mut self,
        engine: &Engine,
        reader: &Reader<'_>,
        number: u8,
    ) -> Result<u8, ControlError> {
        let codec = engine.objects().codecs().get(reader, number);
        let codec = codec.ok_or_else(|| failed(format!("codec {number} is gone")))?;
        let is_it = |it: &Chosen| Arc::ptr_eq(&it.compressor, &codec.chosen.compressor);
        let at = match self.codecs.iter().position(is_it) {
            Some(at) => at,
            None => {
                self.put_codec(codec.priority, false, codec.chosen.clone());
                self.codecs.len() - 1
            }
        };
        u8::try_from(at).map_err(|_| failed("too many codecs were chosen meanwhile".into()))
    }

    /// Reads pages from the backing device to their places among the entries.
    fn fetch(&mut self, engine: &Engine, backed: &[Fetch]) -> Result<(), ControlError> {
        let (Some(backing), false) = (engine.backing(), backed.is_empty()) else { return Ok(()) };
        let mut pages = alloc::vec![[0; PAGE_SIZE]; backed.len()];
        let mut wanted: [Option<Wanted<'_>>; AT_ONCE] = [const { None }; AT_ONCE];
        for ((wanted, fetch), into) in wanted.iter_mut().zip(backed).zip(&mut pages) {
            let Fetch { index, place, .. } = *fetch;
            *wanted = Some(Wanted { index, place, into, result: Ok(()) });
        }
        backing.read(CPU, &mut wanted[..backed.len()]);
        for wanted in wanted.iter().flatten() {
            wanted.result.map_err(|error| {
                let (page, path) = (self.number(wanted.index), backing.path());
                failed(format!("page {page} cannot be read from {path}: {error}"))
            })?;
        }
        for (fetch, page) in backed.iter().zip(&pages) {
            let length = usize::from(fetch.place.form.length);
            self.entries[fetch.at..fetch.at + length].copy_from_slice(&page[..length]);
        }
        Ok(())
    }
}

fn failed(message: String) -> ControlError {
    ControlError::new(Errno::EIO, message)
}

/// What was seen of a page.
#[derive(Default)]
struct Seen {
    slot: Slot,
    /// The shared object that was copied, if it was the first look at it.
    shared: Option<Shared>,
}

/// A page that is fetched from the backing device.
struct Fetch {
    index: usize,
    place: Backed,
    /// Where its bytes go among the entries.
    at: usize,
    /// Its slot, if that was handed over: then the place stays until it is given up.
    handed: Option<Slot>,
}
