//! A compressed cache of pages in front of a swap device.
//!
//! After Seth Jennings' zswap (linux-mm, "zswap: compressed swap caching", 2013) and what Linux
//! made of it since (`Documentation/admin-guide/mm/zswap.rst`), from their behaviour.
#![no_std]

extern crate alloc;

mod index;
mod key;

pub use index::{Index, MakeIndex, PAGES_PER_PART};
pub use key::{Key, MAX_OFFSETS, MAX_TYPES, SwapType, Word};
