//! Takes over the connection of a mount from a process that died.
//!
//! The kernel has the requests of a connection, and the mount lives as long as a descriptor of the
//! connection is open somewhere. A request that a process has read belongs to the descriptor that
//! it was read from; it fails when that descriptor is closed for the last time. So all of them have
//! to be kept. The next process asks for such requests again (`FUSE_NOTIFY_RESEND`, Linux 6.9), and
//! then serves on. The first request of a connection, INIT, does not come again: what was agreed on
//! holds.
//!
//! A process that is killed while the kernel copies a request to its memory may fail that request,
//! if the memory has no pages yet. So whoever wants to be taken over reads into memory that is
//! there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use fuser::{Config, Filesystem, Session, SessionACL};

use crate::Error;
use crate::place::Place;

/// The number of the notification that asks for requests again.
const NOTIFY_RESEND: u32 = 7;

/// Takes over the mount `at` from a process that died: the kernel asks again for every request that
/// the process had read and not answered. Nobody may read requests of `channel` yet, because those
/// would come again, too. If no process can do it, all requests fail, and the mount is gone: else
/// its users would wait for ever. After another error it stays as it is, for the caller to decide.
pub(crate) fn take_over(at: &Path, channel: Option<&File>) -> Result<Place, Error> {
    let doing = format!("take over {}", at.display());
    let name = at.file_name().ok_or_else(|| Error::mount_point(at, "it has no name"))?;
    let path = without_links(at, name).map_err(Error::system(&doing))?;
    let place = Place::new(path)?;
    if !place.is_mounted() {
        let source = io::Error::new(ErrorKind::NotFound, "it is not mounted any more");
        return Err(Error::System { doing, source });
    }
    let none = || io::Error::new(ErrorKind::InvalidInput, "no descriptor of it was kept");
    let checked = channel.ok_or_else(none).and_then(|channel| check(channel, place.connection));
    match checked.and_then(|mut channel| channel.write_all(&resend())) {
        Ok(()) => Ok(place),
        Err(error) => {
            if error.kind() == ErrorKind::InvalidInput {
                let _ = place.take_down(true, || None, || {});
            }
            Err(Error::system(doing)(error))
        }
    }
}

/// The path `at`, whose last part is `name`, absolute and without links. It asks nobody about the
/// file itself, whose mount may be dead.
pub(crate) fn without_links(at: &Path, name: &OsStr) -> io::Result<PathBuf> {
    let directory = match at.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    Ok(directory.canonicalize()?.join(name))
}

/// A notification: a header with a positive number in place of an error, and without a request.
fn resend() -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&16u32.to_ne_bytes());
    bytes[4..8].copy_from_slice(&NOTIFY_RESEND.to_ne_bytes());
    bytes
}

/// Checks that `channel` is a descriptor of FUSE, and of this connection if the kernel tells
/// (fdinfo, newer kernels): anything would take what is written to it.
fn check(channel: &File, connection: Option<u32>) -> io::Result<&File> {
    let wrong = |text: String| Err(io::Error::new(ErrorKind::InvalidInput, text));
    let metadata = channel.metadata()?;
    if !metadata.file_type().is_char_device() || metadata.rdev() != host::makedev(10, 229) {
        return wrong("the descriptor that was kept is none of /dev/fuse".into());
    }
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", channel.as_raw_fd()))?;
    let told = info.lines().find_map(|line| line.strip_prefix("fuse_connection:"));
    match told.and_then(|number| number.trim().parse::<u32>().ok()) {
        Some(number) if connection != Some(number) => {
            wrong(format!("the descriptor that was kept is of another mount ({number})"))
        }
        _ => Ok(channel),
    }
}

/// Can requests be asked for again? That is so since Linux 6.9.
pub(crate) fn has_resend() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9)
}

/// A session of the library on a connection whose first request was answered long ago. The library
/// wants to answer that request, so it gets one of our own through a socket, whose place the
/// connection takes afterwards. `acl` says whose requests are answered.
pub(crate) fn session<F: Filesystem>(
    filesystem: F,
    channel: BorrowedFd<'_>,
    acl: SessionACL,
) -> io::Result<Session<F>> {
    let (kernel, socket) = UnixDatagram::pair()?;
    kernel.send(&first_request())?;
    let mut config = Config::default();
    config.acl = acl;
    config.n_threads = Some(1);
    let session = Session::from_fd(filesystem, socket.into(), acl, config)?;
    host::replace_descriptor(session.as_fd(), channel)?;
    Ok(session)
}

/// An INIT request of a kernel that can do everything (`fuse_in_header`, `fuse_init_in` of
/// linux/fuse.h).
fn first_request() -> Vec<u8> {
    const LENGTH: u32 = 40 + 64;
    let header = [LENGTH, 26, 1, 0, 0, 0, 0, 0, 0, 0];
    let body = [7, 40, 128 << 10, u32::MAX, u32::MAX, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header.iter().chain(&body).flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_asked_for_again_by_a_notification() {
        let bytes = resend();
        let words = bytes.chunks_exact(4).map(|it| u32::from_ne_bytes(it.try_into().unwrap()));
        assert_eq!(words.collect::<Vec<u32>>(), [16, 7, 0, 0]);
    }

    struct Unserved;
    impl Filesystem for Unserved {}

    #[test]
    fn the_library_serves_what_it_did_not_begin() {
        let (_, end) = UnixDatagram::pair().unwrap();
        let session = session(Unserved, end.as_fd(), SessionACL::Owner).unwrap();
        let flags = rustix::io::fcntl_getfd(session.as_fd()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
