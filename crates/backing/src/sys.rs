//! The system calls that the standard library does not offer.
//!
//! # Why unsafe
//! Each function is one call into libc with arguments that only it can get wrong.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `BLKROGET`, `BLKDISCARD` and `BLKGETSIZE64` of linux/fs.h.
const BLKROGET: u32 = 0x125e;
const BLKDISCARD: u32 = 0x1277;
const BLKGETSIZE64: u32 = 0x8008_1272;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The user this process acts as.
pub(crate) fn user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Bytes of a block device.
pub(crate) fn device_bytes(device: &File) -> io::Result<u64> {
    let mut bytes: u64 = 0;
    // SAFETY: the request writes one u64.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64 as _, &raw mut bytes) })?;
    Ok(bytes)
}

/// Does a block device take no writes?
pub(crate) fn device_is_read_only(device: &File) -> io::Result<bool> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the request writes one int.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET as _, &raw mut answer) })?;
    Ok(answer != 0)
}

/// Discards a range of a block device; its contents are undefined afterwards.
pub(crate) fn discard(device: &File, offset: u64, length: u64) -> io::Result<()> {
    let range = [offset, length];
    // SAFETY: the request reads two u64.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) }).map(drop)
}

/// Punches a hole into a file or a block device: the range reads as zeroes afterwards.
pub(crate) fn punch(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: takes no pointer.
        let done =
            unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset as i64, length as i64) };
        match checked(done) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// Locks an open file (flock(2)); `WouldBlock` when another process has the lock.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    // SAFETY: takes no pointer.
    checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

/// Releases the lock, also while a child of this process still has the file open.
pub(crate) fn unlock(file: &File) {
    // SAFETY: takes no pointer. It cannot fail on an open file.
    let _ = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// The offset of the next data (or, if `hole`, the next hole) from `offset` on. None when the rest
/// of the file has none.
pub(crate) fn seek(file: &File, offset: u64, hole: bool) -> io::Result<Option<u64>> {
    let whence = if hole { libc::SEEK_HOLE } else { libc::SEEK_DATA };
    // SAFETY: takes no pointer. It changes the file position, which no code uses.
    let at = unsafe { libc::lseek64(file.as_raw_fd(), offset as i64, whence) };
    match u64::try_from(at) {
        Ok(at) => Ok(Some(at)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}
