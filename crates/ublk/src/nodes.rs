//! The nodes of devices in /dev and their users.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use host::flags;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// The kinds of nodes that a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The character device of the server.
    Character,
    /// The block device of all other users.
    Block,
}

/// The node of device `number`.
pub(crate) fn path(kind: Kind, number: u32) -> PathBuf {
    PathBuf::from(match kind {
        Kind::Character => format!("/dev/ublkc{number}"),
        Kind::Block => format!("/dev/ublkb{number}"),
    })
}

/// Its sysfs directory.
pub(crate) fn attributes(kind: Kind, number: u32) -> PathBuf {
    PathBuf::from(match kind {
        Kind::Character => format!("/sys/class/ublk-char/ublkc{number}"),
        Kind::Block => format!("/sys/block/ublkb{number}"),
    })
}

/// Makes the kernel pass requests on at once. It turns off the scheduler and the throttling of
/// writes (`wbt_wait`), which would make reclaim wait as for a disk. A setting that fails stays as
/// it is; requests are then slower.
pub(crate) fn pass_at_once(number: u32) {
    let queue = attributes(Kind::Block, number).join("queue");
    for (attribute, value) in [("wbt_lat_usec", "0"), ("scheduler", "none")] {
        let _ = fs::write(queue.join(attribute), value);
    }
}

/// Limits the requests that the driver has at once. After [`pass_at_once`]: a scheduler has a limit
/// of its own. If the setting fails, the end of a server may be noticed late.
pub(crate) fn limit_requests(number: u32, most: u16) {
    let queue = attributes(Kind::Block, number).join("queue");
    let _ = fs::write(queue.join("nr_requests"), most.to_string());
}

/// The numbers of all ublk devices, of every server.
pub(crate) fn numbers() -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten() {
        let name = entry.file_name();
        found
            .extend(name.to_str().and_then(|name| name.strip_prefix("ublkc")?.parse::<u32>().ok()));
    }
    found.sort_unstable();
    found
}

/// Makes sure that the node exists: it makes the node if devtmpfs did not, and udev does not remove
/// it. A node of an earlier device with another number is replaced.
pub(crate) fn make(kind: Kind, number: u32) -> io::Result<PathBuf> {
    make_at(path(kind, number), kind, &attributes(kind, number))
}

fn make_at(path: PathBuf, kind: Kind, attributes: &Path) -> io::Result<PathBuf> {
    let text = fs::read_to_string(attributes.join("dev"))?;
    let device = parse_device(&text).ok_or(ErrorKind::InvalidData)?;
    if is_node(&path, kind, device) {
        return Ok(path);
    }
    if path.symlink_metadata().is_ok() {
        fs::remove_file(&path)?;
    }
    match make_node(&path, kind, device) {
        // Another process may have made it first.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ if is_node(&path, kind, device) => Ok(path),
        _ => Err(ErrorKind::AlreadyExists.into()),
    }
}

/// Makes the node of a device, with access for its owner only.
fn make_node(path: &Path, kind: Kind, (major, minor): (u32, u32)) -> io::Result<()> {
    let kind = match kind {
        Kind::Character => FileType::CharacterDevice,
        Kind::Block => FileType::BlockDevice,
    };
    Ok(mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, host::makedev(major, minor))?)
}

fn is_node(path: &Path, kind: Kind, (major, minor): (u32, u32)) -> bool {
    path.metadata().is_ok_and(|found| {
        let right_kind = match kind {
            Kind::Character => found.file_type().is_char_device(),
            Kind::Block => found.file_type().is_block_device(),
        };
        right_kind && found.rdev() == host::makedev(major, minor)
    })
}

/// Parses major and minor number from a text such as `259:3`.
pub(crate) fn parse_device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The node of partition `part` of device `number`; an error until the system shows it.
pub(crate) fn make_part(number: u32, part: u32) -> io::Result<PathBuf> {
    let name = format!("ublkb{number}p{part}");
    let attributes = attributes(Kind::Block, number).join(&name);
    make_at(PathBuf::from(format!("/dev/{name}")), Kind::Block, &attributes)
}

/// Removes the nodes of a device that is gone, if the system has not.
pub(crate) fn remove(number: u32) {
    let parts = (1..).map(|part| PathBuf::from(format!("/dev/ublkb{number}p{part}")));
    for part in parts.take_while(|part| part.symlink_metadata().is_ok()) {
        if !attributes(Kind::Block, number).exists() {
            let _ = fs::remove_file(part);
        }
    }
    for kind in [Kind::Block, Kind::Character] {
        if !attributes(kind, number).exists() {
            let _ = fs::remove_file(path(kind, number));
        }
    }
}

/// Opens the device exclusively; EBUSY if it is mounted, swapped to or held.
pub(crate) fn claim(number: u32) -> io::Result<File> {
    let path = path(Kind::Block, number);
    OpenOptions::new().read(true).custom_flags(flags::O_EXCL).open(path)
}
