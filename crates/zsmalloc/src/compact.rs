//! Compaction: the objects of the emptiest zspages move into the holes of fuller ones.
//!
//! # Definitions
//! A *pass* empties zspages. A zspage is being *emptied* from the choice at the beginning of the
//! pass until the pass ends.
//!
//! # Invariants
//! * No thread takes a slot of a zspage that is being emptied. Its number is not used again before
//!   the pass ends, even if its last object was freed. So as long as [`Pass::is_leaving`] is true
//!   of a handle, the handle names the object that it named when the pass began, or none.
//! * A zspage that is being emptied goes back on its list before a slot of it is taken.
//!
//! # Operations
//! The pool chooses the zspages whose objects fit elsewhere in fewer frames. The owner of the
//! handles goes through all of them. It moves an object in four steps: it takes a place for it
//! ([`Pass::place_for`]), copies it ([`Pass::copy`]), stores the new handle where it kept the old
//! one unless that has changed meanwhile, and frees the place that no handle names then. Everything
//! that can fail comes before the new handle is stored. An object whose handle the owner does not
//! find stays: it is being stored, or waits to be freed. At the end of the pass the zspages that
//! still have objects go back on their lists. Passes follow until one gains nothing.
//!
//! # Why unsafe
//! Objects are copied between slots as raw memory.

use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};

use crate::class::SizeClass;
use crate::fullness::{ClassState, group_of};
use crate::handle::Handle;
use crate::loose::LooseFrames;
use crate::pool::{Pool, Room};
use crate::slots::Lack;
use crate::zspage::{EMPTYING, NO_GROUP};

/// Zspages that are looked at during one hold of the lock of a class.
const LOOK_AT: usize = 256;
/// The most passes of one compaction, and the most rounds of choosing in one class: a bound in case
/// other threads make holes as fast as they are filled.
const PASSES: usize = 64;
const ROUNDS: usize = 1 << 16;
/// A pass takes at most this part of the pool in new frames, and [`MORE_FRAMES`], before the frames
/// that it empties come free. It takes at most half of what the pool may still get.
const GROWTH_SHIFT: u32 = 4;
const MORE_FRAMES: u64 = 32;

/// The most frames that so many objects of a class need.
fn frames_of(objects: usize, class: &SizeClass) -> usize {
    (objects * class.slot).div_ceil(PAGE_SIZE) + 1
}

/// Zspages that could be emptied together.
#[derive(Clone, Copy, Default)]
struct Chosen {
    frames: usize,
    objects: u32,
    holes: u32,
}

impl Chosen {
    fn and(self, other: Chosen) -> Chosen {
        Chosen {
            frames: self.frames + other.frames,
            objects: self.objects + other.objects,
            holes: self.holes + other.holes,
        }
    }

    /// The new frames that their objects need when no hole is left in other zspages.
    fn frames_elsewhere(&self, state: &ClassState, class: &SizeClass) -> usize {
        let elsewhere = (state.holes - self.holes).saturating_sub(state.leaving);
        match self.objects.saturating_sub(elsewhere) {
            0 => 0,
            objects => frames_of(objects as usize, class),
        }
    }
}

/// One pass of a compaction. The thread that compacts has it alone.
pub struct Pass<'a> {
    pool: &'a Pool,
    cpu: Cpu,
    loose: LooseFrames,
    /// Frames that the pass may still take for the objects that it moves.
    growth: usize,
    /// Frames that it took.
    taken: u64,
}

