//! Refuses to open files, by landlock(7).
//!
//! The filter of calls refuses most of this too. Landlock also holds where no filter looks: an
//! io_uring can open files without a call of open(2).
//!
//! # Why unsafe
//!
//! libc has no functions for landlock(7), only the numbers of its calls.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// Does landlock refuse to open files?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoFiles {
    /// The process chose no sandbox.
    NotAsked,
    /// The kernel has no landlock (Linux 5.13, and `landlock` among its security modules).
    NoLandlock,
    /// Files cannot be opened; the kernel knows some rights less than this program.
    Partly,
    /// Files cannot be opened, nor TCP connections made.
    Fully,
}

/// The latest version of landlock that this asks for. An older kernel does what it knows.
const VERSION: i64 = 5;
/// `LANDLOCK_CREATE_RULESET_VERSION`: landlock_create_ruleset(2) returns the kernel's version.
const ASK_VERSION: u32 = 1;

/// The rights that nobody has afterwards, for no rule gives them: `struct landlock_ruleset_attr`.
#[repr(C)]
struct Rights {
    /// A bit for each `LANDLOCK_ACCESS_FS_…`.
    files: u64,
    /// A bit for each `LANDLOCK_ACCESS_NET_…`: to bind and to connect.
    tcp: u64,
}

impl Rights {
    /// All that a version of landlock knows, which may not be asked for more.
    fn of(version: i64) -> Rights {
        // Version 2 brought REFER, 3 TRUNCATE, 4 TCP, 5 IOCTL_DEV.
        let files = match version {
            1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        };
        Rights { files: (1 << files) - 1, tcp: if version < 4 { 0 } else { 0b11 } }
    }
}

/// The calling thread, and those that it starts, open no file any more, and get no new privileges
/// (`PR_SET_NO_NEW_PRIVS`).
pub(super) fn open_none() -> io::Result<NoFiles> {
    // SAFETY: this call of prctl(2) reads and writes no memory.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    let none = ptr::null::<Rights>();
    // SAFETY: with this flag the call reads and writes no memory.
    let known =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, ASK_VERSION) };
    if known < 1 {
        return Ok(NoFiles::NoLandlock);
    }
    let (rights, bytes) = (Rights::of(known), size_of::<Rights>());
    // SAFETY: the call reads `bytes` bytes of `rights`. An older kernel, whose structure is
    // shorter, sees that the rest is zero.
    let rules = done(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rights, bytes, 0_u32)
    })?;
    // SAFETY: the descriptor is new, and nobody else has it.
    let rules = unsafe { OwnedFd::from_raw_fd(rules as i32) };
    // SAFETY: the call reads and writes no memory.
    done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) })?;
    Ok(if known < VERSION { NoFiles::Partly } else { NoFiles::Fully })
}

fn done(result: i64) -> io::Result<i64> {
    match result {
        -1 => {
            let error = io::Error::last_os_error();
            Err(io::Error::new(error.kind(), format!("landlock: {error}")))
        }
        done => Ok(done),
    }
}

/// What [`open_none`] would return, without an effect on the calling thread.
pub(super) fn known() -> io::Result<NoFiles> {
    let asked = std::thread::Builder::new().name("sandbox-trial".into()).spawn(open_none)?;
    asked.join().unwrap_or_else(|_| Err(io::Error::other("the trial panicked")))
}
