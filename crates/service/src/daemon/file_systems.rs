//! The file system that a daemon makes and mounts for its user.
//!
//! Each step is done by [`Loops`], which may not wait for this daemon, and is in the table before
//! the next one ([`crate::state::file_system`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rampack::control::{ControlError, Errno};
use rampack::host::{Unmount, mounts};
use rampack::sync::Mutex;
use rampack::zram::Disk;

use crate::devices::Devices;
use crate::failure::say;
use crate::filesystem::{self, Kind};
use crate::loops::Loops;
use crate::protocol::Add;
use crate::state::file_system::{FileSystem, MadeUpTo};

/// How long a program may take to close the file of a mount that is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A file system that was made and mounted for the user.
pub(super) struct Mounted {
    kind: &'static Kind,
    device: PathBuf,
    target: PathBuf,
}

impl Mounted {
    /// Is it still there? The user may have unmounted it, and mounted something else there.
    fn is_there(&self) -> bool {
        mounts().iter().any(|it| it.at == self.target && it.source == self.device)
    }
}

/// The file system of a daemon.
pub struct FileSystems {
    devices: Arc<Devices>,
    mounted: Mutex<Option<Mounted>>,
    loops: Arc<Loops>,
}

impl FileSystems {
    /// None yet, on `devices`.
    pub(super) fn new(devices: Arc<Devices>) -> FileSystems {
        FileSystems { devices, mounted: Mutex::new(None), loops: Arc::new(Loops::here()) }
    }

    /// Has `loops` make, mount and unmount file systems from now on.
    pub(super) fn change_by(&mut self, loops: Arc<Loops>) {
        self.loops = loops;
    }

    /// Is one mounted?
    pub(super) fn is_mounted(&self) -> bool {
        self.mounted.lock().is_some()
    }

    /// Makes a device for a file system of `kind`, which is to be mounted at `target`.
    ///
    /// # Errors
    /// As [`crate::devices::Devices::add`].
    pub fn add_for(
        &self,
        options: &Add,
        kind: &Kind,
        target: Option<&Path>,
    ) -> Result<Arc<Disk>, ControlError> {
        self.devices.add_noted(options, |disk| {
            let (kind, target) = (kind.name.to_owned(), target.map(Path::to_owned));
            self.set(FileSystem { disk: disk.name(), kind, target, step: MadeUpTo::Begun });
        })
    }

    /// Makes a file system of `kind` on `disk`, which [`FileSystems::add_for`] has made, and mounts
    /// it at `target` until the daemon stops.
    ///
    /// # Errors
    /// `ENODEV` without a block device, or the error of the step that failed.
    pub fn make(
        &self,
        disk: &Arc<Disk>,
        kind: &'static Kind,
        target: Option<&Path>,
    ) -> Result<(), ControlError> {
        let device = self.place(disk)?;
        self.loops.make_file_system(kind, &device)?;
        self.step(MadeUpTo::Made)?;
        let Some(target) = target else { return Ok(()) };
        self.mount(Mounted { kind, device, target: target.to_owned() })
    }

    /// Takes away the device of a daemon before that died while it made the file system. Nobody was
    /// told of it. True if the file system is to be made.
    ///
    /// # Errors
    /// As [`crate::devices::Devices::remove`].
    pub fn begins_anew(&self) -> Result<bool, ControlError> {
        let begun = self.file_system().filter(|it| it.step == MadeUpTo::Begun);
        if let Some(it) = &begun
            && self.devices.disk(&it.disk).is_ok()
        {
            self.devices.remove(&it.disk, false)?;
        }
        Ok(begun.is_some() || self.devices.machine().disks().is_empty())
    }

