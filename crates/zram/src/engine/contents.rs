//! The contents of a slot: made from a page, turned back into a page, and freed.
//!
//! # Why unsafe
//! A slot names an object by a number. The slot table promises that the object is there. In memory
//! that another process left, `recovery` has looked for it first.

use block::IoError;
use objects::{Object, Packed, Shared};
use pagelog::Backed;
use sync::Reader;
use units::{Cpu, Page};
use zcomp::{fill, same_filled};
use zsmalloc::{Pass, StoreError};

use super::Engine;
use crate::counts::Count;
use crate::engine::page_ops::{Ahead, By, Loaded, Maker};
use crate::engine::slot::{Kind, Part, Slot};

impl Engine {
    /// Makes an object of a page, and the slot that names it. `replacing` returns the present slot
    /// of the page. It is called after the first look at the page, so that the processor fetches
    /// both at once.
    #[inline]
    pub(super) fn make(
        &self,
        Maker { reader, by: By { cpu, .. }, room, breaks_cut }: Maker<'_>,
        page: &Page,
        replacing: impl FnOnce() -> Slot,
    ) -> Result<Slot, IoError> {
        let pattern = same_filled(page);
        let replacing = replacing().object();
        if let Some(object) = replacing {
            self.objects.prefetch(object);
        }
        if let Some(slot) = pattern.and_then(Slot::same_filled) {
            return Ok(slot);
        }
        self.with_space(cpu, breaks_cut, || {
            let stored = match pattern {
                Some(pattern) => self.objects.store_same_filled(cpu, room, pattern, replacing),
                None => {
                    let store = |packed: Packed<'_>| packed.store(room, replacing);
                    self.objects.compress(reader, cpu, 0, page, store).ok_or(IoError::NotReady)?
                }
            };
            stored.map(Slot::stored).map_err(refused)
        })
    }

    /// Makes an object. If there is no space but objects wait to be freed, or a snapshot keeps some
    /// and `breaks_cut`, it frees them and calls `make` again. By then `make` must have released
    /// its stream, because a reader that is waited for may need that stream.
    #[inline]
    pub(super) fn with_space<R>(
        &self,
        cpu: Cpu,
        breaks_cut: bool,
        mut make: impl FnMut() -> Result<R, IoError>,
    ) -> Result<R, IoError> {
        match make() {
            Err(error @ (IoError::NoSpace | IoError::NoMemory))
                if self.quiesce(cpu) | (breaks_cut && self.gives_up_cut(cpu, error)) =>
            {
                make()
            }
            made => made,
        }
    }

    /// Frees the objects that wait to be freed; returns whether there were any.
    #[cold]
    pub(super) fn quiesce(&self, cpu: Cpu) -> bool {
        self.slots.quiesce(|slot| self.release(cpu, slot))
    }

    /// Frees the object or block that a slot named, once, when no reader can hold it: either the
    /// table gave the slot back as displaced, or the slot never was in the table.
    #[inline]
    pub(super) fn release(&self, cpu: Cpu, slot: Slot) {
        match slot.kind() {
            // SAFETY: the object was stored here, and no reader holds it: see above.
            Kind::Stored(object) => unsafe { self.objects.free(cpu, object) },
            Kind::WrittenBack(place) => self.release_block(place),
            Kind::Shared(part) => self.drop_reference(cpu, part.entry),
            Kind::Empty | Kind::SameFilled(_) | Kind::Lost => {}
        }
    }

    /// Drops a reference to a shared object, and frees the object with the last one.
    #[cold]
    pub(super) fn drop_reference(&self, cpu: Cpu, entry: u32) {
        if let Some(shared) = self.shared.drop_reference(entry) {
            self.counts.add(cpu, Count::ComprBytes, -(shared.object.bytes() as i64));
            // SAFETY: the object was stored here. Its entry had no other reference, so no slot
            // names it, and no reader holds it: a reader has the reference of its slot.
            unsafe { self.objects.free(cpu, shared.object) }
        }
    }

    /// Frees the old place of a shared object that was moved.
    pub(super) fn free_moved(&self, cpu: Cpu, old: Object) {
        // SAFETY: the entry names the new place, and the caller has waited for all readers that may
        // have seen the old one.
        unsafe { self.objects.free(cpu, old) }
    }

    /// Fills `page` with a part of a shared object, of which the caller has a reference.
    pub(super) fn expand_shared(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        Part { entry, part, .. }: Part,
        page: &mut Page,
    ) -> Result<(), IoError> {
        let Shared { object, pages } = self.shared.get(entry);
        let part = usize::from(part);
        // SAFETY: the object was stored here, and the caller's reference keeps it. If compaction
        // moves it, its old place stays until this reader of the device has left.
        let expanded = unsafe {
            match pages {
                1 => self.objects.expand(reader, cpu, object, page),
                _ => self.objects.decompress_part(reader, cpu, object, (part, pages), page),
            }
        };
        expanded.map_err(|_| IoError::Corrupt)
    }

    #[cold]
    fn release_block(&self, place: Backed) {
        if let Some(backing) = &self.backing {
            backing.retire(place);
        }
    }

    /// Fills `page` with the contents of a slot, or returns its place on the backing device. Called
    /// within `slots.load`, which keeps what the slot names.
    #[inline]
    pub(super) fn expand(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        slot: Slot,
        page: &mut Page,
    ) -> Result<Loaded, IoError> {
        match slot.kind() {
            Kind::Empty => page.fill(0),
            Kind::SameFilled(pattern) => fill(page, pattern),
            Kind::Stored(object) => {
                // SAFETY: the object was stored here, and `slots.load` keeps it until this returns;
                // the device makes its engine with its readers, and enters no others.
                let expanded = unsafe { self.objects.expand(reader, cpu, object, page) };
                expanded.map_err(|_| IoError::Corrupt)?;
            }
            Kind::WrittenBack(place) => return Ok(Loaded::Backed(place)),
            // The slot is a reference, and `slots.load` keeps it.
            Kind::Shared(part) => self.expand_shared(reader, cpu, part, page)?,
            Kind::Lost => return Err(IoError::Corrupt),
        }
        Ok(Loaded::Page)
    }

    /// Fetches what the next page of a request names, while the processor is busy with this one.
    /// The page may get other contents meanwhile.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize, part: Ahead) {
        let Some(object) = self.slots.peek(index).object() else { return };
        match part {
            Ahead::Zspage => self.objects.prefetch(object),
            Ahead::Contents => self.objects.prefetch_contents(object),
        }
    }

    /// Copies the object of a slot without decompressing it. Called within `slots.load`, as
    /// `expand`.
    pub(super) fn copy_out(&self, object: Object, into: &mut Page) {
        // SAFETY: as in `expand`.
        unsafe { self.objects.copy_to(object, into) }
    }

    /// Copies the object of a slot to the place that `pass` took for it. Called within
    /// `slots.load`, as `expand`. `to` is in no slot yet.
    pub(super) fn copy_to_place(&self, pass: &Pass<'_>, object: Object, to: Object) {
        // SAFETY: the object was stored here, and `slots.load` keeps it until this returns. The
        // place was taken for it, and only the calling thread knows it.
        unsafe { pass.copy(object.handle(), to.handle()) }
    }
}

pub(super) fn refused(error: StoreError) -> IoError {
    match error {
        StoreError::OverLimit => IoError::NoSpace,
        StoreError::NoMemory => IoError::NoMemory,
    }
}
