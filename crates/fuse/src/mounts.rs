//! Ends FUSE connections and unmounts FUSE file systems.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

use host::{Unmount, errno, unmount};

/// Fails every request of a FUSE mount, also those under way. The owner of the mount can do it even
/// when the server does not answer.
pub(crate) fn abort_fuse(minor: u32) -> bool {
    Abort::of(minor).is_some_and(Abort::now)
}

/// The end of a FUSE connection, prepared while it is mounted: its number may be another one's
/// afterwards.
pub(crate) struct Abort(File);

impl Abort {
    pub(crate) fn of(minor: u32) -> Option<Abort> {
        let open = |all: &str| {
            OpenOptions::new().write(true).open(format!("{all}/{minor}/abort")).ok().map(Abort)
        };
        open("/sys/fs/fuse/connections").or_else(|| {
            let all = host::fuse_connections().ok()?;
            open(&format!("/proc/self/fd/{}", all.as_raw_fd()))
        })
    }

    /// Fails every request. Does nothing once the connection has ended.
    pub(crate) fn now(mut self) -> bool {
        self.0.write_all(b"1").is_ok()
    }
}

/// Unmounts a FUSE file system: as root by the system call, else by the helper of package fuse3.
///
/// # Errors
/// The error of umount2(2), `EBUSY` while it is in use, or what the helper says.
pub fn unmount_fuse(path: &Path, how: Unmount) -> io::Result<()> {
    match unmount(path, how) {
        Err(error) if error.raw_os_error() == Some(errno::EPERM) => by_helper(path, how, error),
        done => done,
    }
}

fn by_helper(path: &Path, how: Unmount, refused: io::Error) -> io::Result<()> {
    if how == Unmount::Abort {
        return Err(refused);
    }
    let options = if how == Unmount::Lazily { "-uz" } else { "-u" };
    for program in ["fusermount3", "fusermount"] {
        let mut command = Command::new(program);
        let output = command.arg(options).arg("--").arg(path).stdin(Stdio::null()).output();
        let Ok(output) = output else { continue };
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if text.to_lowercase().contains("busy") {
            return Err(io::Error::from_raw_os_error(errno::EBUSY));
        }
        return Err(io::Error::other(text));
    }
    Err(refused)
}
