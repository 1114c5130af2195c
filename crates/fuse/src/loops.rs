//! The loop devices of the system, ours and others, as sysfs shows them.
//!
//! The system's list has the loop devices of every container, and the path of a file says nothing
//! about its mount namespace: two containers may have files of one path. [`stranger`] tells them
//! apart by the file system itself.

use std::ffi::OsString;
use std::fs::{self, File};
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
    let mut name = fs::read(attribute(number, "loop/backing_file")).ok()?;
    while name.last() == Some(&b'\n') {
        name.pop();
    }
    let deleted = name.strip_suffix(b" (deleted)").map(<[u8]>::to_vec);
    Some(PathBuf::from(OsString::from_vec(deleted.unwrap_or(name))))
}

/// The numbers of all loop devices, with a file and without.
pub(crate) fn all() -> Vec<u32> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.filter_map(|it| it.file_name().to_str()?.strip_prefix("loop")?.parse().ok()).collect()
}

/// Every loop device on a file at or below `path`. `path` must be absolute and without links.
pub(crate) fn backed_under(path: &Path) -> Vec<(u32, PathBuf)> {
    let file = |number| Some((number, backing_of(number).filter(|file| file.starts_with(path))?));
    let mut found: Vec<(u32, PathBuf)> = all().into_iter().filter_map(file).collect();
    found.sort_unstable();
    found
}

/// The numbers of the loop devices on the file `path`. `path` must be absolute and without links;
/// the file may be gone, and its file system dead. Any thread may call it.
#[must_use]
pub fn find_by_backing(path: &Path) -> Vec<u32> {
    let mut found = backed_under(path);
    found.retain(|(_, file)| file == path);
    found.into_iter().map(|(number, _)| number).collect()
}

/// Why loop device `number` must be left alone although the path of its file is one of ours: it
/// stands on no file system of `mounts`, and not on one whose server is gone. None if it may be
/// cleared. It may take two seconds.
pub(crate) fn stranger(number: u32, mounts: &[Mounted]) -> Option<String> {
    let (sender, answer) = mpsc::channel();
    // On a thread of its own: a file system whose server is suspended never answers.
    let asked = thread::Builder::new().name("loop-owner".into()).spawn(move || {
        let _ = sender.send(File::open(node(number)).and_then(|it| host::loop_file(&it)));
    });
    if let Err(error) = asked {
        return Some(format!("its file system cannot be asked: {error}"));
    }
    match answer.recv_timeout(ANSWER) {
        Ok(Ok((device, _))) if mounts.iter().any(|it| number_of(it) == device) => None,
        Ok(Ok(_)) => Some(
            "a daemon that cannot be seen from here serves its file (it may be in another \
             container with the same path)"
                .into(),
        ),
        Ok(Err(error)) => match error.raw_os_error() {
            // The server of the file is gone, or the file.
            Some(errno::ENOTCONN | errno::ECONNABORTED | errno::ECANCELED | errno::ENXIO) => None,
            _ => Some(format!("its file system cannot be asked: {error}")),
        },
        Err(_) => Some("its file system does not answer".into()),
    }
}

fn number_of(mounted: &Mounted) -> u64 {
    host::makedev(mounted.device.0, mounted.device.1)
}
