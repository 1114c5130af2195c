//! `rampack exec`: runs a command that sees the devices of a daemon as the system's zram.
//!
//! The process enters a mount namespace of its own. It mounts parts of the daemon's tree over
//! directories of the system ([`service::tree::host`]) and then executes the command in the same
//! process. So signals, exit codes and the terminal work as without rampack.
//!
//! A directory that names every block device is covered as a whole. The tree passes the system's
//! own entries through and follows every device that comes or goes. A directory for zram alone,
//! such as `/sys/class/zram-control`, is covered alone. A system without zram lacks that directory;
//! then a directory in memory covers its parent, with links to all other entries.
//!
//! The programs that load and unload modules are covered by this one, which answers for zram and
//! leaves other modules to them ([`programs`], [`kmod`]).
//!
//! A command may run `rampack exec` again, also for another daemon. The mounts of the first are
//! taken away then, in the new namespace only: they would lead from one daemon's place to the
//! other's, and links through the same place to themselves.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use control::{ControlError, Errno};
use host::{Unmount, copy_for_programs, effective_user, mounts, own_mounts};
use rustix::mount::{MountFlags, mount_bind_recursive, mount_remount};

use service::client::report;
use service::failure::{MOUNTS, failed, say, sentence};
use service::protocol::DaemonReport;
use service::root::Root;
use service::tree::host as places;

pub mod kmod;
mod programs;

/// Directories of the tree that are mounted over the directories of the same path in `/sys`.
const OVER: [&str; 5] = [
    "class/zram-control",
    "module/zram",
    "module/zswap",
    "kernel/debug/zram",
    "kernel/debug/zswap",
];

/// The source of our mounts, in the list of the system.
const SOURCE: &str = "rampack";
/// The least number of a descriptor that the command inherits: no shell uses such a number.
const LEFT_OPEN: RawFd = 200;
/// The kernel's list of modules. A kernel without modules has none.
const LIST: &str = "/proc/modules";

/// The exit code of a shell for a command that exists but cannot be run.
const NOT_RUN: i32 = 126;
/// The exit code of a shell for a command that does not exist.
const NOT_FOUND: i32 = 127;

/// Becomes `command`. Returns only when that fails.
///
/// # Errors
/// `EPERM` without root, `EACCES` for a root that others may change, `ENOENT` without a daemon,
/// `ENODEV` when the daemon has no tree or no block devices, or the error of the system call.
pub fn exec(root: &Root, command: &[OsString]) -> Result<(), ControlError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(ControlError::invalid("name a command to run: rampack exec -- COMMAND"));
    };
    if effective_user() != 0 {
        let message = "exec needs root, for a mount namespace and block devices; without root, \
                       devices can be used over NBD and through the files of the control tree";
        return Err(ControlError::new(Errno::EPERM, message));
    }
    let daemon = report(root)?;
    // Parts of it are laid over /dev and /sys.
    root.check_safe()?;
    check(root, &daemon)?;
    let first = lay_over(root)?;
    let mut command = Command::new(program);
    if let Some(path) = first.and_then(|first| programs::path_with(&first)) {
        command.env("PATH", path);
    }
    let error = command
        .args(arguments)
        // A rampack command in there talks to the same daemon.
        .env("RAMPACK_ROOT", root.path())
        // Without this, systemd's programs refuse a device whose sysfs files are not the kernel's
        // own.
        .env("SYSTEMD_DEVICE_VERIFY_SYSFS", "0")
        .exec();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    let error = failed(format!("cannot run {}", Path::new(program).display()), &error);
    say(&format!("rampack: {}\n", sentence(&error)));
    std::process::exit(code);
}

