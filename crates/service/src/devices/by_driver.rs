//! The frontends of devices follow their sizes: block devices, also the driver ublk's, and disks of
//! virtual machines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control::ControlError;
use sync::atomic::Ordering;
use zram::Disk;

use super::Devices;
use crate::exports::DiskExports;
use crate::failure::after;
use crate::root::Made;
use crate::transport::VhostOptions;

impl Devices {
    /// Serves all devices added from now on by ublk, which must be available.
    pub fn serve_by_ublk(&self, made: Arc<Made>) {
        self.block.store(true, Ordering::Relaxed);
        self.ublks.begin(made, self.state.clone());
    }

    /// Serves the devices, as they come and go, to virtual machines as well.
    ///
    /// # Errors
    /// `ENOTSUP` in a program without vhost-user; the error of a socket.
    pub fn serve_vhost(&self, options: VhostOptions, made: Arc<Made>) -> Result<(), ControlError> {
        let exports = self.exports(false);
        let lifecycle = self.change();
        self.vhosts.begin(options, self.root.clone(), made, exports)?;
        self.vhosts.follow(lifecycle.machine)
    }

    /// The devices for clients; with `read_only` they cannot change them.
    #[must_use]
    pub fn exports(&self, read_only: bool) -> DiskExports {
        let exports = DiskExports::new(self.machine.clone(), read_only, self.state.clone());
        exports.by(self.admission.clone())
    }

    /// Ends that, after the requests under way. False if a device does not carry them out.
    pub fn end_vhost(&self) -> bool {
        let done = self.vhosts.end();
        if !done {
            tracing::error!("requests of virtual machines are left undone: their device hangs");
        }
        done
    }

    /// Leaves the requests to block devices by ublk to the next program, as far as the driver can.
    ///
    /// # Errors
    /// If requests under way take until `end`; the error of the driver.
    pub fn quiesce(&self, end: Instant) -> Result<(), ControlError> {
        self.ublks.quiesce(end)
    }

    /// Serves them on, where there is no next program. Does nothing for those that are served.
    ///
    /// # Errors
    /// That of the first that cannot be served now; it is to be tried again.
    pub fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        self.ublks.serve_on(patience)
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

    /// Lets the frontends of a device follow its size, which was `before`. A device that got its
    /// first size has none again if they cannot. The caller has the lock of a change.
    pub(super) fn has_size(&self, disk: &Arc<Disk>, before: u64) -> Result<(), ControlError> {
        let attached = self.attached.lock().get(&disk.id()).cloned();
        let resize = || attached.map_or(Ok(()), |attached| attached.resized());
        let resized = match before {
            // What is stored in it outlives the daemon from the first byte.
            0 => self.save().and_then(|()| resize()),
            // The disk itself keeps its new size.
            _ => {
                self.vhosts.resized(disk.id());
                resize().and_then(|()| self.ublks.resized(disk))
            }
        };
        if let Err(error) = resized.and_then(|()| self.serve_by_driver(disk)) {
            if before != 0 {
                return Err(error);
            }
            let reset = disk.reset();
            self.save_removal();
            if reset.is_err() {
                return Err(after(error, reset));
            }
            let message = format!("{}; {} has been reset", error.message, disk.name());
            return Err(ControlError::new(error.errno, message));
        }
        tracing::info!("{} has a size", disk.name());
        Ok(())
    }
}
