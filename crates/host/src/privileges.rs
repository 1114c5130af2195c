//! Threads without privileges.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Gives up the capabilities of the calling thread, except that to lock memory if the thread has
/// it, and for good the ways to get others by execve(2) (`PR_SET_NO_NEW_PRIVS`). Threads that it
/// starts have no more than it has. What is open stays open. For a thread that serves others:
/// reading and writing need no capability.
///
/// # Errors
/// The error of the system; the thread may have its privileges still.
pub fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    // To map memory in a process that locks what it maps.
    let kept = capabilities(None)?.permitted & CapabilitySet::IPC_LOCK;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?)
}
