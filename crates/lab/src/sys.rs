//! The few system calls that the standard library does not offer.
//!
//! # Why unsafe
//! Foreign functions and a memory mapping. Each is wrapped so that no argument of a caller can
//! break memory: the mapping owns its range and hands it out as ordinary slices.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::NonNull;
use std::time::Duration;

/// Read and write past the page cache (open(2)).
pub const O_DIRECT: i32 = libc::O_DIRECT;
/// On a block device: fail with EBUSY when it is mounted or otherwise claimed (open(2)).
pub const O_EXCL: i32 = libc::O_EXCL;

/// `BLKDISCARD` (linux/fs.h).
const BLKDISCARD: libc::Ioctl = 0x1277 as libc::Ioctl;

/// Makes a child of this command die with this process, even when that is killed; and, if `fixed`,
/// have its memory at the same addresses each time (personality(2)).
pub fn bind(command: &mut Command, fixed: bool) -> &mut Command {
    let prepare = move || {
        // SAFETY: prctl and personality take numbers, and may be called between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0 {
                return Err(io::Error::last_os_error());
            }
            if fixed {
                let now = libc::personality(0xffff_ffff);
                // Containers often forbid it; the addresses are random then, nothing worse.
                libc::personality(now as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes two system calls, neither of which allocates or locks.
    unsafe { command.pre_exec(prepare) }
}

/// Makes a child of this command be asked to end (SIGTERM) when this process dies, even when that
/// is killed.
pub fn bind_gently(command: &mut Command) -> &mut Command {
    let prepare = || {
        // SAFETY: prctl takes numbers, and may be called between fork and exec.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes a system call, which neither allocates nor locks.
    unsafe { command.pre_exec(prepare) }
}

/// What can be sent to a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Stand still.
    Stop,
    /// Please end.
    Terminate,
}

/// Sends `signal` to a child that has not been waited for, so that its number is still its own.
///
/// # Errors
/// What kill(2) reports.
pub fn signal(child: &mut Child, signal: Signal) -> io::Result<()> {
    if child.try_wait()?.is_some() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
    }
    let number = match signal {
        Signal::Stop => libc::SIGSTOP,
        Signal::Terminate => libc::SIGTERM,
    };
    // SAFETY: kill takes numbers. The child is ours and not reaped, so the number is not reused.
    let result = unsafe { libc::kill(child.id() as libc::pid_t, number) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Discards the first `bytes` of a block device.
///
/// # Errors
/// What the device reports: many have no discard.
pub fn discard(device: &File, bytes: u64) -> io::Result<()> {
    let range = [0u64, bytes];
    // SAFETY: BLKDISCARD reads two numbers of 64 bits; the descriptor is open.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Time that the CPU has spent on this thread (clock_gettime(2)). It stands still while other
/// programs run, and goes on in system calls.
#[must_use]
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours. The clock exists since Linux 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory of our own, in place (resident) from the start, page-aligned, zero, and given back to the
/// system whole when dropped: so it disturbs no measurement of how much memory somebody else took.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range belongs to the process, not to a thread; it is reached by references
// only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `bytes` of it.
    ///
    /// # Errors
    /// The system's, when it has no such memory.
    pub fn new(bytes: usize) -> io::Result<Memory> {
        let bytes = bytes.max(1);
        // SAFETY: a new private mapping at an address of the system's choice disturbs nobody.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        match NonNull::new(address.cast::<u8>()) {
            Some(base) if address != libc::MAP_FAILED => Ok(Memory { base, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Deref for Memory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has this length, is initialised (zero), and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and self is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no reference outlives self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
