//! Compaction: it moves objects of the emptiest zspages into the holes of fuller ones.
//!
//! # Definitions
//! A zspage is being *emptied* while it is in no list, has a forwarding table, and still has
//! frames. It is *forwarding* when its frames are gone and a handle still names it.
//!
//! # Invariants
//! * No thread takes a slot of a zspage that is being emptied.
//! * An object is where its forwarding entry points, or, without an entry, where its handle points.
//!   While both places can be reached, their bytes are the same.
//!
//! # Operations
//! Compaction takes zspages out of the lists. It waits for readers, because a slot may have been
//! taken and not yet written. It copies each object into a hole, then enters the new place. It
//! waits for readers again, because a reader may use the old place. Then it gives back the frames.
//! If there is no memory for the objects of a zspage, that zspage and the rest of the batch go back
//! on their lists.
//!
//! # Why unsafe
//! Objects are copied between slots as raw memory.

use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};

use crate::class::SizeClass;
use crate::fullness::{ClassState, NO_GROUP, group_of};
use crate::handle::Handle;
use crate::loose::LooseFrames;
use crate::pool::Pool;
use crate::slots::Lack;

/// Zspages that are emptied in one batch, with one pair of waits for readers.
const BATCH: usize = 32;
/// Zspages that are examined for one batch.
const LOOK_AT: usize = 256;
/// The most batches of one class in one compaction: a bound in case other threads make holes as
/// fast as these batches fill them.
const PASSES: usize = 1 << 16;

/// What became of a zspage of a batch.
#[derive(Clone, Copy)]
enum Outcome {
    /// Its objects were moved or freed.
    Emptied,
    /// Some of its objects were moved, and no frame was left for the others.
    Stuck,
    /// It is on its list again, with all its objects; the table it had.
    Kept(Option<u32>),
}

/// The most frames that so many objects of a class need.
fn frames_of(objects: usize, class: &SizeClass) -> usize {
    (objects * class.slot).div_ceil(PAGE_SIZE) + 1
}

impl Pool {
    /// Moves objects together until no class would need far fewer frames, and returns the number of
    /// frames given back to the page allocator. Readers and writers go on meanwhile; a second
    /// caller waits for the first. The calling thread must not be a reader.
    pub fn compact(&self, cpu: Cpu) -> u64 {
        let _one_at_a_time = self.compacting.lock();
        let before = self.account.compacted.load(Ordering::Relaxed);
        for class in (0..self.sizes.count()).rev() {
            for _ in 0..PASSES {
                if !self.compact_some(cpu, class) {
                    break;
                }
            }
        }
        // The freed frames are scattered; draining gives their memory back to the system.
        self.frames.drain();
        self.account.compacted.load(Ordering::Relaxed) - before
    }

    /// Empties up to a batch of zspages of a class. Returns false if nothing can be gained.
    fn compact_some(&self, cpu: Cpu, class_index: usize) -> bool {
        let class = self.sizes.get(class_index);
        let mut batch = [0u32; BATCH];
        let mut state = self.lock(class_index);
        let count = self.choose(&mut state, class, &mut batch);
        self.unlock(class_index, state);
        if count == 0 {
            return false;
        }
        self.readers.wait_for_readers();
        let mut outcomes = [Outcome::Kept(None); BATCH];
        let mut going = true;
        for (id, outcome) in batch[..count].iter().zip(&mut outcomes) {
            *outcome = match going {
                true => self.move_out(cpu, class_index, *id),
                // No memory: what is left of the batch stays as it was.
                false => Outcome::Kept(self.keep(cpu, class_index, *id)),
            };
            going &= matches!(outcome, Outcome::Emptied);
        }
        self.readers.wait_for_readers();
        let mut loose = LooseFrames::default();
        for (id, outcome) in batch[..count].iter().zip(outcomes) {
            match outcome {
                Outcome::Kept(None) => {}
                Outcome::Kept(Some(table)) => self.forwards.unmake(table, class.slots),
                Outcome::Emptied | Outcome::Stuck => {
                    let mut state = self.lock(class_index);
                    self.finish(&mut state, class, *id, &mut loose);
                    self.unlock(class_index, state);
                    self.free_loose(cpu, &mut loose);
                }
            }
        }
        going
    }

