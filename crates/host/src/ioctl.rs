//! Requests to drivers: of block devices, of loop devices, of FUSE.
//!
//! # Why unsafe
//! ioctl(2) takes a number or the address of a structure, as the request wants it. A safe function
//! wraps each request.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use libc::c_int;
use rustix::fs::{Dev, makedev};

/// Requests of linux/fs.h and linux/blkpg.h, and the operation `BLKPG_ADD_PARTITION`.
const BLKROGET: u32 = 0x125e;
const BLKPG: u32 = 0x1269;
const BLKDISCARD: u32 = 0x1277;
const BLKGETSIZE64: u32 = 0x8008_1272;
const ADD_PARTITION: c_int = 1;
/// Requests of linux/loop.h.
const LOOP_CLR_FD: u32 = 0x4c01;
const LOOP_SET_STATUS64: u32 = 0x4c04;
const LOOP_GET_STATUS64: u32 = 0x4c05;
const LOOP_SET_CAPACITY: u32 = 0x4c07;
const LOOP_CONFIGURE: u32 = 0x4c0a;
const LOOP_CTL_ADD: u32 = 0x4c80;
const LOOP_CTL_REMOVE: u32 = 0x4c81;
const LOOP_CTL_GET_FREE: u32 = 0x4c82;
const LOOP_FLAG_READ_ONLY: u32 = 1;
const LOOP_FLAG_DIRECT_IO: u32 = 16;
/// Bytes of a file name in [`LoopInfo`], the closing NUL included.
const LOOP_NAME: usize = 64;
/// `FUSE_DEV_IOC_CLONE` of linux/fuse.h.
const FUSE_CLONE: u32 = 0x8004_e500;

/// A number, or the address of a structure.
type Argument = *mut libc::c_void;

/// # Safety
/// `argument` is what the request takes, and lives through the call.
unsafe fn call(file: &File, request: u32, argument: Argument) -> io::Result<u32> {
    // SAFETY: promised by the caller.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// A request that takes a number or nothing.
fn call_with(file: &File, request: u32, number: u32) -> io::Result<u32> {
    // SAFETY: the requests of this file that come here take no address.
    unsafe { call(file, request, number as usize as Argument) }
}

/// Bytes of a block device.
///
/// # Errors
/// The error of the driver.
pub fn device_bytes(device: &File) -> io::Result<u64> {
    let mut bytes: u64 = 0;
    // SAFETY: the request writes one u64.
    unsafe { call(device, BLKGETSIZE64, (&raw mut bytes).cast()) }?;
    Ok(bytes)
}

/// Does a block device take no writes?
///
/// # Errors
/// The error of the driver.
pub fn device_is_read_only(device: &File) -> io::Result<bool> {
    let mut answer: c_int = 0;
    // SAFETY: the request writes one int.
    unsafe { call(device, BLKROGET, (&raw mut answer).cast()) }?;
    Ok(answer != 0)
}

/// Discards a range of a block device; its contents are undefined afterwards.
///
/// # Errors
/// The error of the driver.
pub fn discard(device: &File, offset: u64, length: u64) -> io::Result<()> {
    let mut range = [offset, length];
    // SAFETY: the request reads two u64.
    unsafe { call(device, BLKDISCARD, range.as_mut_ptr().cast()) }.map(drop)
}

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct PartitionCall {
    operation: c_int,
    flags: c_int,
    length: c_int,
    data: *mut Partition,
}

/// `struct blkpg_partition`; the kernel ignores the names.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: c_int,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// Makes the range `bytes` of a block device its partition `number`, counted from 1. It writes
/// nothing to the device.
///
/// # Errors
/// The error of the driver.
pub fn add_partition(device: &File, number: u32, bytes: Range<u64>) -> io::Result<()> {
    let number = c_int::try_from(number).map_err(io::Error::other)?;
    let start = i64::try_from(bytes.start).map_err(io::Error::other)?;
    let length = i64::try_from(bytes.end - bytes.start).map_err(io::Error::other)?;
    let (device_name, volume_name) = ([0; 64], [0; 64]);
    let mut partition = Partition { start, length, number, device_name, volume_name };
    let length = size_of::<Partition>() as c_int;
    let data = &raw mut partition;
    let mut request = PartitionCall { operation: ADD_PARTITION, flags: 0, length, data };
    // SAFETY: both structures are as the kernel declares them and live through the call.
    unsafe { call(device, BLKPG, (&raw mut request).cast()) }.map(drop)
}

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LOOP_NAME],
    crypt_name: [u8; LOOP_NAME],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

