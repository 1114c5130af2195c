//! Turns pages into objects and objects into pages: the part that zram and zswap share.
//!
//! [`Objects`] is a pool with the codecs of its objects. [`Objects::compress`] compresses a page on
//! the CPU's stream. The user checks the length of the result and stores it with [`Packed::store`].
//! An [`Object`] has all that is needed to make the page again, and fits in the word of a slot or
//! an entry. It is only a name, which any caller can copy or invent. So the operations on the named
//! object are `unsafe`: only the user knows which objects exist. [`Words`] are what a user keeps
//! for another process beside its objects.
#![no_std]

extern crate alloc;

mod object;
mod store;
mod words;

pub use object::Object;
pub use store::{Objects, Packed};
pub use words::{Words, sum, words};

#[cfg(test)]
mod tests;
