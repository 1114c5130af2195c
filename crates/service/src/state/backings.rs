//! The files and devices below disks and swap devices, for the next daemon: their paths may name
//! others by then, or nothing.
//!
//! The service manager has a descriptor of each, `rampack.backing.N`, and the table says which path
//! it has: in the mount `backings`, whose files are the paths. A program that knows of no such
//! descriptors gives them up, and opens the paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Weak};

use block::BlockDevice;
use control::{ControlError, Errno};
use host::Mmap;
use kept::{Device, Mount};
use machine::HostSystem;
use sync::Mutex;
use zram::HostFiles;

use super::swaps::BACKING as OF_SWAP;
use crate::failure::failed;

/// The name of the mount in the table.
const NAME: &str = "backings";
/// The name of a descriptor without its number.
const DESCRIPTOR: &str = "rampack.backing";
/// The setting of a disk.
pub const OF_DISK: &str = "backing_dev";

/// What is below the devices, by path. Any thread may call every method.
pub struct Backings {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    by_path: BTreeMap<String, Backing>,
    /// The largest number so far.
    last: u64,
    /// What the daemon before had is being opened again.
    is_recovering: bool,
}

struct Backing {
    number: u64,
    /// Only to open it again. It has no part in the lock on the file.
    file: File,
    /// Who has it open; None before it is opened again.
    device: Option<Weak<dyn BlockDevice>>,
    /// The service manager has the descriptor.
    is_kept: bool,
}

impl Backing {
    fn name(&self) -> String {
        format!("{DESCRIPTOR}.{}", self.number)
    }

    fn is_open(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.strong_count() > 0)
    }
}

/// What tells a file, or a device, from others.
#[must_use]
pub fn identity(found: &Metadata) -> (u64, u64) {
    match found.file_type().is_block_device() {
        true => (found.rdev(), 0),
        false => (found.dev(), found.ino()),
    }
}

/// The paths that the devices of a table name.
pub(super) fn paths(devices: &[Device]) -> BTreeSet<String> {
    let settings = devices.iter().flat_map(|device| &device.settings);
    let is_path = |name: &str| name == OF_DISK || name == OF_SWAP;
    settings.filter(|(name, _)| is_path(name)).map(|(_, path)| path.clone()).collect()
}

impl Backings {
    /// Takes those that the daemon before had out of `others`.
    pub(super) fn take(others: &mut Vec<(String, OwnedFd)>, mounts: &[Mount]) -> Backings {
        let mut all = All { is_recovering: true, ..All::default() };
        let numbers = mounts.iter().filter(|mount| mount.name == NAME).flat_map(|it| &it.files);
        for (path, number) in numbers {
            let name = format!("{DESCRIPTOR}.{number}");
            let of_it = others.extract_if(.., |(other, _)| *other == name);
            if let Some((_, fd)) = of_it.last() {
                let (number, file) = (*number, File::from(fd));
                all.last = all.last.max(number);
                let backing = Backing { number, file, device: None, is_kept: true };
                all.by_path.insert(path.clone(), backing);
            }
        }
        Backings { all: Mutex::new(all) }
    }

    /// From now on a path means what is there. Those that could not be opened again are kept on as
    /// long as the table names them.
    pub fn end_recovery(&self) {
        self.all.lock().is_recovering = false;
    }

