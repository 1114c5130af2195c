//! The system calls that the standard library does not offer.
//!
//! # Why unsafe
//! To bind a thread to a CPU, to mount and unmount, to make device nodes and to drive loop devices
//! takes calls of the C library with raw pointers. A safe function wraps each call.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use units::Cpu;

/// Bytes of a file name in [`LoopInfo`], the closing NUL included.
pub(crate) const LOOP_NAME: usize = 64;
/// The major number of loop devices.
const LOOP_MAJOR: u32 = 7;

const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4c07;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
pub(crate) const LOOP_FLAG_READ_ONLY: u32 = 1;
pub(crate) const LOOP_FLAG_DIRECT_IO: u32 = 16;

/// Closes all descriptors in a table of this thread alone: other threads keep theirs. The caller
/// has nothing that owns a descriptor.
///
/// # Errors
/// `ENOSYS` before Linux 5.9 (close_range(2)); nothing is closed then.
pub(crate) fn close_all_of_this_thread() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: the call takes numbers. It closes copies of descriptors that only this thread has.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, CLOSE_RANGE_UNSHARE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
pub(crate) struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    pub(crate) flags: u32,
    pub(crate) file_name: [u8; LOOP_NAME],
    crypt_name: [u8; LOOP_NAME],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
pub(crate) struct LoopConfig {
    fd: u32,
    pub(crate) block_size: u32,
    pub(crate) info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(mem::size_of::<LoopInfo>() == 232 && mem::size_of::<LoopConfig>() == 304);

impl LoopInfo {
    fn new() -> LoopInfo {
        LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: 0,
            file_name: [0; LOOP_NAME],
            crypt_name: [0; LOOP_NAME],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

impl LoopConfig {
    /// The configuration for the whole of `file`, without options.
    pub(crate) fn new(file: &File) -> LoopConfig {
        let (fd, info) = (file.as_raw_fd() as u32, LoopInfo::new());
        LoopConfig { fd, block_size: 0, info, reserved: [0; 8] }
    }
}

/// The kernel's encoding of a device number (`new_encode_dev`), as FUSE and loop devices use it.
pub(crate) fn encoded_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The number of a loop device that was free a moment ago.
pub(crate) fn loop_get_free(control: &File) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) }).map(|n| n as u32)
}

pub(crate) fn loop_configure(device: &File, config: &LoopConfig) -> io::Result<()> {
    // SAFETY: the request reads one `loop_config`, and `config` lives through the call.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const *config) })
        .map(drop)
}

/// The encoded device number of the file system with the file of the loop device. The kernel asks
/// that file system, so the call may wait for its server.
pub(crate) fn loop_file_system(device: &File) -> io::Result<u64> {
    let mut info = LoopInfo::new();
    // SAFETY: the request writes one `loop_info64`, and `info` lives through the call.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) })?;
    Ok(info.device)
}

pub(crate) fn loop_clear(device: &File) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD as _) }).map(drop)
}

/// Sets the size of the loop device to the size of its file.
pub(crate) fn loop_set_capacity(device: &File) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY as _) }).map(drop)
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Makes the node of a loop device, with access for its owner only.
pub(crate) fn make_loop_node(path: &Path, number: u32) -> io::Result<()> {
    let path = c_path(path)?;
    let device = libc::makedev(LOOP_MAJOR, number);
    // SAFETY: the path is a C string that lives through the call.
    checked(unsafe { libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o600, device) }).map(drop)
}

/// Mounts a FUSE file system of `kind`. `options` names the descriptor of its server.
pub(crate) fn mount_fuse(at: &Path, kind: &CStr, options: &str) -> io::Result<()> {
    let (at, options) = (c_path(at)?, CString::new(options)?);
    let source = c"rampack";
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_NOATIME;
    // SAFETY: all of them are C strings that live through the call.
    checked(unsafe {
        libc::mount(source.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    })
    .map(drop)
}

/// Connects `fresh`, a newly opened /dev/fuse, to the mount that `of` serves.
pub(crate) fn fuse_clone(fresh: &File, of: &File) -> io::Result<()> {
    const FUSE_DEV_IOC_CLONE: libc::Ioctl = libc::_IOR::<u32>(229, 0);
    let of = of.as_raw_fd() as u32;
    // SAFETY: the request reads one u32, which lives through the call.
    checked(unsafe { libc::ioctl(fresh.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const of) }).map(drop)
}

/// Makes the number of `old` a copy of `new`, and closes what it was.
pub(crate) fn replace(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> io::Result<()> {
    let (old, new) = (old.as_raw_fd(), new.as_raw_fd());
    // SAFETY: the call takes numbers of open descriptors. The owner of `old` goes on owning it.
    checked(unsafe { libc::dup3(new, old, libc::O_CLOEXEC) }).map(drop)
}

/// The flags of a descriptor (fcntl(2), `F_GETFD`).
#[cfg(test)]
pub(crate) fn descriptor_flags(fd: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    // SAFETY: the call takes numbers.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) })
}

/// How to unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmount {
    /// Fails with EBUSY while the mount is in use.
    Plain,
    /// FUSE: fails every request, now and later; then as [`Unmount::Plain`].
    Abort,
    /// Removes the mount from the tree; it ends when its last user does.
    Detach,
}

pub(crate) fn unmount(path: &Path, how: Unmount) -> io::Result<()> {
    let path = c_path(path)?;
    let flags = match how {
        Unmount::Plain => 0,
        Unmount::Abort => libc::MNT_FORCE,
        Unmount::Detach => libc::MNT_DETACH,
    };
    // SAFETY: the path is a C string that lives through the call.
    checked(unsafe { libc::umount2(path.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) }).map(drop)
}

/// Binds this thread to one CPU.
pub(crate) fn bind_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: an all-zero set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the number was checked against the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is valid for its size.
    checked(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) }).map(drop)
}

/// The CPUs that this thread may run on; empty on an error.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: an all-zero set is an empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set is valid for its size.
    if unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) } < 0 {
        return Vec::new();
    }
    // SAFETY: the numbers are within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// The CPU that this thread runs on now; 0 on an error. Any thread may call it.
#[must_use]
pub fn current_cpu() -> Cpu {
    // SAFETY: the call takes no argument.
    Cpu(u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0))
}

/// The user and the group this process acts as.
pub(crate) fn owner() -> (u32, u32) {
    // SAFETY: the calls take no argument and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}
