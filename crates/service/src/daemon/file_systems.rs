//! The file systems that a daemon makes and mounts for its user.
//!
//! Each step is done by [`Loops`], which may not wait for this daemon, and is in the table before
//! the next one ([`crate::state::file_system`]).

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{Unmount, covering, mounts, printable};
use rustix::fs::Mode;
use sync::Mutex;
use zram::Disk;

use crate::devices::Devices;
use crate::failure::{after, failed, say, sentence};
use crate::filesystem::{self, Kind};
use crate::loops::Loops;
use crate::mounts::used_by;
use crate::protocol::ConfiguredDisk;
use crate::state::file_system::{FileSystem, MadeUpTo};

/// How long a program may take to close the file of a mount that is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A file system that was made and mounted for the user.
pub(super) struct Mounted {
    disk: String,
    kind: &'static Kind,
    device: PathBuf,
    target: PathBuf,
}

impl Mounted {
    /// Is it still there? The user may have unmounted it, and mounted something else there. It is
    /// if that is not known.
    fn is_there(&self) -> bool {
        !mounts().is_ok_and(|all| !all.iter().any(|it| self.is_it(it)))
    }

    fn is_it(&self, mounted: &host::Mounted) -> bool {
        mounted.at == self.target && mounted.source == self.device
    }

    /// Checks that its place leads to it: nothing is mounted over it, or over a directory above.
    ///
    /// # Errors
    /// `EBUSY`; the message names what is.
    fn check_uncovered(&self) -> Result<(), ControlError> {
        let all = mounts().unwrap_or_default();
        let Some(own) = all.iter().rposition(|it| self.is_it(it)) else { return Ok(()) };
        let Some(above) = covering(&all, own) else { return Ok(()) };
        let message = format!(
            "{} ({}) is mounted at {}, over the file system of {} at {}; unmount that first",
            printable(&above.source),
            printable(&above.kind),
            above.at.display(),
            self.disk,
            self.target.display()
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }
}

/// The file systems of a daemon.
pub struct FileSystems {
    devices: Arc<Devices>,
    /// In the order in which they were mounted.
    mounted: Mutex<Vec<Mounted>>,
    loops: Mutex<Arc<Loops>>,
    /// That of who started the daemon.
    pub(super) umask: Mode,
}

impl FileSystems {
    /// None yet, on `devices`.
    pub(super) fn new(devices: Arc<Devices>, umask: Mode) -> FileSystems {
        let (mounted, loops) = (Mutex::new(Vec::new()), Mutex::new(Arc::new(Loops::here())));
        FileSystems { devices, mounted, loops, umask }
    }

    /// Has `loops` make, mount and unmount file systems from now on.
    pub(super) fn change_by(&self, loops: Arc<Loops>) {
        *self.loops.lock() = loops;
    }

    fn loops(&self) -> Arc<Loops> {
        self.loops.lock().clone()
    }

    /// Where they are mounted.
    #[must_use]
    pub fn targets(&self) -> Vec<PathBuf> {
        self.mounted.lock().iter().map(|it| it.target.clone()).collect()
    }

    /// Is one mounted?
    pub(super) fn is_mounted(&self) -> bool {
        self.mounted.lock().iter().any(Mounted::is_there)
    }

    /// As [`FileSystems::make_disk`]. The directory to mount it on is made if it is missing, as its
    /// user would make it.
    ///
    /// # Errors
    /// As there; that of a directory that cannot be made.
    pub fn make_configured(
        &self,
        wanted: &ConfiguredDisk,
        root: &Path,
    ) -> Result<Arc<Disk>, ControlError> {
        if let Some(path) = wanted.mount.as_deref().map(machine::path_of) {
            make_directory(&path, self.umask)
                .map_err(|error| failed(format!("cannot make {}", path.display()), &error))?;
        }
        self.make_disk(wanted, root)
    }

