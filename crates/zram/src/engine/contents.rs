//! What a slot stands for: made of a page, turned back into one, and freed.
//!
//! # Why unsafe
//! A slot names an object by a number. That the object is there is what the slot table promises.

use block::IoError;
use objects::Object;
use sync::Reader;
use units::{Cpu, Page};
use zcomp::{fill, same_filled};
use zsmalloc::StoreError;

use super::Engine;
use crate::page_ops::Loaded;
use crate::resources::Design;
use crate::slot::{Backed, Kind, Slot};
use crate::slots::SlotTable;

impl<D: Design> Engine<D> {
    /// Makes an object of a page, and the slot that names it. `replacing` tells the slot the page
    /// has; it is asked for after the page was first looked at, so that both are fetched at once.
    #[inline]
    pub(super) fn make(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
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
        self.with_space(cpu, || {
            let stored = match pattern {
                Some(pattern) => self.objects.store_same_filled(reader, cpu, pattern, replacing),
                None => {
                    let packed = self.objects.compress(reader, cpu, 0, page);
                    packed.ok_or(IoError::NotReady)?.store(replacing)
                }
            };
            stored.map(Slot::stored).map_err(refused)
        })
    }

    /// Makes an object. When there is no space for it, but objects wait to be freed, they are freed
    /// and it is made again. By then `make` must have let go of its stream, for a reader who is
    /// waited for may want it.
    #[inline]
    pub(super) fn with_space<R>(
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
    pub(super) fn quiesce(&self, cpu: Cpu) -> bool {
        self.slots.quiesce(|slot| self.release(cpu, slot))
    }

    /// Frees what a slot named, once, when nobody can hold it: the table says so of one that was
    /// displaced, or it never was in the table.
    #[inline]
    pub(super) fn release(&self, cpu: Cpu, slot: Slot) {
        match slot.kind() {
            // SAFETY: it was stored here, and nobody holds it: see above.
            Kind::Stored(object) => unsafe { self.objects.free(cpu, object) },
            Kind::WrittenBack(place) => self.release_block(place),
            Kind::Empty | Kind::SameFilled(_) => {}
        }
    }

    #[cold]
    fn release_block(&self, place: Backed) {
        if let Some(backing) = &self.backing {
            backing.retire(place.block);
        }
    }

    /// Fills `page` with what a slot stands for, or tells where that is. Within `slots.load`, which
    /// keeps what the slot names.
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
                // SAFETY: it was stored here, and `slots.load` keeps it until this returns; the
                // device makes its engine with its readers, and enters no others.
                let expanded = unsafe { self.objects.expand(reader, cpu, object, page) };
                expanded.map_err(|_| IoError::Corrupt)?;
            }
            Kind::WrittenBack(place) => return Ok(Loaded::Backed(place)),
        }
        Ok(Loaded::Page)
    }

    /// Copies an object of a slot as it is. Within `slots.load`, as `expand`.
    pub(super) fn copy_out(&self, reader: &Reader<'_>, object: Object, into: &mut Page) {
        // SAFETY: as in `expand`.
        unsafe { self.objects.copy_to(reader, object, into) }
    }
}

pub(super) fn refused(error: StoreError) -> IoError {
    match error {
        StoreError::OverLimit => IoError::NoSpace,
        StoreError::NoMemory => IoError::NoMemory,
    }
}
