//! Mounts the file and exchanges the first requests with the kernel.

use std::ffi::CString;
use std::fs::{self, File as Channel, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use host::{Unmount, errno, mounts_at};
use rustix::mount::MountFlags;

use super::buffer::Buffer;
use super::reply::{Agreed, Greeting, MAJOR, OLDEST, Reply};
use super::wire::{self, Call};
use crate::mount::open_fuse;
use crate::place::{MOUNTS, Place};
use crate::{Error, handover};

/// The most bytes of data in one request, unless a page is larger.
const LARGEST: usize = 128 << 10;

/// The largest request where pages have `page` bytes.
pub(crate) fn largest(page: usize) -> usize {
    LARGEST.max(page)
}

/// Mounts a file at `at` and returns the descriptor of its requests, and what was agreed on. With
/// `ring`, the kernel is asked for rings. `buffer` holds requests of `largest` bytes of data.
pub(crate) fn open(
    at: PathBuf,
    owner: (u32, u32),
    (page, ring): (usize, bool),
    buffer: &mut Buffer,
) -> Result<(Place, Channel, Agreed), Error> {
    let channel = open_fuse()?;
    let largest = largest(page);
    let options = format!(
        "fd={},rootmode=100600,user_id={},group_id={},max_read={largest}",
        channel.as_raw_fd(),
        owner.0,
        owner.1
    );
    mount(&at, &options).map_err(|error| refused(&at, error))?;
    let place = Place::new(at.clone()).inspect_err(|_| _ = host::unmount(&at, Unmount::Lazily))?;
    match greet(&channel, buffer, (largest as u32, page as u32), ring) {
        Ok(agreed) => Ok((place, channel, agreed)),
        Err(error) => {
            let _ = place.take_down(true, || None, || {});
            Err(Error::system("agree with the kernel on how a file is served")(error))
        }
    }
}

/// Mounts a FUSE file system of `kind`. `options` names the descriptor of its server.
fn mount_as(at: &Path, kind: &str, options: &str) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    let options = CString::new(options)?;
    Ok(rustix::mount::mount("rampack", at, kind, flags, &*options)?)
}

fn mount(at: &Path, options: &str) -> io::Result<()> {
    match mount_as(at, "fuse.rampack", options) {
        // This kernel takes no second part in the name of a file system type; it is an option then.
        Err(error) if matches!(error.raw_os_error(), Some(errno::ENODEV | errno::EINVAL)) => {
            let again = mount_as(at, "fuse", &format!("{options},subtype=rampack"));
            again.map_err(|_| error)
        }
        mounted => mounted,
    }
}

fn refused(at: &Path, source: io::Error) -> Error {
    let doing = format!("mount at {}", at.display());
    match source.kind() {
        ErrorKind::PermissionDenied => {
            Error::NoPermission { doing, needs: "run as root with CAP_SYS_ADMIN" }
        }
        _ => Error::System { doing, source },
    }
}

/// Answers the first request of the kernel, and a second one if the kernel begins with a later
/// version.
fn greet(
    mut channel: &Channel,
    buffer: &mut Buffer,
    (largest, page): (u32, u32),
    ring: bool,
) -> io::Result<Agreed> {
    loop {
        let length = match channel.read(buffer.request()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            length => length?,
        };
        let request = wire::parse(&buffer.request()[..length]).ok();
        let request = request.ok_or(ErrorKind::InvalidData)?;
        let unique = request.unique;
        let Call::Init { major, minor, readahead, flags, flags2 } = request.call else {
            return Err(ErrorKind::InvalidData.into());
        };
        if major > MAJOR {
            channel.write_all(Reply::version(unique).bytes())?;
            continue;
        }
        if major < MAJOR || minor < OLDEST {
            channel.write_all(Reply::error(unique, errno::EPROTO).bytes())?;
            return Err(io::Error::from_raw_os_error(errno::EPROTO));
        }
        let greeting = Greeting { minor, readahead, flags, flags2, largest, page, ring };
        channel.write_all(Reply::greeting(unique, &greeting).bytes())?;
        return Ok(greeting.agreed());
    }
}

/// Another descriptor for the same requests, with its own queue of requests under way if the kernel
/// supports that.
pub(crate) fn another(channel: &Channel) -> Result<Channel, Error> {
    let fresh = open_fuse()?;
    match host::fuse_clone(&fresh, channel) {
        Ok(()) => Ok(fresh),
        Err(_) => channel.try_clone().map_err(Error::system("open another way to the kernel")),
    }
}

/// Makes sure that `at` is an empty file without a mount on it. Returns its path without links.
pub(crate) fn prepare(at: &Path) -> Result<PathBuf, Error> {
    let refuse = |why: &str| Err(Error::mount_point(at, why));
    let Some(name) = at.file_name() else { return refuse("it has no name") };
    let path = handover::without_links(at, name);
    let path = path.map_err(|error| Error::mount_point(at, error.to_string()))?;
    // The file may belong to a dead mount: the mounts are checked before the file.
    if let Some(mounted) = mounts_at(&path).map_err(Error::system(MOUNTS))?.last() {
        let source = mounted.source.to_string_lossy();
        let kind = &mounted.kind;
        return refuse(&format!("something is mounted there already ({source}, {kind})"));
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(_) => Ok(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match is_empty_file(&path) {
            true => Ok(path),
            false => refuse("it is not an empty file"),
        },
        Err(error) => refuse(&format!("it cannot be created: {error}")),
    }
}

/// Removes the mount point if it is an empty file without a mount.
pub(crate) fn remove_point(at: &Path) {
    if mounts_at(at).is_ok_and(|mounts| mounts.is_empty()) && is_empty_file(at) {
        let _ = fs::remove_file(at);
    }
}

fn is_empty_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|data| data.is_file() && data.len() == 0)
}
