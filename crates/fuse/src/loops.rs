//! The loop devices of the system, ours and others, as sysfs shows them.
//!
//! The system's list has the loop devices of every container, and the path of a file says nothing
//! about its mount namespace: two containers may have files of one path. [`stranger`] tells them
//! apart by the file system itself.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use host::{Mounted, errno};

/// How long the file system below a loop device may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The node of loop device `number`.
pub(crate) fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// The sysfs file of one of its attributes.
pub(crate) fn attribute(number: u32, name: &str) -> String {
    format!("/sys/block/loop{number}/{name}")
}

/// The file below loop device `number`, by the kernel's name. It does not ask the file system of
/// that file, which may be dead.
pub(crate) fn backing_of(number: u32) -> Option<PathBuf> {
    look_at(number).ok().flatten()
}

/// As [`backing_of`].
///
/// # Errors
/// If that is not known.
fn look_at(number: u32) -> io::Result<Option<PathBuf>> {
    let mut name = match fs::read(attribute(number, "loop/backing_file")) {
        Err(error) if is_gone(&error) => return Ok(None),
        name => name?,
    };
    while name.last() == Some(&b'\n') {
        name.pop();
    }
    let deleted = name.strip_suffix(b" (deleted)").map(<[u8]>::to_vec);
    Ok(Some(PathBuf::from(OsString::from_vec(deleted.unwrap_or(name)))))
}

/// It has no file, or is there no more. A path that is too long to be told is none of ours.
fn is_gone(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    matches!(number, Some(errno::ENOENT | errno::ENXIO | errno::ENODEV | errno::ENAMETOOLONG))
}

/// The numbers of all loop devices, with a file and without.
pub(crate) fn all() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for device in fs::read_dir("/sys/block")? {
        let name = device?.file_name();
        found.extend(name.to_str().and_then(|it| it.strip_prefix("loop")?.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Every loop device that can be looked at, on a file at or below `path`. `path` must be absolute
/// and without links.
pub(crate) fn backed_under(path: &Path) -> Vec<(u32, PathBuf)> {
    let file = |number| Some((number, backing_of(number).filter(|file| file.starts_with(path))?));
    let mut found: Vec<(u32, PathBuf)> =
        all().unwrap_or_default().into_iter().filter_map(file).collect();
    found.sort_unstable();
    found
}

/// As [`backed_under`].
///
/// # Errors
/// If they are not known.
pub(crate) fn try_backed_under(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for number in all()? {
        let file = look_at(number)?.filter(|file| file.starts_with(path));
        found.extend(file.map(|file| (number, file)));
    }
    found.sort_unstable();
    Ok(found)
}

/// The numbers of the loop devices on the file `path`. `path` must be absolute and without links;
/// the file may be gone, and its file system dead. Any thread may call it.
#[must_use]
pub fn find_by_backing(path: &Path) -> Vec<u32> {
    let mut found = backed_under(path);
    found.retain(|(_, file)| file == path);
    found.into_iter().map(|(number, _)| number).collect()
}

/// Why loop device `number` must be left alone although the path of its file is one of ours. None
/// if it may be cleared. It may take two seconds.
pub(crate) fn stranger(number: u32, mounts: &[Mounted]) -> Option<String> {
    match is_on(number, mounts) {
        Ok(true) => None,
        Ok(false) => Some(
            "a daemon that cannot be seen from here serves its file (it may be in another \
             container with the same path)"
                .into(),
        ),
        Err(error) => Some(error.to_string()),
    }
}

/// Does loop device `number` stand on a file system of `mounts`, or on one whose server is gone? It
/// may take two seconds.
///
/// # Errors
/// Why that is not known.
pub(crate) fn is_on(number: u32, mounts: &[Mounted]) -> io::Result<bool> {
    let (sender, answer) = mpsc::channel();
    // On a thread of its own: a file system whose server is suspended never answers.
    let asked = thread::Builder::new().name("loop-owner".into()).spawn(move || {
        let _ = sender.send(File::open(node(number)).and_then(|it| host::loop_file(&it)));
    });
    let unknown = |error| io::Error::other(format!("its file system cannot be asked: {error}"));
    asked.map_err(unknown)?;
    match answer.recv_timeout(ANSWER) {
        Ok(Ok((device, _))) => Ok(mounts.iter().any(|it| number_of(it) == device)),
        Ok(Err(error)) => match error.raw_os_error() {
            // The server of the file is gone, or the file.
            Some(errno::ENOTCONN | errno::ECONNABORTED | errno::ECANCELED | errno::ENXIO) => {
                Ok(true)
            }
            _ => Err(unknown(error)),
        },
        Err(_) => Err(io::Error::other("its file system does not answer")),
    }
}

fn number_of(mounted: &Mounted) -> u64 {
    host::makedev(mounted.device.0, mounted.device.1)
}
