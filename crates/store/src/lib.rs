//! What is below a disk or a swap area: a file or a device, opened by `backing`, and the layers
//! above it.
//!
//! [`Store::open`] puts the layers together as a [`Spec`] has them: encryption (feature `seal`),
//! then a page in each block, or a log of compressed pages ([`pagelog::LogDevice`]). What a layer
//! knows ends with the process, or is in [`Memfds`] that another process can have:
//!
//! | region | what |
//! |---|---|
//! | `NAME.key.N`, `NAME.seals.N` | the Nth key of device `NAME`, and the seals that belong to it |
//! | `NAME.places.N`, `NAME.log.N` | where the pages of its Nth log are, and its segments |
//!
//! A disk has a layout of its own above an unsealed or sealed device: see [`pagelog::Backing`].
//!
//! [`Memfds`]: host::Memfds
#![forbid(unsafe_code)]

mod first_page;
mod log;
mod names;
#[cfg(feature = "seal")]
mod sealed;
#[cfg(not(feature = "seal"))]
#[path = "not_sealed.rs"]
mod sealed;
mod store;

pub use names::{SEAL_BYTES, is_key, key_of, seals_of};
pub use sealed::sealed;
pub use store::{Layout, Memory, NotOpened, Spec, Store};
