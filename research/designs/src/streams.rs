//! Policies of how threads come by a compression stream, beside the product's `percpu`.
//!
//! `multi` and `single` are those of Linux 3.15 (seed: "zram: add multi stream functionality");
//! `mutex` is there to be measured.

mod multi;
mod mutex;
mod single;

pub use multi::{LentStream, MultiStreams};
pub use mutex::MutexStream;
pub use single::{Single, SingleStream, SingleStreams};
