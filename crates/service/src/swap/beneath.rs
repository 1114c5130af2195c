//! What is beneath a backing file or device, if that is in memory itself or needs memory for each
//! write without end. A page that is written back to make room would need room there.
//!
//! Files on tmpfs, ramfs and hugetlbfs are memory. Files of FUSE and of network file systems are
//! served by a program or by a connection, which need memory for each write; the program may even
//! be this one. The same holds for block devices that stand on such a file, or that a program
//! serves. Nothing here is asked of a device itself: the kernel's lists tell.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use host::{major, makedev, minor};

/// How deep block devices are followed: partitions, mappers, loop devices.
const DEEPEST: usize = 8;

const MEMORY: &str = "it is in memory itself";
const SERVED: &str = "a program serves it, which needs memory for each write, and which may be a \
                      rampack";
const NETWORK: &str = "it is on the network, which needs memory for each write";

/// File systems by their numbers (statfs(2) and linux/magic.h), and why a file there will not do.
const FILE_SYSTEMS: [(u32, &str, &str); 14] = [
    (0x0102_1994, "tmpfs", MEMORY),
    (0x8584_58f6, "ramfs", MEMORY),
    (0x9584_58f6, "hugetlbfs", MEMORY),
    (0x6573_5546, "FUSE", SERVED),
    (0x6969, "NFS", NETWORK),
    (0xff53_4d42, "CIFS", NETWORK),
    (0xfe53_4d42, "SMB", NETWORK),
    (0x517b, "SMB", NETWORK),
    (0x00c3_6400, "Ceph", NETWORK),
    (0x0102_1997, "9P", NETWORK),
    (0x5346_414f, "AFS", NETWORK),
    (0x6b41_4653, "AFS", NETWORK),
    (0x7375_7245, "Coda", SERVED),
    (0x0bd0_0bd0, "Lustre", NETWORK),
];

/// Block devices by the beginnings of their names.
const DEVICES: [(&str, &str); 4] =
    [("zram", MEMORY), ("ram", MEMORY), ("ublkb", SERVED), ("nbd", SERVED)];

/// The reason why `path`, a file or a block device, should not be below swap space; `None` if none
/// is known.
#[must_use]
pub fn why_not(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    if !found.file_type().is_block_device() {
        return of_file(path);
    }
    let (major, minor) = (major(found.rdev()), minor(found.rdev()));
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    of_device(&device, DEEPEST)
}

/// Does `path`, a file or a block device, stand on one of the devices `numbers`, or lie in a file
/// system of one?
#[must_use]
pub fn stands_on(path: &Path, numbers: &[u64]) -> bool {
    path_stands_on(path, numbers, DEEPEST)
}

fn path_stands_on(path: &Path, numbers: &[u64], deepest: usize) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let number = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let device = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    numbers.contains(&number)
        || fs::canonicalize(device).is_ok_and(|it| device_stands_on(&it, numbers, deepest))
}

/// As [`stands_on`], for the block device whose directory in sysfs is `device`.
fn device_stands_on(device: &Path, numbers: &[u64], deepest: usize) -> bool {
    let Some(deepest) = deepest.checked_sub(1) else { return false };
    let stands_on = |device: &Path| device_stands_on(device, numbers, deepest);
    let number = fs::read_to_string(device.join("dev")).unwrap_or_default();
    let number = number
        .trim_end()
        .split_once(':')
        .and_then(|(major, minor)| Some(makedev(major.parse().ok()?, minor.parse().ok()?)));
    if number.is_some_and(|number| numbers.contains(&number)) {
        return true;
    }
    if device.join("partition").exists() {
        return device.parent().is_some_and(stands_on);
    }
    if let Ok(file) = fs::read_to_string(device.join("loop/backing_file")) {
        return path_stands_on(Path::new(file.trim_end_matches('\n')), numbers, deepest);
    }
    let below = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    below.filter_map(|entry| entry.path().canonicalize().ok()).any(|below| stands_on(&below))
}

