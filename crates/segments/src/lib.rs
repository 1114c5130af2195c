//! Keeps account of a log: compressed pages, one behind the other, in segments of a device of 1 to
//! 4 MiB that are written from front to back.
//!
//! * [`Segments`] says where the next object goes, counts the bytes of each segment that are still
//!   in use, and chooses the segment to clean. All of its memory is taken when it is made.
//! * [`Place`] is where an object begins, in 32 bits: the caller keeps it in the slot of the page.
//! * [`Header`] stands before each object, so that [`walk`] finds the objects of a segment.
//!
//! The caller does all I/O. The slot of a page is the commit point; the log never decides whether
//! an object is in use:
//!
//! 1. [`append`](Segments::append) reserves the place. It is the only step that can fail here.
//! 2. The caller writes header and object, and says so with [`written`](Segments::written). What is
//!    written together ends with [`pad`](Segments::pad), so that no block is written twice.
//! 3. The caller commits the place to the slot. Then it frees the place that the slot named before.
//!
//! A segment is cleaned the same way. [`victim`](Segments::victim) chooses it, the caller walks it
//! and asks the slot of each key whether it still names that place. If so, the object is written
//! again with [`append_survivor`](Segments::append_survivor), the slot is swapped, and the old
//! place freed. Who reads an object looks at the slot again afterwards, or is waited for before the
//! segment is punched.
//!
//! Where a log outlives its process, [`Keep`] has a word for each segment, and the next process
//! makes the account from these words and the places that slots name ([`Left`]).
//!
//! There is no I/O, no clock, no thread and no lock. The caller holds a lock of its own around
//! [`Segments`], never during I/O.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod choice;
mod header;
mod layout;
mod left;
mod segment;
mod segments;
mod walk;
mod word;

pub use header::{Generation, HEADER_BYTES, Header, Key, MOST_BYTES, TAG_BYTES};
pub use layout::{
    BLOCK_BYTES, Layout, LayoutError, MOST_DEVICE_BYTES, Place, Span, UNIT_BYTES, stored,
};
pub use left::{Left, Misplaced};
pub use segments::{NoVictim, NotLive, Pending, Punch, Refused, Segments, Victim};
pub use walk::{Found, Walk, walk};
pub use word::Keep;

#[cfg(test)]
mod tests;
