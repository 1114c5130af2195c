//! What recovery needs of the engine: slots that are judged one by one.

use alloc::sync::Arc;

use units::Cpu;

use super::{By, Engine, LeftWindow};
use crate::counts::Counts;
use crate::engine::slot::Slot;

impl Engine {
    /// Takes the window of a clone as another process left it.
    pub(crate) fn take_left(&self, left: &LeftWindow, counts: Arc<Counts>) {
        self.windows.take_left(&self.slots, left, counts);
    }

    /// Replaces the slot that a dead process left by what `judge` makes of it, and counts the page.
    /// Nobody else uses the page.
    pub(crate) fn recover_page(&self, cpu: Cpu, index: usize, judge: impl FnOnce(Slot) -> Slot) {
        let mut right = Slot::EMPTY;
        self.slots.repair(index, |slot| {
            right = judge(slot);
            right
        });
        self.account(By::any(cpu), index, Slot::EMPTY, right);
    }

    /// Gives up what a slot names: recovery found out too late that it cannot be right.
    pub(crate) fn lose_page(&self, cpu: Cpu, index: usize) {
        if let Ok(was) = self.slots.update(index, |_| Some(Slot::LOST)) {
            self.account(By::any(cpu), index, was, Slot::LOST);
        }
    }
}
