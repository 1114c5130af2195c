//! Snapshots of a device that are written out, and in files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use control::{ControlError, Errno};
use zram::{Disk, Restored, Restoring, Snapshot};

use crate::failure::failed;
use crate::protocol::Taken;

/// `EBUSY` while a snapshot of the device is taken.
pub(super) fn refuse_snapshot(disk: &Disk) -> Result<(), ControlError> {
    if !disk.has_snapshot() {
        return Ok(());
    }
    let message =
        format!("a snapshot of {} is being taken; wait for its end, or use --force", disk.name());
    Err(ControlError::new(Errno::EBUSY, message))
}

/// The seconds since 1970.
pub(super) fn now() -> u64 {
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

/// Saves a device to a file. What was there before stays until all of it is written.
pub(super) fn save_to(disk: &Arc<Disk>, path: &Path) -> Result<Taken, ControlError> {
    check_is_file(path)?;
    let part = part_of(path);
    let what =
        |path: &Path, error: &io::Error| failed(format!("cannot write {}", path.display()), error);
    let mut file = make_part(&part).map_err(|error| what(&part, &error))?;
    let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(|error| what(&part, &error));
    let saved = disk.snapshot(now()).and_then(|it| write_out(it, &mut put)).and_then(|taken| {
        let done = file.sync_all().and_then(|()| fs::rename(&part, path));
        // Without this a power failure may bring back what was there before.
        let done = done.and_then(|()| sync_directory_of(path));
        done.map(|()| taken).map_err(|error| what(path, &error))
    });
    if saved.is_err() {
        let _ = fs::remove_file(&part);
    }
    saved
}

/// Checks that a file can be written when there is no time for a change of mind.
pub(super) fn check_writable(path: &Path) -> Result<(), ControlError> {
    check_is_file(path)?;
    let part = part_of(path);
    let gone = make_part(&part).and_then(|_| fs::remove_file(&part));
    gone.map_err(|error| failed(format!("cannot write {}", part.display()), &error))
}

/// Refuses what is there and is no file: it is neither put aside nor replaced.
fn check_is_file(path: &Path) -> Result<(), ControlError> {
    let Some(found) = fs::metadata(path).ok().filter(|found| !found.is_file()) else {
        return Ok(());
    };
    let (errno, kind) = match found.is_dir() {
        true => (Errno::EISDIR, "a directory"),
        false => (Errno::EINVAL, "a device, a pipe or a socket"),
    };
    let message = format!(
        "{} is {kind}; a disk is saved to a file, which is made if it is not there",
        path.display()
    );
    Err(ControlError::new(errno, message))
}

/// Where a file goes that cannot be restored (`refused`), or is not to replace the one that can.
pub(super) fn aside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{what}-{}", now()));
    name.into()
}

/// Where a file is written before it is whole.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Makes that file. The one that a daemon left when it died is removed; whatever else has the name
/// stays, and is not followed.
fn make_part(part: &Path) -> io::Result<File> {
    let make = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !fs::symlink_metadata(part)?.is_file() {
                return Err(error);
            }
            fs::remove_file(part)?;
            make()
        }
        made => made,
    }
}

/// Has the entries of the directory of `path` survive a power failure, where its file system can.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    match File::open(above.unwrap_or(Path::new("."))).and_then(|above| above.sync_all()) {
        // It may be written to, and not be read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

/// Restores a device from a file, which is there or not.
///
/// # Errors
/// As [`Disk::restore`]; the error of the system call.
pub(super) fn restore_from(
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use testkit::TempDir;

    use super::*;

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let dir = TempDir::new();
        let (path, link) = (dir.join("socket"), dir.join("link"));
        let _socket = UnixListener::bind(&path).unwrap();
        symlink(&path, &link).unwrap();
        for path in [&path, &link] {
            assert_eq!(check_writable(path).unwrap_err().errno, Errno::EINVAL);
        }
        let directory = check_writable(dir.path()).unwrap_err();
        assert_eq!(directory.errno, Errno::EISDIR);
        assert!(directory.message.contains("is a directory; a disk is saved to a file"));
        check_writable(&dir.join("file")).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_an_unfinished_file_is_not_followed() {
        let dir = TempDir::new();
        let (path, other) = (dir.join("kept"), dir.join("other"));
        let part = part_of(&path);
        fs::write(&other, "precious").unwrap();
        symlink(&other, &part).unwrap();
        assert_eq!(check_writable(&path).unwrap_err().errno, Errno::EEXIST);
        assert!(part.is_symlink(), "it stays");
        fs::remove_file(&part).unwrap();
        // A file that a daemon left which died is in nobody's way, whatever other name it has.
        fs::hard_link(&other, &part).unwrap();
        check_writable(&path).unwrap();
        assert!(!part.exists());
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        for path in [&*path, Path::new("kept")] {
            sync_directory_of(path).unwrap();
        }
    }
}
