//! What of the devices ends with the program that serves them.

use std::sync::Arc;

use control::{ControlError, Errno, Object};
use zram::Disk;

use super::Devices;
use crate::state::State;

impl Devices {
    /// As [`Devices::save`], after a device is gone whose making failed: that error is told.
    pub(crate) fn save_removal(&self) {
        if let Err(error) = self.save() {
            tracing::warn!("{}", error.message);
        }
    }

    /// Where the devices outlive the daemon, if a service manager keeps its state.
    #[must_use]
    pub fn state(&self) -> Option<&Arc<State>> {
        self.state.as_ref()
    }

    /// Is the service manager gone that kept the devices?
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.state.as_ref().is_some_and(|state| !state.has_manager())
    }

    /// Lets the devices as they are now outlive the daemon.
    ///
    /// # Errors
    /// As [`State::save`].
    pub fn save(&self) -> Result<(), ControlError> {
        self.state.as_ref().map_or(Ok(()), |state| state.save(&self.machine))
    }

    /// Checks that no page is sealed with a key that ends with the program. `outlives` says whether
    /// a region of memory outlives it whose name begins so.
    ///
    /// # Errors
    /// `EBUSY`; the message names the device.
    pub fn check_keys(&self, outlives: impl Fn(&str) -> bool) -> Result<(), ControlError> {
        let disks = self.machine.disks();
        // A clone has the backing device of its origin.
        let key = |disk: &Disk| store::key_of(&disk.clone_of().map_or(disk.name(), |it| it.name()));
        let lost = |disk: &&Arc<Disk>| is_sealed(disk) && !outlives(&key(disk));
        let Some(disk) = disks.iter().find(lost) else { return Ok(()) };
        let message = format!(
            "{} pages of {} were written back sealed, with a key that ends with the program, \
             because this kernel has no secret memory (memfd_secret): they would be lost; write or \
             discard them first",
            disk.stats().backed_pages,
            disk.name()
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }
}

/// Has it sealed pages on its backing device?
fn is_sealed(disk: &Arc<Disk>) -> bool {
    let rows = zram::attributes(disk.clone());
    let sealed = rows.show("sealed_backing").is_ok_and(|value| value.trim() == "1");
    sealed && disk.stats().backed_pages > 0
}
