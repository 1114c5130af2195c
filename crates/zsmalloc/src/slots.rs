//! Slots: the choice of zspage and frames when a slot is taken or freed.

use sync::atomic::Ordering;
use units::{Cpu, Frame, PAGE_SIZE};

use crate::class::{CHAIN_MAX, SizeClass};
use crate::fullness::{ClassState, group_of};
use crate::handle::{Handle, MAX_ZSPAGES};
use crate::loose::LooseFrames;
use crate::pool::{Pool, Room, StoreError};
use crate::zspage::{NO_GROUP, Zspage};

/// Larger classes that are searched for a hole before a frame is allocated.
const NEIGHBOURS: usize = 12;
/// The largest waste in a larger class's hole, as a part of the object's size: a sixteenth.
const WASTE_SHIFT: u32 = 4;
/// A class whose objects have fewer bytes than this shares frames with its neighbours.
const SPARSE: u64 = 4 * PAGE_SIZE as u64;

/// What a class needs before it can give another slot.
pub(crate) enum Lack {
    /// So many loose frames.
    Frames(usize),
    /// The descriptor of a zspage. All are in use.
    Zspage,
}

impl Pool {
    /// Takes a slot for `size` bytes. The first choice is a hole in the fullest zspage of its
    /// class. If a frame of its own would stay mostly empty, the next choice is a hole in a
    /// slightly larger class. Then follows the next slot of a chain that can grow, then the first
    /// slot of a new chain.
    ///
    /// A frame would stay mostly empty if the class is sparse. It would too if the new object
    /// replaces one in this class or a slightly larger one: the old slot is freed right after, and
    /// its hole would keep the new frame allocated for one object.
    #[inline]
    pub(crate) fn take_slot(
        &self,
        cpu: Cpu,
        room: Room,
        size: usize,
        replacing: Option<Handle>,
    ) -> Result<Handle, StoreError> {
        let class = self.sizes.index_of(size);
        let mut state = self.lock(class);
        if room == Room::Open && state.is_shut {
            return Err(StoreError::OverLimit);
        }
        if let Some(id) = state.fullest() {
            let handle = self.take_hole_of(&mut state, class, id);
            self.unlock(class, state);
            return Ok(handle);
        }
        let slot = self.sizes.get(class).slot as u64;
        let sparse = u64::from(state.objects) * slot < SPARSE;
        let frames = self.frames_to_grow(&state, class);
        self.unlock(class, state);
        let replaces = |old: Handle| {
            let old = self.zspages.get(old.zspage() as usize).class();
            (class..=class + NEIGHBOURS).contains(&old)
        };
        let in_larger = sparse || replacing.is_some_and(replaces);
        match in_larger.then(|| self.take_larger_hole(class, size)).flatten() {
            Some(handle) => Ok(handle),
            None => self.take_slot_growing(cpu, room, class, frames),
        }
    }

    #[cold]
    fn take_larger_hole(&self, class: usize, size: usize) -> Option<Handle> {
        let largest = size + (size >> WASTE_SHIFT);
        (class + 1..(class + 1 + NEIGHBOURS).min(self.sizes.count()))
            .take_while(|larger| self.sizes.get(*larger).slot <= largest)
            .filter(|larger| self.classes[*larger].has_holes.load(Ordering::Relaxed))
            .find_map(|larger| self.take_hole(larger))
    }

    /// Allocates `frames` frames, takes the lock, and takes a slot. Another thread may have made
    /// holes or taken the end of the chain meanwhile. Then the slot needs fewer frames, or more.
    #[cold]
    fn take_slot_growing(
        &self,
        cpu: Cpu,
        room: Room,
        class: usize,
        mut frames: usize,
    ) -> Result<Handle, StoreError> {
        let mut loose = LooseFrames::default();
        let taken = loop {
            let allocated = self.alloc_loose(cpu, room, &mut loose, frames);
            let mut state = self.lock(class);
            let mut taken = self.take_hole_or_grow(&mut state, class, &mut loose);
            if taken.is_err() && allocated.is_err() && self.take_back(&mut state, class) {
                taken = self.take_hole_or_grow(&mut state, class, &mut loose);
            }
            self.unlock(class, state);
            match (taken, allocated) {
                (Ok(handle), _) => break Ok(handle),
                (Err(Lack::Zspage), _) => break Err(StoreError::NoMemory),
                (Err(_), Err(error)) => break Err(error),
                (Err(Lack::Frames(more)), Ok(())) => frames = more,
            }
        };
        self.free_loose(cpu, &mut loose);
        taken
    }

