//! What block devices are tested with: seeded events, a naive model, and the suite of the seam.
//!
//! Nothing in the product depends on this crate; integration tests here and in other crates do.
//!
//! * [`events`]: random operations on a device, from a seed; the same seed gives the same ones.
//! * [`content`]: what is written, from a palette chosen to reach every way a page can be stored.
//! * [`model`]: an array of bytes that each operation is applied to as well; any difference between
//!   it and the device is reported with the seed and the events that led to it, made as few as
//!   possible by [`shrink`].
//! * [`part`]: a part of a device as a device, so that threads can each have a model.
//! * [`indexes`]: what every index of a swap area ([`zswap::Index`]) must pass.
//! * [`suite`]: what every [`block::BlockDevice`] must pass, alone and under many threads.
//! * [`controls`]: devices that are broken on purpose. The tests of this crate show that the suite
//!   rejects each of them, and passes [`block::Plain`].
//! * [`swap`]: the same for compressed caches in front of swap devices.
#![forbid(unsafe_code)]

pub mod content;
pub mod controls;
pub mod events;
pub mod indexes;
pub mod model;
pub mod part;
pub mod shrink;
pub mod suite;
pub mod swap;
