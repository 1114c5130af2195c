//! What a compressed cache in front of swap devices is tested with: seeded events, an exact model,
//! backing devices that fail, and a cache that is too simple to be wrong, until it is made to be.
//!
//! * [`Cache`]: what is tested, in the words of this crate.
//! * [`Event`] and [`Events`]: what happens to it, from a seed.
//! * [`FaultyDevice`]: the device behind an area. It fails when told to, counts the writes that are
//!   under way, and remembers what was tried.
//! * [`Model`]: what each page must be, what may be on each device, which entry is the oldest, and
//!   what the counters must say. [`Drive`] runs events on both, and makes a failure small.
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
