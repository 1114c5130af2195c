//! What stands on a device or uses a place, for messages and reports.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use control::tree::DeviceNode;
use host::swaps::{self, Active};
use host::{Holder, Mounted, holders, major, minor, mounts};

/// The place of a device that is swap space.
pub const SWAP: &str = "[SWAP]";

/// The mount points of the block device `path`, and `[SWAP]` if it is swap space.
#[must_use]
pub fn places_of(path: &Path) -> Vec<String> {
    places_among(path, number_of(path), &mounts().unwrap_or_default(), &swaps::all())
}

/// A mount matches by device number, for it may name the device by another path. It also matches by
/// name, for some file systems show a number of their own.
pub(crate) fn places_among(
    path: &Path,
    number: Option<(u32, u32)>,
    mounts: &[Mounted],
    swaps: &[Active],
) -> Vec<String> {
    let is_it = |mount: &&Mounted| mount.source == path || number == Some(mount.device);
    let mounted = mounts.iter().filter(is_it);
    let mut places: Vec<String> = mounted.map(|mount| machine::text_of(&mount.at)).collect();
    if swaps.iter().any(|swap| swap.path == path) {
        places.push(SWAP.into());
    }
    places
}

/// Does anything stand on the block device `path`, by the lists of the system: a file
/// system in this mount namespace, or of a common kind in any other, or another block device? So it
/// does if the mounts are not known. It waits for nothing.
#[must_use]
pub fn stands_on(path: &Path) -> bool {
    let (Some(name), Some(number)) = (path.file_name(), number_of(path)) else { return false };
    let has = |at: &Path| fs::read_dir(at).is_ok_and(|mut entries| entries.next().is_some());
    let below = |at: &Path| fs::read_dir(at).into_iter().flatten().flatten().map(|it| it.path());
    let mut kinds = below(Path::new("/sys/fs"));
    !mounts().is_ok_and(|all| all.iter().all(|mount| mount.device != number))
        || has(&Path::new("/sys/block").join(name).join("holders"))
        || kinds.any(|kind| kind.join(name).exists())
        || below(Path::new("/sys/fs/btrfs")).any(|it| it.join("devices").join(name).exists())
}

/// The number of the block device `path`, as lists of mounts have it.
fn number_of(path: &Path) -> Option<(u32, u32)> {
    let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    Some((major(found.rdev()), minor(found.rdev())))
}

/// The file of a device, `found` so, as a node of a directory.
pub(crate) fn node_of(found: &Metadata) -> DeviceNode {
    DeviceNode {
        block: found.file_type().is_block_device(),
        major: major(found.rdev()),
        minor: minor(found.rdev()),
        mode: found.mode() & 0o7777,
        owner: (found.uid(), found.gid()),
    }
}

/// The users of `place`, as the end of a sentence: `; used by bash (pid 7: /mnt)`. Empty when no
/// user is visible.
#[must_use]
pub fn used_by(place: &Path) -> String {
    const SHOWN: usize = 5;
    let holders = holders(|path| path.starts_with(place));
    if holders.is_empty() {
        return String::new();
    }
    let mut names: Vec<String> = holders.iter().take(SHOWN).map(Holder::to_string).collect();
    if holders.len() > SHOWN {
        names.push(format!("and {} more", holders.len() - SHOWN));
    }
    format!("; used by {}", names.join(", "))
}

#[cfg(test)]
mod tests;
