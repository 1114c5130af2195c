//! What is done to the pages of a disk besides reading and writing them: writeback, recompression,
//! packing, sharing, checks, and room for a writer.

mod batch;
mod check;
mod make_room;
mod pack_share;
mod post_processing;
mod scrub;
mod spill;
mod write_error;

pub(crate) use batch::Batch;
pub use pack_share::{Pack, Share};
#[cfg(test)]
pub(crate) use post_processing::apart;
pub use post_processing::{Recompress, Writeback};
pub(crate) use write_error::no_memory;
