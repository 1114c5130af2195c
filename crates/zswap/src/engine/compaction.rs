//! Compaction of the pool: objects move to other places, and their entries name the new places.

use sync::atomic::Ordering;
use units::Cpu;
use zsmalloc::Pass;

use super::Zswap;
use super::exchange::Exchanged;

impl Zswap {
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
                    self.move_out(cpu, number, pass);
                }
            }
            // The old places are given back before the pass ends.
            self.quiesce(cpu);
        })
    }

    /// Moves the object of an entry, if the entry is in an index.
    fn move_out(&self, cpu: Cpu, number: u32, pass: &mut Pass<'_>) {
        let moved = {
            let reader = self.readers.enter(cpu);
            let _reading = self.retired.read(cpu);
            self.exchange(&reader, cpu, number, |_, object| {
                if !pass.is_leaving(object.handle()) {
                    return None;
                }
                let to = object.moved_to(pass.place_for(object.handle())?);
                self.copy_to_place(pass, object, to);
                Some(to)
            })
        };
        if let Some(Exchanged { old, .. }) = moved {
            self.retire_place(cpu, old);
        }
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
