//! Compaction: objects move to other places of the pool, and their slots name the new places.

use objects::Object;
use units::Cpu;
use zsmalloc::Pass;

use super::Engine;
use crate::resources::Design;
use crate::slot::Slot;
use crate::slots::SlotTable;

impl<D: Design> Engine<D> {
    /// Moves the objects of the first `pages` pages together, and gives the freed frames back to
    /// the zone. Returns their number. Readers and writers go on meanwhile. The calling thread
    /// holds nothing that the closure of a `load` may need.
    pub(crate) fn compact(&self, cpu: Cpu, pages: usize) -> u64 {
        self.quiesce(cpu);
        self.pool().compact(cpu, |pass| {
            self.each(0..pages, |index, slot| {
                if let Some(object) = slot.object()
                    && pass.is_leaving(object.handle())
                {
                    self.move_out(cpu, index, object, pass);
                }
            });
            // Places that readers may still use are given back before the pass ends.
            self.quiesce(cpu);
        })
    }

    /// Moves the object of a page, unless the page has another one by now.
    fn move_out(&self, cpu: Cpu, index: usize, object: Object, pass: &mut Pass<'_>) {
        let Some(to) = pass.place_for(object.handle()).map(|to| object.moved_to(to)) else {
            return;
        };
        let pass = &*pass;
        // A claimed slot is about to get another object. As long as the object has to leave, its
        // handle names no other object: see `zsmalloc::Pass::is_leaving`.
        let is_there = |slot: Slot| {
            slot.object() == Some(object) && !slot.is_claimed() && pass.is_leaving(object.handle())
        };
        let copied = self.slots.load(cpu, index, |slot| {
            let copies = is_there(slot);
            if copies {
                self.copy_to_place(pass, object, to);
            }
            copies
        });
        #[cfg(any(shuttle, asan))]
        if self.move_wrongly(cpu, index, (object, to), copied) {
            return;
        }
        let swapped =
            self.slots.update(index, |now| (copied && is_there(now)).then(|| now.moved_to(to)));
        match swapped {
            Ok(old) => self.slots.retire(cpu, old, |slot| self.release(cpu, slot)),
            // The page was used meanwhile. No slot ever named the copy.
            Err(_) => self.release(cpu, Slot::stored(to)),
        }
    }

    /// Completes the move as an engine that leaves something out: see [`crate::Without`]. Returns
    /// whether it did.
    #[cfg(any(shuttle, asan))]
    fn move_wrongly(
        &self,
        cpu: Cpu,
        index: usize,
        (object, to): (Object, Object),
        copied: bool,
    ) -> bool {
        let without = self.without;
        if !copied {
            return false;
        }
        if without.readers_of_objects {
            self.release(cpu, Slot::stored(object));
            let names = |now: Slot| now.object() == Some(object);
            if self.slots.update(index, |now| names(now).then(|| now.moved_to(to))).is_err() {
                self.release(cpu, Slot::stored(to));
            }
            return true;
        }
        let swapped = if without.newer_stores {
            self.slots.update(index, |_| Some(Slot::stored(to)))
        } else if without.flags {
            let names = |now: Slot| now.object() == Some(object) && !now.is_claimed();
            self.slots.update(index, |now| names(now).then_some(Slot::stored(to)))
        } else {
            return false;
        };
        match swapped {
            Ok(old) => self.slots.retire(cpu, old, |slot| self.release(cpu, slot)),
            Err(_) => self.release(cpu, Slot::stored(to)),
        }
        true
    }
}