    /// Takes zspages out of the lists if their objects fit elsewhere in fewer frames: into holes of
    /// other zspages, or into newly allocated frames. The emptiest come first. A zspage without a
    /// hole can be wasteful too, if its objects lie across frames that hold little else.
    fn choose(&self, state: &mut ClassState, class: &SizeClass, batch: &mut [u32; BATCH]) -> usize {
        let mut seen = [0u32; LOOK_AT];
        let mut count = 0;
        for (id, (_, member)) in seen.iter_mut().zip(state.members(&self.zspages)) {
            *id = member;
            count += 1;
        }
        let (mut chosen, mut to_move) = (0, 0);
        for id in &seen[..count] {
            let zspage = self.zspages.get(*id as usize);
            let (used, backed) = (zspage.used(), zspage.backed(class));
            let holes = (backed & !used).count_ones();
            let objects = used.count_ones();
            let elsewhere = (state.holes - holes).saturating_sub(to_move);
            let without_hole = objects.saturating_sub(elsewhere) as usize;
            let to_allocate = match without_hole {
                0 => 0,
                objects => frames_of(objects, class),
            };
            if zspage.frame_count(class) <= to_allocate {
                continue;
            }
            let Some(table) = self.forwards.make(class.slots) else { break };
            state.holes -= holes;
            state.regroup(&self.zspages, *id, NO_GROUP);
            zspage.set_forwards(Some(table));
            to_move += objects;
            batch[chosen] = *id;
            chosen += 1;
            if chosen == BATCH {
                break;
            }
        }
        chosen
    }

    /// Moves the remaining objects of a zspage that is being emptied. The frames for objects
    /// without a hole are allocated first. If there are not enough, the zspage is kept. It gets
    /// stuck only if other threads take the holes meanwhile and no frame is left.
    fn move_out(&self, cpu: Cpu, class_index: usize, id: u32) -> Outcome {
        let class = self.sizes.get(class_index);
        let zspage = self.zspages.get(id as usize);
        let Some(table) = zspage.forwards() else { return Outcome::Emptied };
        let mut loose = LooseFrames::default();
        let holes = self.lock(class_index).holes;
        let without_hole = zspage.used().count_ones().saturating_sub(holes) as usize;
        let needed = if without_hole == 0 { 0 } else { frames_of(without_hole, class) };
        if self.alloc_loose(cpu, &mut loose, needed).is_err() {
            let table = self.keep(cpu, class_index, id);
            self.free_loose(cpu, &mut loose);
            return Outcome::Kept(table);
        }
        let mut outcome = Outcome::Emptied;
        let mut slot = 0;
        while slot < class.slots {
            match self.move_slot(class_index, Handle::new(id, slot), table, &mut loose) {
                Ok(()) => slot += 1,
                Err(Lack::Frames(more)) if self.alloc_loose(cpu, &mut loose, more).is_ok() => {}
                Err(_) => {
                    outcome = Outcome::Stuck;
                    break;
                }
            }
        }
        self.free_loose(cpu, &mut loose);
        outcome
    }

    /// Moves the object of a slot, if it is still there.
    fn move_slot(
        &self,
        class_index: usize,
        from: Handle,
        table: u32,
        loose: &mut LooseFrames,
    ) -> Result<(), Lack> {
        let zspage = self.zspages.get(from.zspage() as usize);
        let mut state = self.lock(class_index);
        // Once the last object was freed, another zspage may have this number.
        let here = zspage.forwards() == Some(table)
            && zspage.used() & 1 << from.slot() != 0
            && self.forwards.follow(table, from.slot()).is_none();
        let moved = match here.then(|| self.take_hole_or_grow(&mut state, class_index, loose)) {
            None => Ok(()),
            Some(Err(lack)) => Err(lack),
            Some(Ok(to)) => {
                // The copy makes two slots of one object.
                state.objects -= 1;
                self.copy_slot(self.sizes.get(class_index), from, to);
                self.forwards.enter(table, from.slot(), to);
                Ok(())
            }
        };
        self.unlock(class_index, state);
        moved
    }

