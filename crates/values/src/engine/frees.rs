//! What nobody finds any more: retired, and freed when no reader can hold it.

use units::Cpu;

use super::{Displaced, LARGE, Values};
use crate::index::Index;
use crate::word::{Left, Place};

/// Where a word that is retired for an index has the number of the store.
const STORE_SHIFT: u32 = 40;

impl Values {
    /// Passes a value on to be freed. The calling thread is no reader, and holds no lock.
    pub(super) fn dispose(&self, cpu: Cpu, displaced: Displaced) {
        let Displaced { word, data, was_last } = displaced;
        match word.place() {
            Place::Head(_) if !was_last => {}
            Place::Head(head) => {
                self.retire(cpu, Left::Head(head));
                if data >= LARGE {
                    self.quiesce(cpu);
                }
            }
            Place::Member(group, _) => self.leave_group(cpu, group),
        }
        self.shrink(cpu);
    }

    /// Has the index shrink by a bucket, if its keys are few. Returns whether it did.
    pub(super) fn shrink(&self, cpu: Cpu) -> bool {
        let shrunk = self.own.index.shrink(|left| self.retire_bucket(cpu, left));
        if shrunk {
            self.settle();
        }
        shrunk
    }

    /// No word names a member of a group any more, or its maker is done with it.
    pub(super) fn leave_group(&self, cpu: Cpu, group: u32) {
        if self.groups.leave(group) {
            self.retire(cpu, Left::Group(group));
        }
    }

    pub(super) fn retire(&self, cpu: Cpu, left: Left) {
        self.retired.retire(cpu, left.get(), |word| self.release(cpu, word));
    }

    /// Retires what is of the index of this store.
    pub(super) fn retire_bucket(&self, cpu: Cpu, left: Left) {
        let word = left.get() | u64::from(self.own.number) << STORE_SHIFT;
        self.retired.retire(cpu, word, |word| self.release(cpu, word));
    }

    /// Waits for readers, and frees what was retired; returns whether there was anything.
    pub(super) fn quiesce(&self, cpu: Cpu) -> bool {
        self.retired.quiesce(|word| self.release(cpu, word))
    }

    fn release(&self, cpu: Cpu, word: u64) {
        match Left::from_raw(word) {
            Left::Head(head) => self.free_head(cpu, head),
            Left::Object(object) => self.free_object(cpu, object),
            Left::Bucket(number) => self.with_index(word, |index| index.give_back(number)),
            Left::Group(number) => self.free_head(cpu, self.groups.forget(number)),
            Left::Pages(begun) => self.with_index(word, |index| index.give_back_pages(begun)),
        }
    }

    /// Calls `give` with the index that a word was retired for, if the store is there still.
    fn with_index(&self, word: u64, give: impl FnOnce(&Index)) {
        let stores = self.family.all();
        if let Some(own) = stores.iter().find(|own| u64::from(own.number) == word >> STORE_SHIFT) {
            give(&own.index);
        }
    }
}
