//! Areas and memcgs: how they are added and removed.

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};

use control::{ControlError, Errno};
use sync::Reader;
use units::{Cpu, PAGE_SIZE};

use super::{AreaOptions, Zswap, names_of, no_memory};
use crate::area::{Area, AreaForm};
use crate::index::{AreaIndex, Flat, Index};
use crate::memcg::Memcg;
use crate::record::{KeptMemcg, MAX_MEMCGS, MEMCG_NAME_BYTES};
use crate::{Key, MAX_OFFSETS, MAX_TYPES, SwapType};

impl Zswap {
    /// Turns an area on: `pages` pages, all empty.
    ///
    /// # Errors
    /// `EBUSY` if it is on; `EINVAL` for no pages, too many pages, or more pages than its device
    /// has; `ENOMEM` when the index cannot be made. Nothing has changed then.
    pub fn swapon(
        &self,
        swap: SwapType,
        pages: u64,
        options: AreaOptions,
    ) -> Result<(), ControlError> {
        if pages == 0 || pages > MAX_OFFSETS {
            let message = format!("a swap area has 1 to {MAX_OFFSETS} pages, not {pages}");
            return Err(ControlError::invalid(message));
        }
        if let Some(device) = &options.device {
            let there = device.geometry().bytes / PAGE_SIZE as u64;
            if there < pages {
                let message = format!(
                    "the device of the swap area has {there} pages, and {pages} are needed"
                );
                return Err(ControlError::invalid(message));
            }
        }
        let _changing = self.changing.lock();
        if self.area(swap).is_some() {
            return Err(ControlError::new(Errno::EBUSY, format!("swap area {swap} is on already")));
        }
        let entries = self.entries.capacity();
        let generation = self.record.next_generation(swap);
        let (index, marks) = names_of(swap, generation);
        let memory = self.memory_of(&index);
        let index = match self.other_index {
            None => Flat::make(&*memory, pages, entries, self.cpus).map(AreaIndex::Flat),
            Some(make) => make(&*memory, pages, entries, self.cpus).map(AreaIndex::Other),
        };
        let index = index.map_err(no_memory)?;
        let AreaOptions { device, memcg } = options;
        let (marks, number) = (self.memory_of(&marks), memcg.0.number);
        let (provider, marks, readers) = (&*self.provider, &*marks, &self.readers);
        let what = AreaForm { provider, marks, readers, swap, generation, pages };
        let area = Area::new(what, index, device, memcg);
        let area = Box::new(Arc::new(area.map_err(no_memory)?));
        self.record.set_on(swap, pages, number);
        self.areas[swap.number()]
            .publish(area)
            .map_err(|_| ControlError::new(Errno::EBUSY, format!("swap area {swap} is on already")))
    }

