//! What outlives a daemon.
//!
//! A daemon gives its descriptors to its service manager ([`Store`]). If it dies, the service
//! manager starts it again, and it takes them back ([`handed_over`]). The protocol is systemd's
//! (sd_pid_notify_with_fds(3), sd_listen_fds(3), systemd.service(5) `FileDescriptorStoreMax=`).
//! [`Keeper`] is a service manager of one daemon that speaks it, for systems without systemd.
//!
//! A daemon can also hand them over itself, to a program that takes its place in the same process
//! ([`replace`]). The service manager then sees no difference. A child can try before what it would
//! make of them ([`rehearse`]).
//!
//! One of the descriptors is a file in memory with the [`Table`] of the others: what regions of
//! memory there are, and of what devices.
//!
//! Nothing here knows what is in a region or behind a descriptor.

mod child;
mod contents;
mod ended;
mod keeper;
mod message;
mod rehearsal;
mod replace;
mod store;
mod table;

pub use contents::{Contents, Device, Mount, Region};
pub use ended::Ended;
pub use keeper::{Backoff, Keeper};
pub use rehearsal::{is_rehearsal, rehearse};
pub use replace::replace;
pub use store::{NAME_MAX, Store, handed_over};
pub use table::{LAYOUT, OLDEST_LAYOUT, Table, TableError, decode, image};
