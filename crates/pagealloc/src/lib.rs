//! Lends frames of memory it was given, buddy-wise.
//!
//! The seam is [`Frames`]: everything above takes frames through it, and a zone design is one
//! implementation of it. Memory itself comes from above as [`World`] and [`Region`]: this crate
//! asks the operating system for nothing.
//!
//! [`Zone`] is our own design. [`ListZone`] is the kernel's shape, in six designs. Zones are not
//! there under loom, whose atomics are not zero-initialised memory; the part of [`Zone`] in which
//! threads meet without a lock is compiled into the test `loom_zone`, and the lists that threads
//! change side by side ([`smp_list`]) are.
#![no_std]

extern crate alloc;
// The pretended world of the integration tests serves the unit tests too, which ask it less.
#[cfg(test)]
extern crate self as pagealloc;
#[cfg(test)]
extern crate std;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../tests/suite/world.rs"]
mod pretended;

#[cfg(not(loom))]
mod bits;
mod frames;
#[cfg(not(loom))]
mod list_zone;
mod lock_trace;
pub mod smp_list;
mod table;
pub mod watch;
mod world;
#[cfg(not(loom))]
mod zone;

pub use frames::{Frames, ZoneStats};
#[cfg(not(loom))]
pub use list_zone::{
    Batch, Cluster, Design, ListZone, Merge, NoMerge, Premerge, RangeRw, Spin, Splice,
};
pub use lock_trace::{LockClass, LockTrace};
pub use table::{LazyTable, Zeroed};
pub use world::{NoMemory, Region, RegionKeeper, World};
#[cfg(not(loom))]
pub use zone::{Zone, ZoneOptions};
