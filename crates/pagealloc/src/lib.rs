//! An allocator for frames of memory that it is given.
//!
//! [`Zone`] is the allocator. All users take frames through the trait [`Frames`]; experiments put
//! other designs behind it. Memory comes from the user as [`MemoryProvider`] and [`Region`]: this
//! crate asks the operating system for nothing.
//!
//! Under loom the zone is left out. The test `loom_zone` compiles the part in which threads meet
//! without a lock. [`LazyTable`] holds the model's atomics then, so crates that use it run under
//! loom as well.
#![no_std]

extern crate alloc;
// The pretended provider of the integration tests also serves the unit tests, which use less of it.
#[cfg(test)]
extern crate self as pagealloc;
#[cfg(test)]
extern crate std;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../tests/suite/provider.rs"]
mod pretended;

mod bits;
mod frame_set;
mod frames;
mod lock_trace;
mod provider;
#[cfg_attr(loom, path = "table/model.rs")]
mod table;
mod touched;
pub mod watch;
#[cfg(not(loom))]
mod zone;

pub use bits::Bits;
pub use frame_set::FrameSet;
pub use frames::{Frames, ZoneStats};
pub use lock_trace::{LockClass, LockTrace};
pub use provider::{KeptMemory, MemoryProvider, NoMemory, Region, RegionKeeper};
pub use table::{LazyTable, Zeroed};
pub use touched::Touched;
#[cfg(not(loom))]
pub use zone::{Zone, ZoneOptions};
