//! Changes stand still while another program takes the devices over: what it is given is what there
//! is then, no more and no less.

use control::{ControlError, Errno};
use sync::Mutex;

use super::Devices;

/// The changes of the devices, the swap devices and the file systems.
#[derive(Default)]
pub(super) struct Changes {
    under_way: usize,
    stand_still: bool,
}

/// A change that is under way, until this is dropped.
pub(crate) struct UnderWay<'a>(&'a Mutex<Changes>);

/// No change begins until this is dropped.
pub(crate) struct StandStill<'a>(&'a Mutex<Changes>);

impl Devices {
    /// Begins a change, which may be a part of another one.
    ///
    /// # Errors
    /// `EBUSY` while changes stand still.
    pub(crate) fn begin_change(&self) -> Result<UnderWay<'_>, ControlError> {
        let mut changes = self.changes.lock();
        if changes.stand_still {
            let message = "the daemon is just being handed over to its next program; try again";
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        changes.under_way += 1;
        Ok(UnderWay(&self.changes))
    }

    /// Has changes stand still; None while one is under way.
    pub(crate) fn stand_still(&self) -> Option<StandStill<'_>> {
        let mut changes = self.changes.lock();
        if changes.under_way > 0 || changes.stand_still {
            return None;
        }
        changes.stand_still = true;
        Some(StandStill(&self.changes))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

impl Drop for StandStill<'_> {
    fn drop(&mut self) {
        self.0.lock().stand_still = false;
    }
}