    /// Makes a disk of a configuration, and what is to be on it, which is mounted until the daemon
    /// stops.
    ///
    /// # Errors
    /// The error of the step that failed. There is no disk then.
    pub fn make_disk(
        &self,
        wanted: &ConfiguredDisk,
        root: &Path,
    ) -> Result<Arc<Disk>, ControlError> {
        let mount = wanted.mount.as_deref().map(machine::path_of);
        let (kind, target) = filesystem::wanted(wanted.fs.as_deref(), mount.as_deref(), root)?;
        let Some(kind) = kind else { return self.devices.add(&wanted.add) };
        target.as_deref().map_or(Ok(()), filesystem::check_free)?;
        let disk = self.devices.add_noted(&wanted.add, |disk| {
            let (kind, target) = (kind.name.to_owned(), target.clone());
            self.set(FileSystem { disk: disk.name(), kind, target, step: MadeUpTo::Begun });
        })?;
        match self.make_on(&disk, kind, target.as_deref()) {
            Ok(()) => Ok(disk),
            Err(error) => {
                // What was saved before is more than what is there now.
                self.devices.save_at_end(disk.id(), None);
                Err(after(error, self.devices.remove(&disk.name(), false)))
            }
        }
    }

    fn make_on(
        &self,
        disk: &Arc<Disk>,
        kind: &'static Kind,
        target: Option<&Path>,
    ) -> Result<(), ControlError> {
        let device = self.place(disk)?;
        // What was saved has one.
        if disk.stats().pages_stored == 0 {
            self.loops().make_file_system(kind, &device)?;
        }
        self.step(&disk.name(), MadeUpTo::Made)?;
        let Some(target) = target else { return Ok(()) };
        self.mount(Mounted { disk: disk.name(), kind, device, target: target.to_owned() })
    }

    /// Takes away the devices of a daemon before that died while it made their file systems. Nobody
    /// was told of them; the user is told of one that is in use, and stays. True if there was one,
    /// or there is no device at all.
    pub fn begins_anew(&self) -> bool {
        let mut begun = self.file_systems();
        begun.retain(|it| it.step == MadeUpTo::Begun);
        for FileSystem { disk, .. } in &begun {
            let Err(error) = self.devices.remove(disk, false) else { continue };
            say(&format!(
                "rampack: {disk} stays, with a part of a file system or all of it, until \
                          `rampack remove {disk}`: {}\n",
                sentence(&error)
            ));
            // A later daemon must not take it from who uses it then.
            if let Some(state) = self.devices.state() {
                state.forget_file_system(disk);
                self.devices.save_removal();
            }
        }
        !begun.is_empty() || self.devices.numbers().is_empty()
    }

    /// Goes on with the file systems that a daemon before made: mounts those that it did not. Tells
    /// the user if somebody has unmounted one, or it cannot go on. Returns the other disks.
    pub fn go_on(&self) -> Vec<Arc<Disk>> {
        let mut all = self.file_systems();
        // One may be mounted below another.
        all.sort_by(|a, b| a.target.cmp(&b.target));
        let go_on = |it| {
            self.go_on_with(it).unwrap_or_else(|error| {
                say(&format!("rampack: {}\n", sentence(&error)));
                None
            })
        };
        all.into_iter().filter_map(go_on).collect()
    }

    fn go_on_with(
        &self,
        FileSystem { disk, kind, target, step }: FileSystem,
    ) -> Result<Option<Arc<Disk>>, ControlError> {
        let Ok(disk) = self.devices.disk(&disk) else { return Ok(None) };
        let (name, kind) = (disk.name(), filesystem::kind(&kind)?);
        let Some(target) = target else { return Ok(Some(disk)) };
        let mounted = Mounted { disk: name.clone(), kind, device: self.place(&disk)?, target };
        if mounted.is_there() {
            self.mounted.lock().push(mounted);
            self.step(&name, MadeUpTo::Mounted)?;
        } else if step == MadeUpTo::Made {
            filesystem::check_free(&mounted.target)?;
            self.mount(mounted)?;
        } else {
            let target = mounted.target.display();
            say(&format!("rampack: the file system of {name} is no longer mounted at {target}\n"));
            // It may be mounted there again. The end takes it down as if no daemon had died.
            self.mounted.lock().push(mounted);
        }
        Ok(Some(disk))
    }

    /// The block device of a disk; its file where there is none.
    fn place(&self, disk: &Arc<Disk>) -> Result<PathBuf, ControlError> {
        let report = self.devices.report(disk);
        let place = report.block_device.or(report.file);
        place.as_deref().map(machine::path_of).ok_or_else(|| {
            // What the daemon said when it started tells why.
            let message = format!("{} has no block device for a file system", disk.name());
            ControlError::new(Errno::ENODEV, message)
        })
    }

