//! The system calls that the standard library does not offer. Only [`execute`] uses the heap.
//!
//! # Why unsafe
//! Messages with descriptors, signals and processes take calls of the C library with raw pointers.
//! A safe function wraps each call.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The first descriptor that a process is handed over: SD_LISTEN_FDS_START.
pub(crate) const FIRST: RawFd = 3;
/// The most descriptors that are taken out of one message; the kernel closes the others.
pub(crate) const IN_MESSAGE: usize = 16;

pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: the system made the descriptor for this call, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Owns a descriptor that this process was started with, and keeps it from programs that this
/// process starts.
pub(crate) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the calls take numbers.
    let flags = checked(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and whoever started this process made it for this process to own.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A copy of `fd` whose number is at least `least`.
pub(crate) fn copy_above(fd: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers; the descriptor is borrowed.
    owned(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) })
}

/// Gives the calling thread a table of descriptors of its own, a copy of the one that all threads
/// of the process share.
pub(crate) fn own_descriptors() -> io::Result<()> {
    // SAFETY: a number. The copy has all that the other one has.
    checked(unsafe { libc::unshare(libc::CLONE_FILES) }).map(drop)
}

/// Makes `number` a copy of `fd` that programs of this process get. What `number` was is closed, so
/// the calling thread has a table of descriptors of its own ([`own_descriptors`]), and uses it for
/// nothing else.
pub(crate) fn place(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: the call takes numbers. Nobody uses the descriptor that it closes: the owner of that
    // one is on another thread, which has another table.
    checked(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(drop)
}

/// Replaces the program of this process. Returns only if that fails.
pub(crate) fn execute(program: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    // SAFETY: the lists end with a null pointer, and their strings with a zero; all live through
    // the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Room for the control messages of a message: descriptors and credentials.
#[repr(C, align(8))]
struct Control([u8; 256]);

const _: () = {
    let fds = IN_MESSAGE * size_of::<RawFd>();
    assert!(fds + size_of::<libc::ucred>() + 64 <= 256);
};

/// Sends one message on a connected socket, with a descriptor or without. Does not wait for room
/// in a socket that is full for ever: the receiver reads it all the time.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    text: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut control = Control([0; 256]);
    let mut part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    // SAFETY: all-zero bytes are a valid value of the structure.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if let Some(fd) = fd {
        let fd = fd.as_raw_fd();
        message.msg_control = (&raw mut control).cast();
        // SAFETY: the macros compute with sizes, and the control buffer has room for a descriptor
        // behind its header and is aligned for it.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        }
    }
    loop {
        let flags = libc::MSG_NOSIGNAL;
        // SAFETY: the message points to the text and the control buffer, which live through the
        // call; the text is only read.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        match checked(sent as libc::c_int) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => return sent.map(drop),
        }
    }
}

/// Has the kernel say with each message which process sent it.
pub(crate) fn ask_for_senders(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const on).cast();
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PASSCRED);
    // SAFETY: the value lives through the call, and `length` is its size.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) }).map(drop)
}

/// A message that was received.
pub(crate) struct Received {
    /// Bytes of its text.
    pub(crate) length: usize,
    /// The process that sent it, if the kernel says so.
    pub(crate) sender: Option<libc::pid_t>,
    /// The descriptors that came with it.
    pub(crate) fds: [Option<OwnedFd>; IN_MESSAGE],
}

/// Receives one message into `text`; an error of kind `WouldBlock` if there is none.
pub(crate) fn receive(socket: BorrowedFd<'_>, text: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; 256]);
    let mut part = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    // SAFETY: all-zero bytes are a valid value of the structure.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message points to the text and the control buffer, which live through the call
    // and are exclusively ours.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let length = checked(got as libc::c_int)? as usize;
    let mut received = Received { length, sender: None, fds: [const { None }; IN_MESSAGE] };
    let mut places = received.fds.iter_mut();
    // SAFETY: the kernel has filled the control buffer with whole messages, whose lengths it wrote
    // in their headers; the macros stay within them. Each descriptor is new and ours alone.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            let length = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for n in 0..length / size_of::<RawFd>() {
                        let fd = data.cast::<RawFd>().add(n).read_unaligned();
                        let fd = OwnedFd::from_raw_fd(fd);
                        if let Some(place) = places.next() {
                            *place = Some(fd);
                        }
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    let sender = data.cast::<libc::ucred>().read_unaligned();
                    received.sender = Some(sender.pid);
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(received)
}

/// Waits until one of `fds` can be read or has ended, for `time` at most (None: for ever). Returns
/// which are.
pub(crate) fn wait<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    time: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut asked =
        fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let time = time.map_or(-1, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: `asked` has N elements and lives through the call.
    match checked(unsafe { libc::poll(asked.as_mut_ptr(), N as libc::nfds_t, time) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Err(_) => Ok([false; N]),
        Ok(_) => Ok(asked.map(|fd| fd.revents != 0)),
    }
}

/// Waits until the other end of a pipe is closed; false after `time`.
pub(crate) fn wait_for_hangup(end: BorrowedFd<'_>, time: Duration) -> io::Result<bool> {
    let until = std::time::Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if wait([end], Some(left + Duration::from_millis(1)))? == [true] {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// Writes a short text to standard error, unless that would wait.
pub(crate) fn say(text: &[u8]) {
    let mut asked = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one structure, and a text with its length, which live through the calls.
    unsafe {
        if libc::poll(&raw mut asked, 1, 0) == 1 && asked.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        }
    }
}

/// The signals that were blocked before [`Signals::listen`].
pub(crate) struct Signals {
    fd: OwnedFd,
    pub(crate) before: libc::sigset_t,
}

impl Signals {
    /// Blocks `signals` for the calling thread. From now on they can be taken here.
    pub(crate) fn listen(signals: &[libc::c_int]) -> io::Result<Signals> {
        // SAFETY: all-zero bytes are a valid value of a set; the sets are local and live through
        // the calls.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            let failed = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            Ok(Signals { fd: owned(libc::signalfd(-1, &raw const set, flags))?, before })
        }
    }

    /// Readable when there is a signal.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.fd)
    }

    /// A signal that came, and whether a terminal sent it to all processes of its group.
    pub(crate) fn next(&self) -> Option<(libc::c_int, bool)> {
        // SAFETY: all-zero bytes are a valid value of the structure.
        let mut signal: libc::signalfd_siginfo = unsafe { mem::zeroed() };
        let length = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the structure lives through the call and has `length` bytes.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut signal).cast(), length) };
        let of_terminal = signal.ssi_code == libc::SI_KERNEL;
        (got == length as isize).then_some((signal.ssi_signo as libc::c_int, of_terminal))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the system returned, and lives through the call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

/// Sends a signal to a child that was not waited for.
pub(crate) fn signal(child: libc::pid_t, signal: libc::c_int) {
    // SAFETY: two numbers.
    unsafe { libc::kill(child, signal) };
}

/// A descriptor that is readable when process `child` has ended.
pub(crate) fn end_of(child: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: two numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, child, 0) } as libc::c_int)
}

/// Waits for the end of a child, and returns the status of wait(2).
pub(crate) fn reap(child: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: a number that lives through the call.
        match checked(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended.map(|_| status),
        }
    }
}
