//! The list of mounts, and unmounting.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sys::{self, Unmount};

/// One line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mounted {
    /// The device number: `0:NN` for FUSE, where NN names its control directory.
    pub(crate) device: (u32, u32),
    pub(crate) at: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: OsString,
}

/// Everything mounted in this namespace, in the order it was mounted.
pub(crate) fn all() -> Vec<Mounted> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// The mounts exactly at `path`, the uppermost last.
pub(crate) fn at(path: &Path) -> Vec<Mounted> {
    all().into_iter().filter(|mounted| mounted.at == path).collect()
}

pub(crate) fn parse(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let at = PathBuf::from(unescape(fields.get(4)?));
    // Any number of optional fields end with a lone dash.
    let dash = 6 + fields.get(6..)?.iter().position(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.get(dash + 1)?).into_owned();
    Some(Mounted { device, at, kind, source: unescape(fields.get(dash + 2)?) })
}

/// Undoes the kernel's escapes: a backslash and three octal digits.
pub(crate) fn unescape(text: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let code =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(plain)
}

/// The devices that the kernel swaps to.
pub(crate) fn swaps() -> Vec<PathBuf> {
    let text = fs::read("/proc/swaps").unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    lines
        .filter_map(|line| line.split(|byte| *byte == b' ').next())
        .filter(|name| !name.is_empty())
        .map(|name| PathBuf::from(unescape(name)))
        .collect()
}

/// Fails every request of a FUSE mount, also those under way. The owner of the mount can do it even
/// when the server does not answer.
pub(crate) fn abort_fuse(minor: u32) -> bool {
    fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1").is_ok()
}

/// Unmounts a FUSE file system: as root by the system call, else by the helper of package fuse3.
pub(crate) fn unmount_fuse(path: &Path, how: Unmount) -> io::Result<()> {
    match sys::unmount(path, how) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => by_helper(path, how, error),
        done => done,
    }
}

fn by_helper(path: &Path, how: Unmount, refused: io::Error) -> io::Result<()> {
    if how == Unmount::Abort {
        return Err(refused);
    }
    let options = if how == Unmount::Detach { "-uz" } else { "-u" };
    for program in ["fusermount3", "fusermount"] {
        let mut command = Command::new(program);
        let output = command.arg(options).arg("--").arg(path).stdin(Stdio::null()).output();
        let Ok(output) = output else { continue };
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if text.to_lowercase().contains("busy") {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        return Err(io::Error::other(text));
    }
    Err(refused)
}
