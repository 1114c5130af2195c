//! Swapping on and off, and what keeps a process alive that serves swap space.
//!
//! A process whose pages could be swapped out to the device it serves would wait for itself. So
//! its memory is locked, its threads never start I/O to find memory, and it is the last to be
//! ended when memory is out (mlockall(2), prctl(2), proc_pid_oom_score_adj(5)).
//!
//! # Why unsafe
//! System calls with numbers or C strings made here, and mallopt(3), which takes numbers.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io, ptr};

/// Give up the whole area when swapping on, and each cluster of pages once it is free: without
/// `SWAP_FLAG_DISCARD_ONCE` or `_PAGES` beside it, Linux does both (swapon(2)).
const SWAP_FLAG_DISCARD: libc::c_int = 0x1_0000;
const SWAP_FLAG_PREFER: libc::c_int = 0x8000;
/// The highest priority a swap area can have (swapon(2)).
pub const HIGHEST_PRIORITY: u16 = 0x7fff;

/// Linux 5.6, prctl(2).
const PR_SET_IO_FLUSHER: libc::c_int = 57;
const PR_GET_IO_FLUSHER: libc::c_int = 58;

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Has the kernel swap to the block device `path`, which has a swap header, with discards; at
/// `priority`, or below all others without one.
///
/// # Errors
/// What `swapon(2)` reports.
pub fn swap_on(path: &Path, priority: Option<u16>) -> io::Result<()> {
    let path = c_string(path)?;
    let prefer = |priority: u16| SWAP_FLAG_PREFER | libc::c_int::from(priority & HIGHEST_PRIORITY);
    let flags = SWAP_FLAG_DISCARD | priority.map_or(0, prefer);
    // SAFETY: a C string that lives until the call returns, and a number.
    check(unsafe { libc::swapon(path.as_ptr(), flags) })
}

/// Has the kernel read everything back that it swapped to `path`, and stop swapping to it. It may
/// take minutes. No signal breaks it off: they are held back from this thread meanwhile.
///
/// The process that calls this is the first that the kernel ends when memory is out, whatever its
/// [`oom_score`]: one that serves what is read back has another process do it.
///
/// # Errors
/// What `swapoff(2)` reports: `ENOMEM` when there is no memory for what would be read back. The
/// kernel goes on swapping to it then.
pub fn swap_off(path: &Path) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the sets are made here; an all-zero one is a valid value that sigfillset overwrites.
    // The mask of this thread is as before when this returns.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let held = libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) == 0;
        let done = check(libc::swapoff(path.as_ptr()));
        if held {
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        }
        done
    }
}

/// The process takes memory for what it maps.
static LOCKS: Mutex<bool> = Mutex::new(false);

fn locks() -> MutexGuard<'static, bool> {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is memory that this process maps locked from the start?
pub(crate) fn locks_what_it_maps() -> bool {
    *locks()
}

/// Keeps every page of this process in memory from now on. What is mapped already takes no memory
/// by it that it does not have (`MCL_ONFAULT`); what is mapped later is in memory from the start,
/// stacks and the heap among it, so that nobody who uses it takes a page fault. But for regions
/// ([`crate::Mmap`]), which have their memory as they are populated or touched.
///
/// # Errors
/// What `mlockall(2)` reports; `EPERM` or `ENOMEM` without `CAP_IPC_LOCK`.
pub fn lock_memory() -> io::Result<()> {
    // Each call replaces what the one before said of later mappings; only the first concerns those
    // that are there (Linux, `apply_mlockall_flags`).
    // SAFETY: a number, which concerns no memory's contents.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) })?;
    *locks() = true;
    // SAFETY: as above.
    let locked = check(unsafe { libc::mlockall(libc::MCL_FUTURE) });
    if locked.is_err() {
        unlock_memory();
    }
    locked
}

/// Undoes [`lock_memory`].
pub fn unlock_memory() {
    *locks() = false;
    // SAFETY: no arguments.
    unsafe { libc::munlockall() };
}

/// Has the calling thread run before all ordinary ones, as soon as it has something to do, at the
/// lowest of the real-time priorities (`SCHED_RR`, sched(7)). Such a thread may take part of the
/// memory that the kernel keeps in reserve. Threads that it starts are ordinary ones again.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`.
pub fn set_real_time() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: a structure that lives until the call returns; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameter) })
}

/// Has the kernel start no I/O when it looks for memory for this thread, nor for those it starts
/// from now on: it might wait for this process.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`, `EINVAL` before Linux 5.6.
pub fn set_io_flusher(on: bool) -> io::Result<()> {
    let on = libc::c_ulong::from(on);
    // SAFETY: numbers, which concern no memory.
    check(unsafe { libc::prctl(PR_SET_IO_FLUSHER, on, 0, 0, 0) })
}

/// Is this thread under the promise of [`set_io_flusher`]?
#[must_use]
pub fn is_io_flusher() -> bool {
    // SAFETY: numbers, which concern no memory.
    unsafe { libc::prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) == 1 }
}

/// How soon this process is ended when memory is out: -1000 never, 1000 first.
///
/// # Errors
/// What reading it reports.
pub fn oom_score() -> io::Result<i32> {
    let text = fs::read_to_string(OOM_SCORE)?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets [`oom_score`].
///
/// # Errors
/// `EACCES` for less than it was, without `CAP_SYS_RESOURCE`.
pub fn set_oom_score(score: i32) -> io::Result<()> {
    fs::write(OOM_SCORE, score.to_string())
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
