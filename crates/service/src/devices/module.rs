//! All devices together, as the kernel's module: loading makes them, unloading removes them.
//!
//! A daemon begins as a loaded module. `modprobe` and `rmmod` under `rampack exec` come here.

use control::{ControlError, Errno};
use sync::atomic::Ordering;

use super::Devices;
use super::change::Change;
use super::refusal::Refusal;
use crate::protocol::Add;

/// The most devices that a load makes, as many as `rampack serve --num-devices` makes.
const MOST: u32 = 1024;

impl Devices {
    /// Does the module count as loaded? It does from the start, from each load, and while there is
    /// a device.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        !self.unloaded.load(Ordering::Relaxed) || !self.machine.disks().is_empty()
    }

    /// Makes those of the devices `zram0` to `zram{count - 1}` that are missing. Devices that exist
    /// stay as they are, and so does what could not be taken over.
    ///
    /// # Errors
    /// `EINVAL` for more than 1024 devices, or the error of [`Devices::add`]. No device has been
    /// made then.
    pub fn load(&self, count: u32) -> Result<(), ControlError> {
        if count > MOST {
            let message = format!("{count} devices are too many: 0 to {MOST} are");
            return Err(ControlError::invalid(message));
        }
        let _turn = self.loading.lock();
        let is_there =
            |id| self.machine.disk(id).is_some() || self.refused(&format!("zram{id}")).is_some();
        let mut made = Vec::new();
        for number in (0..count).filter(|id| !is_there(*id)) {
            match self.add(&Add { number: Some(number), ..Add::default() }) {
                Ok(disk) => made.push(disk),
                // Somebody else has just made it.
                Err(_) if is_there(number) => {}
                Err(error) => {
                    for disk in made.iter().rev() {
                        let _ = self.remove(&disk.name(), false);
                    }
                    return Err(error);
                }
            }
        }
        self.unloaded.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Removes all devices with their contents. The module does not count as loaded afterwards.
    ///
    /// # Errors
    /// `EBUSY` when a device is in use; the message names every user. All devices stay then.
    pub fn unload(&self) -> Result<(), ControlError> {
        let _turn = self.loading.lock();
        if *self.cloning.lock() > 0 {
            let message = "a clone is being made; try again when it is there";
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        self.let_all_clients_go();
        self.refuse_held(|_| true)?;
        self.when_closed(|lifecycle| {
            let _closed = self.admission.close();
            self.unload_all(lifecycle)
        })?;
        tracing::info!("all devices removed");
        Ok(())
    }

    fn unload_all(&self, lifecycle: &Change<'_>) -> Result<(), Refusal> {
        let mut disks = self.machine.disks();
        // Clones go before what they are clones of.
        disks.sort_by_key(|disk| disk.clone_of().is_none());
        disks.iter().try_for_each(|disk| self.refuse_clients(disk, false))?;
        disks.iter().try_for_each(|disk| self.refuse_processed(disk, false))?;
        let numbers = self.detach_all(lifecycle, &disks, false)?;
        // Nobody reaches them by a block device any more.
        for (removed, disk) in disks.iter().enumerate() {
            if let Err(error) = self.machine.remove(disk.id()) {
                for (disk, number) in disks.iter().zip(numbers).skip(removed) {
                    self.attach_again(lifecycle, disk, number);
                }
                return Err(error.into());
            }
            self.forget_asked(&disk.name());
            // The next disk of this number is another one.
            self.save_at_end(disk.id(), None);
        }
        self.unloaded.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The number that is written to `load`, as the kernel reads a parameter of a module: decimal, or
/// with `0x` or `0` before it.
///
/// # Errors
/// `EINVAL`.
pub fn device_count(text: &str) -> Result<u32, ControlError> {
    let digits = text.trim_end_matches('\n');
    let lower = digits.to_ascii_lowercase();
    let parsed = match (lower.strip_prefix("0x"), lower.strip_prefix('0')) {
        (Some(hex), _) => unsigned(hex, 16),
        (None, Some(octal)) if !octal.is_empty() => unsigned(octal, 8),
        _ => unsigned(&lower, 10),
    };
    parsed.ok_or_else(|| {
        let message = format!("num_devices is a whole number from 0 to {MOST}, not {digits:?}");
        ControlError::new(Errno::EINVAL, message)
    })
}

/// Only digits, without a sign.
fn unsigned(digits: &str, radix: u32) -> Option<u32> {
    let is_number = digits.chars().all(|c| c.is_digit(radix));
    if is_number { u32::from_str_radix(digits, radix).ok() } else { None }
}
