//! Signals: those that are ignored, and those that are taken like messages.
//!
//! # Why unsafe
//! The calls take pointers to sets and dispositions.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::c_int;

/// The disposition of a signal in this process (sigaction(2)).
pub struct Disposition(libc::sigaction);

/// Ignores a signal from now on, also in programs that are started from now on. Returns the
/// disposition before.
///
/// # Errors
/// `EINVAL` for a signal that cannot be ignored.
pub fn ignore(signal: i32) -> io::Result<Disposition> {
    // SAFETY: all-zero bytes are a valid value of the structure: no flags, an empty mask.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { mem::zeroed() };
    new.sa_sigaction = libc::SIG_IGN;
    // SAFETY: a number, and two structures that live until the call returns; nothing is called
    // when the signal comes.
    let result = unsafe { libc::sigaction(signal, &new, &mut old) };
    if result == 0 { Ok(Disposition(old)) } else { Err(io::Error::last_os_error()) }
}

/// Is a signal ignored? A program inherits this from the one that started it, such as nohup(1).
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all-zero bytes are a valid value of the structure, which lives until the call
    // returns.
    unsafe {
        let mut now: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Restores the disposition that a signal had before [`ignore`].
pub fn restore(signal: i32, before: &Disposition) {
    // SAFETY: the disposition set is one that the system returned, so a handler in it was valid
    // there.
    unsafe { libc::sigaction(signal, &before.0, std::ptr::null_mut()) };
}

/// Signals of the calling thread that are taken like messages. A drop brings back the mask before.
pub struct Signals {
    fd: OwnedFd,
    /// Blocked before [`Signals::listen`].
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks `signals` for the calling thread, but those that are ignored. From now on they can be
    /// taken here.
    ///
    /// # Errors
    /// The error of the system.
    pub fn listen(signals: &[i32]) -> io::Result<Signals> {
        // SAFETY: all-zero bytes are a valid value of a set; the sets are local and live through
        // the calls. The new descriptor is ours alone.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals.iter().filter(|signal| !is_ignored(**signal)) {
                libc::sigaddset(&raw mut set, *signal);
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                ..0 => Err(io::Error::last_os_error()),
                fd => Ok(Signals { fd: OwnedFd::from_raw_fd(fd), before }),
            }
        }
    }

    /// A signal that came, and whether a terminal sent it to all processes of its group.
    #[must_use]
    pub fn next(&self) -> Option<(i32, bool)> {
        // SAFETY: all-zero bytes are a valid value of the structure.
        let mut signal: libc::signalfd_siginfo = unsafe { mem::zeroed() };
        let length = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the structure lives through the call and has `length` bytes.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut signal).cast(), length) };
        let of_terminal = signal.ssi_code == libc::SI_KERNEL;
        (got == length as isize).then_some((signal.ssi_signo as c_int, of_terminal))
    }

    /// Brings back the mask before for the calling thread. May be called after a fork.
    pub(crate) fn bring_back_mask(&self) {
        // SAFETY: the set is the one that the system returned, and lives through the call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

impl AsFd for Signals {
    /// Readable when there is a signal.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.bring_back_mask();
    }
}
