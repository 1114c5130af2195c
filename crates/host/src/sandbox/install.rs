//! Gives a filter to the calling thread, and tells of refused calls in tests.
//!
//! # Why unsafe
//! seccomp(2) takes a pointer to the filter, and the library that compiles filters has no way to
//! ask for a line in the audit log. A handler of `SIGSYS` reads what the kernel says of the call.

use std::io;
use std::ptr;

use seccompiler::sock_filter;

/// Gives `filter` to the calling thread, which must have `PR_SET_NO_NEW_PRIVS`. If `log`, refused
/// calls are logged where the kernel can (Linux 4.14).
pub(super) fn install(filter: &[sock_filter], log: bool) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut().cast() };
    let call = |flags: libc::c_ulong| {
        let what = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the program and its filter live during the call, which only reads them; both
        // declarations of a filter's entry are that of linux/filter.h.
        match unsafe { libc::syscall(libc::SYS_seccomp, what, flags, &raw const program) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    match call(if log { libc::SECCOMP_FILTER_FLAG_LOG } else { 0 }) {
        Err(error) if log && error.raw_os_error() == Some(libc::EINVAL) => call(0),
        installed => installed,
    }
}

/// Makes `SIGSYS` print the name of the thread and the number of the call, and abort the process.
pub(super) fn tell_and_abort() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid value of the structure: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = refused as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the structure lives until the call returns, and `refused` has the type of a handler
    // with `SA_SIGINFO`.
    let result = unsafe { libc::sigaction(libc::SIGSYS, &action, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The offset of the number of the call in what the kernel says of `SIGSYS`: three integers and
/// their padding, and the address of the call, come before it (sigaction(2)).
const CALL: usize = 16 + size_of::<*const ()>();

/// It calls only what a handler of a signal may call (signal-safety(7)).
extern "C" fn refused(_: libc::c_int, told: *const libc::siginfo_t, _: *const libc::c_void) {
    let mut name = [0u8; 16];
    // SAFETY: the kernel passes a whole structure, in which this is an integer for `SIGSYS`; the
    // name has 16 bytes with its closing zero.
    let call = unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        told.cast::<u8>().add(CALL).cast::<i32>().read_unaligned()
    };
    let mut text = Text { bytes: [0; 128], length: 0 };
    text.put(b"rampack: the sandbox of thread ");
    text.put(name.split(|byte| *byte == 0).next().unwrap_or_default());
    text.put(b" refuses system call ");
    text.number(call.unsigned_abs());
    text.put(b"\n");
    // SAFETY: the bytes live during the call; abort(3) may be called by a handler.
    unsafe {
        libc::write(2, text.bytes.as_ptr().cast(), text.length);
        libc::abort();
    }
}

/// A line without the heap.
struct Text {
    bytes: [u8; 128],
    length: usize,
}

impl Text {
    fn put(&mut self, more: &[u8]) {
        for byte in more {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn number(&mut self, number: u32) {
        let mut divisor = 1_000_000_000;
        while divisor > 1 && number / divisor == 0 {
            divisor /= 10;
        }
        while divisor > 0 {
            self.put(&[b'0' + (number / divisor % 10) as u8]);
            divisor /= 10;
        }
    }
}
