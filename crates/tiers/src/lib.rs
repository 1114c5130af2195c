//! Decides which pages move to a smaller form, and when.
//!
//! A *tier* is a form in which a page is kept. Tier 0 is the form in which a page is stored. The
//! tiers after it are smaller and slower to read. The device that has the pages goes through them
//! in *passes* and asks [`Policy::judge`] about each. After a pass it says what it saw
//! ([`Policy::learn`]).
//!
//! * [`Policy`] decides by age. It sees how long pages lie unused before they are used again, and
//!   moves them at the age at which this would have gained most.
//! * [`Memory`] is what the policy remembers of a page, in 32 bits: its last use, its tier, and how
//!   often it came back too soon. Each time doubles the age that the page must reach.
//! * [`Allowance`] limits the CPU time, and the bytes that are written to a device.
//! * [`Round`] is a pass that goes on from call to call within its CPU time.
//!
//! A device that remembers only how many passes came by since a page was used has [`waits_after`].
//!
//! All of it is values. There is no I/O, no clock, no thread, no lock and no heap.
#![no_std]
#![forbid(unsafe_code)]

mod allowance;
mod forms;
mod intervals;
mod memory;
mod policy;
mod round;
mod waits;

pub use allowance::{Allowance, Spell};
pub use forms::{COLD, OUT, TIERS, WARM, WARM_CODEC, WARM_PRIORITY};
pub use intervals::{GENERATIONS, Intervals, generation};
pub use memory::Memory;
pub use policy::{Action, Budgets, News, Pass, Policy, Seen, TIMES_OLDER, Tier, TierPass, Verdict};
pub use round::Round;
pub use waits::{PASSES, waits_after};

/// The most tiers of a device, the first one counted.
pub const MOST_TIERS: usize = 4;

#[cfg(test)]
mod tests;