    fn mount(&self, it: Mounted) -> Result<(), ControlError> {
        self.loops().mount(it.kind, &it.device, &it.target)?;
        let disk = it.disk.clone();
        self.mounted.lock().push(it);
        self.step(&disk, MadeUpTo::Mounted)
    }

    /// Mounts again what [`FileSystems::unmount`] has unmounted. A disk that was detached meanwhile
    /// may have another block device. One that is covered was never unmounted.
    pub(super) fn mount_again(&self, unmounted: Vec<Mounted>) {
        for it in unmounted.into_iter().rev() {
            if it.is_there() {
                self.mounted.lock().push(it);
                continue;
            }
            let place = self.devices.disk(&it.disk).and_then(|disk| self.place(&disk));
            if let Err(error) = place.and_then(|device| self.mount(Mounted { device, ..it })) {
                tracing::error!("it is not mounted any more: {error}");
            }
        }
    }

    /// Checks that nobody uses a disk, or the daemon's own mount of it.
    ///
    /// # Errors
    /// `EBUSY`; the message names the users that can be seen. `ENODEV` if there is none.
    pub(super) fn check_unused(&self, disk: &str) -> Result<(), ControlError> {
        let is_own = |it: &&Mounted| it.disk == disk && it.is_there();
        let seen = |it: &Mounted| (it.target.clone(), it.check_uncovered());
        let own = self.mounted.lock().iter().find(is_own).map(seen);
        let Some((target, uncovered)) = own else { return self.devices.check_one_unused(disk) };
        uncovered?;
        match used_by(&target) {
            users if users.is_empty() => Ok(()),
            users => {
                let message = format!("{} is in use{users}", target.display());
                Err(ControlError::new(Errno::EBUSY, message))
            }
        }
    }

    /// Takes away a disk and the daemon's own mount of it.
    ///
    /// # Errors
    /// `EBUSY` with its users. It is mounted then.
    pub(super) fn remove_disk(&self, disk: &str) -> Result<(), ControlError> {
        let unmounted = self.unmount_those(|it| it.disk == disk, false)?;
        self.devices.remove(disk, false).inspect_err(|_| self.mount_again(unmounted))
    }

    /// Unmounts a disk, which is not mounted again.
    ///
    /// # Errors
    /// `EBUSY` with its users. It is mounted then.
    pub(super) fn unmount_disk(&self, disk: &str) -> Result<(), ControlError> {
        self.unmount_those(|it| it.disk == disk, false)?;
        let Some(it) = self.file_systems().into_iter().find(|it| it.disk == disk) else {
            return Ok(());
        };
        self.set(FileSystem { target: None, ..it });
        self.devices.save()
    }

    /// Unmounts the daemon's own mounts, if they are still there, the last one first. Returns them.
    ///
    /// # Errors
    /// That of the first that cannot be unmounted. All are mounted then.
    pub(super) fn unmount(&self, force: bool) -> Result<Vec<Mounted>, ControlError> {
        self.unmount_those(|_| true, force)
    }

    fn unmount_those(
        &self,
        which: impl Fn(&Mounted) -> bool,
        force: bool,
    ) -> Result<Vec<Mounted>, ControlError> {
        let mut unmounted = Vec::new();
        loop {
            let last = {
                let mut mounted = self.mounted.lock();
                mounted.iter().rposition(&which).map(|at| (at, mounted.remove(at)))
            };
            let Some((at, it)) = last else { break };
            let uncovered = it.check_uncovered();
            if !it.is_there() {
                continue;
            }
            // One that is covered loses its disk by force: what covers it is not the daemon's.
            if force && uncovered.is_err() {
                unmounted.push(it);
                continue;
            }
            if let Err(error) = uncovered.and_then(|()| self.unmount_it(&it, force)) {
                let mut mounted = self.mounted.lock();
                let at = at.min(mounted.len());
                mounted.insert(at, it);
                drop(mounted);
                self.mount_again(unmounted);
                return Err(error);
            }
            unmounted.push(it);
        }
        let gone = unmounted.iter().filter(|it| !it.is_there());
        gone.for_each(|it| self.wait_for_the_program(it));
        Ok(unmounted)
    }

