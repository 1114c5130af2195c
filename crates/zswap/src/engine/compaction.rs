//! Compaction of the pool: objects move to other places, and their entries name the new places.

use objects::{Object, Shared};
use sync::atomic::Ordering;
use units::Cpu;
use zsmalloc::Pass;

use super::Zswap;
use super::exchange::Exchanged;
use crate::entry::Content;

impl Zswap {
    /// Moves objects together until no frame can be gained. Returns the number of frames that the
    /// pool needs less. Stores, loads and writeback go on meanwhile. The calling thread is no
    /// reader, and has no stream and no lock.
    pub fn compact(&self, cpu: Cpu) -> u64 {
        self.quiesce(cpu);
        self.pool().compact(cpu, |pass| {
            for number in 1..=self.entries.touched() as u32 {
                if let Some(Content::Stored(object)) = self.entries.in_pool(number)
                    && pass.is_leaving(object.handle())
                {
                    self.move_out(cpu, number, pass);
                }
            }
            self.packs.each(|pack, shared, _| {
                if pass.is_leaving(shared.object.handle()) {
                    self.move_pack(cpu, pack, pass);
                }
            });
            // The old places are given back before the pass ends.
            self.quiesce(cpu);
        })
    }

    /// Moves the object of an entry, if the entry is in an index.
    fn move_out(&self, cpu: Cpu, number: u32, pass: &mut Pass<'_>) {
        let moved = {
            let reader = self.readers.enter(cpu);
            let _reading = self.retired.read(cpu);
            self.exchange(&reader, cpu, number, |_, now| match now {
                Content::Stored(object) => self.copy_away(pass, object).map(Content::Stored),
                Content::SameFilled(_) | Content::Part(_) => None,
            })
        };
        if let Some(Exchanged { old, .. }) = moved {
            self.retire_old(cpu, old);
        }
    }

    /// Moves the object of a pack. Readers of its pages write nothing: its old place is retired, as
    /// they found the pack by an entry.
    fn move_pack(&self, cpu: Cpu, pack: u32, pass: &mut Pass<'_>) {
        if !self.packs.try_hold(pack) {
            return;
        }
        // Nobody but this thread moves what it has a reference to.
        let shared = self.packs.get(pack);
        let moved = self.copy_away(pass, shared.object);
        if let Some(object) = moved {
            self.packs.move_to(pack, Shared { object, ..shared });
        }
        self.drop_reference(cpu, pack);
        if moved.is_some() {
            self.retire_old(cpu, Content::Stored(shared.object));
        }
    }

    /// Copies an object that has to leave its place. What names it keeps it meanwhile.
    fn copy_away(&self, pass: &mut Pass<'_>, object: Object) -> Option<Object> {
        if !pass.is_leaving(object.handle()) {
            return None;
        }
        let to = object.moved_to(pass.place_for(object.handle())?);
        self.copy_to_place(pass, object, to);
        Some(to)
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
