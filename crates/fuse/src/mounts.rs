//! Ends FUSE connections and unmounts FUSE file systems.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

use host::{Mounted, Unmount, errno, mounts_at, unmount};

/// The end of a FUSE connection, prepared while it is mounted: its number may be another one's
/// afterwards. The owner of the mount can have it even when the server does not answer.
pub(crate) struct Abort(File);

impl Abort {
    /// Of connection `number`, which is mounted at `at`. `None` if it is there no more.
    pub(crate) fn of(at: &Path, number: u32) -> Option<Abort> {
        let open = |all: &str| {
            OpenOptions::new().write(true).open(format!("{all}/{number}/abort")).ok().map(Abort)
        };
        let found = open("/sys/fs/fuse/connections").or_else(|| {
            let all = host::fuse_connections().ok()?;
            open(&format!("/proc/self/fd/{}", all.as_raw_fd()))
        });
        // The number was its own all the time if it is mounted now.
        let is_it = |all: Vec<Mounted>| all.iter().any(|mounted| mounted.device.1 == number);
        found.filter(|_| mounts_at(at).is_ok_and(is_it))
    }

    /// Fails every request, also those under way. Does nothing once the connection has ended.
    pub(crate) fn now(&self) -> bool {
        (&self.0).write_all(b"1").is_ok()
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
