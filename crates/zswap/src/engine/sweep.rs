//! Pages that their user has freed are dropped, where frees are heard.
//!
//! The user of an area, such as the kernel, sets the bit of a page that it frees: after the last
//! store of the page has ended, and before it begins another one. A store clears the bit before its
//! commit. A sweep looks for the word of the page first, then takes the bit, and then removes that
//! word alone. So what it removes was stored before the page was freed. For the store of the word
//! had cleared the bit before the sweep found the word; the bit that was taken was set after that,
//! and not before the store had ended.
//!
//! Only the holder of its lock knows that a page is on the device: a mark that was seen without it
//! may belong to a later store. So in an area with a device a page is swept under its lock. If
//! another thread has the lock, the bit stays for the next sweep.
//!
//! A bit is lost if the page is stored and freed again between the look and the taking. That costs
//! the memory of a page, until it is stored anew or discarded.

use alloc::{boxed::Box, format};

use control::{ControlError, Errno};
use sync::Reader;
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;

use super::Zswap;
use crate::area::{Area, FreedBits};
use crate::counts::Count;
use crate::{MAX_TYPES, SwapType};

impl Zswap {
    /// Has [`Zswap::sweep`] drop the pages of an area whose bits are set in `bits`. Nobody stores
    /// to the area before this call returns: a store that did not know of the bits would leave one
    /// set.
    ///
    /// # Errors
    /// `ENODEV` if the area is not on; `EINVAL` for too few bits; `EBUSY` if it has bits.
    pub fn hear_frees(&self, swap: SwapType, bits: FreedBits) -> Result<(), ControlError> {
        let off = || ControlError::new(Errno::ENODEV, format!("swap area {swap} is not on"));
        let area = self.area(swap).ok_or_else(off)?;
        let (there, pages) = ((*bits).as_ref().len() as u64 * 64, area.pages);
        if there < pages {
            let message =
                format!("swap area {swap} has {pages} pages, and {there} bits say which are freed");
            return Err(ControlError::invalid(message));
        }
        area.freed.publish(Box::new(bits)).map_err(|_| {
            let message = format!("frees of swap area {swap} are heard already");
            ControlError::new(Errno::EBUSY, message)
        })
    }

    /// Drops the pages whose bits are set, in the cache and on the devices, and clears the bits.
    /// Returns the number of pages that were there. It waits for no device and takes no memory. The
    /// calling thread is no reader.
    pub fn sweep(&self, cpu: Cpu) -> u64 {
        let all = (0..MAX_TYPES).filter_map(|number| self.area(SwapType::new(number).ok()?));
        let swept = all.map(|area| self.sweep_area(cpu, &area)).sum();
        if swept > 0 {
            self.counts.add(cpu, Count::Swept, swept as i64);
            // The memory of the pages is free now, not at some later call.
            self.quiesce(cpu);
        }
        swept
    }

    fn sweep_area(&self, cpu: Cpu, area: &Area) -> u64 {
        let Some(bits) = area.freed.get(&self.readers.enter(cpu)).cloned() else { return 0 };
        let mut swept = 0;
        for (n, word) in (*bits).as_ref().iter().enumerate() {
            // What is overlooked now is found by the next sweep.
            let set = word.load(Ordering::Relaxed);
            if set != 0 {
                swept += self.sweep_word(cpu, area, n, (word, set));
            }
        }
        swept
    }

    /// Sweeps the pages of a word whose bits are `set`.
    fn sweep_word(&self, cpu: Cpu, area: &Area, n: usize, (word, set): (&AtomicU64, u64)) -> u64 {
        let first = n as u64 * 64;
        let inside = area.pages.saturating_sub(first).min(64);
        let set = set & u64::MAX.checked_shr(64 - inside as u32).unwrap_or(0);
        let mine = if area.device.is_some() { area.try_lock_some(n, set) } else { set };
        let (mut rest, mut swept) = (mine, 0);
        let reader = self.readers.enter(cpu);
        while rest != 0 {
            let offset = first + u64::from(rest.trailing_zeros());
            let bit = rest & rest.wrapping_neg();
            swept += u64::from(self.sweep_page(&reader, cpu, (area, offset), (word, bit)));
            rest &= !bit;
        }
        drop(reader);
        if area.device.is_some() {
            area.unclaim_all(n, mine);
        }
        swept
    }

    /// Drops a page if its bit is set. The calling thread has the lock of the page, if there is a
    /// device.
    fn sweep_page(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        (area, offset): (&Area, u64),
        (word, bit): (&AtomicU64, u64),
    ) -> bool {
        // The look has Acquire, and so comes before the bit is taken. It pairs with the Release of
        // `insert`: the store of what was found has cleared the bit.
        let found = area.index.get(cpu, offset);
        // Release pairs with nothing; Acquire keeps what follows behind it.
        if word.fetch_and(!bit, Ordering::AcqRel) & bit == 0 {
            return false;
        }
        let was_there = area.is_on_device(offset);
        area.clear_on_device(cpu, offset);
        let found = found.filter(|word| area.index.remove_if(cpu, offset, *word));
        if let Some(word) = found {
            self.dispose(reader, cpu, word);
        }
        found.is_some() || was_there
    }
}
