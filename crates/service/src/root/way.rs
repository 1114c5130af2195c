//! The way to the root, and the users who may change it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use host::{effective_user, errno};

/// The users who may change what this one relies on: root, this one, and who owns `/`. In a user
/// namespace that is root, under the number of users who are not mapped.
pub(super) fn trusted_users() -> [u32; 3] {
    let top = fs::metadata("/").map_or(0, |found| found.uid());
    [0, effective_user(), top]
}

/// The directories and symbolic links that the system passes on the way to `path`, an absolute one,
/// up to the first that is missing.
pub(super) fn way_to(path: &Path) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
    /// As in Linux (path_resolution(7)).
    const LINKS_MOST: usize = 40;
    let (mut passed, mut links, mut at) = (Vec::new(), 0, PathBuf::new());
    let parts = |path: &Path| -> Vec<PathBuf> {
        path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect()
    };
    let mut left = parts(path);
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        at.push(part);
        let found = match fs::symlink_metadata(&at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            found => found?,
        };
        let is_link = found.is_symlink();
        passed.push((at.clone(), found));
        if is_link {
            links += 1;
            if links > LINKS_MOST {
                return Err(io::Error::from_raw_os_error(errno::ELOOP));
            }
            left.extend(parts(&fs::read_link(&at)?));
            at.pop();
        }
    }
    Ok(passed)
}