    /// Puts a zspage of the batch back on its list. No object of it was moved. Returns its table,
    /// which readers may still follow.
    fn keep(&self, cpu: Cpu, class_index: usize, id: u32) -> Option<u32> {
        let class = self.sizes.get(class_index);
        let zspage = self.zspages.get(id as usize);
        let mut loose = LooseFrames::default();
        let mut state = self.lock(class_index);
        let table = zspage.forwards();
        if table.is_some() {
            zspage.set_forwards(None);
            // Objects may have been freed meanwhile.
            for n in (0..class.frames).filter(|n| zspage.used() & class.in_frame[*n] == 0) {
                self.loosen(zspage, n, &mut state, &mut loose);
            }
            let (used, backed) = (zspage.used(), zspage.backed(class));
            state.holes += (backed & !used).count_ones();
            state.regroup(&self.zspages, id, group_of(class, used, backed));
        }
        self.unlock(class_index, state);
        self.free_loose(cpu, &mut loose);
        table
    }

    /// Copies a whole slot, under the lock of the class.
    fn copy_slot(&self, class: &SizeClass, from: Handle, to: Handle) {
        let (source, target) =
            (self.zspages.get(from.zspage() as usize), self.zspages.get(to.zspage() as usize));
        let mut copied = 0;
        while copied < class.slot {
            let (from, from_left) = self.piece(source, class, from.slot(), copied);
            let (to, to_left) = self.piece(target, class, to.slot(), copied);
            let length = from_left.min(to_left);
            // SAFETY: the source's bytes were written before the last wait for readers and never
            // change. The target slot was taken for this copy, and no handle names it yet. They are
            // different slots, and both pieces are `length` bytes within them.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), length) };
            copied += length;
        }
    }

    /// Takes the frames from a zspage whose objects were moved. A zspage that could not be emptied
    /// is stuck: its remaining frames become loose as its objects are freed.
    fn finish(&self, state: &mut ClassState, class: &SizeClass, id: u32, loose: &mut LooseFrames) {
        let zspage = self.zspages.get(id as usize);
        if zspage.forwards().is_none() {
            return;
        }
        let before = state.frames;
        zspage.stuck.store(true, Ordering::Relaxed);
        self.thin_out(state, class, id, loose);
        self.account.compacted.fetch_add(before - state.frames, Ordering::Relaxed);
    }

    /// Takes the frames without objects from a zspage that compaction has finished. The readers
    /// that used the old place of a moved object have left.
    pub(crate) fn thin_out(
        &self,
        state: &mut ClassState,
        class: &SizeClass,
        id: u32,
        loose: &mut LooseFrames,
    ) {
        let zspage = self.zspages.get(id as usize);
        let Some(table) = zspage.forwards() else { return };
        let used = zspage.used();
        let stays = (0..class.slots)
            .filter(|slot| used & 1 << slot != 0 && self.forwards.follow(table, *slot).is_none())
            .fold(0u128, |stays, slot| stays | 1 << slot);
        for n in (0..class.frames).filter(|n| stays & class.in_frame[*n] == 0) {
            self.loosen(zspage, n, state, loose);
        }
        if stays == 0 {
            zspage.stuck.store(false, Ordering::Relaxed);
            state.zspages -= 1;
            state.forwarding += 1;
        }
    }

    /// Ends a zspage with a forwarding table whose objects are all freed, whether it is forwarding
    /// or still being emptied.
    pub(crate) fn bury(
        &self,
        state: &mut ClassState,
        class: &SizeClass,
        id: u32,
        loose: &mut LooseFrames,
    ) {
        let zspage = self.zspages.get(id as usize);
        if zspage.frame_count(class) == 0 {
            state.forwarding -= 1;
        } else {
            state.zspages -= 1;
            for n in 0..class.frames {
                self.loosen(zspage, n, state, loose);
            }
        }
        self.forget(id);
    }
}
