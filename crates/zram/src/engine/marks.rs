//! Marked pages: those that a thread is about to replace by another form of the same contents.
//!
//! A store or a read of the page takes the mark away: the page is in use and stays as it is. One
//! thread at a time marks pages, so a mark that is still there is the mark that it set.

use sync::Reader;
use units::{Cpu, Page};

use super::Engine;
use crate::engine::page_ops::{By, Loaded};
use crate::engine::slot::Slot;

impl Engine {
    /// Marks a page that `fits`. Returns whether it did.
    pub(crate) fn mark(&self, index: usize, fits: impl Fn(Slot) -> bool) -> bool {
        self.alter(index, |slot| fits(slot).then(|| slot.with_mark(true)))
    }

    /// Takes the mark of a page away. Returns whether it was there.
    pub(crate) fn unmark(&self, index: usize) -> bool {
        self.alter(index, |slot| slot.is_marked().then(|| slot.with_mark(false)))
    }

    /// Reads a page that is marked, and in memory. If it cannot be read, only this page is bad: its
    /// readers get the error.
    pub(super) fn read_marked(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &mut Page,
    ) -> Option<Slot> {
        self.slots.load(cpu, index, |slot| {
            let mut read = || self.expand(reader, cpu, slot, page);
            (slot.is_marked() && matches!(read(), Ok(Loaded::Page))).then_some(slot)
        })
    }

    /// Replaces a page that is marked: the commit point of writeback, packing and sharing. Returns
    /// whether it did.
    pub(super) fn replace_marked(&self, cpu: Cpu, index: usize, new: Slot) -> bool {
        self.reform(By::any(cpu), index, new, |now| now.is_marked().then(|| new.with_flags_of(now)))
    }
}