    /// Takes a hole, or the first slot of a chain that the loose frames are enough for.
    pub(crate) fn take_hole_or_grow(
        &self,
        state: &mut ClassState,
        class: usize,
        loose: &mut LooseFrames,
    ) -> Result<Handle, Lack> {
        match state.fullest() {
            Some(id) => Ok(self.take_hole_of(state, class, id)),
            None => self.grow(state, class, loose),
        }
    }

    /// Takes a hole of this class, in its fullest zspage.
    fn take_hole(&self, class: usize) -> Option<Handle> {
        let mut state = self.lock(class);
        let id = state.fullest()?;
        let handle = self.take_hole_of(&mut state, class, id);
        self.unlock(class, state);
        Some(handle)
    }

    #[inline]
    pub(crate) fn take_hole_of(&self, state: &mut ClassState, class: usize, id: u32) -> Handle {
        let class = self.sizes.get(class);
        let zspage = self.zspages.get(id as usize);
        let (used, backed) = (zspage.used(), zspage.backed(class));
        let slot = (backed & !used).trailing_zeros() as usize;
        debug_assert!(slot < class.slots, "a zspage listed with holes has none");
        let used = used | 1 << slot;
        zspage.set_used(used);
        state.objects += 1;
        state.holes -= 1;
        self.open(zspage, class, slot);
        state.regroup(&self.zspages, id, group_of(class, used, backed));
        Handle::new(id, slot)
    }

    /// The number of frames that the next slot needs, if there is no hole.
    fn frames_to_grow(&self, state: &ClassState, class: usize) -> usize {
        let class = self.sizes.get(class);
        match state.growable() {
            Some(id) => {
                let zspage = self.zspages.get(id as usize);
                let slot = (class.all_slots() & !zspage.used()).trailing_zeros() as usize;
                let (first, last) = class.frames_of(slot);
                (first..=last).filter(|n| zspage.frame(*n).is_none()).count()
            }
            // The first slot of a chain lies in its first frame.
            None => 1,
        }
    }

    /// Takes the first slot that needs missing frames of the chain, and gives it loose frames.
    fn grow(
        &self,
        state: &mut ClassState,
        class_index: usize,
        loose: &mut LooseFrames,
    ) -> Result<Handle, Lack> {
        let needed = self.frames_to_grow(state, class_index);
        if loose.len() < needed {
            return Err(Lack::Frames(needed));
        }
        let class = self.sizes.get(class_index);
        let id = match state.growable() {
            Some(id) => id,
            None => self.new_id(class_index).ok_or(Lack::Zspage)?,
        };
        let zspage = self.zspages.get(id as usize);
        let used = zspage.used();
        let holes_before = (zspage.backed(class) & !used).count_ones();
        let slot = (class.all_slots() & !used).trailing_zeros() as usize;
        let (first, last) = class.frames_of(slot);
        for n in first..=last {
            if zspage.frame(n).is_none()
                && let Some(frame) = loose.pop()
            {
                zspage.set_frame(n, Some(frame));
                self.shut_frame(frame);
                state.frames += 1;
            }
        }
        if used == 0 {
            state.zspages += 1;
        }
        let (used, backed) = (used | 1 << slot, zspage.backed(class));
        zspage.set_used(used);
        self.open(zspage, class, slot);
        state.objects += 1;
        state.holes += (backed & !used).count_ones();
        state.holes -= holes_before;
        state.regroup(&self.zspages, id, group_of(class, used, backed));
        Ok(Handle::new(id, slot))
    }

    /// Frees the slot of an object. The frames that are empty then become loose.
    pub(crate) fn leave_slot(
        &self,
        state: &mut ClassState,
        at: Handle,
        class: &SizeClass,
        loose: &mut LooseFrames,
    ) {
        let zspage = self.zspages.get(at.zspage() as usize);
        let (used, mut backed) = (zspage.used(), zspage.backed(class));
        let holes_before = (backed & !used).count_ones();
        let used = used & !(1 << at.slot());
        zspage.set_used(used);
        self.poison(zspage, class, at.slot());
        let frames_before = state.frames;
        let (first, last) = class.frames_of(at.slot());
        for n in first..=last {
            if used & class.in_frame[n] == 0 {
                self.loosen(zspage, n, state, loose);
                backed &= !class.in_frame[n];
            }
        }
        state.objects -= 1;
        state.zspages -= u64::from(used == 0);
        if zspage.is_emptying() {
            state.leaving -= 1;
            let emptied = frames_before - state.frames;
            self.account.emptied.fetch_add(emptied, Ordering::Relaxed);
            return;
        }
        state.holes += (backed & !used).count_ones();
        state.holes -= holes_before;
        if used == 0 {
            state.regroup(&self.zspages, at.zspage(), NO_GROUP);
            self.forget(at.zspage());
        } else {
            state.regroup(&self.zspages, at.zspage(), group_of(class, used, backed));
        }
    }

