//! Types of all crates: sizes, units, and their text forms.
//!
//! Everything here is a plain value. This crate knows no device and does no I/O. It allocates only
//! the text of an error.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod expression;
mod parse;
mod size;

pub use expression::{SizeError, evaluate_size};
pub use parse::{ParseSizeError, parse_size};
pub use size::{Human, human};

/// Base-two logarithm of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page of user data, and in a frame that holds objects: 4096.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// Frames in a 2 MiB pageblock, the unit in which memory is freed to the operating system.
pub const FRAMES_PER_PAGEBLOCK: u32 = 512;
/// Bytes in a pageblock.
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

/// A frame: 4 KiB of memory of the page allocator, by its number within its zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

/// The number of a CPU; in a test, of a simulated one. A caller passes it in to select per-CPU
/// state; the code below never asks the operating system. Any number is valid: it is taken modulo
/// the number of CPUs. Two threads may use one CPU number at a time (after a preemption): per-CPU
/// state must then still be correct, only slower.
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
