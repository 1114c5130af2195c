//! What memory would take if it were compressed: an answer by sample, before anything is swapped.
//!
//! A [`Source`] is a process, or an image of memory in a file. [`estimate`] reads a random sample
//! of its pages, compresses them with each [`Codec`], and adds up the memory that they would take
//! in a pool: a page costs its share of the frames of its size class. What a sample says of the
//! whole is told with the interval in which it is right 95 times of 100.
//!
//! It also tells what the pages would take on a disk whose pages move by themselves, once all are
//! idle. There up to four neighbours are compressed as one. So the sample is of aligned groups of
//! four pages, and neighbours are those by address, or by place in a file: whether they become
//! neighbours on the disk, too, is up to who writes them there.
//!
//! A process goes on meanwhile. Its pages are read with process_vm_readv(2), which neither stops
//! it nor changes anything. Pages that are not in memory are left where they are.
//!
//! # Layers
//!
//! From the bottom up: [`Codec`] and what a page costs with it; sums over a sample; what pages cost
//! in each tier; the sources; a look at the sample; the estimate over sources; its picture.

mod codec;
mod error;
mod estimate;
mod image;
mod look;
mod plot;
mod process;
mod resident;
mod sample;
mod source;
mod tally;
mod tier;

pub use codec::Codec;
pub use error::Error;
pub use estimate::{ByCodec, ByTier, Estimate, Options, Report, Stored, Sum, estimate};
pub use image::Image;
pub use plot::svg;
pub use process::{Frames, Process, all, in_cgroup};
pub use source::Source;
