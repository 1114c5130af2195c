//! Devices whose block devices are the driver ublk's.

use std::sync::Arc;

use control::ControlError;
use sync::atomic::Ordering;
use zram::Disk;

use super::Devices;
use crate::root::Made;

impl Devices {
    /// Serves all devices added from now on by ublk, which must be available.
    pub fn serve_by_ublk(&self, made: Arc<Made>) {
        self.block.store(true, Ordering::Relaxed);
        self.ublks.begin(made, self.state.clone());
    }

    /// The N of the `/dev/ublkbN` of device `id`, if it has one.
    pub(crate) fn ublk(&self, id: u32) -> Option<u32> {
        self.ublks.number(id)
    }

    /// Gives a device its block device by ublk, if it is to have one. The next daemon knows it.
    pub(super) fn serve_by_driver(&self, disk: &Arc<Disk>) -> Result<(), ControlError> {
        self.ublks.serve(disk, &self.root)?;
        if self.ublks.path(disk.id()).is_some() { self.save() } else { Ok(()) }
    }
}