impl LoopInfo {
    /// The whole of a file called `name`, without options.
    fn new(name: &[u8]) -> LoopInfo {
        let mut file_name = [0; LOOP_NAME];
        let kept = name.len().min(LOOP_NAME - 1);
        file_name[..kept].copy_from_slice(&name[..kept]);
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
            file_name,
            crypt_name: [0; LOOP_NAME],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// How a loop device stands on its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopSetup {
    /// Its logical block size in bytes.
    pub block_size: u32,
    /// Bypass the page cache of the file.
    pub direct_io: bool,
    /// Take no writes.
    pub read_only: bool,
}

/// The number of a loop device that was free a moment ago.
///
/// # Errors
/// The error of the driver, whose control device is open as `control`.
pub fn loop_get_free(control: &File) -> io::Result<u32> {
    call_with(control, LOOP_CTL_GET_FREE, 0)
}

/// Adds loop device `number`.
///
/// # Errors
/// `EEXIST` if it is there.
pub fn loop_add(control: &File, number: u32) -> io::Result<()> {
    call_with(control, LOOP_CTL_ADD, number).map(drop)
}

/// Removes loop device `number`.
///
/// # Errors
/// `EBUSY` if it has a file or somebody has it open.
pub fn loop_remove(control: &File, number: u32) -> io::Result<()> {
    call_with(control, LOOP_CTL_REMOVE, number).map(drop)
}

/// Puts a loop device on the whole of `file`, which is called `name`.
///
/// # Errors
/// `EBUSY` if it has a file.
pub fn loop_configure(device: &File, file: &File, name: &[u8], how: LoopSetup) -> io::Result<()> {
    let mut info = LoopInfo::new(name);
    for (flag, on) in [(LOOP_FLAG_DIRECT_IO, how.direct_io), (LOOP_FLAG_READ_ONLY, how.read_only)] {
        info.flags |= if on { flag } else { 0 };
    }
    let fd = file.as_raw_fd() as u32;
    let mut config = LoopConfig { fd, block_size: how.block_size, info, reserved: [0; 8] };
    // SAFETY: the request reads one `loop_config`.
    unsafe { call(device, LOOP_CONFIGURE, (&raw mut config).cast()) }.map(drop)
}

/// The numbers of the file below a loop device: of the device of its file system, and of its inode.
/// The kernel asks that file system, so the call may wait for its server.
///
/// # Errors
/// `ENXIO` if there is none; the error of that file system.
pub fn loop_file(device: &File) -> io::Result<(Dev, u64)> {
    let mut info = LoopInfo::new(b"");
    // SAFETY: the request writes one `loop_info64`.
    unsafe { call(device, LOOP_GET_STATUS64, (&raw mut info).cast()) }?;
    // The kernel's encoding (`new_encode_dev`), see `encoded_device`.
    let number = info.device as u32;
    let (major, minor) = ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00));
    Ok((makedev(major, minor), info.inode))
}

/// The kernel's encoding of a device number (`new_encode_dev`), as FUSE and loop devices use it.
#[must_use]
pub fn encoded_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Takes a loop device off its file, when its last user closes it.
///
/// # Errors
/// `ENXIO` if it has none.
pub fn loop_clear(device: &File) -> io::Result<()> {
    call_with(device, LOOP_CLR_FD, 0).map(drop)
}

/// Takes back a [`loop_clear`] that waits for others who have the device open. False if it did not
/// wait: nobody else had it open, and it has no file any more.
///
/// # Errors
/// The error of the driver.
pub fn loop_keep(device: &File, name: &[u8]) -> io::Result<bool> {
    let mut info = LoopInfo::new(name);
    // SAFETY: the request reads one `loop_info64`.
    match unsafe { call(device, LOOP_SET_STATUS64, (&raw mut info).cast()) } {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(false),
        kept => kept.map(|_| true),
    }
}

/// Sets the size of a loop device to the size of its file.
///
/// # Errors
/// The error of the driver.
pub fn loop_set_capacity(device: &File) -> io::Result<()> {
    call_with(device, LOOP_SET_CAPACITY, 0).map(drop)
}

/// Connects `fresh`, a newly opened /dev/fuse, to the mount that `of` serves.
///
/// # Errors
/// The error of the driver.
pub fn fuse_clone(fresh: &File, of: &File) -> io::Result<()> {
    let mut of = of.as_raw_fd() as u32;
    // SAFETY: the request reads one u32.
    unsafe { call(fresh, FUSE_CLONE, (&raw mut of).cast()) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_device_is_the_same_device() {
        assert_eq!(encoded_device(7, 3), 0x703);
        assert_eq!(encoded_device(0, 0x1_2345), 0x1230_0045);
        assert_eq!(FUSE_CLONE as libc::Ioctl, libc::_IOR::<u32>(229, 0));
    }
}
