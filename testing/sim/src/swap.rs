//! The tests of a compressed cache in front of swap devices: seeded events, an exact model, devices
//! that fail, and a naive cache with flaws that a test chooses.
//!
//! * [`Cache`]: the interface of a cache under test.
//! * [`Event`] and [`Events`]: the events of a test, from a seed.
//! * [`FaultyDevice`]: the device behind an area. It fails on request, counts the writes under way,
//!   and records each attempt.
//! * [`Model`]: the right contents of each page and device, the oldest entry and the counters.
//!   [`Drive`] runs events on a cache and its model, and reduces a failure.
//! * [`crowd()`]: threads that use a cache at once.
//! * [`Naive`]: one lock and a map. With a [`Flaw`] it is a control that the tests must reject.

mod cache;
mod crowd;
mod drive;
mod events;
mod faulty_device;
mod model;
mod naive;
mod queue;

pub use cache::{
    AREAS, Cache, FRAMES, Found, MEMCGS, PAGES, Policy, Reclaimed, Refusal, SwapPage, Totals,
};
pub use crowd::{Crowd, crowd};
pub use drive::{Drive, Make};
pub use events::{Event, Events, Mix};
pub use faulty_device::{Attempt, FaultMode, FaultyDevice};
pub use model::{Model, Outcome};
pub use naive::{Flaw, Naive};
pub use queue::Queue;
