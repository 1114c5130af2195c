//! Words of all crates: how long things are, what they are counted in, and how a person writes
//! them.
//!
//! Everything here is a plain value. This crate knows no device, allocates nothing but the text of
//! an error, and can do no I/O.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod parse;
mod size;

pub use parse::{ParseSizeError, parse_size};
pub use size::{Human, human};

/// Base-two logarithm of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page of user data, and in a frame that holds objects: 4096.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// Bytes in a sector, the unit in which Linux counts block devices: 512.
pub const SECTOR_SIZE: usize = 512;
/// Frames in a 2 MiB block, the unit in which memory goes back to the operating system.
pub const FRAMES_PER_PAGEBLOCK: u32 = 512;
/// Bytes in that block.
pub const PAGEBLOCK_SIZE: usize = PAGE_SIZE * FRAMES_PER_PAGEBLOCK as usize;
/// The largest buddy order: blocks of `1 << MAX_ORDER` frames (4 MiB), as in Linux.
pub const MAX_ORDER: u8 = 10;

/// A page of user data.
pub type Page = [u8; PAGE_SIZE];

/// Bytes rounded up to whole pages. Saturates instead of wrapping.
#[must_use]
pub const fn pages_for(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE as u64)
}

/// A frame: 4 KiB of memory that the page allocator allocates, by number within its zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

/// A buddy order: a block of `1 << order` frames. Never above [`MAX_ORDER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(u8);

impl Order {
    /// One frame.
    pub const ZERO: Order = Order(0);
    /// The largest order.
    pub const MAX: Order = Order(MAX_ORDER);

    /// The order `n`, or `None` above [`MAX_ORDER`].
    #[must_use]
    pub const fn new(n: u8) -> Option<Order> {
        if n <= MAX_ORDER { Some(Order(n)) } else { None }
    }

    /// The number itself, for indexing.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Frames in a block of this order.
    #[must_use]
    pub const fn frames(self) -> u32 {
        1 << self.0
    }
}

/// The number of a CPU; in a test, of a pretended one. Per-CPU state is reached by a number that is
/// passed in, never by asking the operating system. Any number is valid: it is taken modulo the
/// CPUs that exist. Two threads may use one CPU at a time (one was preempted): per-CPU state must
/// be correct then too, only slower.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cpu(pub u32);

impl Cpu {
    /// The index of this CPU among `cpus` of them.
    #[must_use]
    pub const fn index(self, cpus: usize) -> usize {
        self.0 as usize % cpus
    }
}

#[cfg(test)]
mod tests;