fn of_file(path: &Path) -> Option<String> {
    let found = rustix::fs::statfs(path).ok()?;
    // Its width depends on the machine; the numbers have 32 bits.
    of_file_system(found.f_type as u32).map(|(name, why)| format!("it is on {name}: {why}"))
}

fn of_file_system(number: u32) -> Option<(&'static str, &'static str)> {
    let found = FILE_SYSTEMS.iter().find(|known| known.0 == number);
    found.map(|(_, name, why)| (*name, *why))
}

/// The reason for the block device whose directory in sysfs is `device`.
fn of_device(device: &Path, deepest: usize) -> Option<String> {
    let deepest = deepest.checked_sub(1)?;
    if device.join("partition").exists() {
        return of_device(device.parent()?, deepest);
    }
    let name = device.file_name()?.to_str()?;
    if let Some(why) = of_name(name) {
        return Some(format!("{name}: {why}"));
    }
    if let Ok(file) = fs::read_to_string(device.join("loop/backing_file")) {
        return of_file(Path::new(file.trim_end_matches('\n')))
            .map(|why| format!("{name} is a loop device on a file: {why}"));
    }
    let below = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let mut below = below.filter_map(|entry| entry.path().canonicalize().ok());
    below.find_map(|below: PathBuf| of_device(&below, deepest))
}

fn of_name(name: &str) -> Option<&'static str> {
    let is_it = |beginning: &str| {
        let number = name.strip_prefix(beginning).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    DEVICES.iter().find(|known| is_it(known.0)).map(|known| known.1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use testkit::TempDir;

    use super::*;

    #[test]
    fn devices_are_known_by_their_names() {
        for (name, why) in
            [("zram0", MEMORY), ("ram15", MEMORY), ("ublkb0", SERVED), ("nbd7", SERVED)]
        {
            assert_eq!(of_name(name), Some(why), "{name}");
        }
        for name in ["sda", "nvme0n1", "dm-0", "md127", "vda", "loop0", "ram", "ramx", "zram0p"] {
            assert_eq!(of_name(name), None, "{name}");
        }
        assert_eq!(of_file_system(0x0102_1994).unwrap().0, "tmpfs");
        // ext4, xfs, btrfs.
        for local in [0xef53, 0x5846_5342, 0x9123_683e] {
            assert_eq!(of_file_system(local), None, "{local:x}");
        }
    }

    #[test]
    fn what_a_device_stands_on_is_followed() {
        let sys = TempDir::new();
        let make = |name: &str| {
            let path = sys.join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let slaves = |of: &str, below: &[&str]| {
            let of = make(&format!("{of}/slaves"));
            below.iter().for_each(|name| symlink(sys.join(name), of.join(name)).unwrap());
        };
        let (disk, zram) = (make("sda"), make("zram0"));
        let part = make("sda/sda1");
        fs::write(part.join("partition"), "1\n").unwrap();
        let lost = make("zram0/zram0p1");
        fs::write(lost.join("partition"), "1\n").unwrap();
        slaves("dm-0", &["sda"]);
        slaves("md0", &["sda", "dm-0", "zram0"]);
        slaves("dm-1", &["md0"]);
        slaves("dm-2", &["dm-2"]);
        let why = |path: &Path| of_device(path, DEEPEST);
        for path in [&disk, &part, &sys.join("dm-0"), &sys.join("dm-2"), &sys.join("none")] {
            assert_eq!(why(path), None, "{path:?}");
        }
        fs::write(disk.join("dev"), "8:0\n").unwrap();
        let stands = |name: &str| device_stands_on(&sys.join(name), &[makedev(8, 0)], DEEPEST);
        for name in ["sda", "sda/sda1", "dm-0", "md0", "dm-1"] {
            assert!(stands(name), "{name}");
        }
        assert!(!stands("zram0") && !stands("dm-2") && !stands("none"));
        let expected = Some(format!("zram0: {MEMORY}"));
        for path in [&zram, &lost, &sys.join("md0"), &sys.join("dm-1")] {
            assert_eq!(why(path), expected, "{path:?}");
        }
    }
}
