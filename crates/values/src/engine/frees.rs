//! What nobody finds any more: retired, and freed when no reader can hold it.

use units::Cpu;

use super::{Count, Displaced, LARGE, Values};
use crate::word::{Left, Place};

impl Values {
    /// Passes a value on to be freed. The calling thread is no reader, and holds no lock.
    pub(super) fn dispose(&self, cpu: Cpu, displaced: Displaced) {
        let Displaced { word, data } = displaced;
        self.count(cpu, Count::Data, -(data as i64));
        match word.place() {
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
        let shrunk = self.index.shrink(|left| self.retire(cpu, left));
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

    /// Waits for readers, and frees what was retired; returns whether there was anything.
    pub(super) fn quiesce(&self, cpu: Cpu) -> bool {
        self.retired.quiesce(|word| self.release(cpu, word))
    }

    fn release(&self, cpu: Cpu, word: u64) {
        match Left::from_raw(word) {
            Left::Head(head) => self.free_head(cpu, head),
            Left::Object(object) => self.free_object(cpu, object),
            Left::Bucket(number) => self.index.give_back(number),
            Left::Group(number) => self.free_head(cpu, self.groups.forget(number)),
            Left::Pages(begun) => self.index.give_back_pages(begun),
        }
    }
}
