//! The policy of tiers, under traces of pages that are used: what it gains, beside fixed ages and
//! beside one who knows the future.
//!
//! A trace says which pages are read and written in each second. A page that is in the lower tier
//! gains 1 each second. A move costs 16, and so does bringing a page up. A read of a page in the
//! lower tier costs 64: a program waits for it. The policy knows only what both cost together.
//!
//! * [`Trace`]: the traces, made of seeds, or recorded from programs: [`RECORDED`], [`parse`].
//! * [`fixed`]: the kernel's manual way, pages of a fixed age are compressed again.
//! * [`clairvoyant`]: the most that can be gained, with all of the trace known.
//! * [`run`]: the policy itself. [`Flaw`] breaks it, to show that the suite finds that.
//! * [`suite`]: what every policy must hold to.

mod out;
mod peers;
mod recorded;
mod run;
mod suite;
mod trace;

pub use peers::{MOVE, READ, clairvoyant, fixed};
pub use recorded::{RECORDED, parse};
pub use run::{Flaw, Outcome, Setting, run};
pub use suite::{compare, suite};
pub use trace::{Kind, Trace, Use};
