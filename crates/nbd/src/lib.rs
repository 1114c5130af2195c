//! An NBD server over [`block::BlockDevice`].
//!
//! It speaks the fixed newstyle protocol of the NBD document (`doc/proto.md` of the
//! NetworkBlockDevice project) with structured replies and `base:allocation`, with TLS for TCP if
//! wanted, and without extended headers. A `Session` is the protocol: it turns bytes into bytes and
//! does no I/O. [`Server`] runs it with threads and sockets, [`drive`] with a slice.
//!
//! One thread serves one connection. It receives all requests that have arrived, carries them out
//! in order, and sends all their replies at once. A request allocates nothing. A request that would
//! wait ([`block::IoError::WouldBlock`]) goes to one of a few other threads and is answered out of
//! order; the other requests go on.
//!
//! No client waits for another one. What they share, a user or an address has a share of; a request
//! that finds nothing left is carried out with what its connection has, in pieces if it is long.

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
mod peer;
mod refusal;
mod server;
mod session;
mod shares;
mod socket;
mod spin;
mod stop;
mod stream;
mod tls;
mod transmit;
pub mod wire;

use std::sync::Arc;

use block::BlockDevice;
use units::Cpu;

pub use activation::Activated;
pub use exports::{ExportInfo, Exports, One, OpenError};
pub use listen::{ListenError, Listener};
pub use options::Options;
pub use server::Server;
pub use stream::Stream;
pub use tls::{Tls, TlsError};
pub use wire::MAX_PAYLOAD;

use buffer::Output;
use negotiate::Security;
use outcome::Progress;
use session::Session;

/// [`drive`] stops when this many bytes of replies wait.
const DRIVE_LIMIT: usize = 2 * MAX_PAYLOAD as usize;

/// Runs a whole connection in memory. A client sends `input` and hangs up; the result is the bytes
/// that the server sends. `device` is the only export, named `disk`.
///
/// For fuzzing and tests. It returns for any `input`. It stops, as if the client had left, when 64
/// MiB of replies wait.
#[must_use]
pub fn drive(input: &[u8], device: Arc<dyn BlockDevice>) -> Vec<u8> {
    let exports = One::new("disk", "", device);
    let mut output = Output::new(None);
    let mut session = Session::new(&exports, &mut output, None, Security::Plain);
    let mut at = 0;
    while output.len() < DRIVE_LIMIT {
        match session.advance(&input[at..], &mut output, Cpu(0)) {
            Progress::Consumed(bytes) => at += bytes,
            _ => break,
        }
    }
    output.into_vec()
}

#[cfg(test)]
mod tests;
