//! Messages with descriptors between processes of this machine (unix(7)). No call here uses the
//! heap.
//!
//! # Why unsafe
//! recvmsg(2) takes pointers. The safe wrapper of the foreign crate has no way to say that a
//! message is of no process that is to be seen from here.

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

/// The most descriptors that are taken out of one message; the others are closed.
pub const IN_MESSAGE: usize = 16;

/// Room for the control messages of a message: descriptors and credentials.
#[repr(C, align(8))]
struct Control([u8; 256]);

const _: () = {
    let fds = IN_MESSAGE * size_of::<RawFd>();
    assert!(fds + size_of::<libc::ucred>() + 64 <= 256);
};

/// Sends one message on a connected socket, with a descriptor or without. Waits while the socket
/// is full: its receiver must read it all the time.
///
/// # Errors
/// The error of sendmsg(2).
pub fn send_message(socket: impl AsFd, text: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let fds = fd.as_slice();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    // There is room for one.
    let _ = fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds));
    let text = [IoSlice::new(text)];
    let send = || sendmsg(&socket, &text, &mut control, SendFlags::NOSIGNAL);
    Ok(rustix::io::retry_on_intr(send).map(drop)?)
}

/// Sends one message on a connected socket without a wait; false if the socket is full.
///
/// # Errors
/// The error of sendto(2).
pub fn send_now(socket: impl AsFd, text: &[u8]) -> io::Result<bool> {
    let send = || send(&socket, text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    match rustix::io::retry_on_intr(send) {
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        sent => Ok(sent.map(|_| true)?),
    }
}

/// A message that was received.
#[derive(Debug)]
pub struct Received {
    /// Bytes of its text.
    pub length: usize,
    /// The process that sent it, if the kernel says so: `set_socket_passcred` makes it say so.
    pub sender: Option<u32>,
    /// The descriptors that came with it.
    pub fds: [Option<OwnedFd>; IN_MESSAGE],
}

/// Receives one message into `text`, without a wait.
///
/// # Errors
/// `WouldBlock` if there is none.
pub fn receive_message(socket: impl AsFd, text: &mut [u8]) -> io::Result<Received> {
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
    let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let length = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
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
                    received.sender = u32::try_from(sender.pid).ok();
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(received)
}
