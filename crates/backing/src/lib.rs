//! Files and block devices that pages are written back to.
//!
//! [`open`] makes a [`block::BlockDevice`] of a block device or of an ordinary file. Operations go
//! through io_uring (Jens Axboe, "Efficient IO with io_uring", 2019), a batch of them with few
//! system calls and many under way at once, and past the page cache where the file system allows:
//! what was written back to save memory must not stay in memory.
//!
//! A user of the device takes one of a few [rings](ring) from a [pool] for the length of a call,
//! so no two threads are ever in one ring. Data passes through memory that belongs to the ring and
//! is aligned as direct I/O wants it; the kernel is never given a caller's memory. Where io_uring
//! is missing or forbidden the same code runs over plain reads and writes.

mod batch;
mod device;
mod open;
mod plain;
mod pool;
mod read;
mod ring;
mod sys;

pub use open::{Options, open};
pub use read::read;

#[cfg(test)]
mod tests;