impl Pool {
    /// Moves objects together until no class would need fewer frames. Returns the number of frames
    /// given back to the page allocator, less those taken. Readers and writers go on meanwhile; a
    /// second caller waits for the first.
    ///
    /// `walk` is called once a pass. It goes through all handles of the pool, and moves the objects
    /// for which [`Pass::is_leaving`] is true. It frees the old places before it returns, as far as
    /// it can. The calling thread holds no lock that `walk` or a thread it waits for needs.
    pub fn compact(&self, cpu: Cpu, mut walk: impl FnMut(&mut Pass<'_>)) -> u64 {
        let _one_at_a_time = self.compacting.lock();
        let mut all = 0;
        for _ in 0..PASSES {
            let emptied = self.account.emptied.load(Ordering::Relaxed);
            let mut pass = Pass::begin(self, cpu);
            if !pass.choose_all() {
                break;
            }
            walk(&mut pass);
            pass.free_loose();
            let taken = pass.taken;
            drop(pass);
            let emptied = self.account.emptied.load(Ordering::Relaxed) - emptied;
            let gained = emptied.saturating_sub(taken);
            if gained == 0 {
                break;
            }
            all += gained;
        }
        self.account.compacted.fetch_add(all, Ordering::Relaxed);
        all
    }

    /// About how many frames a compaction would give back. Takes the lock of each class in turn.
    #[must_use]
    pub fn compactable(&self) -> u64 {
        let gain = |(index, class): (usize, &SizeClass)| {
            let state = self.lock(index);
            let objects = state.objects as usize;
            let (chains, rest) = (objects / class.slots, objects % class.slots);
            let needed = chains * class.frames + (rest * class.slot).div_ceil(PAGE_SIZE);
            state.frames.saturating_sub(needed as u64)
        };
        self.sizes.iter().enumerate().map(gain).sum()
    }

    /// Takes zspages out of the lists if their objects fit elsewhere in fewer frames: into holes of
    /// other zspages, and into at most `growth` new frames, which they share. The emptiest come
    /// first. A zspage without a hole can be wasteful too, if its objects lie across frames that
    /// hold little else. Returns whether there were any among those that it looked at.
    fn choose(&self, state: &mut ClassState, class: &SizeClass, growth: &mut usize) -> bool {
        let mut seen = [0u32; LOOK_AT];
        let mut count = 0;
        for (id, (_, member)) in seen.iter_mut().zip(state.members(&self.zspages)) {
            *id = member;
            count += 1;
        }
        // As many of them are chosen as give most frames back.
        let (mut all, mut kept) = (Chosen::default(), 0);
        let (mut best, mut gain, mut taken) = (0, 0, 0);
        for n in 0..count {
            let zspage = self.zspages.get(seen[n] as usize);
            let (used, backed) = (zspage.used(), zspage.backed(class));
            let one = Chosen {
                frames: zspage.frame_count(class),
                objects: used.count_ones(),
                holes: (backed & !used).count_ones(),
            };
            let with = all.and(one);
            let to_take = with.frames_elsewhere(state, class);
            let is_dense =
                one.objects as usize * class.slot + class.slot / 2 > one.frames * PAGE_SIZE;
            if to_take > *growth || to_take > 0 && is_dense {
                continue;
            }
            (all, seen[kept]) = (with, seen[n]);
            kept += 1;
            if all.frames > to_take + gain {
                (best, gain, taken) = (kept, all.frames - to_take, to_take);
            }
        }
        *growth -= taken;
        for id in &seen[..best] {
            let zspage = self.zspages.get(*id as usize);
            let used = zspage.used();
            state.holes -= (zspage.backed(class) & !used).count_ones();
            state.leaving += used.count_ones();
            state.regroup(&self.zspages, *id, EMPTYING);
        }
        best > 0
    }

    /// Puts a zspage that was being emptied on its list again, or gives up its number.
    fn list_again(&self, state: &mut ClassState, class: &SizeClass, id: u32) {
        let zspage = self.zspages.get(id as usize);
        let (used, backed) = (zspage.used(), zspage.backed(class));
        if used == 0 {
            state.regroup(&self.zspages, id, NO_GROUP);
            self.forget(id);
            return;
        }
        state.holes += (backed & !used).count_ones();
        state.leaving -= used.count_ones();
        state.regroup(&self.zspages, id, group_of(class, used, backed));
    }

    /// Puts a zspage with holes, of those that are being emptied, on its list again: a store has no
    /// other space. Returns whether there was one among the first few.
    #[cold]
    pub(crate) fn take_back(&self, state: &mut ClassState, class_index: usize) -> bool {
        let class = self.sizes.get(class_index);
        let mut id = state.emptying;
        for _ in 0..LOOK_AT {
            if id == 0 {
                break;
            }
            let zspage = self.zspages.get(id as usize);
            // A zspage without objects has no frames, so it has no holes.
            if zspage.backed(class) & !zspage.used() != 0 {
                self.list_again(state, class, id);
                return true;
            }
            id = zspage.next.load(Ordering::Relaxed);
        }
        false
    }
}

impl<'a> Pass<'a> {
    fn begin(pool: &'a Pool, cpu: Cpu) -> Pass<'a> {
        let frames = pool.frames();
        let room = pool.limit(Room::All).saturating_sub(frames);
        // Stores need frames at the same time.
        let spare = room.min(pool.headroom()) / 2;
        let growth = ((frames >> GROWTH_SHIFT) + MORE_FRAMES).min(spare);
        Pass { pool, cpu, loose: LooseFrames::default(), growth: growth as usize, taken: 0 }
    }

    /// Chooses the zspages of every class. Returns whether there are any.
    fn choose_all(&mut self) -> bool {
        let (pool, mut growth, mut any) = (self.pool, self.growth, false);
        for index in (0..pool.sizes.count()).rev() {
            let class = pool.sizes.get(index);
            for _ in 0..ROUNDS {
                let mut state = pool.lock(index);
                let more = pool.choose(&mut state, class, &mut growth);
                pool.unlock(index, state);
                any |= more;
                if !more {
                    break;
                }
            }
        }
        // The frames that the choice counts on, and no more.
        self.growth -= growth;
        any
    }

    /// Whether the object of a handle has to leave its zspage. A thread that found the handle where
    /// the owner keeps it sees the present state.
    #[inline]
    #[must_use]
    pub fn is_leaving(&self, handle: Handle) -> bool {
        self.pool.zspages.get(handle.zspage() as usize).is_emptying()
    }

    /// Takes a slot of the size class of `handle` in a zspage that stays; `None` if there is no
    /// space. The caller copies the object there, or frees the slot. The memory of the slot is
    /// there already: it is touched now, and not while the caller may hold a lock.
    pub fn place_for(&mut self, handle: Handle) -> Option<Handle> {
        let (pool, cpu) = (self.pool, self.cpu);
        let class_index = pool.zspages.get(handle.zspage() as usize).class();
        loop {
            let mut state = pool.lock(class_index);
            let taken = pool.take_hole_or_grow(&mut state, class_index, &mut self.loose);
            pool.unlock(class_index, state);
            let more = match taken {
                Ok(place) => {
                    self.touch(place);
                    return Some(place);
                }
                Err(Lack::Zspage) => return None,
                Err(Lack::Frames(frames)) => frames - self.loose.len(),
            };
            if more > self.growth {
                return None;
            }
            let before = self.loose.len();
            let allocated = pool.alloc_loose(cpu, Room::All, &mut self.loose, before + more);
            self.taken += (self.loose.len() - before) as u64;
            // Where one frame is refused, others will be.
            self.growth = if allocated.is_ok() { self.growth - more } else { 0 };
        }
    }

    /// Writes to the memory of a slot that was just taken.
    fn touch(&self, place: Handle) {
        self.each_piece(place, |start, _| {
            // SAFETY: the slot was taken for this pass, and no other thread knows its handle.
            unsafe { start.write_volatile(0) };
        });
    }

    fn each_piece(&self, place: Handle, mut see: impl FnMut(core::ptr::NonNull<u8>, usize)) {
        let zspage = self.pool.zspages.get(place.zspage() as usize);
        let class = self.pool.sizes.get(zspage.class());
        let mut done = 0;
        while done < class.slot {
            let (start, length) = self.pool.piece(zspage, class, place.slot(), done);
            see(start, length);
            done += length;
        }
    }

    /// Copies an object to a place that was taken for it.
    ///
    /// # Safety
    /// `from` names an object of the pool, and is not freed until this returns. `to` is from
    /// [`Pass::place_for`] of `from`, and no other thread knows it.
    pub unsafe fn copy(&self, from: Handle, to: Handle) {
        let pool = self.pool;
        let (source, target) =
            (pool.zspages.get(from.zspage() as usize), pool.zspages.get(to.zspage() as usize));
        let class = pool.sizes.get(source.class());
        let mut copied = 0;
        while copied < class.slot {
            let (from, from_left) = pool.piece(source, class, from.slot(), copied);
            let (to, to_left) = pool.piece(target, class, to.slot(), copied);
            let length = from_left.min(to_left);
            // SAFETY: the source is live, as the caller promises, so its bytes were written and
            // never change. The target was taken for this copy, and no handle names it yet. They
            // are different slots, and both pieces are `length` bytes within them.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), length) };
            copied += length;
        }
    }

    /// Gives back the frames that no object was moved into.
    fn free_loose(&mut self) {
        self.taken -= self.loose.len() as u64;
        self.pool.free_loose(self.cpu, &mut self.loose);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.free_loose();
        for (index, class) in self.pool.sizes.iter().enumerate() {
            let mut more = true;
            while more {
                let mut state = self.pool.lock(index);
                for _ in 0..LOOK_AT {
                    let id = state.emptying;
                    if id != 0 {
                        self.pool.list_again(&mut state, class, id);
                    }
                }
                more = state.emptying != 0;
                self.pool.unlock(index, state);
            }
        }
    }
}
