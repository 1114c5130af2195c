//! Makes an object of a page, and the page of an object: what zram and zswap do alike.
//!
//! [`Objects`] is a pool with the codecs of what is in it. A page is compressed on the CPU's stream
//! ([`Objects::compress`]), its user judges how long that came out, and stores it
//! ([`Packed::store`]). An [`Object`] is all that must be known to make the page again, and fits in
//! the word of a slot or an entry. It is a name, which anybody may copy or make up; what is done
//! to the object it names is `unsafe`, for only the user knows which objects are there.
#![no_std]

extern crate alloc;

mod object;
mod store;

pub use object::Object;
pub use store::{Objects, Packed};

#[cfg(test)]
mod tests;
