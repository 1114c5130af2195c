//! Files and block devices for writeback.
//!
//! [`open`] makes a [`block::BlockDevice`] of a block device or of an ordinary file. Operations go
//! through io_uring (Jens Axboe, "Efficient IO with io_uring", 2019): a batch takes few system
//! calls, and many operations are under way at once. They bypass the page cache where the file
//! system allows, because pages written back to save memory must not stay in memory. Elsewhere each
//! write waits until the storage has it, because the caller then frees its only copy.
//!
//! A caller takes one of a few [rings](ring) from a [pool] for the length of a call, so two threads
//! never share a ring. Data passes through memory of the ring, aligned for direct I/O; the kernel
//! never gets a caller's memory. If io_uring is missing or forbidden, the same code uses plain
//! reads and writes.

mod batch;
mod device;
mod open;
mod plain;
mod pool;
mod read;
mod ring;

pub use open::{Options, exposure, open, open_kept};
pub use read::read;

#[cfg(test)]
mod tests;
