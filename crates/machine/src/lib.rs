//! A machine: a zone of memory, with the disks and the cache of swap areas that share it, on this
//! system.
//!
//! [`Machine`] makes them anew, or from the memory that another process left
//! ([`Machine::recover`]). [`HostSystem`] opens what pages are written back to. [`inspect`] looks
//! at what was left, and changes nothing.
#![forbid(unsafe_code)]

mod host_files;
mod inspect;
mod kept;
mod kept_swap;
mod left;
mod machine;
mod recovery;
mod refused;
mod swap_work;

pub use host_files::{HostSystem, path_of, text_of};
pub use inspect::{BelowSeen, Inspected, SwapSeen, inspect};
pub use kept::DiskOutcome;
pub use machine::{Machine, MachineOptions};
pub use recovery::{Progress, Tell};
pub use refused::RefusedDisk;
pub use swap_work::work_of_swap;
