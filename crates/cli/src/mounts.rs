//! The mounts and swap space that the kernel reports, and the processes that use them.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rampack::fuse::printable;

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountLine {
    /// The file system's device number, `major:minor`.
    pub device: String,
    /// The mount point.
    pub target: PathBuf,
    /// The type of the file system.
    pub kind: String,
    /// The source of the mount, as the mounter named it.
    pub source: PathBuf,
}

/// The mounts that this process sees; empty without `/proc`.
#[must_use]
pub fn mounts() -> Vec<MountLine> {
    parse_mountinfo(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// The lines of a mountinfo file (format: proc_pid_mountinfo(5)). Unknown lines are skipped.
pub(crate) fn parse_mountinfo(text: &[u8]) -> Vec<MountLine> {
    text.split(|byte| *byte == b'\n').filter_map(parse_mount_line).collect()
}

fn parse_mount_line(line: &[u8]) -> Option<MountLine> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let target = fields.nth(1)?;
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (fields.next()?, fields.next()?);
    Some(MountLine {
        device: String::from_utf8_lossy(device).into_owned(),
        target: unescape(target),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: unescape(source),
    })
}

/// Decodes a path: the kernel writes white space and backslashes as three octal digits.
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        match tail.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The place of a device that is swap space.
pub const SWAP: &str = "[SWAP]";

/// The mount points of the block device `path`, and `[SWAP]` if it is swap space.
#[must_use]
pub fn places_of(path: &Path) -> Vec<String> {
    let swaps = fs::read("/proc/swaps").unwrap_or_default();
    let number = fs::metadata(path)
        .ok()
        .filter(|found| found.file_type().is_block_device())
        .map(|found| format!("{}:{}", libc::major(found.rdev()), libc::minor(found.rdev())));
    places_among(path, number.as_deref(), &mounts(), &swaps)
}

/// A mount matches by device number, for it may name the device by another path. It also matches by
/// name, for some file systems show a number of their own.
pub(crate) fn places_among(
    path: &Path,
    number: Option<&str>,
    mounts: &[MountLine],
    swaps: &[u8],
) -> Vec<String> {
    let is_it = |mount: &&MountLine| mount.source == path || number == Some(&*mount.device);
    let mounted = mounts.iter().filter(is_it);
    let mut places: Vec<String> = mounted.map(|mount| mount.target.display().to_string()).collect();
    let swapped = swaps
        .split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| line.split(|byte| matches!(byte, b' ' | b'\t')).next())
        .any(|source| unescape(source) == path);
    if swapped {
        places.push(SWAP.into());
    }
    places
}

/// A process that uses a mount or a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command's name.
    pub command: String,
    /// The path it has open there.
    pub what: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, what) = (printable(&self.command), printable(&self.what));
        write!(f, "{command} (pid {}: {what})", self.pid)
    }
}

/// The processes that have a file at or below `place` open, run it, or have it as working
/// directory. Only names are compared. The place itself is never touched: an access may hang.
/// Processes of other users and other mount namespaces may be missing.
#[must_use]
pub fn holders_of(place: &Path) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let dir = process.path();
        let fixed = ["cwd", "root", "exe"].map(|name| dir.join(name));
        let open = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
        let links = fixed.into_iter().chain(open.map(|entry| entry.path()));
        let what = links.filter_map(|l| fs::read_link(l).ok()).find(|t| t.starts_with(place));
        if let Some(what) = what {
            let command = fs::read_to_string(dir.join("comm")).unwrap_or_default();
            found.push(Holder { pid, command: command.trim().to_string(), what });
        }
    }
    found.sort_by_key(|holder| holder.pid);
    found
}

/// The other processes that have the block device `path` open. Processes of `rampack exec` open it
/// by its name in the control tree, which is mounted at `tree`: `/dev/NAME` in another mount
/// namespace. Only what the kernel reports of their files is read, never the files.
#[must_use]
pub fn openers_of(path: &Path, name: &str, tree: &Path) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ours = std::process::id();
    let there = Path::new("/dev").join(name);
    let tree = mounts().into_iter().find(|mount| mount.target == tree).map(|mount| mount.device);
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let dir = process.path();
        let is_it = |fd: &fs::DirEntry| {
            let Ok(link) = fs::read_link(fd.path()) else { return false };
            link == path
                || (link == there && tree.is_some() && device_of(&dir, &fd.file_name()) == tree)
        };
        let mut open = fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
        if pid == ours || !open.any(|fd| is_it(&fd)) {
            continue;
        }
        let command = fs::read_to_string(dir.join("comm")).unwrap_or_default();
        found.push(Holder { pid, command: command.trim().to_string(), what: path.to_path_buf() });
    }
    found.sort_by_key(|holder| holder.pid);
    found
}

/// The device number of the file system of an open file, from the mount in which it was opened.
fn device_of(process: &Path, fd: &std::ffi::OsStr) -> Option<String> {
    let info = fs::read_to_string(process.join("fdinfo").join(fd)).ok()?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read(process.join("mountinfo")).ok()?;
    let of_mount = |line: &&[u8]| line.split(|byte| *byte == b' ').next() == Some(mount.as_bytes());
    let line = mounts.split(|byte| *byte == b'\n').find(of_mount)?;
    parse_mount_line(line).map(|mount| mount.device)
}

/// The users of `place`, as the end of a sentence: `; used by bash (pid 7: /mnt)`. Empty when no
/// user is visible.
#[must_use]
pub fn used_by(place: &Path) -> String {
    const SHOWN: usize = 5;
    let holders = holders_of(place);
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