    fn unmount_it(&self, it: &Mounted, force: bool) -> Result<(), ControlError> {
        let loops = self.loops();
        if let Ok(disk) = self.devices.disk(&it.disk) {
            self.devices.note_flushed(disk.id());
        }
        // A daemon that is killed meanwhile was not stopped: the next one mounts it again.
        self.step(&it.disk, MadeUpTo::Made)?;
        let unmounted = match loops.unmount(&it.target, Unmount::WhenUnused) {
            Err(error) if force && error.errno == Errno::EBUSY => {
                loops.unmount(&it.target, Unmount::Lazily)
            }
            result => result,
        };
        unmounted.map_err(|error| after(error, self.step(&it.disk, MadeUpTo::Mounted)))
    }

    /// A program that mounts a file writes to it, and closes it, after it was unmounted.
    fn wait_for_the_program(&self, it: &Mounted) {
        let end = Instant::now() + PATIENCE;
        let is_open = || it.device.is_file() && self.devices.is_file_open(&it.disk);
        while is_open() && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }

    /// The file systems in the table.
    fn file_systems(&self) -> Vec<FileSystem> {
        self.devices.state().map(|state| state.file_systems()).unwrap_or_default()
    }

    /// Notes a file system, from the next save on.
    fn set(&self, file_system: FileSystem) {
        if let Some(state) = self.devices.state() {
            state.set_file_system(file_system);
        }
    }

    /// Keeps how far the file system of `disk` is.
    fn step(&self, disk: &str, step: MadeUpTo) -> Result<(), ControlError> {
        let found = self.file_systems().into_iter().find(|it| it.disk == disk);
        let Some(it) = found.filter(|it| it.step != step) else { return Ok(()) };
        self.set(FileSystem { step, ..it });
        self.devices.save()
    }
}

/// Makes a directory, and those above it. The umask of the daemon is another one.
fn make_directory(path: &Path, umask: Mode) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), |above| make_directory(above, umask))?;
    fs::create_dir(path)?;
    let inherited = fs::metadata(path)?.permissions().mode() & 0o7000;
    fs::set_permissions(path, Permissions::from_mode(inherited | 0o777 & !umask.bits()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Add;

    /// The user has unmounted its own, and another one is mounted there.
    #[test]
    fn a_mount_of_another_device_is_not_its_own() {
        let other = mounts().unwrap().pop().unwrap();
        let root = crate::root::Root::choose(Some(Path::new("/nonexistent/rampack"))).unwrap();
        let devices = Arc::new(Devices::new(root, crate::engine::new().unwrap(), None));
        let disk = devices.add(&Add { size: Some("1M".into()), ..Add::default() }).unwrap();
        let all = FileSystems::new(devices, Mode::empty());
        let (kind, device) = (filesystem::kind("ext4").unwrap(), "/dev/none".into());
        all.mounted.lock().push(Mounted { disk: disk.name(), kind, device, target: other.at });
        all.check_unused("zram0").unwrap();
        let _client = disk.open();
        let refused = all.check_unused("zram0").unwrap_err();
        assert!(refused.message.contains("1 NBD client"), "{}", refused.message);
    }

    /// A stop by force that fails has left it where it is.
    #[test]
    fn a_mount_that_is_still_there_is_not_forgotten() {
        let there = mounts().unwrap().pop().unwrap();
        let root = crate::root::Root::choose(Some(Path::new("/nonexistent/rampack"))).unwrap();
        let devices = Arc::new(Devices::new(root, crate::engine::new().unwrap(), None));
        let all = FileSystems::new(devices, Mode::empty());
        let (kind, device) = (filesystem::kind("ext4").unwrap(), there.source);
        let (disk, target) = ("zram0".into(), there.at.clone());
        all.mount_again(vec![Mounted { disk, kind, device, target }]);
        assert_eq!(all.targets(), [there.at]);
    }

    #[test]
    fn a_directory_is_made_as_its_user_would_make_it() {
        let dir = testkit::TempDir::new();
        let (above, path) = (dir.join("a"), dir.join("a/b"));
        for _ in 0..2 {
            make_directory(&path, Mode::WGRP | Mode::RWXO).unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!([mode(&above), mode(&path)], [0o750; 2]);
        }
        fs::write(dir.join("file"), "").unwrap();
        assert!(make_directory(&dir.join("file"), Mode::empty()).is_err());
    }
}