    /// Another descriptor of what the daemon before, or this one, had opened as `path`.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn file(&self, path: &Path) -> Result<Option<File>, ControlError> {
        let all = self.all.lock();
        let backing = all.by_path.get(&machine::text_of(path));
        let file = backing.map(|backing| backing.file.try_clone()).transpose();
        file.map_err(|error| failed(format!("cannot use {}", path.display()), &error))
    }

    /// Checks that what outlives the daemon can be opened again. Claims nothing.
    ///
    /// # Errors
    /// The error of the system; the message names the first path.
    pub(crate) fn check(&self) -> Result<(), ControlError> {
        let all = self.all.lock();
        all.by_path.iter().try_for_each(|(path, backing)| {
            let opened = File::open(format!("/proc/self/fd/{}", backing.file.as_raw_fd()));
            opened.map(drop).map_err(|error| failed(format!("cannot use {path}"), &error))
        })
    }

    /// Lets `file`, which `device` was opened as, outlive the daemon as long as a device of the
    /// table names `path`.
    ///
    /// # Errors
    /// `EBUSY` if `path` is the name of another file that is still in use.
    pub fn hold(
        &self,
        path: &Path,
        file: File,
        device: &Arc<dyn BlockDevice>,
    ) -> Result<(), ControlError> {
        let what = || format!("cannot use {}", path.display());
        let identity = |file: &File| std::io::Result::Ok(identity(&file.metadata()?));
        let key = machine::text_of(path);
        let mut all = self.all.lock();
        if let Some(there) = all.by_path.get_mut(&key) {
            let is_same = || Ok(identity(&file)? == identity(&there.file)?);
            if is_same().map_err(|error| failed(what(), &error))? {
                there.device = Some(Arc::downgrade(device));
                return Ok(());
            }
            if there.is_kept || there.is_open() {
                let message = format!(
                    "{}: another file that had this path is in use as a backing device; use \
                     another path",
                    what()
                );
                return Err(ControlError::new(Errno::EBUSY, message));
            }
        }
        all.last += 1;
        let (number, device) = (all.last, Some(Arc::downgrade(device)));
        all.by_path.insert(key, Backing { number, file, device, is_kept: false });
        Ok(())
    }

    /// How many descriptors the service manager has until [`Backings::give_up`] of what none of
    /// `paths` names.
    pub(super) fn count(&self, paths: &BTreeSet<String>) -> usize {
        let all = self.all.lock();
        all.by_path.iter().filter(|(path, it)| it.is_kept || paths.contains(*path)).count()
    }

    /// Gives those of them that the service manager does not have to it, by `keep`. Returns whether
    /// there were any.
    pub(super) fn keep<E>(
        &self,
        paths: &BTreeSet<String>,
        mut keep: impl FnMut(&str, &File) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut all = self.all.lock();
        let new = all.by_path.iter_mut().filter(|(path, it)| !it.is_kept && paths.contains(*path));
        let mut are_any = false;
        for (_, backing) in new {
            keep(&backing.name(), &backing.file)?;
            (backing.is_kept, are_any) = (true, true);
        }
        Ok(are_any)
    }

    /// Them in the table.
    pub(super) fn mount(&self, paths: &BTreeSet<String>) -> Option<Mount> {
        let all = self.all.lock();
        let named = all.by_path.iter().filter(|(path, _)| paths.contains(*path));
        let files: BTreeMap<_, _> = named.map(|(path, it)| (path.clone(), it.number)).collect();
        let (name, descriptor) = (NAME.to_owned(), DESCRIPTOR.to_owned());
        (!files.is_empty()).then_some(Mount { name, descriptor, files })
    }

    /// Closes those that none of `paths` names and no device has open. Returns the names of those
    /// that the service manager has.
    pub(super) fn give_up(&self, paths: &BTreeSet<String>) -> Vec<String> {
        let mut all = self.all.lock();
        let is_unused =
            |path: &String, backing: &mut Backing| !paths.contains(path) && !backing.is_open();
        let unused = all.by_path.extract_if(.., is_unused).map(|(_, backing)| backing);
        unused.filter(|backing| backing.is_kept).map(|backing| backing.name()).collect()
    }
}

impl HostFiles for Backings {
    fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let (is_recovering, at) = (self.all.lock().is_recovering, machine::path_of(path));
        let kept = if is_recovering { self.file(&at)? } else { None };
        // Threads that serve may make no ring.
        let options = backing::Options { ready: true, ..Default::default() };
        let kept = kept.as_ref().map(AsFd::as_fd);
        let (device, file) = backing::open_kept(&at, kept, options)?;
        self.hold(&at, file, &device)?;
        match seal {
            Some(_) => store::sealed(device, &Mmap, u64::MAX, path),
            None => Ok(device),
        }
    }

    fn resolve(&self, path: &str) -> String {
        let all = self.all.lock();
        match all.is_recovering && all.by_path.contains_key(path) {
            true => path.into(),
            false => HostSystem.resolve(path),
        }
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        HostSystem.read(path)
    }
}

#[cfg(test)]
mod tests;
