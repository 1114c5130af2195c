//! System calls that the standard library does not offer.
//!
//! # Why unsafe
//! It calls foreign functions and maps memory. Each call is wrapped so that no argument can break
//! memory safety: the mapping owns its range and hands it out as ordinary slices.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::ptr::NonNull;
use std::time::Duration;

/// `SWAP_FLAG_PREFER` (linux/swap.h): the low 15 bits are the priority.
const SWAP_FLAG_PREFER: i32 = 0x8000;
/// Makes the kernel send `signal` to a child of this command when this process dies, even when this
/// process is killed. If `fixed`, the child has its memory at the same addresses each time
/// (personality(2)).
pub fn bind(command: &mut Command, signal: Signal, fixed: bool) -> &mut Command {
    let prepare = move || {
        // SAFETY: prctl and personality take numbers, and may be called between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) != 0 {
                return Err(io::Error::last_os_error());
            }
            if fixed {
                let now = libc::personality(0xffff_ffff);
                // Containers often forbid it. Then only the addresses are random.
                libc::personality(now as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes two system calls, neither of which allocates or locks.
    unsafe { command.pre_exec(prepare) }
}

/// A signal for a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Signal {
    /// SIGKILL.
    Kill = libc::SIGKILL,
    /// SIGSTOP.
    Stop = libc::SIGSTOP,
    /// SIGTERM.
    Terminate = libc::SIGTERM,
}

/// Sends `signal` to a child that is not reaped yet, so that its process id is still its own.
pub fn signal(child: &mut Child, signal: Signal) -> io::Result<()> {
    if child.try_wait()?.is_some() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
    }
    // SAFETY: kill takes numbers. The child is ours and not reaped, so the number is not reused.
    let result = unsafe { libc::kill(child.id() as libc::pid_t, signal as libc::c_int) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a child of this command enter a control group before it becomes the program. `procs` is
/// the group's open `cgroup.procs` (kernel document `admin-guide/cgroup-v2.rst`: 0 is the writing
/// process).
pub fn enter(command: &mut Command, procs: OwnedFd) -> &mut Command {
    let prepare = move || {
        // SAFETY: the descriptor is open as long as the closure lives, and the text is a constant.
        match unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) } {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes a system call, which neither allocates nor locks.
    unsafe { command.pre_exec(prepare) }
}

/// Kills the process with this number. A process that has ended is no error.
pub fn kill(process: u32) -> io::Result<()> {
    // SAFETY: kill takes numbers; the caller has just read the number in a control group of ours.
    let result = unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
    match io::Error::last_os_error() {
        error if result != 0 && error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

/// Turns on swap to a file or block device that has a swap header (swapon(2)). If `first`, it comes
/// before all other swap.
pub fn swapon(path: &Path, first: bool) -> io::Result<()> {
    let text = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let flags = if first { SWAP_FLAG_PREFER | i32::from(i16::MAX) } else { 0 };
    // SAFETY: the text ends with a zero and lives during the call.
    let result = unsafe { libc::swapon(text.as_ptr(), flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives a file `bytes` bytes, all of them with blocks on the disk (posix_fallocate(3)).
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open; the rest are numbers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The usage of processes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// CPU seconds in the programs.
    pub user: f64,
    /// CPU seconds in the kernel for the programs.
    pub system: f64,
    /// Page faults that read from a disk or from swap.
    pub major_faults: u64,
}

/// The usage of all reaped children so far, with that of their children (getrusage(2)).
pub fn children() -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is ours, and all zeroes are a valid one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Usage {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
        major_faults: usage.ru_majflt as u64,
    }
}

/// Ticks a second of the times in `/proc/PID/stat`.
pub fn ticks() -> f64 {
    // SAFETY: sysconf takes a number.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1) as f64
}

/// CPU time of this thread (clock_gettime(2)). It stands still while other programs run, and goes
/// on in system calls.
pub fn thread_time() -> Duration {
    Duration::from_nanos(host::thread_cpu_time())
}

/// Memory of our own: resident from the start, page-aligned, zeroed. Drop returns it to the system
/// whole, so it does not disturb a measurement of other memory.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range belongs to the process, not to a thread. Only references reach it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes` bytes.
    pub fn new(bytes: usize) -> io::Result<Memory> {
        let bytes = bytes.max(1);
        // SAFETY: a new private mapping at an address of the kernel's choice changes no other
        // mapping.
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
