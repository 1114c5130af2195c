//! Threads without privileges.
//!
//! # Why unsafe
//! capget(2) and capset(2) take pointers, and the C library has no functions for them.

use std::io;

/// The version of the structures with two words for each set (capget(2)).
const VERSION_3: u32 = 0x2008_0522;
/// CAP_IPC_LOCK: to map memory in a process that locks what it maps.
const IPC_LOCK: u32 = 1 << 14;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// A word of the three sets; the second word holds capabilities from number 32 on.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up the capabilities of the calling thread, except that to lock memory if the thread has
/// it, and for good the ways to get others by execve(2) (`PR_SET_NO_NEW_PRIVS`). Threads that it
/// starts have no more than it has. What is open stays open. For a thread that serves others:
/// reading and writing need no capability.
///
/// # Errors
/// The error of the system; the thread may have its privileges still.
pub fn drop_privileges() -> io::Result<()> {
    // SAFETY: these arguments change a flag of this thread only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: the structures are those of this version, and live during the call.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let kept = sets[0].permitted & IPC_LOCK;
    let sets = [Sets { effective: kept, permitted: kept, inheritable: 0 }, Sets::default()];
    // SAFETY: as above.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
