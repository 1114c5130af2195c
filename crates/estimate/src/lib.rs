//! What memory would take if it were compressed: an answer by sample, before anything is swapped.
//!
//! A [`Source`] is a process, or an image of memory in a file. [`estimate`] reads a random sample
//! of its pages, compresses them with each [`Codec`], and adds up the memory that they would take
//! in a pool: a page costs its share of the frames of its size class. What a sample says of the
//! whole is told with the interval in which it is right 95 times of 100.
//!
//! A process goes on meanwhile. Its pages are read with process_vm_readv(2), which neither stops
//! it nor changes anything. Pages that are not in memory are left where they are.
//!
//! # Layers
//!
//! From the bottom up: [`Codec`] and what a page costs with it; sums over a sample; the sources;
//! the estimate over sources; its picture.

mod codec;
mod error;
mod estimate;
mod image;
mod plot;
mod process;
mod resident;
mod sample;
mod source;
mod tally;

pub use codec::Codec;
pub use error::Error;
pub use estimate::{ByCodec, Estimate, Options, Report, Sum, estimate};
pub use image::Image;
pub use plot::svg;
pub use process::{Frames, Process, all, in_cgroup};
pub use source::Source;
