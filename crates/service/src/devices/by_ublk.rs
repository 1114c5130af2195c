//! Block devices of disks by the kernel's driver ublk. A disk has one as long as it has a size: the
//! driver has no device without one. Before Linux 6.16 it has none that changes its size.
//!
//! With a state that outlives the daemon such a device does so, too: when the daemon dies, requests
//! wait for the next one, which serves on.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::tree::DeviceNode;
use control::{ControlError, Errno};
use sync::Mutex;
use ublk::{Error, Options, Ublk};
use zram::Disk;

use crate::failure::ublk_error;
use crate::latency::Timed;
use crate::mounts::{node_of, places_of, stands_on};
use crate::root::{Made, Root};
use crate::state::State;

/// The most queues of a device. Each has its thread.
const QUEUES: usize = 4;
/// Requests that a queue takes at once.
const DEPTH: u16 = 32;
/// Threads that may wait for a backing device at once; other threads never wait.
const WAITING: usize = 4;

/// The block devices by ublk. Any number of threads may call every method.
pub(super) struct Ublks {
    /// None if disks are not served by ublk.
    frontend: Mutex<Option<Frontend>>,
    served: Mutex<BTreeMap<u32, UblkDisk>>,
}

#[derive(Clone)]
struct Frontend {
    made: Arc<Made>,
    /// Where the devices outlive the daemon.
    state: Option<Arc<State>>,
}

struct UblkDisk {
    ublk: Ublk,
    link: PathBuf,
}

impl Ublks {
    /// None; disks are not served by ublk yet.
    pub(super) fn new() -> Ublks {
        Ublks { frontend: Mutex::new(None), served: Mutex::new(BTreeMap::new()) }
    }

    /// Serves disks by ublk from now on.
    pub(super) fn begin(&self, made: Arc<Made>, state: Option<Arc<State>>) {
        *self.frontend.lock() = Some(Frontend { made, state });
    }

    /// The record of what the daemon makes, if disks are served by ublk.
    pub(super) fn made(&self) -> Option<Arc<Made>> {
        self.frontend.lock().as_ref().map(|frontend| frontend.made.clone())
    }

    /// Makes the block device of a disk, or takes over the one that the daemon before left. Does
    /// nothing for a disk without a size, and for one that has its block device.
    ///
    /// # Errors
    /// The error of the driver.
    pub(super) fn serve(&self, disk: &Arc<Disk>, root: &Root) -> Result<(), ControlError> {
        let Some(Frontend { made, state }) = self.frontend.lock().clone() else { return Ok(()) };
        if disk.bytes() == 0 || self.served.lock().contains_key(&disk.id()) {
            return Ok(());
        }
        let options = Options {
            queues: host::online_cpus().min(QUEUES),
            depth: DEPTH,
            waiters: WAITING,
            recoverable: state.is_some(),
            maker: made.maker(),
            ..Options::default()
        };
        let left = state.as_ref().and_then(|state| state.ublk(disk.id()));
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
        let link = root.device(&disk.name());
        match made.link(&link, ublk.path()) {
            Err(error) if is_new => return Err(error),
            // Its users do not need the link.
            Err(error) => tracing::warn!("{error}"),
            Ok(()) => {}
        }
        if let Some(state) = &state {
            state.set_ublk(disk.id(), Some(ublk.id()));
        }
        self.served.lock().insert(disk.id(), UblkDisk { ublk, link });
        Ok(())
    }

    /// Removes the block device of a disk. With `force` its users get errors from then on.
    ///
    /// # Errors
    /// `EBUSY` with its users; it stays then.
    pub(super) fn take_down(&self, disk: &Disk, force: bool) -> Result<(), ControlError> {
        let Some(mut served) = self.served.lock().remove(&disk.id()) else { return Ok(()) };
        let taken_down = served.ublk.take_down(force);
        if !force && let Err(error) = taken_down {
            self.served.lock().insert(disk.id(), served);
            return Err(self.busy(disk).unwrap_or_else(|| ublk_error(&error)));
        }
        let UblkDisk { ublk, link } = served;
        drop(ublk);
        if let Some(Frontend { made, state }) = &*self.frontend.lock() {
            made.remove(&link);
            if let Some(state) = state {
                state.set_ublk(disk.id(), None);
            }
        }
        Ok(())
    }

