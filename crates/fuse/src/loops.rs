//! What the system says of its loop devices, ours and others: nothing here opens one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The node of loop device `number`.
pub(crate) fn node(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// The file in sysfs of one of its attributes.
pub(crate) fn attribute(number: u32, name: &str) -> String {
    format!("/sys/block/loop{number}/{name}")
}

/// The file that loop device `number` stands on, as the kernel names it: never asks the file
/// system it is in, which may be dead.
pub(crate) fn backing_of(number: u32) -> Option<PathBuf> {
    let mut name = fs::read(attribute(number, "loop/backing_file")).ok()?;
    while name.last() == Some(&b'\n') {
        name.pop();
    }
    let deleted = name.strip_suffix(b" (deleted)").map(<[u8]>::to_vec);
    Some(PathBuf::from(OsString::from_vec(deleted.unwrap_or(name))))
}

/// Every loop device on a file at or below `path`, which must be absolute and free of links.
pub(crate) fn backed_under(path: &Path) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("loop")?.parse().ok());
        let Some(number) = number else { continue };
        if let Some(file) = backing_of(number).filter(|file| file.starts_with(path)) {
            found.push((number, file));
        }
    }
    found.sort_unstable();
    found
}

/// The numbers of the loop devices that stand on the file `path`, which must be absolute and free
/// of links; the file need not be there any more, nor its file system alive.
#[must_use]
pub fn find_by_backing(path: &Path) -> Vec<u32> {
    let mut found = backed_under(path);
    found.retain(|(_, file)| file == path);
    found.into_iter().map(|(number, _)| number).collect()
}
