//! Slots: the choice of zspage and frames when a slot is taken or freed.

use sync::atomic::Ordering;
use units::{Cpu, Frame, Order, PAGE_SIZE};

use crate::class::{CHAIN_MAX, SizeClass};
use crate::fullness::{ClassState, NO_GROUP, group_of};
use crate::handle::{Handle, MAX_ZSPAGES};
use crate::pool::{Pool, StoreError};
use crate::zspage::Zspage;

/// Larger classes that are searched for a hole before a frame is allocated.
const NEIGHBOURS: usize = 12;
/// The largest waste in a larger class's hole, as a part of the object's size: a sixteenth.
const WASTE_SHIFT: u32 = 4;
/// A class whose objects have fewer bytes than this shares frames with its neighbours.
const SPARSE: u64 = 4 * PAGE_SIZE as u64;

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
        size: usize,
        replacing: Option<Handle>,
    ) -> Result<Handle, StoreError> {
        let class = self.sizes.index_of(size);
        let mut state = self.lock(class);
        if let Some(id) = state.fullest() {
            let handle = self.take_hole_of(&mut state, class, id);
            self.unlock(class, state);
            return Ok(handle);
        }
        let slot = self.sizes.get(class).slot as u64;
        let sparse = u64::from(state.objects) * slot < SPARSE;
        self.unlock(class, state);
        let replaces = |old: Handle| {
            let old = self.zspages.get(old.zspage() as usize).class();
            (class..=class + NEIGHBOURS).contains(&old)
        };
        let share = sparse || replacing.is_some_and(replaces);
        match share.then(|| self.take_larger_hole(class, size)).flatten() {
            Some(handle) => Ok(handle),
            None => self.take_slot_growing(cpu, class),
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

    #[cold]
    fn take_slot_growing(&self, cpu: Cpu, class: usize) -> Result<Handle, StoreError> {
        let mut state = self.lock(class);
        let taken = match state.fullest() {
            Some(id) => Ok(self.take_hole_of(&mut state, class, id)),
            None => self.grow(&mut state, cpu, class),
        };
        self.unlock(class, state);
        taken
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

    /// Takes the first slot that needs a missing frame of the chain, and allocates the frame.
    pub(crate) fn grow(
        &self,
        state: &mut ClassState,
        cpu: Cpu,
        class_index: usize,
    ) -> Result<Handle, StoreError> {
        let class = self.sizes.get(class_index);
        let id = match state.growable() {
            Some(id) => id,
            None => self.new_id(class_index)?,
        };
        let zspage = self.zspages.get(id as usize);
        let used = zspage.used();
        let holes_before = (zspage.backed(class) & !used).count_ones();
        let slot = (class.all_slots() & !used).trailing_zeros() as usize;
        let (first, last) = class.frames_of(slot);
        let mut allocated = [false; CHAIN_MAX];
        for n in first..=last {
            if zspage.frame(n).is_some() {
                continue;
            }
            match self.lend_frame(cpu) {
                Ok(frame) => {
                    zspage.set_frame(n, Some(frame));
                    self.shut_frame(frame);
                    allocated[n] = true;
                    state.frames += 1;
                }
                Err(error) => {
                    for n in (first..n).filter(|n| allocated[*n]) {
                        self.give_back(zspage, n, state, cpu);
                    }
                    if used == 0 {
                        self.forget(id);
                    }
                    return Err(error);
                }
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

    /// Frees the slot of an object that was not moved, and gives back the frames that are empty
    /// then.
    pub(crate) fn leave_slot(
        &self,
        state: &mut ClassState,
        cpu: Cpu,
        at: Handle,
        class: &SizeClass,
    ) {
        let zspage = self.zspages.get(at.zspage() as usize);
        let (used, mut backed) = (zspage.used(), zspage.backed(class));
        let holes_before = (backed & !used).count_ones();
        let used = used & !(1 << at.slot());
        zspage.set_used(used);
        self.poison(zspage, class, at.slot());
        let (first, last) = class.frames_of(at.slot());
        for n in first..=last {
            if used & class.in_frame[n] == 0 {
                self.give_back(zspage, n, state, cpu);
                backed &= !class.in_frame[n];
            }
        }
        state.objects -= 1;
        state.holes += (backed & !used).count_ones();
        state.holes -= holes_before;
        if used == 0 {
            state.zspages -= 1;
            state.regroup(&self.zspages, at.zspage(), NO_GROUP);
            self.forget(at.zspage());
        } else {
            state.regroup(&self.zspages, at.zspage(), group_of(class, used, backed));
        }
    }

    fn lend_frame(&self, cpu: Cpu) -> Result<Frame, StoreError> {
        let limit = self.account.limit.load(Ordering::Relaxed);
        let before = self.account.used.fetch_add(1, Ordering::Relaxed);
        let allocated = if limit != 0 && before >= limit {
            Err(StoreError::OverLimit)
        } else {
            self.frames.alloc(cpu, Order::ZERO).ok_or(StoreError::NoMemory)
        };
        match allocated {
            Ok(_) => drop(self.account.peak.fetch_max(before + 1, Ordering::Relaxed)),
            Err(_) => drop(self.account.used.fetch_sub(1, Ordering::Relaxed)),
        }
        allocated
    }

    pub(crate) fn give_back(&self, zspage: &Zspage, n: usize, state: &mut ClassState, cpu: Cpu) {
        if let Some(frame) = zspage.frame(n) {
            zspage.set_frame(n, None);
            state.frames -= 1;
            self.account.used.fetch_sub(1, Ordering::Relaxed);
            self.frames.free(cpu, frame, Order::ZERO);
        }
    }

    fn new_id(&self, class: usize) -> Result<u32, StoreError> {
        let mut ids = self.ids.lock();
        let id = if ids.unused != 0 {
            let id = ids.unused;
            ids.unused = self.zspages.get(id as usize).next.load(Ordering::Relaxed);
            id
        } else if (ids.fresh as usize) < self.zspages.ready() && ids.fresh < MAX_ZSPAGES {
            ids.fresh += 1;
            ids.fresh - 1
        } else {
            return Err(StoreError::NoMemory);
        };
        ids.live += 1;
        drop(ids);
        let zspage = self.zspages.get(id as usize);
        zspage.set_class(class);
        zspage.set_used(0);
        Ok(id)
    }

    /// Makes the number of a zspage that no handle names free for reuse.
    pub(crate) fn forget(&self, id: u32) {
        let zspage = self.zspages.get(id as usize);
        let slots = self.sizes.get(zspage.class()).slots;
        if let Some(table) = zspage.forwards() {
            zspage.set_forwards(None);
            zspage.stuck.store(false, Ordering::Relaxed);
            self.forwards.unmake(table, slots);
        }
        let mut ids = self.ids.lock();
        zspage.next.store(ids.unused, Ordering::Relaxed);
        ids.unused = id;
        ids.live -= 1;
    }
}
