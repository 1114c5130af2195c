//! Reads all that was written back, and checks it.

use alloc::format;

use block::IoError;
use control::{ControlError, Errno};
use units::Cpu;

use super::Zswap;
use crate::index::Index;

impl<I: Index> Zswap<I> {
    /// Reads every page on the devices of the areas and checks that it is as it was written. Other
    /// calls go on meanwhile. Returns the number of pages that were read. May wait, for as long as
    /// it takes to read the devices. The calling thread must not be a reader.
    ///
    /// # Errors
    /// `EINVAL` when no area has a device; `EIO` when pages of an area are bad, or its device
    /// cannot be read; `ENOTSUP` when a device cannot tell whether it is as it was written, and all
    /// others are. The message names the area and the first of its bad pages.
    pub fn scrub(&self, cpu: Cpu) -> Result<u64, ControlError> {
        let (mut checked, mut devices, mut unsealed) = (0, 0, None);
        for swap in self.areas() {
            let device = self.area(swap).and_then(|area| area.device.clone());
            let Some(device) = device else { continue };
            devices += 1;
            let mut first = None;
            match (device.scrub(cpu, &mut |page| _ = first.get_or_insert(page)), first) {
                (Ok(found), None) => checked += found.checked,
                (Ok(found), Some(first)) => {
                    let message = format!(
                        "{} of {} pages that swap area {swap} has on its device are not as they \
                         were written; the first is page {first}",
                        found.bad, found.checked
                    );
                    return Err(ControlError::new(Errno::EIO, message));
                }
                (Err(IoError::Unsupported), _) => unsealed = unsealed.or(Some(swap)),
                (Err(error), _) => {
                    let message = format!("the device of swap area {swap} cannot be read: {error}");
                    return Err(ControlError::new(Errno(error.errno()), message));
                }
            }
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
