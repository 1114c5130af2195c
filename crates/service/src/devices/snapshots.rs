//! Snapshots of devices: taken for a client, restored for one, and kept in files from one daemon to
//! the next.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use control::{ControlError, Errno};
use units::{human, parse_size};
use zram::{Disk, Restored, Restoring, Snapshot};

use super::{Devices, configure};
use crate::failure::{failed, say, sentence};
use crate::protocol::{Add, Taken};

/// `EBUSY` while a snapshot of the device is taken, or it is being restored.
pub(super) fn refuse_snapshot(disk: &Disk) -> Result<(), ControlError> {
    if !disk.has_snapshot() {
        return Ok(());
    }
    let message =
        format!("a snapshot of {} is being taken; wait for its end, or use --force", disk.name());
    Err(ControlError::new(Errno::EBUSY, message))
}

/// The seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.as_ref().map_or(0, Duration::as_secs)
}

/// Writes out a snapshot.
///
/// # Errors
/// As [`Snapshot::next_bytes`]; those of `put`.
pub fn write_out(
    mut snapshot: Snapshot,
    put: &mut dyn FnMut(&[u8]) -> Result<(), ControlError>,
) -> Result<Taken, ControlError> {
    let mut taken = Taken::default();
    while let Some(bytes) = snapshot.next_bytes()? {
        taken.bytes += bytes.len() as u64;
        put(bytes)?;
    }
    taken.pages = snapshot.stored();
    Ok(taken)
}

impl Devices {
    /// Begins a snapshot of a device. Its users go on.
    ///
    /// # Errors
    /// `ENODEV`; as [`Disk::snapshot`].
    pub fn snapshot(&self, name: &str) -> Result<Snapshot, ControlError> {
        self.disk(name)?.snapshot(now())
    }

    /// Restores a device that has no size; without a name, a new one, with the algorithms of the
    /// snapshot. Returns its name.
    ///
    /// # Errors
    /// `ENODEV`; as [`Disk::restore`]. A new device is not there then.
    pub fn restore(
        &self,
        name: Option<&str>,
        source: &mut dyn FnMut(&mut [u8]) -> Result<usize, ControlError>,
    ) -> Result<String, ControlError> {
        match name {
            Some(name) => {
                let disk = self.disk(name)?;
                self.restore_disk(&disk, source, Restoring::default())?;
                Ok(disk.name())
            }
            None => {
                let disk = self.add(&Add::default())?;
                let how = Restoring { algorithms: true, ..Restoring::default() };
                let restored = self.restore_disk(&disk, source, how);
                if restored.is_err() {
                    self.remove(&disk.name(), false)?;
                }
                restored.map(|_| disk.name())
            }
        }
    }

