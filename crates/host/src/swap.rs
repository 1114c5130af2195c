//! swapon and swapoff, and the protections of a process that serves swap space.
//!
//! If pages of a process are swapped out to the device that it serves, it waits for itself. So its
//! memory is locked, its threads never start I/O to reclaim memory, and the OOM killer takes it
//! last (mlockall(2), prctl(2), proc_pid_oom_score_adj(5)).
//!
//! # Why unsafe
//! System calls with numbers, C strings or local structures.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io, ptr};

use rustix::mm::{MlockAllFlags, mlockall, munlockall};

/// Discard the whole area at swapon, and each cluster of pages when it is free. Without
/// `SWAP_FLAG_DISCARD_ONCE` or `_PAGES`, Linux does both (swapon(2)).
const SWAP_FLAG_DISCARD: libc::c_int = 0x1_0000;
const SWAP_FLAG_PREFER: libc::c_int = 0x8000;
/// The highest priority a swap area can have (swapon(2)).
pub const HIGHEST_PRIORITY: u16 = 0x7fff;

const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Makes the kernel swap to the block device `path`, with `discards` of free clusters or without.
/// The device must have a swap header. Without `priority`, the area comes after all others.
///
/// # Errors
/// The error of `swapon(2)`.
pub fn swap_on(path: &Path, priority: Option<u16>, discards: bool) -> io::Result<()> {
    let path = c_string(path)?;
    let prefer = |priority: u16| SWAP_FLAG_PREFER | libc::c_int::from(priority & HIGHEST_PRIORITY);
    let discard = if discards { SWAP_FLAG_DISCARD } else { 0 };
    let flags = discard | priority.map_or(0, prefer);
    // SAFETY: a C string that lives until the call returns, and a number.
    check(unsafe { libc::swapon(path.as_ptr(), flags) })
}

/// Makes the kernel read back all pages that it swapped to `path`, and stop swapping to it. It may
/// take minutes. Signals of this thread are blocked meanwhile, so none interrupts it.
///
/// In an OOM the kernel kills the calling process first, whatever its [`oom_score`]. So a process
/// that serves the area must let another process make this call.
///
/// # Errors
/// The error of `swapoff(2)`: `ENOMEM` when there is no memory for the pages. The kernel goes on
/// swapping to `path` then.
pub fn swap_off(path: &Path) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the sets are local; an all-zero set is a valid value that sigfillset overwrites. The
    // mask of this thread is restored before the return.
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

/// The callers that want the memory of the process locked. While there is one, the process locks
/// what it maps.
static LOCKS: Mutex<usize> = Mutex::new(0);

fn locks() -> MutexGuard<'static, usize> {
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is new memory of this process locked from the start?
pub(crate) fn locks_what_it_maps() -> bool {
    *locks() > 0
}

/// Keeps every page of this process in memory from now on. Existing mappings take no additional
/// memory (`MCL_ONFAULT`). Later mappings, also stacks and the heap, are populated from the start,
/// so their users take no page fault. Regions ([`crate::Mmap`]) are the exception: their pages come
/// when they are populated or touched. Several callers may want it; each undoes it for itself.
///
/// # Errors
/// The error of `mlockall(2)`; `EPERM` or `ENOMEM` without `CAP_IPC_LOCK`.
pub fn lock_memory() -> io::Result<()> {
    let mut locks = locks();
    if *locks > 0 {
        *locks += 1;
        return Ok(());
    }
    // Each call replaces the setting for later mappings; only the first call changes the existing
    // mappings (Linux, `apply_mlockall_flags`).
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT)?;
    let locked = mlockall(MlockAllFlags::FUTURE);
    match locked {
        Ok(()) => *locks += 1,
        Err(_) => _ = munlockall(),
    }
    Ok(locked?)
}

/// Maps memory of others by `map`; `range` says where it is then. Its pages come when they are
/// touched and may be swapped out, also in a process that locks what it maps: otherwise all of it
/// would take memory at once. What other threads map meanwhile comes when it is touched, too.
///
/// # Errors
/// Those of `map`, and of mlockall(2).
pub fn map_of_others<T>(
    map: impl FnOnce() -> io::Result<T>,
    range: impl FnOnce(&T) -> (*mut u8, usize),
) -> io::Result<T> {
    let locks = locks();
    if *locks == 0 {
        return map();
    }
    mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    let mapped = map();
    let again = mlockall(MlockAllFlags::FUTURE);
    let mapped = mapped?;
    let (start, bytes) = range(&mapped);
    // SAFETY: two numbers: whatever is there keeps its contents, and is only locked or not.
    unsafe { libc::munlock(start.cast(), bytes) };
    Ok(again.map(|()| mapped)?)
}

/// Undoes one successful call of [`lock_memory`]; the last one unlocks the memory.
pub fn unlock_memory() {
    let mut locks = locks();
    *locks = locks.saturating_sub(1);
    if *locks == 0 {
        let _ = munlockall();
    }
}

/// Gives the calling thread the lowest real-time priority (`SCHED_RR`, sched(7)): when it can run,
/// it runs before all ordinary threads. Such a thread may use part of the kernel's memory reserve.
/// Threads that it starts are ordinary ones.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`.
pub fn set_real_time() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: a structure that lives until the call returns; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &parameter) })
}

/// Makes the kernel start no I/O when it reclaims memory for this thread, or for threads that it
/// starts later: such I/O might wait for this process.
///
/// # Errors
/// `EPERM` without `CAP_SYS_RESOURCE`, `EINVAL` before Linux 5.6.
pub fn set_io_flusher(on: bool) -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(on)?)
}

/// Is [`set_io_flusher`] on for this thread?
#[must_use]
pub fn is_io_flusher() -> bool {
    rustix::process::is_io_flusher().unwrap_or(false)
}

/// The OOM score adjustment of this process: the OOM killer takes -1000 never, 1000 first.
///
/// # Errors
/// The error of the read.
pub fn oom_score() -> io::Result<i32> {
    let text = fs::read_to_string(OOM_SCORE)?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets [`oom_score`].
///
/// # Errors
/// `EACCES` for a lower value than before, without `CAP_SYS_RESOURCE`.
pub fn set_oom_score(score: i32) -> io::Result<()> {
    fs::write(OOM_SCORE, score.to_string())
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
