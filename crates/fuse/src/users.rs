//! Names those users of a mount or a block device that this process may see. Whether there
//! are any the kernel tells, and nothing here: a path is a text that any process can have.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use host::{Holder, Mounted, command_of, device_numbers, holders, mounts, printable, swaps};

use crate::loops;

mod namespaces;
use namespaces::mounted_elsewhere;

/// A user of a mount or a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum User {
    /// A file system is mounted from it.
    MountedAt(PathBuf),
    /// The system swaps to it.
    Swap,
    /// Another block device stands on it.
    Holder(String),
    /// A loop device stands on a file of it.
    LoopDevice(PathBuf),
    /// A process has it, or a file of it, open.
    Process {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// A file system is mounted from it in another mount namespace.
    MountedElsewhere {
        /// The mount point in that namespace.
        at: PathBuf,
        /// A process of that namespace.
        pid: u32,
        /// The name of the process.
        name: String,
    },
    /// A user that this process cannot see, perhaps in another mount namespace.
    Unknown,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::MountedAt(path) => write!(f, "mounted at {}", printable(path)),
            User::Swap => f.write_str("used as swap"),
            User::Holder(name) => write!(f, "held by block device {}", printable(name)),
            User::LoopDevice(path) => write!(f, "behind {}", printable(path)),
            User::Process { pid, name } => {
                write!(f, "open in {} (process {pid})", printable(name))
            }
            User::MountedElsewhere { at, pid, name } => {
                let (at, name) = (printable(at), printable(name));
                write!(f, "mounted at {at} where {name} runs (process {pid})")
            }
            User::Unknown => f.write_str("by somebody who cannot be seen from here"),
        }
    }
}

impl From<Holder> for User {
    fn from(holder: Holder) -> User {
        User::Process { pid: holder.pid, name: holder.command }
    }
}

/// Processes with a matching open file, program, working directory or root.
pub(crate) fn processes(matches: impl Fn(&Path) -> bool) -> Vec<User> {
    holders(matches).into_iter().map(User::from).collect()
}

/// Users of the FUSE mount at `at`. It touches no file of the mount, so it works even if the mount
/// does not answer.
pub(crate) fn of_mount(at: &Path) -> Vec<User> {
    let loops = loops::backed_under(at).into_iter();
    let loops = loops.map(|(number, _)| User::LoopDevice(loops::node(number)));
    loops.chain(processes(|path| path.starts_with(at))).collect()
}

/// What stands on loop device `number`, in this mount namespace.
///
/// # Errors
/// If the mounts are not known.
pub(crate) fn on_loop(number: u32) -> io::Result<Vec<User>> {
    let (node, numbers) = (loops::node(number), device_numbers(&format!("loop{number}")));
    let is_on = |m: &Mounted| numbers.contains(&m.device) || swaps::is_part(&node, &m.source);
    let mounted = mounts()?.into_iter().filter(is_on);
    let mut users: Vec<User> = mounted.map(|m| User::MountedAt(m.at)).collect();
    if swaps::all().iter().any(|swap| swaps::is_part(&node, &swap.path)) {
        users.push(User::Swap);
    }
    let holders = fs::read_dir(loops::attribute(number, "holders"));
    for holder in holders.into_iter().flatten().flatten() {
        users.push(User::Holder(holder.file_name().to_string_lossy().into_owned()));
    }
    Ok(users)
}

/// Users of loop device `number`.
pub(crate) fn of_loop(number: u32) -> Vec<User> {
    let node = loops::node(number);
    let mut users = on_loop(number).unwrap_or_default();
    if users.is_empty() {
        users = processes(|path| path == node);
    }
    if users.is_empty() {
        users.push(match mounted_elsewhere(number) {
            Some((at, pid, home)) => User::MountedElsewhere { at, pid, name: command_of(&home) },
            None => User::Unknown,
        });
    }
    users
}
