//! Swap devices: areas that the kernel swaps to. Each has the compressed cache in front of a file,
//! a device or nothing.
//!
//! [`Swaps`] holds the swap devices of a daemon. Each is an [`area`]: a [`cache`], its [`backing`],
//! the block device that the kernel swaps to ([`served`]), and its swapon. A process can serve swap
//! space safely with [`protections`] and [`signals`]; [`helpers`] has the threads
//! beside it. [`selftest`] proves it all with a program that needs more memory than it may have.

pub mod area;
pub mod awake;
pub mod backing;
pub mod beneath;
pub mod cache;
pub mod contents;
pub mod frees;
pub mod group;
pub mod header;
pub mod helpers;
pub mod in_front;
pub mod left;
pub mod leftovers;
pub mod off;
pub mod parts;
pub mod protections;
pub mod recovery;
pub mod report;
pub mod served;
pub mod setting;
pub mod signals;
pub mod stuck;
mod swaps;
mod trouble;

pub use swaps::Swaps;

/// The most swap devices of a daemon: as many as the engine has swap types.
pub const MOST: usize = zswap::MAX_TYPES;

/// A place where a test has the process end (`--cfg killed`, `tests/killed.rs`).
#[inline]
fn kill_point(_name: &str) {
    #[cfg(killed)]
    sync::atomic::killed::point(_name);
}

/// Gives the settings of the kernel their values back that a killed process left changed, unless
/// another one still wants them.
pub(crate) fn end_left() {
    in_front::Zswap::end_left();
    protections::end_left();
}

/// The name of swap device `number`.
#[must_use]
pub fn name(number: usize) -> String {
    format!("swap{number}")
}
