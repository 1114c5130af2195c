//! Reads all that was written back, and checks it.

use alloc::format;

use block::{BlockDevice, Operation};
use control::{ControlError, Errno};
use units::{Cpu, PAGE_SIZE, Page};

use super::Zswap;
use crate::area::{Area, PageLocks};

/// What was found on the device of an area.
#[derive(Default)]
struct Found {
    /// Pages that were read.
    pages: u64,
    bad: u64,
    /// The first bad page.
    first: Option<u64>,
}

/// Where a page is read to, as a device with direct I/O takes it.
#[repr(align(4096))]
struct Buffer(Page);

/// Reads every page of the device. It holds the lock of each page meanwhile.
fn read_all(cpu: Cpu, area: &Area, device: &dyn BlockDevice) -> Found {
    let (mut found, mut buffer) = (Found::default(), Buffer([0; PAGE_SIZE]));
    for page in area.marked(0..area.pages) {
        let mut lock = PageLocks::of(area);
        lock.add(page);
        // It may have left the device before it was locked.
        if !area.is_on_device(page) {
            continue;
        }
        found.pages += 1;
        let offset = page * PAGE_SIZE as u64;
        if device.submit(cpu, Operation::Read { offset, into: &mut buffer.0 }).is_err() {
            found.bad += 1;
            found.first.get_or_insert(page);
        }
    }
    found
}

impl Zswap {
    /// Reads every page on the devices of the areas and checks that it is as it was written. Other
    /// calls go on meanwhile. Returns the number of pages that were read. May wait, for as long as
    /// it takes to read the devices. The calling thread must not be a reader.
    ///
    /// # Errors
    /// `EINVAL` when no area has a device; `EIO` when pages of an area are bad; `ENOTSUP` when a
    /// device cannot tell whether it is as it was written, and all others are. The message names
    /// the area and the first of its bad pages.
    pub fn scrub(&self, cpu: Cpu) -> Result<u64, ControlError> {
        let (mut checked, mut devices, mut unsealed) = (0, 0, None);
        for swap in self.areas() {
            let Some(area) = self.area(swap) else { continue };
            let Some(device) = &area.device else { continue };
            devices += 1;
            if !device.abilities().checked {
                unsealed = unsealed.or(Some(swap));
                continue;
            }
            let Found { pages, bad, first } = read_all(cpu, &area, &**device);
            if let Some(first) = first {
                let message = format!(
                    "{bad} of {pages} pages that swap area {swap} has on its device are not as \
                     they were written; the first is page {first}"
                );
                return Err(ControlError::new(Errno::EIO, message));
            }
            checked += pages;
        }
        match unsealed {
            _ if devices == 0 => Err(ControlError::invalid("no swap area has a device")),
            Some(swap) => {
                let message = format!("pages of swap area {swap} are written back unsealed");
                Err(ControlError::new(Errno::ENOTSUP, message))
            }
            None => Ok(checked),
        }
    }
}
