//! What recovery needs of the engine: slots that are judged one by one.

use sync::Reader;
use units::Cpu;
use zcomp::CODECS;

use super::Engine;
use crate::engine::slot::Slot;
use crate::resources::Design;
use crate::slots::SlotTable;

impl<D: Design> Engine<D> {
    /// The numbers of the codecs that are there, one bit for each.
    pub(crate) fn codecs_there(&self, reader: &Reader<'_>) -> u32 {
        let there = (0..CODECS as u8).filter(|n| self.objects.codecs().get(reader, *n).is_some());
        there.fold(0, |all, number| all | 1 << number)
    }

    /// Replaces the slot that a dead process left by what `judge` makes of it, and counts the page.
    /// Nobody else uses the page.
    pub(crate) fn recover_page(&self, cpu: Cpu, index: usize, judge: impl FnOnce(Slot) -> Slot) {
        let mut right = Slot::EMPTY;
        self.slots.repair(index, |slot| {
            right = judge(slot);
            right
        });
        self.account(cpu, Slot::EMPTY, right);
    }

    /// Gives up what a slot names: recovery found out too late that it cannot be right.
    pub(crate) fn lose_page(&self, cpu: Cpu, index: usize) {
        if let Ok(was) = self.slots.update(index, |_| Some(Slot::LOST)) {
            self.account(cpu, was, Slot::LOST);
        }
    }
}