    /// Goes on with the file system that a daemon before made: mounts it if that did not. Tells the
    /// user if somebody has unmounted it. Returns its disk and its kind.
    ///
    /// # Errors
    /// The error of a mount.
    pub fn go_on(&self) -> Result<Option<(Arc<Disk>, &'static Kind)>, ControlError> {
        let Some(FileSystem { disk, kind, target, step }) = self.file_system() else {
            return Ok(None);
        };
        let Ok(disk) = self.devices.disk(&disk) else { return Ok(None) };
        let kind = filesystem::kind(&kind)?;
        let Some(target) = target else { return Ok(Some((disk, kind))) };
        let mounted = Mounted { kind, device: self.place(&disk)?, target };
        if mounted.is_there() {
            *self.mounted.lock() = Some(mounted);
            self.step(MadeUpTo::Mounted)?;
        } else if step == MadeUpTo::Made {
            filesystem::check_free(&mounted.target)?;
            self.mount(mounted)?;
        } else {
            let (name, target) = (disk.name(), mounted.target.display());
            say(&format!("rampack: the file system of {name} is no longer mounted at {target}\n"));
            // It may be mounted there again. The end takes it down as if no daemon had died.
            *self.mounted.lock() = Some(mounted);
        }
        Ok(Some((disk, kind)))
    }

    /// The block device of a disk; its file where there is none.
    fn place(&self, disk: &Arc<Disk>) -> Result<PathBuf, ControlError> {
        let report = self.devices.report(disk);
        let place = report.block_device.or(report.file);
        place.as_deref().map(rampack::path_of).ok_or_else(|| {
            // What the daemon said when it started tells why.
            let message = format!("{} has no block device for a file system", disk.name());
            ControlError::new(Errno::ENODEV, message)
        })
    }

    fn mount(&self, it: Mounted) -> Result<(), ControlError> {
        self.loops.mount(it.kind, &it.device, &it.target)?;
        *self.mounted.lock() = Some(it);
        self.step(MadeUpTo::Mounted)
    }

    /// Mounts again what [`FileSystems::unmount`] has unmounted.
    pub(super) fn mount_again(&self, it: Mounted) {
        if let Err(error) = self.mount(it) {
            tracing::error!("it is not mounted any more: {error}");
        }
    }

    /// Unmounts the daemon's own mount, if it is still there, and returns it.
    pub(super) fn unmount(&self, force: bool) -> Result<Option<Mounted>, ControlError> {
        let mut mounted = self.mounted.lock();
        let Some(it) = &*mounted else { return Ok(None) };
        if !it.is_there() {
            *mounted = None;
            return Ok(None);
        }
        // A daemon that is killed meanwhile was not stopped: the next one mounts it again.
        self.step(MadeUpTo::Made)?;
        let unmounted = match self.loops.unmount(&it.target, Unmount::WhenUnused) {
            Err(error) if force && error.errno == Errno::EBUSY => {
                self.loops.unmount(&it.target, Unmount::Lazily)
            }
            result => result,
        };
        if let Err(error) = unmounted {
            self.step(MadeUpTo::Mounted)?;
            return Err(error);
        }
        self.wait_for_the_program(&it.device);
        Ok(mounted.take())
    }

    /// A program that mounts a file writes to it, and closes it, after it was unmounted.
    fn wait_for_the_program(&self, file: &Path) {
        let end = Instant::now() + PATIENCE;
        while file.is_file() && self.devices.check_unused().is_err() && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }

    /// The file system in the table.
    fn file_system(&self) -> Option<FileSystem> {
        self.devices.state()?.file_system()
    }

    /// Notes a file system, from the next save on.
    fn set(&self, file_system: FileSystem) {
        if let Some(state) = self.devices.state() {
            state.set_file_system(file_system);
        }
    }

    /// Keeps how far the file system is.
    fn step(&self, step: MadeUpTo) -> Result<(), ControlError> {
        let Some(it) = self.file_system() else { return Ok(()) };
        if it.step == step {
            return Ok(());
        }
        self.set(FileSystem { step, ..it });
        self.devices.save()
    }
}
