//! Pages of a cut: handed over by who changes them, and passed by who takes a snapshot.

use alloc::{boxed::Box, format};
use core::ops::Range;

use block::IoError;
use control::{ControlError, Errno};
use objects::{Object, Shared};
use pagealloc::MemoryProvider;
use sync::{Published, Reader};
use units::{Cpu, Page};
use zsmalloc::Room;

use super::Engine;
use crate::engine::cut::Cut;
use crate::engine::page_ops::By;
use crate::engine::slot::Slot;

impl Engine {
    /// Begins a cut of these pages, at an instant within this call. The calling thread
    /// is no reader.
    ///
    /// # Errors
    /// `EBUSY` if there is a cut already, `ENOMEM` without addresses for its table, `ENOTSUP` on a
    /// slot table of an experiment.
    pub(crate) fn begin_cut(
        &self,
        memory: &dyn MemoryProvider,
        pages: Range<usize>,
    ) -> Result<(), ControlError> {
        if !self.slots.locks_while_updating() {
            return Err(ControlError::new(Errno::ENOTSUP, "this slot table has no snapshots"));
        }
        let cut = Cut::new(memory, pages).map_err(|error| {
            ControlError::new(Errno::ENOMEM, format!("no room for a snapshot: {error}"))
        })?;
        self.cut.publish(Box::new(cut)).map_err(|_| {
            ControlError::new(Errno::EBUSY, "another snapshot or clone of the device is being made")
        })?;
        // After this wait, every writer finds the cut.
        self.readers.wait_for_readers();
        Ok(())
    }

    /// Whether there is a cut of the pages from `base` on.
    pub(crate) fn has_cut_from(&self, reader: &Reader<'_>, base: usize) -> bool {
        self.cut.get(reader).is_some_and(|cut| cut.pages().start == base)
    }

    /// The cut, while a reader of the device lives.
    pub(crate) fn cut(&self) -> &Published<Cut> {
        &self.cut
    }

    /// Ends a cut, and gives up what it has. The calling thread is no reader.
    pub(crate) fn end_cut(&self, cpu: Cpu) {
        if let Some(cut) = self.cut.withdraw() {
            self.empty(cpu, &cut);
        }
    }

    /// Passes a page of the cut: calls `look` with the slot of the contents that it has there. What
    /// that names stays until `look` returns. Returns the slot if it was handed over: then what it
    /// names stays until the caller gives it to [`Engine::give_up`].
    pub(crate) fn pass(
        &self,
        cpu: Cpu,
        cut: &Cut,
        index: usize,
        mut look: impl FnMut(Slot),
    ) -> Option<Slot> {
        let mut handed = None;
        self.slots.load(cpu, index, |slot| {
            handed = cut.pass(index);
            look(handed.unwrap_or(slot));
        });
        handed
    }

    /// Gives up what a slot names that was handed over.
    pub(crate) fn give_up(&self, cpu: Cpu, handed: Slot) {
        self.retire(cpu, handed);
    }

    /// Copies an object that a slot of the cut names. Called within [`Engine::pass`].
    pub(crate) fn copy_of(&self, object: Object, into: &mut Page) {
        self.copy_out(object, into);
    }

    /// The shared object of an entry, with a reference for the caller if `holds`. Called within
    /// [`Engine::pass`], by a reader of the device, for an entry that the slot names.
    pub(crate) fn shared_of(&self, entry: u32, holds: bool) -> Shared {
        if holds {
            self.shared.hold(entry);
        }
        self.shared.get(entry)
    }

    /// Drops a reference to a shared object.
    pub(crate) fn let_go(&self, cpu: Cpu, entry: u32) {
        self.drop_reference(cpu, entry);
    }

    /// Breaks the cut if it keeps anything in memory. Returns whether it did.
    #[cold]
    pub(crate) fn break_cut(&self, cpu: Cpu) -> bool {
        let reader = self.readers.enter(cpu);
        let Some(cut) = self.cut.get(&reader) else { return false };
        if !cut.holds_something() {
            return false;
        }
        self.break_up(cpu, cut);
        true
    }

    /// Breaks the cut of the pages from `base` on, if there is one.
    pub(super) fn break_cut_from(&self, cpu: Cpu, base: usize) {
        let reader = self.readers.enter(cpu);
        if let Some(cut) = self.cut.get(&reader).filter(|cut| cut.pages().start == base) {
            self.break_up(cpu, cut);
        }
    }

    fn break_up(&self, cpu: Cpu, cut: &Cut) {
        cut.break_up();
        self.empty(cpu, cut);
    }

    /// Breaks the cut for a store that found no room, unless the device makes room by other means
    /// first.
    #[cold]
    pub(super) fn gives_up_cut(&self, cpu: Cpu, error: IoError) -> bool {
        let fails_at_limit = self.pool().limit(Room::Open) == self.pool().limit(Room::All);
        (error == IoError::NoMemory || fails_at_limit) && self.break_cut(cpu)
    }

    /// Gives up every slot of a cut. One that is handed over meanwhile may stay.
    fn empty(&self, cpu: Cpu, cut: &Cut) {
        for index in self.touched(cut.left()) {
            if let Some(slot) = cut.take(index) {
                self.give_up(cpu, slot);
            }
        }
    }

    /// [`Engine::replace`] under a snapshot.
    #[cold]
    pub(super) fn replace_beside_cut(
        &self,
        by @ By { cpu, .. }: By<'_>,
        index: usize,
        new: Slot,
        mut to: impl FnMut(Slot) -> Option<Slot>,
    ) -> bool {
        let reader = self.readers.enter(cpu);
        let cut = self.cut.get(&reader);
        let mut is_handed = false;
        let swapped = self.slots.update(index, |now| {
            let new = to(now)?;
            is_handed = cut.is_some_and(|cut| cut.hand_over(index, now));
            Some(new)
        });
        let Ok(old) = swapped else { return false };
        if !is_handed {
            self.retire(cpu, old);
        }
        self.account(by, index, old, new);
        true
    }

    /// The codecs that the slots of the cut need, one bit for each.
    pub(super) fn codecs_of_cut(&self) -> u32 {
        let reader = self.readers.enter(Cpu(0));
        let Some(cut) = self.cut.get(&reader) else { return 0 };
        self.touched(cut.pages()).fold(0, |all, index| all | cut.peek(index).codec())
    }
}
