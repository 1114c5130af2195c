//! An NBD server over [`block::BlockDevice`].
//!
//! It speaks the fixed newstyle protocol of the NBD document (`doc/proto.md` of the
//! NetworkBlockDevice project) with structured replies and `base:allocation`, without TLS and
//! without extended headers. The protocol itself is a `Session` that turns
//! bytes into bytes and does no I/O; [`Server`] gives it threads and sockets, [`drive`] gives it a
//! slice.
//!
//! One thread serves one connection: it receives as many requests as there are, carries them out
//! in order on itself, and sends all their replies at once. Nothing is allocated per request. A
//! request that the device would have to wait for ([`block::IoError::WouldBlock`]) goes to one of a
//! few other threads, and is answered out of order: it holds up nobody.

mod activation;
mod buffer;
mod connection;
mod errors;
mod exports;
mod later;
mod listen;
mod negotiate;
mod options;
mod outcome;
mod server;
mod session;
mod spin;
mod stop;
mod stream;
mod sys;
mod transmit;
pub mod wire;

use std::sync::Arc;

use block::BlockDevice;
use units::Cpu;

pub use activation::{Activated, activated};
pub use exports::{ExportInfo, Exports, One, OpenError};
pub use listen::{ListenError, Listener};
pub use options::Options;
pub use server::Server;
pub use stream::Stream;
pub use wire::MAX_PAYLOAD;

use buffer::Output;
use outcome::Progress;
use session::Session;

/// Replies kept by [`drive`] before it stops, in bytes.
const DRIVE_LIMIT: usize = 2 * MAX_PAYLOAD as usize;

/// A whole connection in memory: what the server sends to a client that sends `input` and then
/// hangs up. `device` is the only export, named `disk`.
///
/// For fuzzing and tests. Returns whatever `input` is, and stops as if the client had vanished
/// once 64 MiB of replies are waiting.
#[must_use]
pub fn drive(input: &[u8], device: Arc<dyn BlockDevice>) -> Vec<u8> {
    let exports = One::new("disk", "", device);
    let mut output = Output::new();
    let mut session = Session::new(&exports, &mut output, None);
    let mut at = 0;
    while output.len() < DRIVE_LIMIT {
        match session.advance(&input[at..], &mut output, Cpu(0)) {
            Progress::Consumed(bytes) => at += bytes,
            Progress::Need(_) | Progress::Full(_) | Progress::Close => break,
        }
    }
    output.into_vec()
}

#[cfg(test)]
mod tests;
