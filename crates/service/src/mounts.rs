//! What stands on a device or uses a place, for messages and reports.

use std::fs::{self, Metadata};
use std::iter;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use control::tree::DeviceNode;
use host::swaps::{self, Active, is_part};
use host::{Holder, Mounted, device_numbers, holders, major, minor, mounts};

/// The place of a device that is swap space.
pub const SWAP: &str = "[SWAP]";

/// The mount points of the block device `path` and its partitions, and `[SWAP]` if one of them is
/// swap space.
#[must_use]
pub fn places_of(path: &Path) -> Vec<String> {
    places_among(path, &numbers_of(path), &mounts().unwrap_or_default(), &swaps::all())
}

/// A mount matches by device number, for it may name the device by another path. It also matches by
/// name, for some file systems show a number of their own.
fn places_among(
    path: &Path,
    numbers: &[(u32, u32)],
    mounts: &[Mounted],
    swaps: &[Active],
) -> Vec<String> {
    let is_it = |mount: &&Mounted| is_part(path, &mount.source) || numbers.contains(&mount.device);
    let mounted = mounts.iter().filter(is_it);
    let mut places: Vec<String> = mounted.map(|mount| machine::text_of(&mount.at)).collect();
    if swaps.iter().any(|swap| is_part(path, &swap.path)) {
        places.push(SWAP.into());
    }
    places
}

/// Does anything stand on the block device `path` or a partition of it, by the lists of the system:
/// swap space, a file system in this mount namespace, or of a common kind in any other, or another
/// block device? So it does if the mounts are not known. It waits for nothing.
#[must_use]
pub fn stands_on(path: &Path) -> bool {
    let numbers = numbers_of(path);
    !numbers.is_empty() && !mounts().is_ok_and(|all| !is_used(path, &numbers, &all, &swaps::all()))
}

/// As [`stands_on`], by these numbers of `path` and lists. The device is not looked at.
pub(crate) fn is_used(
    path: &Path,
    numbers: &[(u32, u32)],
    mounts: &[Mounted],
    swaps: &[Active],
) -> bool {
    let Some(whole) = path.file_name().map(|name| Path::new("/sys/block").join(name)) else {
        return false;
    };
    let below = |at: &Path| fs::read_dir(at).into_iter().flatten().flatten().map(|it| it.path());
    let is_below = |part: PathBuf| {
        let Some(name) = part.file_name() else { return false };
        below(&part.join("holders")).next().is_some()
            || below(Path::new("/sys/fs")).any(|kind| kind.join(name).exists())
            || below(Path::new("/sys/fs/btrfs")).any(|it| it.join("devices").join(name).exists())
    };
    let parts = below(&whole).filter(|it| it.join("partition").exists());
    !places_among(path, numbers, mounts, swaps).is_empty()
        || iter::once(whole.clone()).chain(parts).any(is_below)
}

/// The numbers of the block device `path` and its partitions, as lists of mounts have them.
fn numbers_of(path: &Path) -> Vec<(u32, u32)> {
    let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device());
    let (Some(found), Some(name)) = (found, path.file_name()) else { return Vec::new() };
    let own = (major(found.rdev()), minor(found.rdev()));
    let mut numbers = device_numbers(&name.to_string_lossy());
    // The node may have another name than the device.
    if !numbers.contains(&own) {
        numbers = vec![own];
    }
    numbers
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
