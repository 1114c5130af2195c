//! The tests of block devices, indexes and swap caches: seeded events, naive models and suites.
//!
//! The product does not depend on this crate. Integration tests here and in other crates do.
//!
//! * [`events`]: random operations on a device. The same seed gives the same operations.
//! * [`content`]: the contents of writes, chosen to reach every way in which a page is stored.
//! * [`model`]: an array of bytes that gets each operation, too. A test reports any difference from
//!   the device with the seed and the events that led to it; [`shrink`] reduces the events.
//! * [`indexes`]: the tests that every index of a swap area ([`zswap::Index`]) must pass.
//! * [`suite`]: the tests that every [`block::BlockDevice`] must pass, under one thread and under
//!   many.
//! * [`roads`]: the tests that every road from a client to a device must pass.
//! * [`kept`]: servers that are killed, and started again with what was kept.
//! * [`controls`]: devices that are broken on purpose. The tests of this crate show that the suite
//!   rejects each of them and accepts [`block::Plain`].
//! * [`swap`]: events, model and suite for compressed caches in front of swap devices.
//! * [`values`]: operations on a store of values beside a map.
//! * [`tiers`]: traces, peers and a suite for the policy that moves pages between tiers.
#![forbid(unsafe_code)]

pub mod content;
pub mod controls;
pub mod events;
pub mod indexes;
pub mod kept;
pub mod model;
pub mod roads;
pub mod shrink;
pub mod suite;
pub mod swap;
pub mod tiers;
pub mod values;
