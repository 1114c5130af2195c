//! Block devices of disks by the kernel's driver ublk. A disk has one as long as it has a size: the
//! driver has no device without one. Before Linux 6.16 it has none that changes its size.
//!
//! With a state that outlives the daemon such a device does so, too: when the daemon dies, requests
//! wait for the next one, which serves on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::ControlError;
use fuse::Hold;
use sync::Mutex;
use ublk::{Error, Id, Options, Ublk};
use zram::Disk;

use crate::failure::ublk_error;
use crate::latency::Timed;
use crate::mounts::places_of;
use crate::root::{Made, Root};

/// The most queues of a device. Each has its thread.
const QUEUES: usize = 4;
/// Requests that a queue takes at once.
const DEPTH: u16 = 32;
/// Threads that may wait for a backing device at once; other threads never wait.
const WAITING: usize = 4;

/// The block device of a disk, and the link to it. Any number of threads may call every method. A
/// drop removes the block device by force.
pub(super) struct UblkDisk {
    ublk: Mutex<Ublk>,
    pub(super) id: Id,
    pub(super) path: PathBuf,
    pub(super) link: PathBuf,
    /// The driver can change its size.
    pub(super) is_resizable: bool,
}

impl UblkDisk {
    /// Makes the block device of a disk, which has a size, or takes over the one that the daemon
    /// before `left`. `lasts` says whether the next process may serve it on.
    ///
    /// # Errors
    /// The error of the driver, or of the link to a new one.
    pub(super) fn serve(
        disk: &Arc<Disk>,
        (left, lasts): (Option<Id>, bool),
        (root, made): (&Root, &Made),
    ) -> Result<UblkDisk, ControlError> {
        let options = Options {
            queues: host::online_cpus().min(QUEUES),
            depth: DEPTH,
            waiters: WAITING,
            recoverable: lasts,
            maker: made.maker(),
            ..Options::default()
        };
        let device = Arc::new(Timed::new(&disk.name(), disk.clone()));
        let recovered = match left.map(|id| Ublk::recover(id, device.clone(), options)) {
            // It was taken down, and the daemon died before it could say so.
            Some(Err(error @ Error::Unfit(_))) => {
                tracing::warn!("{} gets a new block device: {error}", disk.name());
                None
            }
            recovered => recovered,
        };
        let is_new = recovered.is_none();
        let ublk = recovered.unwrap_or_else(|| Ublk::serve(device, options));
        let ublk = ublk.map_err(|error| ublk_error(&error))?;
        let (id, path, link) = (ublk.id(), ublk.path().to_path_buf(), root.device(&disk.name()));
        made.link_for(&link, &path, is_new)?;
        let is_resizable = ublk.is_resizable();
        Ok(UblkDisk { ublk: Mutex::new(ublk), id, path, link, is_resizable })
    }

    /// Removes the block device, unless it has users: it stays then. With `force` they get errors
    /// from then on.
    ///
    /// # Errors
    /// The error of the driver; none with `force`.
    pub(super) fn take_down(&self, force: bool) -> Result<Option<Hold>, ControlError> {
        match self.ublk.lock().take_down(force) {
            Err(Error::Busy(_)) => Ok(Some(Hold::Claimed)),
            Err(error) if !force => Err(ublk_error(&error)),
            _ => Ok(None),
        }
    }

    /// Has the driver keep the requests for the next program, and answers those that it has given
    /// (Linux 6.16).
    ///
    /// # Errors
    /// If that takes until `end`; the error of the driver.
    pub(super) fn quiesce(&self, end: Instant) -> Result<(), ControlError> {
        self.ublk.lock().quiesce(end).map(drop).map_err(|error| ublk_error(&error))
    }

    /// Serves on after that.
    ///
    /// # Errors
    /// The error of the driver; it is to be tried again.
    pub(super) fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        self.ublk.lock().serve_on(patience).map_err(|error| ublk_error(&error))
    }

    /// Tells the system that the disk has `bytes` bytes now.
    ///
    /// # Errors
    /// The error of the driver.
    pub(super) fn resized(&self, bytes: u64) -> Result<(), ControlError> {
        self.ublk.lock().resize(bytes).map_err(|error| ublk_error(&error))
    }

    /// As [`Ublk::is_in_use`].
    pub(super) fn is_in_use(&self) -> bool {
        self.ublk.lock().is_in_use()
    }

    /// The users of the block device, for a message.
    pub(super) fn names(&self) -> Vec<String> {
        vec![match places_of(&self.path) {
            places if places.is_empty() => "another device or a program holds it".to_string(),
            places => format!("mounted at {}", places.join(", ")),
        }]
    }
}
