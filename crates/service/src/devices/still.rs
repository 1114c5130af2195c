//! Changes stand still while another program takes the devices over: what it is given is what there
//! is then, no more and no less.

use control::{ControlError, Errno};
use sync::Mutex;

/// The changes of the devices, the swap devices and the file systems. Any thread may call every
/// method; none waits.
pub(crate) struct Changes(Mutex<Now>);

struct Now {
    under_way: usize,
    stand_still: bool,
}

/// A change that is under way, until this is dropped.
pub(crate) struct UnderWay<'a>(&'a Changes);

/// No change begins until this is dropped.
pub(crate) struct StandStill<'a>(&'a Changes);

impl Changes {
    /// None is under way.
    pub(super) fn new() -> Changes {
        Changes(Mutex::new(Now { under_way: 0, stand_still: false }))
    }

    /// Begins a change, which may be a part of another one.
    ///
    /// # Errors
    /// `EBUSY` while changes stand still.
    pub(crate) fn begin(&self) -> Result<UnderWay<'_>, ControlError> {
        let mut now = self.0.lock();
        if now.stand_still {
            let message = "the daemon is just being handed over to its next program; try again";
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        now.under_way += 1;
        Ok(UnderWay(self))
    }

    /// Has changes stand still; None while one is under way.
    pub(crate) fn stand_still(&self) -> Option<StandStill<'_>> {
        let mut now = self.0.lock();
        if now.under_way > 0 || now.stand_still {
            return None;
        }
        now.stand_still = true;
        Some(StandStill(self))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.0.lock().under_way -= 1;
    }
}

impl Drop for StandStill<'_> {
    fn drop(&mut self) {
        self.0.0.lock().stand_still = false;
    }
}
