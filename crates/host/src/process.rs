//! What this process acts as, what it leaves, and locks of files.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

/// The user this process acts as.
#[must_use]
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Is this process in a user namespace of its own (user_namespaces(7))? Root there may mount FUSE,
/// but no block device. The first namespace maps all users to themselves.
#[must_use]
pub fn in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let words: Vec<&str> = map.split_whitespace().collect();
    !words.is_empty() && words != ["0", "0", "4294967295"]
}

/// The user and the group this process acts as.
#[must_use]
pub fn owner() -> (u32, u32) {
    (effective_user(), effective_group())
}

/// The group this process acts as.
#[must_use]
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Takes an exclusive lock that lives as long as `file` is open. False when another process has it.
///
/// # Errors
/// The error of flock(2), except for a lock that another process has.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The process that has the lock of `file`, if the system tells: proc(5) has no locks of processes
/// in other namespaces.
#[must_use]
pub fn locker(file: &File) -> Option<u32> {
    let about = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", about.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let lock = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&&*place);
        words.get(4).filter(|_| is_it)?.parse().ok()
    };
    locks.lines().find_map(lock)
}

/// Has a process ended, or is it ending? It may have its files for a while then: the system takes
/// its memory away first.
#[must_use]
pub fn is_ending(process: u32) -> bool {
    /// `PF_EXITING` of Linux's include/linux/sched.h.
    const EXITING: u64 = 4;
    const KILLED: u64 = 1 << (9 - 1);
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}"));
    let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return true };
    // What is before may have spaces.
    let words: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let flags = words.get(6).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
    let pending = |line: &str| {
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(signals.trim(), 16).ok()
    };
    let is_killed = status.lines().filter_map(pending).any(|signals| signals & KILLED != 0);
    matches!(words.first(), Some(&"Z" | &"X")) || flags & EXITING != 0 || is_killed
}

/// The bytes that this process can still write to the file system of a file.
///
/// # Errors
/// The error of fstatvfs(3).
pub fn free_bytes_of(file: &File) -> io::Result<u64> {
    let system = rustix::fs::fstatvfs(file)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Does `path` itself, not what a link there leads to, still name `file`?
#[must_use]
pub fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// Keeps the memory of this process out of core dumps: it holds what others stored. The kernel
/// writes none, and hands none to a program. Only root can look into the process from now on, also
/// with a debugger or through `/proc`.
///
/// # Errors
/// The error of setrlimit(2) or prctl(2).
pub fn no_core_dumps() -> io::Result<()> {
    // A dump to a program does not ask for the limit, core(5), so both calls are needed.
    let now = getrlimit(Resource::Core);
    let limited = setrlimit(Resource::Core, Rlimit { current: Some(0), ..now });
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(limited?)
}

/// Starts this program again in this process, with `@` as the first letter of its name. systemd
/// kills no such process of root when it has stopped all services and ends the rest
/// (systemd.io/ROOT_STORAGE_DAEMONS): the machine could not swap off what a killed server has. Call
/// it before the process has threads or state. It returns if there is nothing to do, or if it could
/// not be done; the program then runs as it is.
pub fn mark_as_storage_daemon() {
    const MARK: &[u8] = b"@";
    let mut words = std::env::args_os();
    let (Some(name), Ok(program)) = (words.next(), std::env::current_exe()) else { return };
    if name.as_bytes().starts_with(MARK) {
        return;
    }
    let mut marked = OsStr::from_bytes(MARK).to_os_string();
    marked.push(Path::new(&name).file_name().unwrap_or(&name));
    let error = Command::new(program).arg0(marked).args(words).exec();
    tracing::debug!("the process is not marked: {error}");
}