    /// Removes the block device that the daemon before left of disk `id`, which nobody serves. With
    /// `force` its users get errors.
    ///
    /// # Errors
    /// `EBUSY` if something stands on it; the error of the driver.
    pub(super) fn give_up(&self, id: u32, force: bool) -> Result<(), ControlError> {
        let Some(Frontend { made, state: Some(state) }) = self.frontend.lock().clone() else {
            return Ok(());
        };
        if let Some(left) = state.ublk(id) {
            let path = PathBuf::from(format!("/dev/ublkb{}", left.number));
            let places = places_of(&path).join(", ");
            if !force && (stands_on(&path) || !places.is_empty()) {
                let message = format!("zram{id} ({}) is in use: {places}", path.display());
                return Err(ControlError::new(Errno::EBUSY, message));
            }
            ublk::clear(left.number, made.maker()).map_err(|error| ublk_error(&error))?;
            state.set_ublk(id, None);
        }
        Ok(())
    }

    /// Has the driver keep the requests of all disks for the next program, and answers those that
    /// it has given (Linux 6.16).
    ///
    /// # Errors
    /// If that takes until `end`; the error of the driver.
    pub(super) fn quiesce(&self, end: Instant) -> Result<(), ControlError> {
        // A disk may be stored on one that was made before it.
        let mut served = self.served.lock();
        let done = served.values_mut().rev().try_for_each(|it| it.ublk.quiesce(end).map(drop));
        done.map_err(|error| ublk_error(&error))
    }

    /// Serves on after that.
    ///
    /// # Errors
    /// That of the first disk that cannot be served now; it is to be tried again.
    pub(super) fn serve_on(&self, patience: Duration) -> Result<(), ControlError> {
        let mut served = self.served.lock();
        let each = served.values_mut().map(|it| it.ublk.serve_on(patience));
        // All of them, whatever becomes of one.
        each.fold(Ok(()), Result::and).map_err(|error| ublk_error(&error))
    }

    /// # Errors
    /// `EBUSY` if the disk has a block device whose size cannot change.
    pub(super) fn check_resize(&self, disk: &Disk) -> Result<(), ControlError> {
        let served = self.served.lock();
        let fixed = served.get(&disk.id()).filter(|served| !served.ublk.is_resizable());
        let Some(UblkDisk { ublk, .. }) = fixed else { return Ok(()) };
        let message = format!(
            "{} ({}) keeps its size: the driver ublk changes none before Linux 6.16",
            disk.name(),
            ublk.path().display()
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }

    /// Tells the system that a disk has another size. Does nothing for a disk without a block
    /// device.
    ///
    /// # Errors
    /// The error of the driver.
    pub(super) fn resized(&self, disk: &Disk) -> Result<(), ControlError> {
        match self.served.lock().get_mut(&disk.id()) {
            Some(served) => served.ublk.resize(disk.bytes()).map_err(|error| ublk_error(&error)),
            None => Ok(()),
        }
    }

    /// The error that names the users of a block device; `None` without users.
    pub(super) fn busy(&self, disk: &Disk) -> Option<ControlError> {
        let served = self.served.lock();
        let ublk = &served.get(&disk.id())?.ublk;
        if !ublk.is_in_use() {
            return None;
        }
        let path = ublk.path().to_path_buf();
        drop(served);
        let users = match places_of(&path) {
            places if places.is_empty() => "another device or a program holds it".to_string(),
            places => format!("mounted at {}", places.join(", ")),
        };
        let message = format!("{} ({}) is in use: {users}", disk.name(), path.display());
        Some(ControlError::new(Errno::EBUSY, message))
    }

    /// The block device of disk `id`.
    pub(super) fn path(&self, id: u32) -> Option<PathBuf> {
        self.served.lock().get(&id).map(|served| served.ublk.path().to_path_buf())
    }

    /// Its N.
    pub(super) fn number(&self, id: u32) -> Option<u32> {
        self.served.lock().get(&id).map(|served| served.ublk.id().number)
    }

    /// The link to it.
    pub(super) fn link(&self, id: u32) -> Option<PathBuf> {
        self.served.lock().get(&id).map(|served| served.link.clone())
    }

    /// The block devices by the names of their disks. Empty while one is just being changed; this
    /// waits for none.
    pub(super) fn places(&self) -> Vec<(String, PathBuf)> {
        let Some(served) = self.served.try_lock() else { return Vec::new() };
        let place = |(id, served): (&u32, &UblkDisk)| {
            (format!("zram{id}"), served.ublk.path().to_path_buf())
        };
        served.iter().map(place).collect()
    }

    /// The block device as a node of a directory.
    pub(super) fn node(&self, id: u32) -> Option<DeviceNode> {
        let found = fs::metadata(self.path(id)?).ok()?;
        Some(node_of(&found))
    }
}