    /// Turns an area off. The calling thread must not be a reader.
    ///
    /// # Errors
    /// `ENODEV` if the area is not on; `EBUSY` while pages of it are in the cache or on its device,
    /// see [`Zswap::invalidate_area`]; nothing has changed then.
    pub fn swapoff(&self, swap: SwapType) -> Result<(), ControlError> {
        let _changing = self.changing.lock();
        let off = || ControlError::new(Errno::ENODEV, format!("swap area {swap} is not on"));
        let area = self.area(swap).ok_or_else(off)?;
        // A page that is stored anew moves from the device to the cache; a written-back page moves
        // the other way. Two counts of the device, before and after, see each page in one of the
        // places.
        let before = area.count_on_device();
        let (cached, there) = (area.index.count(), area.count_on_device().max(before));
        if cached + there > 0 {
            let message = format!(
                "swap area {swap} still has pages: {cached} in the cache and {there} on its device"
            );
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        drop(self.areas[swap.number()].withdraw());
        // A thread that found the area earlier may have stored a page meanwhile.
        self.empty(Cpu(0), &area);
        self.record.set_off(swap);
        Ok(())
    }

    /// Whether the area is on.
    #[must_use]
    pub fn is_on(&self, swap: SwapType) -> bool {
        self.area(swap).is_some()
    }

    pub(crate) fn area(&self, swap: SwapType) -> Option<Arc<Area>> {
        self.areas[swap.number()].get(&self.readers.enter(Cpu(0))).cloned()
    }

    pub(crate) fn area_here<'p>(
        &'p self,
        reader: &'p Reader<'_>,
        swap: SwapType,
    ) -> Option<&'p Arc<Area>> {
        self.areas[swap.number()].get(reader)
    }

    /// The area of a page, if the page lies within it.
    #[inline]
    pub(crate) fn area_of<'p>(&'p self, reader: &'p Reader<'_>, key: Key) -> Option<&'p Arc<Area>> {
        let area = self.areas[key.swap.number()].get(reader)?;
        (key.offset < area.pages).then_some(area)
    }

    /// The areas that are on.
    #[must_use]
    pub fn areas(&self) -> Vec<SwapType> {
        let all = (0..MAX_TYPES).filter_map(|number| SwapType::new(number).ok());
        all.filter(|swap| self.is_on(*swap)).collect()
    }

    /// The memcg called `name`; made now if there is none.
    ///
    /// # Errors
    /// `ENOSPC` when [`MAX_MEMCGS`] exist; `EINVAL` for a name that is too long.
    pub fn memcg(&self, name: &str) -> Result<Memcg, ControlError> {
        let _changing = self.changing.lock();
        if let Some(memcg) = self.memcgs().into_iter().find(|memcg| memcg.name() == name) {
            return Ok(memcg);
        }
        if name.len() > MEMCG_NAME_BYTES {
            let message = format!(
                "the name of a memcg has {} bytes; it may have {MEMCG_NAME_BYTES}",
                name.len()
            );
            return Err(ControlError::invalid(message));
        }
        let is_free = |number: &u8| {
            self.memcgs[usize::from(*number)].get(&self.readers.enter(Cpu(0))).is_none()
        };
        if let Some(number) = (0..MAX_MEMCGS as u8).find(is_free) {
            let kept = KeptMemcg { name: name.into(), max: u64::MAX, writeback: true };
            self.record.set_memcg(number, &kept);
            return Ok(self.publish_memcg(number, kept));
        }
        let message = format!("there are {MAX_MEMCGS} memcgs already; remove one first");
        Err(ControlError::new(Errno::ENOSPC, message))
    }

    /// Publishes a memcg as it is in the record. Nobody else has its number.
    pub(crate) fn publish_memcg(&self, number: u8, kept: KeptMemcg) -> Memcg {
        let memcg = Memcg::new(number, kept, self.record.clone(), self.cpus);
        // The place is empty, so this succeeds.
        let _ = self.memcgs[usize::from(number)].publish(Box::new(memcg.clone()));
        memcg
    }

    /// Removes a memcg that has no pages. Stores for it are refused from then on. The calling
    /// thread must not be a reader.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist, `EBUSY` while it has pages or an area.
    pub fn remove_memcg(&self, name: &str) -> Result<(), ControlError> {
        let _changing = self.changing.lock();
        let none = || ControlError::new(Errno::ENOENT, format!("there is no memcg {name:?}"));
        let memcgs = self.memcgs();
        let memcg = memcgs.iter().find(|memcg| memcg.name() == name).ok_or_else(none)?;
        let owns = |swap: &SwapType| self.area(*swap).is_some_and(|area| area.memcg.name() == name);
        let busy = |why: &str| ControlError::new(Errno::EBUSY, format!("memcg {name:?} {why}"));
        if name == "default" || self.areas().iter().any(owns) {
            return Err(busy("has a swap area, or is the default"));
        }
        memcg.set_gone(true);
        // A thread that did not see the mark may have stored a page.
        self.readers.wait_for_readers();
        if memcg.pages() > 0 {
            memcg.set_gone(false);
            return Err(busy("has pages"));
        }
        drop(self.memcgs[usize::from(memcg.0.number)].withdraw());
        self.record.remove_memcg(memcg.0.number);
        Ok(())
    }

    /// All memcgs.
    #[must_use]
    pub fn memcgs(&self) -> Vec<Memcg> {
        let reader = self.readers.enter(Cpu(0));
        self.all_memcgs(&reader).cloned().collect()
    }

    pub(crate) fn all_memcgs<'p>(
        &'p self,
        reader: &'p Reader<'_>,
    ) -> impl Iterator<Item = &'p Memcg> {
        self.memcgs.iter().filter_map(|place| place.get(reader))
    }

    pub(crate) fn memcg_of<'p>(&'p self, reader: &'p Reader<'_>, number: u32) -> Option<&'p Memcg> {
        self.memcgs.get(usize::from(self.entries.memcg(number)))?.get(reader)
    }
}
