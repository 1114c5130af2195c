//! Compaction: objects move to other places of the pool, and their slots name the new places.

use alloc::vec::Vec;

use objects::{Object, Shared};
use units::Cpu;
use zsmalloc::Pass;

use super::Engine;
use crate::engine::slot::Slot;

impl Engine {
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
            self.move_shared(cpu, pass);
            // Places that readers may still use are given back before the pass ends.
            self.quiesce(cpu);
        })
    }

    /// Moves shared objects. Readers of a slot that names one write nothing, so the old places are
    /// given back when all readers of the device have left.
    fn move_shared(&self, cpu: Cpu, pass: &mut Pass<'_>) {
        let mut old = Vec::new();
        self.shared.each(|entry, shared, _| {
            if pass.is_leaving(shared.object.handle())
                && let Some(place) = self.move_entry(cpu, entry, pass)
            {
                if old.try_reserve(1).is_ok() {
                    old.push(place);
                } else {
                    self.readers.wait_for_readers();
                    self.free_moved(cpu, place);
                }
            }
        });
        if !old.is_empty() {
            self.readers.wait_for_readers();
        }
        for place in old {
            self.free_moved(cpu, place);
        }
    }

    /// Moves a shared object, and returns its old place.
    fn move_entry(&self, cpu: Cpu, entry: u32, pass: &mut Pass<'_>) -> Option<Object> {
        let _moving = self.moving.lock();
        if !self.shared.try_hold(entry) {
            return None;
        }
        // Nobody but this thread moves what it has a reference to.
        let shared = self.shared.get(entry);
        let from = shared.object.handle();
        let place = if pass.is_leaving(from) { pass.place_for(from) } else { None };
        let old = place.map(|to| {
            let object = shared.object.moved_to(to);
            self.copy_to_place(pass, shared.object, object);
            self.shared.move_to(entry, Shared { object, ..shared });
            shared.object
        });
        self.drop_reference(cpu, entry);
        old
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
        let swapped =
            self.slots.update(index, |now| (copied && is_there(now)).then(|| now.moved_to(to)));
        match swapped {
            Ok(old) => self.retire(cpu, old),
            // The page was used meanwhile. No slot ever named the copy.
            Err(_) => self.release(cpu, Slot::stored(to)),
        }
    }
}
