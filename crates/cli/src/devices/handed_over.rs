//! What of the devices ends with the program that serves them.

use rampack::control::{ControlError, Errno};

use super::Devices;

impl Devices {
    /// Checks that no program uses a file or a block device of a device. Clients of NBD connect
    /// again.
    ///
    /// # Errors
    /// `EBUSY`; the message names every user.
    pub fn check_handed_over(&self) -> Result<(), ControlError> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.check()?;
        let disks = self.machine.disks();
        let users = disks.iter().filter_map(|disk| self.busy(&lifecycle, disk));
        let users: Vec<String> = users.map(|error| error.message).collect();
        match users.is_empty() {
            true => Ok(()),
            false => {
                let message =
                    format!("{}; block devices and files end with the program", users.join("; "));
                Err(ControlError::new(Errno::EBUSY, message))
            }
        }
    }
}
