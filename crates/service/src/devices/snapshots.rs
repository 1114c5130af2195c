//! Snapshots of devices: taken for a client, restored for one, and kept in files from one daemon to
//! the next; and clones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::{ControlError, Errno};
use machine::RefusedDisk;
use units::{human, parse_size};
use zram::{Disk, Restored, Restoring, Snapshot};

use super::Devices;
use super::saved::{aside, check_writable, now, restore_from, save_to};
use super::settings::configure;
use crate::failure::{after, failed, say, sentence};
use crate::protocol::Add;

/// Where devices are to be saved at the end, by their numbers; `None` is nowhere.
pub(super) type Saved = BTreeMap<u32, Option<PathBuf>>;

/// While it lives, nobody removes all devices: the origin of a clone could not go.
struct Cloning<'a>(&'a Devices);

impl Cloning<'_> {
    /// Waits until all devices are removed, if somebody does that.
    fn new(devices: &Devices) -> Cloning<'_> {
        let _turn = devices.loading.lock();
        *devices.cloning.lock() += 1;
        Cloning(devices)
    }
}

impl Drop for Cloning<'_> {
    fn drop(&mut self) {
        *self.0.cloning.lock() -= 1;
    }
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
                match self.restore_disk(&disk, source, how) {
                    Ok(_) => Ok(disk.name()),
                    Err(error) => Err(after(error, self.remove(&disk.name(), false))),
                }
            }
        }
    }

    /// Makes a device with the contents of another one at one instant. The users of that go on.
    ///
    /// # Errors
    /// `ENODEV`; as [`Disk::clone_contents`]; the error of a frontend. There is no new device then.
    pub fn clone_device(&self, name: &str) -> Result<Arc<Disk>, ControlError> {
        let _cloning = Cloning::new(self);
        let origin = self.disk(name)?;
        // Before the lock of a change: it may take a while.
        let disk = self.machine.clone_disk(&origin)?;
        let lifecycle = self.change();
        // It may have gone with all devices meanwhile.
        self.check_present(&disk)?;
        let made = lifecycle.check().and_then(|()| self.attach(&lifecycle, &disk, None));
        made.map_err(|error| self.unmake(&lifecycle, &disk, error))?;
        tracing::info!("{} is a clone of {}", disk.name(), origin.name());
        Ok(disk)
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
        self.has_size(&lifecycle, disk, 0)?;
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
        if let Some(state) = &self.state {
            state.set_saved_at(saved_at.clone());
        }
    }

    /// Has devices, by their numbers, saved to other files at the end than they were made with, or
    /// to none. They may exchange paths. A file that is there stays: nobody restores it, and the
    /// end would replace it.
    ///
    /// # Errors
    /// `EEXIST`, and those of [`Devices::check_saved_to`], by the numbers of the devices, which are
    /// saved as before.
    pub(super) fn save_to(&self, mut to: Saved) -> BTreeMap<u32, ControlError> {
        let mut refused = BTreeMap::new();
        loop {
            let now = self.saved_at.lock().clone();
            let mut then = now.clone();
            for (id, path) in &to {
                match path {
                    Some(path) => drop(then.insert(*id, path.clone())),
                    None => drop(then.remove(id)),
                }
            }
            let fault = |(id, path): (&u32, &Option<PathBuf>)| {
                let path = path.as_deref()?;
                let checked = check_replaced(path, now.get(id));
                let checked = checked.and_then(|()| self.check_saved_to(*id, path, &then));
                checked.err().map(|error| (*id, error))
            };
            // Those that stay where they are may be in the way of others.
            let Some((id, error)) = to.iter().find_map(fault) else { break };
            to.remove(&id);
            refused.insert(id, error);
        }
        to.into_iter().for_each(|(id, path)| self.save_at_end(id, path));
        refused
    }

    /// Checks that a device can be saved to the file at `path`, if all are saved at `then`.
    ///
    /// # Errors
    /// `EBUSY` if another one is saved there: the file would have the last of them alone. The error
    /// of the system call if the file cannot be written to.
    fn check_saved_to(
        &self,
        id: u32,
        path: &Path,
        then: &BTreeMap<u32, PathBuf>,
    ) -> Result<(), ControlError> {
        let is_there = |(other, at): &(&u32, &PathBuf)| **other != id && is_same(at, path);
        if let Some((other, _)) = then.iter().find(is_there) {
            let message = format!(
                "{}: zram{other} is saved there; zram{id} needs a file of its own",
                path.display()
            );
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        check_writable(path)
    }

    /// The devices that `--snapshot` is of, which is of the one device of its daemon: that which is
    /// saved at the end, or the first if none is.
    pub(super) fn saved_by_option(&self) -> Vec<String> {
        let saved: Vec<u32> = self.saved_at.lock().keys().copied().collect();
        let first = self.numbers().into_iter().min();
        let all = if saved.is_empty() { first.into_iter().collect() } else { saved };
        all.into_iter().map(|id| format!("zram{id}")).collect()
    }

    /// Sets up a new device: with what was saved to its file, if that is there. If that cannot be
    /// restored, it is put aside, the device is empty, and the user is told.
    ///
    /// # Errors
    /// As [`configure`]; `EINVAL` for a size that is none; as [`Devices::check_saved_to`].
    pub(super) fn set_up(&self, disk: &Arc<Disk>, options: &Add) -> Result<(), ControlError> {
        let Some(path) = options.snapshot.as_deref().map(machine::path_of) else {
            return configure(disk, options);
        };
        configure(disk, &Add { size: None, ..options.clone() })?;
        let bytes = options.size.as_deref().map(parse_size).transpose();
        let bytes = bytes.map_err(|error| ControlError::invalid(error.to_string()))?;
        let then = self.saved_at.lock().clone();
        self.check_saved_to(disk.id(), &path, &then)?;
        let (name, shown) = (disk.name(), path.display());
        let is_restored = match restore_from(disk, &path, bytes) {
            Ok(restored) => {
                if let Some(Restored { pages, .. }) = &restored {
                    tracing::info!("{name} has {pages} pages of {shown}");
                }
                restored.is_some()
            }
            Err(error) => {
                let aside = aside(&path, "refused");
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

    /// The devices that are to be saved, and their files.
    fn to_save(&self) -> Vec<(Arc<Disk>, PathBuf)> {
        let saved_at = self.saved_at.lock().clone().into_iter();
        let has_size = |disk: &Arc<Disk>| disk.bytes() != 0;
        let disk = |(id, path)| Some((self.machine.disk(id).filter(has_size)?, path));
        saved_at.filter_map(disk).collect()
    }

    /// Is there a device to be saved at the end?
    #[must_use]
    pub fn has_to_save(&self) -> bool {
        !self.to_save().is_empty()
    }

    /// Those that are to be saved and could not be taken over: their names and files, and why.
    fn refused_to_save(&self) -> Vec<(String, PathBuf, ControlError)> {
        let saved_at = self.saved_at.lock().clone();
        let refused = self.machine.refused().into_iter().filter(|it| it.saved.bytes != 0);
        let with_file = |RefusedDisk { saved, why }| {
            let path = saved_at.get(&saved.id)?.clone();
            let message = format!("it could not be taken over: {}", why.message);
            Some((format!("zram{}", saved.id), path, ControlError::new(why.errno, message)))
        };
        refused.filter_map(with_file).collect()
    }

    /// Checks that the devices can be saved, as far as can be told before they are.
    ///
    /// # Errors
    /// That of the first that cannot be.
    pub fn check_savable(&self) -> Result<(), ControlError> {
        if let Some((name, path, why)) = self.refused_to_save().first() {
            return Err(not_saved(name, path, why));
        }
        let check = |(disk, path): &(Arc<Disk>, PathBuf)| {
            check_writable(path).map_err(|error| not_saved(&disk.name(), path, &error))
        };
        self.to_save().iter().try_for_each(check)
    }

    /// Saves the devices that are to be saved, which nobody uses and no client can come to.
    ///
    /// # Errors
    /// That of the first that cannot be: what was saved of it before stays. `EBUSY` for one with
    /// clients.
    pub(super) fn save_unused(&self) -> Result<(), ControlError> {
        for (disk, path) in self.to_save() {
            self.refuse_clients(&disk, false)?;
            self.save_disk(&disk, &path).map_err(|error| not_saved(&disk.name(), &path, &error))?;
        }
        Ok(())
    }

    /// Saves a disk. Once I/O was cut off, what was saved before stays, and the user is told where
    /// the rest is.
    fn save_disk(&self, disk: &Arc<Disk>, path: &Path) -> Result<(), ControlError> {
        let was_cut = self.waits.was_cut();
        if was_cut && disk.stats().backed_pages > 0 {
            let message = "its I/O hung, and a part of it is on its backing device; what was saved \
                           before stays";
            return Err(ControlError::new(Errno::EIO, message));
        }
        let to = if was_cut { aside(path, "cut-off") } else { path.to_owned() };
        let taken = save_to(disk, &to)?;
        tracing::info!("{} is saved: {}", disk.name(), human(taken.bytes));
        if was_cut {
            say(&format!(
                "rampack: {} is saved to {}, without what could not be written; what was saved \
                 before stays at {}\n",
                disk.name(),
                to.display(),
                path.display()
            ));
        }
        Ok(())
    }

    /// Saves what is left of the devices that are to be saved, which nobody uses any more. The user
    /// is told of those that cannot be: what was saved of them before stays.
    pub fn save_by_force(&self) {
        let not_saved = |(disk, path): (Arc<Disk>, PathBuf)| {
            let error = self.save_disk(&disk, &path).err()?;
            Some((disk.name(), path, error))
        };
        let all = self.to_save().into_iter().filter_map(not_saved);
        for (name, path, error) in all.chain(self.refused_to_save()) {
            let (path, why) = (path.display(), sentence(&error));
            say(&format!("rampack: {name} is not saved to {path}: {why}\n"));
        }
        self.saved_at.lock().clear();
    }
}

/// Refuses a file that is there, unless it is that of the device, which is saved to `own` now.
fn check_replaced(path: &Path, own: Option<&PathBuf>) -> Result<(), ControlError> {
    if !path.is_file() || own.is_some_and(|own| is_same(own, path)) {
        return Ok(());
    }
    let message = format!(
        "{} is there already: a start restores it, and the end of this daemon would replace it; \
         move it away first",
        path.display()
    );
    Err(ControlError::new(Errno::EEXIST, message))
}

/// Do both name one file, which need not be there?
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    one == other || real(one).is_some_and(|it| Some(it) == real(other))
}

fn not_saved(name: &str, path: &Path, error: &ControlError) -> ControlError {
    let message = format!(
        "{name} cannot be saved to {}: {}; it goes on; with --force it is given up",
        path.display(),
        error.message
    );
    ControlError::new(error.errno, message)
}