    /// Takes frame `n` from the chain, if it is there.
    pub(crate) fn loosen(
        &self,
        zspage: &Zspage,
        n: usize,
        state: &mut ClassState,
        loose: &mut LooseFrames,
    ) {
        if let Some(frame) = zspage.frame(n) {
            zspage.set_frame(n, None);
            state.frames -= 1;
            loose.push(frame);
        }
    }

    /// Allocates frames until there are `count`, at most `CHAIN_MAX`. Called without the lock of a
    /// class.
    ///
    /// # Errors
    /// [`StoreError`]. The frames that were allocated stay in `loose`.
    pub(crate) fn alloc_loose(
        &self,
        cpu: Cpu,
        room: Room,
        loose: &mut LooseFrames,
        count: usize,
    ) -> Result<(), StoreError> {
        while loose.len() < count.min(CHAIN_MAX) {
            loose.push(self.alloc_frame(cpu, room)?);
        }
        Ok(())
    }

    /// Frees all of them. Called without the lock of a class.
    #[inline]
    pub(crate) fn free_loose(&self, cpu: Cpu, loose: &mut LooseFrames) {
        while let Some(frame) = loose.pop() {
            self.account.used.fetch_sub(1, Ordering::Relaxed);
            self.frames.free(cpu, frame);
        }
    }

    /// Allocates a frame, if the limit allows another one.
    fn alloc_frame(&self, cpu: Cpu, room: Room) -> Result<Frame, StoreError> {
        let used = &self.account.used;
        let before = match self.limit(room) {
            u64::MAX => used.fetch_add(1, Ordering::Relaxed),
            // The count never exceeds the limit, not even for a moment: another thread would be
            // refused because of it.
            limit => used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                    (used < limit).then_some(used + 1)
                })
                .map_err(|_| StoreError::OverLimit)?,
        };
        let Some(frame) = self.frames.alloc(cpu) else {
            used.fetch_sub(1, Ordering::Relaxed);
            return Err(StoreError::NoMemory);
        };
        self.account.peak.fetch_max(before + 1, Ordering::Relaxed);
        Ok(frame)
    }

    /// The number of an unused zspage, which has this class from now on.
    fn new_id(&self, class: usize) -> Option<u32> {
        let mut ids = self.ids.lock();
        let id = if ids.unused != 0 {
            let id = ids.unused;
            ids.unused = self.zspages.get(id as usize).next.load(Ordering::Relaxed);
            id
        } else if (ids.fresh as usize) < self.zspages.ready() && ids.fresh < MAX_ZSPAGES {
            let id = ids.fresh;
            // It was in use where the number of another process was damaged.
            self.zspages.get(id as usize).clear();
            ids.fresh += 1;
            self.save_fresh(ids.fresh);
            id
        } else {
            return None;
        };
        ids.live += 1;
        drop(ids);
        let zspage = self.zspages.get(id as usize);
        zspage.set_class(class);
        zspage.set_used(0);
        Some(id)
    }

    /// Keeps in descriptor 0 how many descriptors were ever used, for another process that finds
    /// the table. Called before the new descriptor is used.
    pub(crate) fn save_fresh(&self, fresh: u32) {
        let first = self.zspages.get(0);
        first.previous.store(self.sizes.mark(), Ordering::Relaxed);
        first.next.store(fresh, Ordering::Relaxed);
    }

    /// Makes the number of a zspage without objects free for reuse.
    pub(crate) fn forget(&self, id: u32) {
        let zspage = self.zspages.get(id as usize);
        let mut ids = self.ids.lock();
        zspage.next.store(ids.unused, Ordering::Relaxed);
        ids.unused = id;
        ids.live -= 1;
    }
}
