//! Swap devices: areas that the kernel swaps to, with the compressed cache in front of a file, a
//! device or nothing.
//!
//! [`Swaps`] keeps those of a daemon, each an [`area`]: a [`cache`], its [`backing`], a file with a
//! loop device over it, and the kernel that swaps to that. What makes it safe to serve swap space
//! from a process is in [`protections`], [`limits`] and [`signals`], and the threads beside it in
//! [`helpers`].
//! [`selftest`] proves it all with a program that needs more memory than it may have.

pub mod active;
pub mod area;
pub mod backing;
pub mod cache;
pub mod commands;
pub mod group;
pub mod header;
pub mod helpers;
pub mod in_place;
pub mod leftovers;
pub mod limits;
pub mod off;
pub mod parts;
pub mod progress;
pub mod protections;
pub mod report;
pub mod selftest;
pub mod served;
pub mod signals;
pub mod stuck;
mod swaps;

pub use swaps::Swaps;

/// Swap devices of a daemon at most: as many as the engine has swap types.
pub const MOST: usize = rampack::zswap::MAX_TYPES;

/// The name of swap device `number`.
#[must_use]
pub fn name(number: usize) -> String {
    format!("swap{number}")
}
