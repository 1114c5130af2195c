//! Policies by which a thread gets a compression stream. The product's own policy is `percpu`.
//!
//! `multi` and `single` are those of Linux 3.15 (seed: "zram: add multi stream functionality");
//! `mutex` exists for measurements.

mod multi;
mod single;

pub use multi::{LentStream, MultiStreams};
pub use single::{MutexStream, SingleStream};
