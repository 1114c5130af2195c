//! The frontends of devices follow their sizes: block devices, also the driver ublk's, and disks of
//! virtual machines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use control::ControlError;
use zram::Disk;

use super::Devices;
use super::by_ublk::UblkDisk;
use super::change::Change;
use super::way::Way;
use crate::exports::DiskExports;
use crate::failure::after;
use crate::root::Made;
use crate::transport::VhostOptions;

impl Devices {
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
        // A disk may be stored on one that was made before it.
        self.by_driver().iter().rev().try_for_each(|it| it.quiesce(end))
    }

    /// Serves them on, where there is no next program. Does nothing for those that are served.
    ///
    /// # Errors
    /// That of the first that cannot be served now; it is to be tried again.
    pub fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        // All of them, whatever becomes of one.
        self.by_driver().iter().map(|it| it.serve_on(patience)).fold(Ok(()), Result::and)
    }

    fn by_driver(&self) -> Vec<Arc<UblkDisk>> {
        self.ways.lock().values().cloned().filter_map(Way::driver).collect()
    }

    /// The N of the `/dev/ublkbN` of device `id`, if it has one.
    pub(crate) fn ublk(&self, id: u32) -> Option<u32> {
        Some(self.way(id)?.driver()?.id.number)
    }

    /// Lets the frontends of a device follow its size, which was `before`. A device that got its
    /// first size has none again if they cannot.
    pub(super) fn has_size(
        &self,
        lifecycle: &Change<'_>,
        disk: &Arc<Disk>,
        before: u64,
    ) -> Result<(), ControlError> {
        if before != 0 {
            // The disk itself keeps its new size.
            self.vhosts.resized(disk.id());
        }
        let way = self.way(disk.id());
        let followed = match &way {
            // What is stored in it outlives the daemon from the first byte.
            Some(way) if before == 0 => self.save().and_then(|()| way.resized(disk.bytes())),
            Some(way) => way.resized(disk.bytes()),
            None => self.attach(lifecycle, disk, None),
        };
        if let Err(error) = followed {
            if before != 0 {
                return Err(error);
            }
            if way.is_none() {
                let _ = self.detach(lifecycle, disk.id(), true);
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