/// Checks the daemon before anything is changed.
fn check(root: &Root, daemon: &DaemonReport) -> Result<(), ControlError> {
    let refuse = |message: String| Err(ControlError::new(Errno::ENODEV, message));
    if !root.tree().join(places::PLACE).join(places::DEV).is_dir() {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let there = namespace(&daemon.pid.to_string());
        if there.is_some() && there != namespace("self") {
            return refuse(format!(
                "the daemon in {} has a mount namespace of its own (process {pid}), so its control \
                 tree is not to be seen here; go there first with: nsenter --target {pid} --mount",
                root.path().display(),
                pid = daemon.pid
            ));
        }
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

/// Returns a directory of programs that has to come first in `PATH`, if there is one.
fn lay_over(root: &Root) -> Result<Option<PathBuf>, ControlError> {
    // As long as the command has this open, the daemon knows that it depends on the tree. The mount
    // in its namespace does not tell: any user can make one.
    let place = root.tree().join(places::PLACE);
    let left = fs::File::open(&place).and_then(|place| copy_for_programs(&place, LEFT_OPEN));
    left.map_err(|e| failed(format!("cannot open {}", place.display()), &e))?;
    own_mounts().map_err(|e| failed("cannot make a mount namespace", &e))?;
    peel_off()?;
    // The command does not need the FUSE files, and a mount of them here would outlive the daemon.
    let _ = host::unmount(&root.files(), Unmount::Lazily);
    let real_sys = place.join(places::REAL_SYS);
    bind(Path::new("/sys"), &real_sys)?;
    hide_kernels()?;
    // Each path is the same in the tree and in `/sys`.
    let mut rooms = Vec::new();
    for path in OVER {
        make_room(&Path::new("/sys").join(path), &real_sys.join(path), &mut rooms)?;
        bind(&root.tree().join(path), &Path::new("/sys").join(path))?;
    }
    bind(&place.join(places::BLOCK), Path::new("/sys/block"))?;
    for (part, over) in
        [(places::CLASS_BLOCK, "/sys/class/block"), (places::NUMBERS, "/sys/dev/block")]
    {
        if Path::new(over).is_dir() {
            bind(&place.join(part), Path::new(over))?;
        }
    }
    if Path::new(LIST).is_file() {
        bind(&place.join(places::PROC).join(places::MODULES), Path::new(LIST))?;
    }
    let first = programs::cover(&place.join(places::PROGRAMS))?;
    lay_over_dev(&place)?;
    Ok(first)
}

/// Takes away what an outer `rampack exec` laid over the directories of the system.
fn peel_off() -> Result<(), ControlError> {
    programs::uncover()?;
    for mount in mounts().map_err(|e| failed(MOUNTS, &e))?.into_iter().rev() {
        let target = &mount.at;
        let is_over =
            target == Path::new("/dev") || target == Path::new(LIST) || target.starts_with("/sys");
        // The tree and the directories in memory have this source.
        if !is_over || mount.source != Path::new(SOURCE) {
            continue;
        }
        programs::take_away(target)?;
    }
    Ok(())
}

/// Hides the kernel's own zram devices at their full paths. No link leads there any more.
fn hide_kernels() -> Result<(), ControlError> {
    for entry in fs::read_dir("/sys/devices/virtual/block").into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(places::is_zram) {
            let path = entry.path();
            programs::mount_empty(&path)
                .map_err(|e| failed(format!("cannot hide {}", path.display()), &e))?;
        }
    }
    Ok(())
}

/// Makes sure that the directory `path` exists. `real` is the same path in another mount of the
/// same file system. `rooms` lists the directories in memory that earlier calls mounted.
fn make_room(path: &Path, real: &Path, rooms: &mut Vec<PathBuf>) -> Result<(), ControlError> {
    if path.is_dir() {
        return Ok(());
    }
    let (Some(above), Some(real)) = (path.parent(), real.parent()) else { return Ok(()) };
    let mut room = || -> io::Result<()> {
        if rooms.iter().any(|room| room == above) {
            return fs::create_dir(path);
        }
        programs::mount_empty(above)?;
        rooms.push(above.to_path_buf());
        for entry in fs::read_dir(real)? {
            let name = entry?.file_name();
            symlink(real.join(&name), above.join(&name))?;
        }
        fs::create_dir(path)
    };
    room().map_err(|e| failed(format!("cannot make room for {}", path.display()), &e))
}

/// Covers `/dev`. The tree passes device files and links through; other entries, such as
/// directories, are bind-mounted.
fn lay_over_dev(place: &Path) -> Result<(), ControlError> {
    let (dev, real) = (Path::new("/dev"), place.join(places::REAL_DEV));
    bind(dev, &real)?;
    bind(&place.join(places::DEV), dev)?;
    let flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NOATIME;
    mount_remount(dev, flags, "")
        .map_err(|e| failed("cannot allow devices in the new /dev", &e.into()))?;
    let entries = fs::read_dir(&real).map_err(|e| failed("cannot read /dev", &e))?;
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let is_node = kind.is_block_device() || kind.is_char_device() || kind.is_symlink();
        let target: PathBuf = dev.join(entry.file_name());
        // A name may be gone by now: it is skipped.
        if !is_node && fs::symlink_metadata(&target).is_ok() {
            bind(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn bind(source: &Path, target: &Path) -> Result<(), ControlError> {
    mount_bind_recursive(source, target).map_err(|e| {
        failed(format!("cannot lay {} over {}", source.display(), target.display()), &e.into())
    })
}
