//! Compaction of the pool: objects move to other places, and their entries name the new places.
//!
//! The thread that compacts reads `retired` while it moves an object, so the entry is kept, and its
//! object with it. The old place is retired as an entry is: readers may have found it.

use objects::Object;
use sync::atomic::Ordering;
use units::Cpu;
use zsmalloc::Pass;

use super::Zswap;
use super::frees::leaving;
use crate::entry::Content;
use crate::index::Index;

impl<I: Index> Zswap<I> {
    /// Moves objects together until no frame can be gained. Returns the number of frames that the
    /// pool needs less. Stores, loads and writeback go on meanwhile. The calling thread is no
    /// reader, and has no stream and no lock.
    pub fn compact(&self, cpu: Cpu) -> u64 {
        self.quiesce(cpu);
        self.pool().compact(cpu, |pass| {
            for number in 1..=self.entries.touched() as u32 {
                if let Some(object) = self.entries.object(number)
                    && pass.is_leaving(object.handle())
                {
                    self.move_out(cpu, number, object, pass);
                }
            }
            // The old places are given back before the pass ends.
            self.quiesce(cpu);
        })
    }

    /// Moves the object of an entry, if the entry is in an index.
    fn move_out(&self, cpu: Cpu, number: u32, object: Object, pass: &mut Pass<'_>) {
        let Some(to) = pass.place_for(object.handle()) else { return };
        if self.is_moved(cpu, number, (object, object.moved_to(to)), pass) {
            self.retired.retire(cpu, leaving(object.handle()), |word| self.release(cpu, word));
        } else {
            self.free_place(cpu, to);
        }
    }

    fn is_moved(
        &self,
        cpu: Cpu,
        number: u32,
        (object, to): (Object, Object),
        pass: &Pass<'_>,
    ) -> bool {
        let reader = self.readers.enter(cpu);
        let _reading = self.retired.read(cpu);
        // An entry that the index names now is kept. Any other may be unused, or about to be freed.
        // If the object still has to leave, its zspage is the one that the place was taken for.
        let Some(word) = self.entries.word(number) else { return false };
        let key = self.entries.key(number);
        let is_there = self
            .area_of(&reader, key)
            .is_some_and(|area| area.index.get(cpu, key.offset) == Some(word));
        let is_there = is_there
            && self.entries.content(number) == Content::Stored(object)
            && pass.is_leaving(object.handle());
        if !is_there {
            return false;
        }
        self.copy_to_place(pass, object, to);
        self.entries.replace_object(number, object, to)
    }

    /// Compacts the pool if that makes all the room that is wanted, `wanted` frames. Returns
    /// whether it did compact.
    pub(crate) fn compacts_for(&self, cpu: Cpu, wanted: u64) -> bool {
        let unmovable = self.unmovable.load(Ordering::Relaxed);
        if self.pool().compactable().saturating_sub(unmovable) < wanted {
            return false;
        }
        self.compact(cpu);
        self.unmovable.store(self.pool().compactable(), Ordering::Relaxed);
        true
    }
}
