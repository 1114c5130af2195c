//! Stacks of threads that must not fault.
//!
//! # Why unsafe
//! Where a thread's stack lies is asked of the C library, and madvise(2) takes an address.

use std::hint::black_box;
use std::{io, mem, ptr};

/// Bytes of stack of a thread that must not fault.
pub const SERVING_STACK: usize = 256 << 10;
/// What of it may be in use already, or be the C library's.
const MARGIN: usize = 32 << 10;

/// Has the whole stack of this thread in memory. For threads with a stack of [`SERVING_STACK`],
/// before they begin.
pub fn touch_stack() {
    // Before Linux 5.14 the last pages stay as they were; nothing comes that far down.
    if populate().is_err() {
        fill();
    }
}

#[inline(never)]
pub(crate) fn fill() {
    let mut room = [0u8; SERVING_STACK - MARGIN];
    room.fill(0xa5);
    black_box(&mut room);
}

fn populate() -> io::Result<()> {
    let (mut start, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: an all-zero value is replaced before it is used.
    let mut attributes: libc::pthread_attr_t = unsafe { mem::zeroed() };
    // SAFETY: this is a living thread; the attributes are valid for writing.
    let error = unsafe { libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the call before filled the attributes in; the places of the answers are ours.
    unsafe {
        libc::pthread_attr_getstack(&attributes, &mut start, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
    }
    // SAFETY: populating changes no contents, and the range is this thread's stack.
    let result = unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
