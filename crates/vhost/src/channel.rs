//! The channel by which a front end is told that the configuration has changed (the vhost-user
//! document, "Back-end message types"). The protocol's crate does not know that message, and does
//! not give its socket to anybody.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};

/// Bytes of the header of a message: three numbers of 32 bits.
const HEADER: usize = 12;
/// The message that brings a channel.
const SET_BACKEND_REQ_FD: [u8; 4] = 21u32.to_ne_bytes();
/// The configuration has changed; in version 1, without an answer or a body.
const CONFIG_CHANGED: [u32; 3] = [2, 1, 0];

/// The socket that comes with the next message on `stream`, if that brings a channel. The message
/// stays: who reads it checks it.
pub(crate) fn brought(stream: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut header = [0; HEADER];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let into = &mut [IoSliceMut::new(&mut header)];
    let read = recvmsg(stream, into, &mut control, flags).ok()?;
    if read.bytes < HEADER || header[..4] != SET_BACKEND_REQ_FD {
        return None;
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    })
}

/// Tells the front end behind `channel`. Not at all if that would wait: it does not read then.
pub(crate) fn tell(channel: &OwnedFd) {
    let message: Vec<u8> = CONFIG_CHANGED.iter().flat_map(|number| number.to_ne_bytes()).collect();
    if let Err(error) = send(channel, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        tracing::warn!("a virtual machine is not told of its disk's new size: {error}");
    }
}
