//! Stacks of threads that must not fault.
//!
//! # Why unsafe
//! The C library reports the address of a thread's stack, and madvise(2) takes an address.

use std::hint::black_box;
use std::{io, mem, ptr};

/// Bytes of stack of a thread that must not fault.
pub const SERVING_STACK: usize = 256 << 10;
/// The part of the stack that may be in use already, or belongs to the C library.
const MARGIN: usize = 32 << 10;

/// Populates the whole stack of this thread. For a thread with a stack of [`SERVING_STACK`], before
/// it begins its work.
pub fn touch_stack() {
    // Before Linux 5.14 the last pages stay unpopulated; the stack never grows that deep.
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
    let (start, bytes) = own()?;
    // SAFETY: populating changes no contents, and the range is this thread's stack.
    let result = unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The stack of this thread, and its bytes.
pub(crate) fn own() -> io::Result<(*mut libc::c_void, usize)> {
    let (mut start, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: an all-zero value is replaced before it is used.
    let mut attributes: libc::pthread_attr_t = unsafe { mem::zeroed() };
    // SAFETY: this is a living thread; the attributes are valid for writing.
    let error = unsafe { libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the call before initialised the attributes; the results go to local variables.
    unsafe {
        libc::pthread_attr_getstack(&attributes, &mut start, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
    }
    Ok((start, bytes))
}
