//! Equal pages that share one object. A page is marked from the look at its contents until its slot
//! names the shared object.

use alloc::vec::Vec;

use block::IoError;
use objects::{Object, Shared};
use units::{Cpu, Page};

use super::Engine;
use crate::counts::Count;
use crate::engine::page_ops::{By, Select};
use crate::engine::slot::{Kind, Part, Slot};

/// Different pages with one fingerprint that later pages are compared with. More would mean that
/// somebody makes such pages on purpose.
const MODELS: usize = 8;

/// A page that others are compared with.
enum Model {
    /// A marked page with an object of its own.
    Page(usize),
    /// A shared object of one page, with a reference to it.
    Entry(u32),
}

/// Pages with one fingerprint, while equal ones among them come to share an object.
pub(crate) struct Alike {
    models: Vec<Model>,
    page: Page,
    other: Page,
}

impl Alike {
    /// None yet; `None` without memory.
    pub(crate) fn new() -> Option<Alike> {
        let mut models = Vec::new();
        models.try_reserve_exact(MODELS).ok()?;
        Some(Alike { models, page: [0; _], other: [0; _] })
    }
}

/// Whether a page may share an object: one with an object of its own if it is selected, or one that
/// shares already.
fn shares(slot: Slot, select: Select) -> bool {
    match slot.kind() {
        Kind::Stored(_) => select.admits(slot),
        Kind::Shared(part) => !part.packed,
        _ => false,
    }
}

impl Engine {
    /// Reads a page if it may share an object. Returns whether it shares one already; `None` if it
    /// may not.
    ///
    /// # Errors
    /// `Corrupt`; the contents of `page` are undefined then.
    pub(crate) fn look_at(
        &self,
        cpu: Cpu,
        index: usize,
        select: Select,
        page: &mut Page,
    ) -> Result<Option<bool>, IoError> {
        let reader = self.readers.enter(cpu);
        self.slots.load(cpu, index, |slot| {
            if !shares(slot, select) {
                return Ok(None);
            }
            self.expand(&reader, cpu, slot, page)?;
            Ok(Some(matches!(slot.kind(), Kind::Shared(_))))
        })
    }

    /// Lets a page share the object of an equal one of those that came before. Returns whether it
    /// does now and did not before. The calling thread is no reader.
    ///
    /// # Errors
    /// `NoMemory` without memory for an entry; the page has its contents.
    pub(crate) fn share(
        &self,
        cpu: Cpu,
        index: usize,
        select: Select,
        alike: &mut Alike,
    ) -> Result<bool, IoError> {
        let Alike { models, page, other } = alike;
        if !self.mark(index, |slot| shares(slot, select)) {
            return Ok(false);
        }
        let Some(slot) = self.read_marked(&self.readers.enter(cpu), cpu, index, page) else {
            self.unmark(index);
            return Ok(false);
        };
        for model in models.iter_mut() {
            let entry = self.as_entry(cpu, model, page, other);
            let Some(entry) = entry.inspect_err(|_| _ = self.unmark(index))? else { continue };
            if matches!(slot.kind(), Kind::Shared(part) if part.entry == entry) {
                self.unmark(index);
                return Ok(false);
            }
            if !self.is_equal(cpu, entry, page, other) {
                continue;
            }
            let huge = matches!(self.shared.get(entry).object, Object::Huge(_));
            let new = Slot::shared(Part { huge, ..Part::whole(entry) });
            let joined = self.join(cpu, index, entry, new);
            // One that was quicker took the mark away.
            return Ok(joined && !matches!(slot.kind(), Kind::Shared(_)));
        }
        let model = match slot.kind() {
            Kind::Shared(part) => {
                self.unmark(index);
                // By now the number may be another object's. Its contents are compared.
                let is_held = self.shared.try_hold(part.entry);
                is_held.then_some(Model::Entry(part.entry))
            }
            _ => Some(Model::Page(index)),
        };
        match model {
            Some(model) if models.len() < MODELS => models.push(model),
            Some(Model::Entry(entry)) => self.drop_reference(cpu, entry),
            _ => _ = self.unmark(index),
        }
        Ok(false)
    }

    /// Ends with pages of one fingerprint.
    pub(crate) fn end_alike(&self, cpu: Cpu, alike: &mut Alike) {
        for model in alike.models.drain(..) {
            match model {
                Model::Page(index) => _ = self.unmark(index),
                Model::Entry(entry) => self.drop_reference(cpu, entry),
            }
        }
    }

    /// Whether a shared object of which the caller has a reference is this page.
    fn is_equal(&self, cpu: Cpu, entry: u32, page: &Page, other: &mut Page) -> bool {
        if self.shared.get(entry).pages != 1 {
            return false;
        }
        let reader = self.readers.enter(cpu);
        self.expand_shared(&reader, cpu, Part::whole(entry), other).is_ok() && page == other
    }

    /// The entry of a model. A page with an object of its own gets one if it is equal to `page`.
    fn as_entry(
        &self,
        cpu: Cpu,
        model: &mut Model,
        page: &Page,
        other: &mut Page,
    ) -> Result<Option<u32>, IoError> {
        let index = match *model {
            Model::Entry(entry) => return Ok(Some(entry)),
            Model::Page(index) => index,
        };
        let read = self.read_marked(&self.readers.enter(cpu), cpu, index, other);
        if read.is_none() || page != other {
            return Ok(None);
        }
        let entry = self.make_shared(cpu, index)?;
        if let Some(entry) = entry {
            *model = Model::Entry(entry);
        }
        Ok(entry)
    }

    /// Makes the object of a marked page a shared one, with a reference for the caller. `None` if
    /// the page was used meanwhile.
    fn make_shared(&self, cpu: Cpu, index: usize) -> Result<Option<u32>, IoError> {
        // Compaction would move the object by its entry while the slot still names it.
        let _moving = self.moving.lock();
        loop {
            let slot = self.slots.peek(index);
            let Some(object) = slot.object().filter(|_| slot.is_marked()) else { return Ok(None) };
            let shared = Shared { object, pages: 1 };
            let entry = self.enter(cpu, shared).ok_or(IoError::NoMemory)?;
            self.shared.hold(entry);
            let huge = matches!(object, Object::Huge(_));
            let new = Slot::shared(Part { huge, ..Part::whole(entry) });
            let is_there = |now: Slot| now.is_marked() && now.object() == Some(object);
            let swapped =
                self.slots.update(index, |now| is_there(now).then(|| new.with_flags_of(now)));
            if let Ok(old) = swapped {
                // The object is not given up: the entry has it.
                self.account(By::any(cpu), index, old, new);
                return Ok(Some(entry));
            }
            // It is still the page's own object, or was moved as that.
            self.shared.drop_reference(entry);
            self.shared.drop_reference(entry);
            self.counts.add(cpu, Count::ComprBytes, -(object.bytes() as i64));
        }
    }
}
