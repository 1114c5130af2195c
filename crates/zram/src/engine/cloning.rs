//! Pages that a clone gets from its origin: both slots name one object then.

use alloc::sync::Arc;
use core::ops::Range;

use block::IoError;
use objects::{Compressed, Object, Shared};
use pagealloc::MemoryProvider;
use pagelog::Backed;
use sync::Reader;
use units::{Cpu, PAGE_SIZE};

use super::Engine;
use crate::counts::{Count, Counts};
use crate::engine::cut::Cut;
use crate::engine::page_ops::{By, Fetched};
use crate::engine::slot::{Kind, Part, Slot};

/// A page that is on the backing device, and gets an object of its own in the clone.
#[derive(Clone, Copy)]
pub(crate) struct ToFetch {
    /// The page of the clone.
    pub(crate) index: usize,
    pub(crate) place: Backed,
    /// The slot of the origin, if it was handed over. The caller gives it up.
    pub(crate) handed: Option<Slot>,
}

impl Engine {
    /// Passes page `from` of a cut, and gives its contents to page `to`, which is empty: an object
    /// becomes a shared one. Returns the page if it is on the backing device. The caller keeps
    /// codecs from being changed.
    ///
    /// # Errors
    /// `NoMemory`, `NoSpace`, `Corrupt`; page `to` is empty then, and `from` as it was.
    pub(crate) fn clone_page(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        cut: &Cut,
        from: usize,
        to: usize,
    ) -> Result<Option<ToFetch>, IoError> {
        let (mut handed, mut copy, mut read) = (None, Slot::EMPTY, Ok(()));
        let mut page = [0; PAGE_SIZE];
        // Compaction would move the object by its entry while the slot still names it.
        let moving = self.moving.lock();
        let shared = self.slots.update(from, |now| {
            handed = cut.pass(from);
            if handed.is_some() {
                return None;
            }
            copy = now.settled();
            match now.kind() {
                // Such an object is never a shared one.
                Kind::Stored(Object::SameFilled(_)) => {
                    read = self.expand(reader, cpu, now, &mut page).map(drop);
                }
                Kind::Stored(object) => {
                    let Some(entry) = self.enter(cpu, Shared { object, pages: 1 }) else {
                        read = Err(IoError::NoMemory);
                        return None;
                    };
                    self.shared.hold(entry);
                    let huge = matches!(object, Object::Huge(_));
                    copy = Slot::shared(Part { huge, ..Part::whole(entry) }).with_flags_of(now);
                    return Some(copy);
                }
                Kind::Shared(part) => self.shared.hold(part.entry),
                _ => {}
            }
            None
        });
        drop(moving);
        if let Ok(old) = shared {
            // The object is not given up: the entry has it.
            self.account(By::any(cpu), from, old, copy);
        }
        read?;
        // What was handed over is named by nobody else.
        let slot = match handed.unwrap_or(copy) {
            slot if slot.is_empty() => return Ok(None),
            slot if let Kind::WrittenBack(place) = slot.kind() => {
                return Ok(Some(ToFetch { index: to, place, handed }));
            }
            slot if handed.is_none() && slot.object().is_some() => {
                let (pattern, _) = page.split_first_chunk().unwrap_or((&[0; 8], &[]));
                self.fill_pattern(cpu, u64::from_ne_bytes(*pattern))?
            }
            slot => slot,
        };
        self.fill_clone(cpu, from, to, slot);
        Ok(None)
    }

    /// Gives a page of a clone what was fetched from the backing device. The caller keeps codecs
    /// from being changed.
    ///
    /// # Errors
    /// `NoMemory`, `NoSpace`.
    pub(crate) fn clone_fetched(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        from: usize,
        to: usize,
        Fetched { place, page }: Fetched<'_>,
    ) -> Result<(), IoError> {
        let form = place.form;
        let slot = match form.is_compressed() {
            true => {
                let bytes = &page[..usize::from(form.length)];
                self.fill_compressed(cpu, Compressed { bytes, codec: form.codec })?
            }
            false if form.huge => self.fill_huge(cpu, page)?,
            false => self.fill_plain(reader, cpu, page)?,
        };
        self.fill_clone(cpu, from, to, slot);
        Ok(())
    }

    /// Whether a page shares an object with those of clones that is as quick to read as its own.
    pub(super) fn is_cloned(&self, reader: &Reader<'_>, part: Part) -> bool {
        self.windows.end() > 0
            && !part.packed
            && self.shared.count(part.entry) > 1
            && !self.is_again(reader, part.entry)
    }

    fn fill_clone(&self, cpu: Cpu, from: usize, to: usize, slot: Slot) {
        if let Some(accesses) = &self.accesses {
            accesses.note_clone(to, self.last_access(from).unwrap_or(0));
        }
        self.reform(By::any(cpu), to, slot, |_| Some(slot));
    }

    /// Takes a window of `pages` pages behind page `behind`, for a clone that counts in `counts`.
    /// `None` if there are no addresses.
    ///
    /// The slots of a clone that outlives its process are in the table of its origin, which another
    /// process finds, and so are the times.
    pub(crate) fn take_window(
        &self,
        memory: &dyn MemoryProvider,
        behind: usize,
        pages: usize,
        counts: Arc<Counts>,
    ) -> Option<Range<usize>> {
        if self.record.is_none() {
            self.slots.expect_clones(memory).ok()?;
            if let Some(accesses) = &self.accesses {
                accesses.expect_clones(memory).ok()?;
            }
        }
        let window = self.windows.take(&self.slots, behind, self.capacity(), pages, counts)?;
        if let Some(record) = &self.record {
            record.has_clones_at(&window);
        }
        Some(window)
    }

    /// Gives up all contents of a window, and the window. The calling thread is no reader.
    pub(crate) fn give_window_back(&self, cpu: Cpu, base: usize) {
        // Without the window, the pages whose slots a cut has are not found.
        self.break_cut_from(cpu, base);
        let pages = self.windows.at(base);
        self.discard(By::any(cpu), pages.start, pages.len());
        self.windows.give_back(&self.slots, base);
    }

    /// Gives pages that alone name a shared object the object itself, as they had it before there
    /// was a clone. The caller keeps codecs from being changed.
    pub(crate) fn own_again(&self, cpu: Cpu, end: usize) {
        self.each(0..end, |index, slot| {
            if let Kind::Shared(Part { entry, packed: false, .. }) = slot.kind()
                && self.shared.count(entry) == 1
            {
                self.take_over(cpu, index);
            }
        });
    }

    fn take_over(&self, cpu: Cpu, index: usize) {
        let (mut new, mut entry) = (Slot::EMPTY, 0);
        // Compaction would move the object by its entry.
        let _moving = self.moving.lock();
        let swapped = self.slots.update(index, |now| {
            let Kind::Shared(part @ Part { packed: false, .. }) = now.kind() else { return None };
            let shared = self.shared.take_last(part.entry)?;
            entry = part.entry;
            new = Slot::stored(shared.object).with_flags_of(now);
            Some(new)
        });
        let Ok(old) = swapped else { return };
        self.shared.leave(entry);
        let bytes = new.object().map_or(0, Object::bytes);
        // It counted with its entry, and a huge page counted when it was stored.
        self.counts.add(cpu, Count::ComprBytes, -(bytes as i64));
        self.account(By::any(cpu), index, old, new);
        if bytes == PAGE_SIZE {
            self.uncount_huge(cpu, index);
        }
    }
}
