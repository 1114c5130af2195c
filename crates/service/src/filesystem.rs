//! Makes and mounts file systems on devices that are empty, live in memory and end with the daemon.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use control::{ControlError, Errno};
use host::{Unmount, effective_user, errno, mounts, printable};

use crate::failure::{MOUNTS, failed, quoted};
use crate::mounts::used_by;

/// A type of file system that can be made.
pub struct Kind {
    /// Its name, for `--fs` and `mount`.
    pub name: &'static str,
    /// The package that has its mkfs program on most distributions.
    package: &'static str,
    /// The program's arguments, before the device.
    arguments: &'static [&'static str],
    /// Arguments for a program that is too old for `arguments`.
    older: Option<&'static [&'static str]>,
}

/// The program that mounts ext4 for any user, and its package.
const FUSE2FS: &str = "fuse2fs";

/// The known file systems. A new device reads as zeroes, so mkfs neither discards nor zeroes it.
/// There is no journal, for the data that it could repair is lost with the daemon. No space is kept
/// back for root.
pub const KINDS: [Kind; 5] = [
    Kind {
        name: "ext4",
        package: "e2fsprogs",
        arguments: &[
            "-q",
            "-F",
            "-b",
            "4096",
            "-m",
            "0",
            "-O",
            "^has_journal",
            "-E",
            "nodiscard,assume_storage_prezeroed=1",
        ],
        // Before e2fsprogs 1.47: the kernel is left to zero the inode tables. They are zeroes
        // already, so it need not do so.
        older: Some(&[
            "-q",
            "-F",
            "-b",
            "4096",
            "-m",
            "0",
            "-O",
            "^has_journal",
            "-E",
            "nodiscard,lazy_itable_init=1",
        ]),
    },
    Kind {
        name: "ext2",
        package: "e2fsprogs",
        arguments: &["-q", "-F", "-b", "4096", "-m", "0", "-E", "nodiscard"],
        older: None,
    },
    Kind { name: "xfs", package: "xfsprogs", arguments: &["-q", "-f", "-K"], older: None },
    Kind {
        name: "btrfs",
        package: "btrfs-progs",
        arguments: &["-q", "-f", "-K", "-m", "single"],
        older: None,
    },
    Kind { name: "f2fs", package: "f2fs-tools", arguments: &["-q", "-f", "-t", "0"], older: None },
];

/// The file system called `name`.
///
/// # Errors
/// `EINVAL`; the message names the known file systems.
pub fn kind(name: &str) -> Result<&'static Kind, ControlError> {
    KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        let message = format!("no file system {name:?}; there are: {}", known.join(" "));
        ControlError::invalid(message)
    })
}

impl Kind {
    fn program(&self) -> String {
        format!("mkfs.{}", self.name)
    }

    /// Checks that its program is installed.
    ///
    /// # Errors
    /// `ENOENT`; the message names the package that has it.
    fn check_installed(&self) -> Result<(), ControlError> {
        let program = self.program();
        if find_program(&program, std::env::var_os("PATH").as_deref()).is_some() {
            return Ok(());
        }
        let message = format!(
            "{program} is not installed, and --fs {} needs it; install the package {}",
            self.name, self.package
        );
        Err(ControlError::new(Errno::ENOENT, message))
    }

    /// Makes a file system on `device`, which is known to be empty.
    ///
    /// # Errors
    /// `ENOENT` when the program is missing, `EIO` with the program's output when it fails.
    pub fn make(&self, device: &Path) -> Result<(), ControlError> {
        self.check_installed()?;
        let mut output = self.run(self.arguments, device)?;
        let too_old = || words(&output).to_lowercase().contains("bad option");
        if let (false, Some(older)) = (output.status.success(), self.older.filter(|_| too_old())) {
            output = self.run(older, device)?;
        }
        if output.status.success() {
            return Ok(());
        }
        let message =
            format!("{} on {} failed: {}", self.program(), device.display(), words(&output));
        Err(ControlError::new(Errno::EIO, message))
    }

    fn run(&self, arguments: &[&str], device: &Path) -> Result<Output, ControlError> {
        let program = find_program(&self.program(), std::env::var_os("PATH").as_deref())
            .unwrap_or_else(|| self.program().into());
        Command::new(&program)
            .args(arguments)
            .arg(device)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| failed(format!("cannot run {}", program.display()), &e))
    }

    /// Checks that a user who is not root can mount it.
    ///
    /// # Errors
    /// `EPERM` for a file system that needs root, `ENOENT` when a program is missing; the message
    /// names the package that has it.
    fn check_for_users(&self) -> Result<(), ControlError> {
        if !self.name.starts_with("ext") {
            let message = format!(
                "a file system {} needs root, for a block device; without root there are ext4 and \
                 ext2",
                self.name
            );
            return Err(ControlError::new(Errno::EPERM, message));
        }
        for (program, package) in [(FUSE2FS, FUSE2FS), ("fusermount3", "fuse3")] {
            if find_program(program, std::env::var_os("PATH").as_deref()).is_none() {
                let message = format!(
                    "{program} is not installed, and --mount without root needs it; install the \
                     package {package}"
                );
                return Err(ControlError::new(Errno::ENOENT, message));
            }
        }
        Ok(())
    }

    /// Mounts `device`, which holds such a file system, at `target`. The option `discard` gives
    /// back the memory of deleted files. If `device` is a file, as a user has it who is not root,
    /// the program fuse2fs mounts it.
    ///
    /// # Errors
    /// The error of the system call; `ENODEV` when the kernel does not know this file system; what
    /// fuse2fs says.
    pub fn mount(&self, device: &Path, target: &Path) -> Result<(), ControlError> {
        if device.is_file() {
            return self.mount_file(device, target);
        }
        match host::mount(device, target, self.name, "discard") {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(errno::ENODEV) => {
                let message = format!(
                    "the kernel does not know the file system {}; load it with `modprobe {}`",
                    self.name, self.name
                );
                Err(ControlError::new(Errno::ENODEV, message))
            }
            Err(error) => {
                let (device, target) = (device.display(), target.display());
                Err(failed(format!("cannot mount {device} at {target}"), &error))
            }
        }
    }
}

