//! The loop devices of the system, ours and others, as sysfs shows them. This code opens none.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

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

/// Every loop device on a file at or below `path`. `path` must be absolute and without links.
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

/// The numbers of the loop devices on the file `path`. `path` must be absolute and without links;
/// the file may be gone, and its file system dead. Any thread may call it.
#[must_use]
pub fn find_by_backing(path: &Path) -> Vec<u32> {
    let mut found = backed_under(path);
    found.retain(|(_, file)| file == path);
    found.into_iter().map(|(number, _)| number).collect()
}
