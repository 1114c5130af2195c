//! Covers the system's programs for modules with this program, in the namespace of a command.
//!
//! All of kmod's programs are links to one file. That file is covered, so it does not matter by
//! which path or from which `PATH` a script calls it. The file itself stays reachable in a
//! directory in memory, with a link for each name: there [`super::kmod`] passes calls on to it.
//!
//! Busybox is left alone, because its file is also the shell. For it, and for programs that the
//! system does not have, a directory with links to this program comes first in `PATH`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use control::ControlError;
use host::{Unmount, errno, mounts};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

use service::failure::{MOUNTS, failed};
use service::tree::host as places;

/// Programs that load and unload modules: those that a system without them gets.
const CHANGING: [&str; 3] = ["modprobe", "rmmod", "insmod"];
/// The names of kmod's file.
pub(super) const NAMES: [&str; 7] =
    ["modprobe", "rmmod", "insmod", "lsmod", "modinfo", "depmod", "kmod"];
/// The directories in which these programs are, by their absolute names in scripts.
const PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// The directory with links to this program.
const FIRST: &str = "bin";
/// The directory with the files that are covered, by number.
const REAL: &str = "real";
const SOURCE: &str = "rampack";
const IN_MEMORY: &str = "tmpfs";

/// The file behind the name of a program, found in `places`.
fn file_of(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    let found = places.iter().find_map(|place| fs::canonicalize(place.join(name)).ok())?;
    found.is_file().then_some(found)
}

/// Is `file` for modules alone?
fn is_for_modules(file: &Path) -> bool {
    file.file_name().and_then(|name| name.to_str()).is_some_and(|name| NAMES.contains(&name))
}

fn all_places() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    PLACES.iter().map(PathBuf::from).chain(env::split_paths(&path)).collect()
}

/// Covers the programs. `place` is an empty directory for the directory in memory. Returns a
/// directory that has to come first in `PATH`, if there is one.
pub(super) fn cover(place: &Path) -> Result<Option<PathBuf>, ControlError> {
    cover_all(place).map_err(|e| failed("cannot cover the programs for modules", &e))
}

fn cover_all(place: &Path) -> io::Result<Option<PathBuf>> {
    let this = env::current_exe()?;
    let places = all_places();
    mount_empty(place)?;
    let (real, first) = (place.join(REAL), place.join(FIRST));
    fs::create_dir(&real)?;
    fs::create_dir(&first)?;
    let mut covered: Vec<PathBuf> = Vec::new();
    let mut has_first = false;
    for name in NAMES {
        let Some(file) = file_of(name, &places) else {
            if CHANGING.contains(&name) {
                symlink(&this, first.join(name))?;
                has_first = true;
            }
            continue;
        };
        if !is_for_modules(&file) {
            if CHANGING.contains(&name) {
                symlink(&file, place.join(name))?;
                symlink(&this, first.join(name))?;
                has_first = true;
            }
            continue;
        }
        let number = match covered.iter().position(|known| *known == file) {
            Some(number) => number,
            None => {
                covered.push(file.clone());
                let number = covered.len() - 1;
                let itself = real.join(number.to_string());
                fs::write(&itself, "")?;
                mount_bind_recursive(&file, &itself)?;
                number
            }
        };
        symlink(Path::new(REAL).join(number.to_string()), place.join(name))?;
    }
    for file in &covered {
        mount_bind_recursive(&this, file)?;
    }
    Ok(has_first.then_some(first))
}

/// Mounts an empty file system in memory at `target`.
pub(super) fn mount_empty(target: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount(SOURCE, target, IN_MEMORY, flags, None)?)
}

/// The directory in memory of this namespace, if there is one.
fn place() -> Option<PathBuf> {
    let end = Path::new(places::PLACE).join(places::PROGRAMS);
    let is_it = |mount: &host::Mounted| {
        mount.source == Path::new(SOURCE) && mount.kind == IN_MEMORY && mount.at.ends_with(&end)
    };
    mounts().ok()?.into_iter().rev().find(is_it).map(|mount| mount.at)
}

/// The system's own program of that name.
pub(super) fn real(name: &str) -> Option<PathBuf> {
    let real = place()?.join(name);
    real.exists().then_some(real)
}

/// Is this namespace one of `rampack exec`?
pub(super) fn are_covered() -> bool {
    place().is_some()
}

/// Takes the uppermost mount at `target` away.
pub(super) fn take_away(target: &Path) -> Result<(), ControlError> {
    match host::unmount(target, Unmount::Lazily) {
        // It went with the mount that it was on.
        Err(error) if error.raw_os_error() == Some(errno::EINVAL) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(|e| failed(format!("cannot uncover {}", target.display()), &e)),
    }
}

/// Uncovers the programs, if an outer `rampack exec` covered them.
pub(super) fn uncover() -> Result<(), ControlError> {
    let Some(place) = place() else { return Ok(()) };
    let places = all_places();
    let mut files: Vec<PathBuf> = NAMES.iter().filter_map(|name| file_of(name, &places)).collect();
    files.sort();
    files.dedup();
    let mounted = mounts().map_err(|e| failed(MOUNTS, &e))?;
    for file in files.iter().filter(|file| mounted.iter().any(|mount| mount.at == **file)) {
        take_away(file)?;
    }
    take_away(&place)
}

/// `PATH` with `first` before all.
pub(super) fn path_with(first: &Path) -> Option<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(first.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(all).ok()
}