    /// Refuses a device that cannot be restored, before anything of the snapshot is read.
    ///
    /// # Errors
    /// `ENODEV`, or `EBUSY` for one that has a size.
    pub fn check_restorable(&self, name: Option<&str>) -> Result<(), ControlError> {
        let Some(name) = name else { return Ok(()) };
        let disk = self.disk(name)?;
        if disk.bytes() == 0 {
            return Ok(());
        }
        let message = format!(
            "{name} has a size already; reset it first, or name no device: then a new one is \
             made"
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }

    /// Restores a device behind its frontends.
    fn restore_disk(
        &self,
        disk: &Arc<Disk>,
        source: &mut dyn FnMut(&mut [u8]) -> Result<usize, ControlError>,
        how: Restoring,
    ) -> Result<Restored, ControlError> {
        let restored = disk.restore(source, how)?;
        let lifecycle = self.change();
        lifecycle.check()?;
        self.check_present(disk)?;
        self.has_size(disk, 0)?;
        tracing::info!("{} restored", disk.name());
        Ok(restored)
    }

    /// Has a device saved to the file at `path` when the daemon ends, or to none.
    pub fn save_at_end(&self, id: u32, path: Option<PathBuf>) {
        let mut saved_at = self.saved_at.lock();
        match path {
            Some(path) => drop(saved_at.insert(id, path)),
            None => drop(saved_at.remove(&id)),
        }
    }

    /// Has a device of a configuration saved as that says, if it is there.
    pub fn save_configured(&self, it: &Add) {
        if let Some(id) = it.number.filter(|id| self.machine.disk(*id).is_some()) {
            self.save_at_end(id, it.snapshot.as_deref().map(machine::path_of));
        }
    }

    /// Sets up a new device: with what was saved to its file, if that is there. If that cannot be
    /// restored, it is put aside, the device is empty, and the user is told.
    ///
    /// # Errors
    /// As [`configure`]; `EINVAL` for a size that is none; the error of the system call if the file
    /// cannot be written to at the end.
    pub(super) fn set_up(&self, disk: &Arc<Disk>, options: &Add) -> Result<(), ControlError> {
        let Some(path) = options.snapshot.as_deref().map(machine::path_of) else {
            return configure(disk, options);
        };
        configure(disk, &Add { size: None, ..options.clone() })?;
        let bytes = options.size.as_deref().map(parse_size).transpose();
        let bytes = bytes.map_err(|error| ControlError::invalid(error.to_string()))?;
        check_writable(&path)?;
        let (name, shown) = (disk.name(), path.display());
        let is_restored = match restore_from(disk, &path, bytes) {
            Ok(restored) => {
                if let Some(Restored { pages, .. }) = &restored {
                    tracing::info!("{name} has {pages} pages of {shown}");
                }
                restored.is_some()
            }
            Err(error) => {
                let aside = aside(&path);
                let what = |error| failed(format!("cannot put {shown} aside"), &error);
                fs::rename(&path, &aside).map_err(what)?;
                say(&format!(
                    "rampack: {name} is empty: {shown} cannot be restored, and is now {}: {}\n",
                    aside.display(),
                    sentence(&error)
                ));
                false
            }
        };
        if !is_restored {
            configure(disk, &Add { size: options.size.clone(), ..Add::default() })?;
        }
        self.save_at_end(disk.id(), Some(path));
        Ok(())
    }

    /// Saves the devices that are to be saved, which nobody uses any more. The user is told of those
    /// that cannot be: what was saved of them before stays.
    pub fn save_all(&self) {
        let saved_at = std::mem::take(&mut *self.saved_at.lock());
        for (id, path) in saved_at {
            let Some(disk) = self.machine.disk(id).filter(|disk| disk.bytes() != 0) else {
                continue;
            };
            let name = disk.name();
            match save_to(&disk, &path) {
                Ok(taken) => tracing::info!("{name} is saved: {}", human(taken.bytes)),
                Err(error) => {
                    let why = sentence(&error);
                    say(&format!("rampack: {name} is not saved to {}: {why}\n", path.display()));
                }
            }
        }
    }
}

/// Saves a device to a file. What was there before stays until all of it is written.
fn save_to(disk: &Arc<Disk>, path: &Path) -> Result<Taken, ControlError> {
    let part = part_of(path);
    let what =
        |path: &Path, error: &io::Error| failed(format!("cannot write {}", path.display()), error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let mut file = file.map_err(|error| what(&part, &error))?;
    let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(|error| what(&part, &error));
    let saved = disk.snapshot(now()).and_then(|it| write_out(it, &mut put)).and_then(|taken| {
        let done = file.sync_all().and_then(|()| fs::rename(&part, path));
        done.map(|()| taken).map_err(|error| what(path, &error))
    });
    if saved.is_err() {
        let _ = fs::remove_file(&part);
    }
    saved
}

/// Checks that a file can be written when there is no time for a change of mind.
fn check_writable(path: &Path) -> Result<(), ControlError> {
    let part = part_of(path);
    let mut options = OpenOptions::new();
    let made = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let gone = made.and_then(|_| fs::remove_file(&part));
    gone.map_err(|error| failed(format!("cannot write {}", part.display()), &error))
}

/// Where a file goes that cannot be restored.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".refused-{}", now()));
    name.into()
}

/// Where a file is written before it is whole.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Restores a device from a file, which is there or not.
///
/// # Errors
/// As [`Disk::restore`]; the error of the system call.
fn restore_from(
    disk: &Arc<Disk>,
    path: &Path,
    bytes: Option<u64>,
) -> Result<Option<Restored>, ControlError> {
    let what = |error: &io::Error| failed(format!("cannot read {}", path.display()), error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(what(&error)),
    };
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut source = |into: &mut [u8]| input.read(into).map_err(|error| what(&error));
    let how = Restoring { bytes, ..Restoring::default() };
    disk.restore(&mut source, how).map(Some)
}
