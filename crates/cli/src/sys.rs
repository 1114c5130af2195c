//! The few system calls that the standard library does not offer.
//!
//! # Why unsafe
//! Foreign functions. Each is wrapped so that no argument of a caller can break memory: paths are
//! C strings made here, descriptors are borrowed from their owners.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// The user this process acts as.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes files and sockets private: from now on only their owner may use them, unless they get a
/// mode on purpose. This is a property of the process; a daemon calls it once, first.
pub fn private_files() {
    // SAFETY: umask takes a number and cannot fail.
    unsafe { libc::umask(0o077) };
}

/// Takes an exclusive lock that lives as long as `file` is open. `Ok(false)` when another process
/// has it.
///
/// # Errors
/// The error of `flock(2)`, except for a lock that another process has.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is borrowed from an open file.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) }
}

/// Takes a shared lock, or makes an exclusive one shared. Waits while another process has an
/// exclusive lock.
///
/// # Errors
/// The error of `flock(2)`.
pub fn lock_shared(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed from an open file.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Names a file that was opened without a name (`O_TMPFILE`).
///
/// # Errors
/// The error of `linkat(2)`; `EEXIST` when `path` exists.
pub fn name_file(file: &File, path: &Path) -> io::Result<()> {
    let from = c_string(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    let to = c_string(path)?;
    // SAFETY: two C strings that live until the call returns.
    let result = unsafe {
        let at = libc::AT_FDCWD;
        libc::linkat(at, from.as_ptr(), at, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const BLKFLSBUF: libc::c_ulong = 0x1261;

/// Writes out the dirty buffers of a block device and drops what the system cached of its contents.
///
/// # Errors
/// The error of the ioctl.
pub fn flush_buffers(device: &File) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed from an open file; the request takes no argument.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF as _, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Mounts `source` at `target` with the options `data`, without set-user-id programs and device
/// files.
///
/// # Errors
/// The error of `mount(2)`.
pub fn mount(source: &Path, target: &Path, kind: &str, data: &str) -> io::Result<()> {
    let (source, target) = (c_string(source)?, c_string(target)?);
    let (kind, data) = (CString::new(kind)?, CString::new(data)?);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: four C strings that live until the call returns.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast::<libc::c_void>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives this process a mount namespace of its own. It sees the mounts of others; no other process
/// sees its mounts. The process must have one thread.
///
/// # Errors
/// The error of `unshare(2)` or `mount(2)`; `EPERM` without root.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: a number, which concerns no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount_flags(None, Path::new("/"), None, libc::MS_REC | libc::MS_SLAVE)
}

/// Bind-mounts `source`, with all mounts below it, at `target`.
///
/// # Errors
/// The error of `mount(2)`.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    mount_flags(Some(source), target, None, libc::MS_BIND | libc::MS_REC)
}

/// Allows the use of the device files in the bind mount at `target`.
///
/// # Errors
/// The error of `mount(2)`.
pub fn allow_devices(target: &Path) -> io::Result<()> {
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_NOSUID | libc::MS_NOATIME;
    mount_flags(None, target, None, flags)
}

/// Mounts an empty file system in memory at `target`.
///
/// # Errors
/// The error of `mount(2)`.
pub fn mount_empty(target: &Path) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount_flags(Some(Path::new("rampack")), target, Some(Path::new("tmpfs")), flags)
}

fn mount_flags(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&Path>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let source = source.map(c_string).transpose()?;
    let kind = kind.map(c_string).transpose()?;
    let target = c_string(target)?;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: C strings that live until the call returns, or null where mount(2) takes it.
    let result = unsafe {
        libc::mount(pointer(&source), target.as_ptr(), pointer(&kind), flags, std::ptr::null())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// The call fails with `EBUSY` while the mount is in use.
    WhenUnused,
    /// The mount disappears from the tree now, and ends with its last user.
    Lazily,
}

/// Unmounts `target`.
///
/// # Errors
/// The error of `umount2(2)`.
pub fn unmount(target: &Path, how: Unmount) -> io::Result<()> {
    let target = c_string(target)?;
    let flags = match how {
        Unmount::WhenUnused => libc::UMOUNT_NOFOLLOW,
        Unmount::Lazily => libc::UMOUNT_NOFOLLOW | libc::MNT_DETACH,
    };
    // SAFETY: a C string that lives until the call returns.
    let result = unsafe { libc::umount2(target.as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Shuts down a listening socket: every thread that waits in `accept` on it returns.
pub fn shutdown(listener: &UnixListener) {
    // SAFETY: the descriptor is borrowed from an open socket.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Connects to a socket of this machine. It waits for nobody.
///
/// # Errors
/// The error of `socket(2)` or `connect(2)`; `EAGAIN` when as many connections wait to be accepted
/// as the listener allows; `EINVAL` for a path that is too long.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero bytes are a valid value of a structure of numbers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    let stream = unsafe { UnixStream::from_raw_fd(socket) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: an address that lives until the call returns, with its length.
    if unsafe { libc::connect(socket, (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The process that listens at the other end of a connection (`SO_PEERCRED`, unix(7)); `None` when
/// it is not to be seen from here.
#[must_use]
pub fn listener_of(stream: &UnixStream) -> Option<u32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a structure and its length, which live until the call returns.
    let asked = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    (asked == 0).then_some(found.pid).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0)
}

/// Waits until a write to `stream` would not wait, for `time` at most. Returns whether it would
/// not.
#[must_use]
pub fn wait_to_write(stream: BorrowedFd<'_>, time: Duration) -> bool {
    let mut asked = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let time = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one structure that lives until the call returns; the descriptor is borrowed.
    unsafe { libc::poll(&mut asked, 1, time) == 1 }
}

/// Writes to a socket what it takes now.
///
/// # Errors
/// The error of `send(2)`; `EAGAIN` when it takes nothing now.
pub fn send_at_once(socket: BorrowedFd<'_>, text: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (bytes, length) = (text.as_ptr().cast(), text.len());
    // SAFETY: bytes that live until the call returns, with their length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes, length, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The columns and lines of a terminal; `None` when `stream` is none.
#[must_use]
pub fn terminal_size(stream: BorrowedFd<'_>) -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes one structure, which lives until the call returns.
    let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (asked == 0 && size.ws_col > 0).then_some((size.ws_col, size.ws_row))
}

/// Bytes that may still be written to the file system of `path`.
///
/// # Errors
/// The error of `statvfs(3)`.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let path = c_string(path)?;
    // SAFETY: all-zero bytes are a valid value of a structure of numbers.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a C string and a structure that live until the call returns.
    let result = unsafe { libc::statvfs(path.as_ptr(), &mut found) };
    match result {
        0 => Ok((found.f_bavail as u64).saturating_mul(found.f_frsize as u64)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number of the file system of `path` (`f_type`, statfs(2)).
///
/// # Errors
/// The error of `statfs(2)`.
pub fn file_system(path: &Path) -> io::Result<u32> {
    let path = c_string(path)?;
    // SAFETY: all-zero bytes are a valid value of a structure of numbers.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a C string and a structure that live until the call returns.
    let result = unsafe { libc::statfs(path.as_ptr(), &mut found) };
    // Its width depends on the machine; the numbers have 32 bits.
    if result == 0 { Ok(found.f_type as u32) } else { Err(io::Error::last_os_error()) }
}

/// Keeps the memory of this process out of core dumps: it holds what others stored. The kernel
/// writes none, and hands none to a program. Only root can look into the process from now on, also
/// with a debugger or through `/proc`.
///
/// # Errors
/// The error of `setrlimit(2)` or `prctl(2)`.
pub fn no_core_dumps() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure that lives until the call returns, and numbers. A dump to a program does
    // not ask for the limit, core(5), so both calls are needed.
    let results = unsafe {
        [libc::setrlimit(libc::RLIMIT_CORE, &none), libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0)]
    };
    if results == [0, 0] { Ok(()) } else { Err(io::Error::last_os_error()) }
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

/// The disposition of a signal in this process (sigaction(2)).
pub struct Disposition(libc::sigaction);

/// Ignores a signal from now on, also in programs that are started from now on. Returns the
/// disposition before.
///
/// # Errors
/// `EINVAL` for a signal that cannot be ignored.
pub fn ignore(signal: libc::c_int) -> io::Result<Disposition> {
    // SAFETY: all-zero bytes are a valid value of the structure: no flags, an empty mask.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    new.sa_sigaction = libc::SIG_IGN;
    // SAFETY: a number, and two structures that live until the call returns; nothing is called
    // when the signal comes.
    let result = unsafe { libc::sigaction(signal, &new, &mut old) };
    if result == 0 { Ok(Disposition(old)) } else { Err(io::Error::last_os_error()) }
}

/// Restores the disposition that a signal had before [`ignore`].
pub fn restore(signal: libc::c_int, before: &Disposition) {
    // SAFETY: the disposition set is one that the system returned, so a handler in it was valid
    // there.
    unsafe { libc::sigaction(signal, &before.0, std::ptr::null_mut()) };
}

/// Sets an extended attribute of a file.
///
/// # Errors
/// The error of `setxattr(2)`.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let (path, name) = (c_string(path)?, CString::new(name)?);
    let (bytes, length) = (value.as_ptr().cast(), value.len());
    // SAFETY: two C strings, and bytes that live until the call returns, with their length.
    let result = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), bytes, length, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks a process of ours to end (`SIGTERM`).
pub fn ask_to_end(child: &Child) {
    // SAFETY: two numbers; the process is our child and was not waited for, so the number is still
    // its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// Kills a process of ours that leads a group, and its whole group.
pub fn kill_group(child: &Child) {
    // SAFETY: two numbers; the process is ours and began as the leader of its group.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
}

/// Runs `work` in a copy of this process and waits for it. Returns what `work` returned, or -1 if a
/// signal ended the copy. The process must have one thread: the copy has only the calling thread.
///
/// # Errors
/// The error of `fork(2)`.
pub fn in_a_copy(work: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: the caller has one thread, so the copy is whole; it ends here and runs nothing that
    // the original registered for its end.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends this process with a number.
            unsafe { libc::_exit(i32::from(code.unwrap_or(101))) }
        }
        child => {
            let mut status = 0;
            // SAFETY: a number that lives until the call returns.
            while unsafe { libc::waitpid(child, &mut status, 0) } != child {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 })
        }
    }
}
