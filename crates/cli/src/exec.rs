//! `rampack exec`: a command for which the devices of a daemon are the system's zram.
//!
//! The process takes a mount namespace of its own and lays parts of the daemon's tree over
//! directories of the system ([`crate::tree::host`]); then it becomes the command. There is nothing
//! between the caller and the command: signals, exit codes and the terminal are as without us.
//!
//! Directories that name every block device are laid over as a whole: the tree passes the system's
//! own entries through and knows at once when a device comes or goes. What has a directory of its
//! own, such as `/sys/class/zram-control`, is laid over alone; where the system has none, because
//! it has no zram, a directory in memory with links to all its neighbours makes room for it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rampack::control::{ControlError, Errno};

use crate::client::call;
use crate::failure::{failed, say, sentence};
use crate::protocol::{DaemonReport, Request, Status};
use crate::root::Root;
use crate::sys::{self, Unmount};
use crate::tree::host;

/// Directories of the tree that are laid over those of the system with the same path.
const OVER: [&str; 5] = [
    "class/zram-control",
    "module/zram",
    "module/zswap",
    "kernel/debug/zram",
    "kernel/debug/zswap",
];

/// What a shell returns for a command that is there and cannot be run.
const NOT_RUN: i32 = 126;
/// What a shell returns for a command that is not there.
const NOT_FOUND: i32 = 127;

/// Becomes `command`. Returns only when that fails.
///
/// # Errors
/// `EPERM` without root, `ENOENT` without a daemon, `ENODEV` when it has no tree or no block
/// devices, or what the system reports.
pub fn exec(root: &Root, command: &[OsString]) -> Result<(), ControlError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(ControlError::invalid("name a command to run: rampack exec -- COMMAND"));
    };
    if sys::effective_user() != 0 {
        let message = "exec needs root, for a mount namespace and block devices; without root, \
                       devices can be used over NBD and through the files of the control tree";
        return Err(ControlError::new(Errno::EPERM, message));
    }
    let daemon: DaemonReport = call(root, &Request::Status(Status {}))?;
    check(root, &daemon)?;
    lay_over(root)?;
    let error = Command::new(program)
        .args(arguments)
        // A rampack in there is one of the same daemon.
        .env("RAMPACK_ROOT", root.path())
        // systemd's programs would not take a device whose files are not the kernel's own.
        .env("SYSTEMD_DEVICE_VERIFY_SYSFS", "0")
        .exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    let error = failed(format!("cannot run {}", Path::new(program).display()), &error);
    say(&format!("rampack: {}\n", sentence(&error)));
    std::process::exit(code);
}

/// Everything that can be found wrong before anything is changed.
fn check(root: &Root, daemon: &DaemonReport) -> Result<(), ControlError> {
    let refuse = |message: String| Err(ControlError::new(Errno::ENODEV, message));
    if !root.tree().join(host::PLACE).join(host::DEV).is_dir() {
        return refuse(format!(
            "the daemon in {} serves no control tree: it said why when it started; /dev/fuse is \
             needed for it",
            root.path().display()
        ));
    }
    if !daemon.block_devices {
        return refuse(format!(
            "the daemon in {} makes no block devices: start it as root without `--transport nbd`, \
             where loop devices are there",
            root.path().display()
        ));
    }
    Ok(())
}

fn lay_over(root: &Root) -> Result<(), ControlError> {
    sys::own_mounts().map_err(|e| failed("cannot make a mount namespace", &e))?;
    // The files are not needed there, and would be kept from ending with the daemon.
    let _ = sys::unmount(&root.files(), Unmount::Lazily);
    let place = root.tree().join(host::PLACE);
    let real_sys = place.join(host::REAL_SYS);
    bind(Path::new("/sys"), &real_sys)?;
    hide_kernels()?;
    // The same path in the tree and in the system.
    let mut rooms = Vec::new();
    for path in OVER {
        make_room(&Path::new("/sys").join(path), &real_sys.join(path), &mut rooms)?;
        bind(&root.tree().join(path), &Path::new("/sys").join(path))?;
    }
    bind(&place.join(host::BLOCK), Path::new("/sys/block"))?;
    for (part, over) in [(host::CLASS_BLOCK, "/sys/class/block"), (host::NUMBERS, "/sys/dev/block")]
    {
        if Path::new(over).is_dir() {
            bind(&place.join(part), Path::new(over))?;
        }
    }
    lay_over_dev(&place)
}

/// Nothing leads to the kernel's own devices any more, but a path written out would.
fn hide_kernels() -> Result<(), ControlError> {
    for entry in fs::read_dir("/sys/devices/virtual/block").into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(host::is_zram) {
            let path = entry.path();
            sys::mount_empty(&path)
                .map_err(|e| failed(format!("cannot hide {}", path.display()), &e))?;
        }
    }
    Ok(())
}

/// Makes sure that there is a directory `path`, which is `real` in another mount of the same.
/// `rooms` are the directories in memory that were made for others before.
fn make_room(path: &Path, real: &Path, rooms: &mut Vec<PathBuf>) -> Result<(), ControlError> {
    if path.is_dir() {
        return Ok(());
    }
    let (Some(above), Some(real)) = (path.parent(), real.parent()) else { return Ok(()) };
    let mut room = || -> io::Result<()> {
        if rooms.iter().any(|room| room == above) {
            return fs::create_dir(path);
        }
        sys::mount_empty(above)?;
        rooms.push(above.to_path_buf());
        for entry in fs::read_dir(real)? {
            let name = entry?.file_name();
            symlink(real.join(&name), above.join(&name))?;
        }
        fs::create_dir(path)
    };
    room().map_err(|e| failed(format!("cannot make room for {}", path.display()), &e))
}

/// Device files and links are passed through; what holds something of its own is bound.
fn lay_over_dev(place: &Path) -> Result<(), ControlError> {
    let (dev, real) = (Path::new("/dev"), place.join(host::REAL_DEV));
    bind(dev, &real)?;
    bind(&place.join(host::DEV), dev)?;
    sys::allow_devices(dev).map_err(|e| failed("cannot allow devices in the new /dev", &e))?;
    let entries = fs::read_dir(&real).map_err(|e| failed("cannot read /dev", &e))?;
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let is_node = kind.is_block_device() || kind.is_char_device() || kind.is_symlink();
        let target: PathBuf = dev.join(entry.file_name());
        // A name that went meanwhile is no loss.
        if !is_node && fs::symlink_metadata(&target).is_ok() {
            bind(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn bind(source: &Path, target: &Path) -> Result<(), ControlError> {
    sys::bind(source, target).map_err(|e| {
        failed(format!("cannot lay {} over {}", source.display(), target.display()), &e)
    })
}
