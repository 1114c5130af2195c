//! Builds devices from named variants, out of a given world.
//!
//! [`switchboard`] is the only file that lists variants: codecs, slot schemes, policies of streams
//! and zones. A [`Machine`] is what a daemon or an embedder has one of: a zone, and the devices
//! that share it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod factory;
mod machine;
pub mod switchboard;

pub use machine::{Machine, MachineOptions};
pub use switchboard::{
    ALGORITHMS, DEFAULT_ALGORITHM, INDEXES, SLOT_SCHEMES, STREAM_POLICIES, Variants, ZONES,
};
pub use zram::{HostFiles, NoHostFiles};

#[cfg(test)]
mod tests;