impl Kind {
    fn mount_file(&self, file: &Path, target: &Path) -> Result<(), ControlError> {
        self.check_for_users()?;
        // Its user may do what root may do there: nobody else reaches it. With more than one thread
        // (-s) its library may leave a file .fuse_hidden for a name that was removed just after the
        // file was closed; it serves one request at a time anyway.
        let mut mount = Command::new(FUSE2FS);
        mount.arg(file).arg(target).args(["-s", "-o", "fakeroot"]).stdin(Stdio::null());
        let output = mount.output().map_err(|e| failed(format!("cannot run {FUSE2FS}"), &e))?;
        if output.status.success() {
            return Ok(());
        }
        let (file, target, words) = (file.display(), target.display(), words(&output));
        let message = format!("{FUSE2FS} cannot mount {file} at {target}: {words}");
        Err(ControlError::new(Errno::EIO, message))
    }
}

/// The output of a program, in one line.
fn words(output: &Output) -> String {
    let text = [&output.stderr[..], &output.stdout[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { output.status.to_string() } else { lines.join("; ") }
}

/// Finds a program in `path` and in the directories of the administrator, which a user's path may
/// lack.
#[must_use]
pub fn find_program(name: &str, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let path: Vec<PathBuf> = path.into_iter().flat_map(std::env::split_paths).collect();
    let usual = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    path.into_iter()
        .filter(|dir| dir.is_absolute())
        .chain(usual)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// What is to be on a disk and where: the file system `name`, mounted at `mount`, in a daemon at
/// `root`. The directory has its real path.
///
/// # Errors
/// The file system or the directory cannot be used, or a program is missing that is needed for it.
pub fn wanted(
    name: Option<&str>,
    mount: Option<&Path>,
    root: &Path,
) -> Result<(Option<&'static Kind>, Option<PathBuf>), ControlError> {
    let kind = name.or(mount.map(|_| "ext4")).map(kind).transpose()?;
    if let Some(kind) = kind {
        if effective_user() != 0 {
            kind.check_for_users()?;
        }
        kind.check_installed()?;
    }
    let target = mount.map(mount_point).transpose()?;
    target.as_deref().map_or(Ok(()), |it| check_beside(it, root))?;
    Ok((kind, target))
}

/// The real path of a directory to mount on.
///
/// # Errors
/// `ENOENT` or `ENOTDIR`.
fn mount_point(path: &Path) -> Result<PathBuf, ControlError> {
    let shown = path.display();
    let real = path.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!(
                "mount point {shown} does not exist; make it with: mkdir -p {}",
                quoted(path)
            );
            ControlError::new(Errno::ENOENT, message)
        }
        _ => failed(format!("cannot use mount point {shown}"), &error),
    })?;
    if !fs::metadata(&real).is_ok_and(|found| found.is_dir()) {
        let message = format!("mount point {shown} is not a directory");
        return Err(ControlError::new(Errno(errno::ENOTDIR), message));
    }
    Ok(real)
}

/// Checks that a mount at `target`, which is a real path, does not hide the root directory of the
/// daemon, with its sockets.
///
/// # Errors
/// `EINVAL`.
fn check_beside(target: &Path, root: &Path) -> Result<(), ControlError> {
    // The root may not exist yet; then its nearest ancestor counts.
    let real = root.ancestors().find_map(|above| {
        let rest = root.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    if !real.as_deref().unwrap_or(root).starts_with(target) {
        return Ok(());
    }
    let message = format!(
        "a mount at {} would hide the daemon's root {}; choose another directory, or another place \
         for the root with --root",
        target.display(),
        root.display()
    );
    Err(ControlError::invalid(message))
}

/// Checks that nothing is mounted at `target`, which is a real path.
///
/// # Errors
/// `EBUSY`; the message names what is mounted.
pub fn check_free(target: &Path) -> Result<(), ControlError> {
    let found = mounts().map_err(|error| failed(MOUNTS, &error))?;
    let Some(mounted) = found.iter().rev().find(|mount| mount.at == target) else {
        return Ok(());
    };
    let message = format!(
        "{} ({}) is mounted at {} already; choose another directory",
        printable(&mounted.source),
        printable(&mounted.kind),
        target.display()
    );
    Err(ControlError::new(Errno::EBUSY, message))
}

/// Unmounts `target`. Does nothing when nothing is mounted there.
///
/// # Errors
/// `EBUSY` with its users, or the error of the system call.
pub fn unmount(target: &Path, how: Unmount) -> Result<(), ControlError> {
    match fuse::unmount(target, how) {
        Ok(()) => Ok(()),
        // Not a mount point: another program has unmounted it.
        Err(error) if error.raw_os_error() == Some(errno::EINVAL) => Ok(()),
        Err(error) if error.raw_os_error() == Some(errno::EBUSY) => {
            let message = format!("{} is in use{}", target.display(), used_by(target));
            Err(ControlError::new(Errno::EBUSY, message))
        }
        Err(error) => Err(failed(format!("cannot unmount {}", target.display()), &error)),
    }
}

#[cfg(test)]
mod tests;
