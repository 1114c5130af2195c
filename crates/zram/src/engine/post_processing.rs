//! Post-processing of stored pages: recompression and writeback.

use core::ops::Range;

use block::IoError;
use objects::{Compressed, Object, Recompressed};
use pagelog::{Backed, Coded, Places};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};
use zsmalloc::Room;

use super::contents::refused;
use super::{Contents, Engine};
use crate::engine::page_ops::{By, Fetched, Maker, Recompression};
use crate::engine::slot::{Kind, Slot};

/// What becomes of a page that a thread prepares a replacement of.
enum Made {
    /// Its slot names this.
    Form(Slot),
    /// It stays as it is, and its slot gets these flags.
    Flags(Slot),
}

impl Engine {
    /// Calls `look` with each page of a range that has contents, and its slot.
    pub(crate) fn each(&self, range: Range<usize>, mut look: impl FnMut(usize, Slot)) {
        for index in self.touched(range) {
            let slot = self.peek(index);
            if !slot.is_empty() {
                look(index, slot);
            }
        }
    }

    /// Copies a marked page to `bytes`, in the form in which it is written back: compressed, as in
    /// memory, or not. Returns the form, or `None` if the page is not marked any more.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn export(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        bytes: &mut Page,
        compressed: bool,
    ) -> Result<Option<Coded>, IoError> {
        self.slots.load(cpu, index, |slot| {
            if !slot.is_marked() {
                return Ok(None);
            }
            let (object, huge) = match slot.kind() {
                Kind::Stored(Object::SameFilled(_)) => return Ok(None),
                Kind::Stored(object) => (Some(object), matches!(object, Object::Huge(_))),
                // A page of an extent is written back as its own page.
                Kind::Shared(part) if part.packed => (None, part.huge),
                Kind::Shared(part) => (Some(self.shared.get(part.entry).object), part.huge),
                _ => return Ok(None),
            };
            match object {
                Some(object @ Object::Compressed { length, codec, .. }) if compressed => {
                    self.copy_out(object, bytes);
                    bytes[length..].fill(0);
                    Ok(Some(Coded { length: length as u16, codec, huge: false }))
                }
                _ => {
                    self.expand(reader, cpu, slot, bytes)?;
                    Ok(Some(Coded { huge, ..Coded::NOT }))
                }
            }
        })
    }

    /// Moves a page to `place` if it is still marked: the commit point of writeback.
    pub(crate) fn finish_writeback(&self, cpu: Cpu, index: usize, place: Backed) -> bool {
        self.replace_marked(cpu, index, Slot::written_back(place))
    }

    /// Compresses a page into `into` with the primary codec, or copies it if it does not shrink.
    /// Returns its form. The caller keeps the codec until a slot names it.
    pub(crate) fn pack_page(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        page: &Page,
        into: &mut Page,
    ) -> Coded {
        let packed = self.objects.compress(reader, cpu, 0, page, |packed| {
            let Compressed { bytes, codec } = packed.compressed()?;
            into[..bytes.len()].copy_from_slice(bytes);
            Some(Coded { length: bytes.len() as u16, codec, huge: false })
        });
        packed.flatten().unwrap_or_else(|| {
            *into = *page;
            Coded::NOT
        })
    }

    /// Replaces a page by one that was written to `place` of the backing device.
    pub(crate) fn store_backed(&self, by: By<'_>, index: usize, place: Backed) {
        // As in `store`: the time is set before the page can be seen.
        self.note(index);
        self.commit(by, index, Slot::written_back(place));
    }

    /// Puts another form of a page in its place, if its slot is `wanted` now: what `make` makes of
    /// the slot and of the contents, if these are in memory.
    ///
    /// # Errors
    /// `Corrupt`, those of `make`; the page is unchanged.
    fn remake(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        wanted: impl Fn(Slot) -> bool,
        make: impl FnOnce(Slot, &Page) -> Result<Made, IoError>,
    ) -> Result<Recompressed, IoError> {
        let _lock = self.page_lock(index);
        if !wanted(self.slots.peek(index)) {
            return Ok(Recompressed::Skipped);
        }
        let mut page = [0; PAGE_SIZE];
        let Some((held, read)) = self.claim(reader, cpu, index, &mut page) else {
            return Ok(Recompressed::InUse);
        };
        if read.is_err() || !wanted(held) {
            self.unclaim(index);
            return read.map(|_| Recompressed::Skipped);
        }
        let new = match make(held, &page) {
            Ok(Made::Flags(slot)) => {
                if self.slots.update(index, |now| (now == held).then_some(slot)).is_ok() {
                    return Ok(Recompressed::NoSmaller);
                }
                self.unclaim(index);
                return Ok(Recompressed::InUse);
            }
            Ok(Made::Form(slot)) => Ok(slot),
            Err(error) => Err(error),
        };
        let bytes = |slot: Slot| slot.object().map_or(0, Object::bytes);
        let (from, to) = (bytes(held), new.map_or(0, bytes));
        Ok(match self.put(By::any(cpu), index, held, new, Contents::Same)? {
            true => Recompressed::Done { from, to },
            false => Recompressed::InUse,
        })
    }

    /// Compresses a page again.
    ///
    /// # Errors
    /// `Corrupt`, `NoMemory`, `NoSpace`; the page is unchanged.
    pub(crate) fn recompress(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        how: Recompression,
    ) -> Result<Recompressed, IoError> {
        let wanted = |slot| self.wants(reader, slot, how).is_some();
        self.remake(reader, cpu, index, wanted, |held, page| {
            let made =
                self.with_space(cpu, false, || self.make_smaller(reader, cpu, held, page, how))?;
            Ok(made.map_or_else(
                || {
                    let left = held.unclaimed().with_idle(false);
                    Made::Flags(if how.last { left.incompressible() } else { left })
                },
                Made::Form,
            ))
        })
    }

    /// Compresses a page with the primary codec again, which has been compressed with another, or
    /// is a part of a shared object. Returns whether it did.
    ///
    /// # Errors
    /// `Corrupt`, `NoMemory`, `NoSpace`; the page is unchanged.
    pub(crate) fn raise(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
    ) -> Result<bool, IoError> {
        let is_low = |slot: Slot| match slot.kind() {
            Kind::Stored(Object::Compressed { codec, .. }) => self.priority_of(reader, codec) > 0,
            Kind::Shared(part) => !self.is_cloned(reader, part),
            _ => false,
        };
        let maker = Maker { reader, by: By::any(cpu), room: Room::Open, breaks_cut: false };
        let make = |held, page: &Page| self.make(maker, page, || held).map(Made::Form);
        let done = self.remake(reader, cpu, index, is_low, make)?;
        Ok(matches!(done, Recompressed::Done { .. }))
    }

    /// Keeps a page in memory again that was read from the backing device. Returns whether it did:
    /// not if the page is not there any more.
    ///
    /// # Errors
    /// `NoMemory`, `NoSpace`; the page stays where it is.
    pub(crate) fn keep(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        fetched: Fetched<'_>,
    ) -> Result<bool, IoError> {
        let is_there = |slot: Slot| slot.kind() == Kind::WrittenBack(fetched.place);
        let maker = Maker { reader, by: By::any(cpu), room: Room::Open, breaks_cut: false };
        let make = |held, _: &Page| self.make(maker, fetched.page, || held).map(Made::Form);
        let done = self.remake(reader, cpu, index, is_there, make)?;
        Ok(matches!(done, Recompressed::Done { .. }))
    }

    /// The bytes of the object of a page that is to be compressed again; `None` if it is not.
    pub(crate) fn wants(
        &self,
        reader: &Reader<'_>,
        slot: Slot,
        how: Recompression,
    ) -> Option<usize> {
        let (length, priority) = match slot.kind() {
            Kind::Stored(Object::Huge(_)) => (PAGE_SIZE, 0),
            Kind::Stored(Object::Compressed { length, codec, .. }) => {
                (length, self.priority_of(reader, codec))
            }
            _ => return None,
        };
        let worth_it = priority < how.priority && length >= how.threshold;
        let wanted = worth_it && how.select.admits(slot) && !slot.is_incompressible();
        wanted.then_some(length)
    }

    /// Makes an object of the page in a smaller size class than the present one; `None` if the
    /// codec cannot.
    fn make_smaller(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        held: Slot,
        page: &Page,
        how: Recompression,
    ) -> Result<Option<Slot>, IoError> {
        let now = held.object().map_or(PAGE_SIZE, Object::bytes);
        let made = self.objects.compress(reader, cpu, how.priority, page, |packed| {
            let smaller = packed.bytes();
            let fits = how.threshold == 0 || smaller < how.threshold;
            if !fits || self.objects.gain(now, smaller).is_none() {
                return Ok(None);
            }
            packed.store(Room::All, None).map(|object| Some(Slot::stored(object))).map_err(refused)
        });
        made.ok_or(IoError::Unsupported)?
    }

    /// The codecs that the objects of the first `pages` pages need, one bit for each.
    pub(super) fn codecs_in_use(&self, pages: usize) -> u32 {
        let mut all = 0u32;
        for index in self.touched(0..pages) {
            all |= self.slots.peek(index).codec();
        }
        self.shared.each(|_, shared, _| {
            if let Object::Compressed { codec, .. } = shared.object {
                all |= 1 << codec;
            }
        });
        // After the slots: what they gave up before this look was handed over by then.
        all | self.codecs_of_cut()
    }
}

impl Places for Engine {
    fn backed_at(&self, index: usize) -> Option<Backed> {
        if index >= self.capacity() {
            return None;
        }
        match self.slots.peek(index).kind() {
            Kind::WrittenBack(place) => Some(place),
            _ => None,
        }
    }

    fn move_backed(&self, cpu: Cpu, index: usize, old: Backed, new: Backed) -> bool {
        let (old, new) = (Slot::written_back(old), Slot::written_back(new));
        let swapped = self.slots.update(index, |now| (now == old).then_some(new));
        let Ok(old) = swapped else { return false };
        self.retire(cpu, old);
        true
    }
}
