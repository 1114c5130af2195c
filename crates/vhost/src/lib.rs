//! A vhost-user-blk server over [`block::BlockDevice`]: the disk of a virtual machine, for which
//! its host needs no driver.
//!
//! The front end (qemu, cloud-hypervisor, crosvm) connects to a socket and shares the memory of its
//! machine; the requests are in rings there (virtio 1.2, 2.7 and 5.2). One thread serves the socket
//! and one each ring. A request that would wait ([`block::IoError::WouldBlock`]) goes to one of a
//! few other threads and is answered out of order; the other requests go on.
//!
//! What is under way is also in memory that the front end keeps (the in-flight region of the
//! vhost-user document). After a crash the next server is given it, and answers those requests.
//!
//! The machine may write anything to its memory at any time, so data is copied, never borrowed, and
//! whatever is read there is checked. A request that is wrong fails; a ring that is wrong is not
//! served until its driver begins anew; a message that is wrong ends the connection.
#![forbid(unsafe_code)]

mod chain;
mod channel;
mod config;
mod drive;
mod inflight;
mod memory;
mod queue;
mod request;
mod ring;
mod server;
mod session;
mod vring;

pub use drive::{TABLE, USED, drive};
pub use server::{Open, Options, Server};

#[cfg(test)]
mod tests;
