//! Turns pages into objects and objects into pages: the part that zram and zswap share.
//!
//! [`Objects`] is a pool with the codecs of its objects. [`Objects::compress`] compresses a page on
//! the CPU's stream. The user checks the length of the result and stores it with [`Packed::store`].
//! An [`Object`] has all that is needed to make the page again, and fits in the word of a slot or
//! an entry. It is only a name, which any caller can copy or invent. So the operations on the named
//! object are `unsafe`: only the user knows which objects exist.
//!
//! An object may belong to several pages: equal ones, or neighbours that [`Packing`] compressed as
//! one. These name it by its entry in a table, [`SharedObjects`].
//!
//! What came of a page that is compressed again is a [`Recompressed`] for both users.
//!
//! A user whose objects outlive the process is a [`Persist`]. It keeps a [`Record`] for the next
//! process, which finds the objects again by a [`Survey`].
#![no_std]

extern crate alloc;

mod findings;
mod object;
mod packing;
mod persist;
mod recompression;
mod record;
mod restore;
mod shared;
mod store;
mod survey;

pub use findings::Findings;
pub use object::Object;
pub use packing::Packing;
pub use persist::Persist;
pub use recompression::Recompressed;
pub use record::{CODEC_WORDS, Form, KeptCodec, NAMED_CODEC_WORDS, Record, sum, words};
pub use restore::Restored;
pub use shared::{ENTRY_BYTES, Shared, SharedObjects};
pub use store::{Compressed, Objects, Packed};
pub use survey::{Survey, all_there};
pub use zcomp::{Plan, ToPlan};

#[cfg(test)]
mod tests;
