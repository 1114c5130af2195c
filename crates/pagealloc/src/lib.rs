//! Allocates frames of memory it was given, buddy-wise.
//!
//! [`Zone`] is the allocator. Everything above takes frames through the seam [`Frames`], which
//! experiments put other designs behind. Memory itself comes from above as [`MemoryProvider`] and
//! [`Region`]: this crate asks the operating system for nothing.
//!
//! The zone is not there under loom; the part in which threads meet without a lock is compiled into
//! the test `loom_zone`. [`LazyTable`] holds the model's atomics then, so crates that stand on it
//! run under loom as well.
#![no_std]

extern crate alloc;
// The pretended provider of the integration tests serves the unit tests too, which ask it less.
#[cfg(test)]
extern crate self as pagealloc;
#[cfg(test)]
extern crate std;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../tests/suite/provider.rs"]
mod pretended;

#[cfg(not(loom))]
mod bits;
mod frames;
mod lock_trace;
mod provider;
#[cfg_attr(loom, path = "table/model.rs")]
mod table;
pub mod watch;
#[cfg(not(loom))]
mod zone;

pub use frames::{Frames, ZoneStats};
pub use lock_trace::{LockClass, LockTrace};
pub use provider::{MemoryProvider, NoMemory, Region, RegionKeeper};
pub use table::{LazyTable, Zeroed};
#[cfg(not(loom))]
pub use zone::{Zone, ZoneOptions};
