//! The memory of other processes.
//!
//! # Why unsafe
//! process_vm_readv(2) takes addresses.

use std::io;

/// Reads what is at an address of process `pid`, without stopping or changing it. Returns how many
/// bytes were read: fewer where the memory ends.
///
/// # Errors
/// `EFAULT` where there is none; `EPERM` without the right; `ESRCH` when the process is gone.
pub fn read_memory_of(pid: i32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: address as usize as *mut _, iov_len: into.len() };
    // SAFETY: the bytes are exclusively ours and live through the call; the other address is one of
    // the other process, and the kernel judges it.
    let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
