//! Pages on a backing device: what it takes to write and read them, in either layout.
//!
//! * [`Backing`] is a backing device in its layout. [`BackingBlocks`] has a page in each block.
//! * [`PageLog`] is a log: it writes a [`Run`] of objects together, reads objects by their places,
//!   and cleans segments. `segments` keeps account below it.
//! * [`Backed`] is where an object is and what it is. The user keeps it in the slot of the page,
//!   which alone decides whether the object is in use.
//! * [`LogDevice`] is a block device of pages that are in a log, for users without slots.
//!
//! A log may outlive its process ([`Backing::keep`], [`Backing::recover`]): it has words in memory
//! that does, and the next process claims what slots name. So may a device in a log
//! ([`LogDevice::keep`], [`LogDevice::recover`]), whose table is in such memory, too.
//!
//! The calling thread does the I/O. Nothing here starts a thread, reads a clock, or knows what is
//! in a page; after a log was made, it takes no memory from the heap.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod as_backing;
mod backed;
mod backing;
mod blocks;
mod clean;
mod codecs;
mod device;
mod kept;
mod log;
mod room;
mod run;
mod table;
mod wanted;
mod words;

pub use backed::{Backed, Coded, StoredAt};
pub use backing::{Backing, Misclaimed};
pub use blocks::BackingBlocks;
pub use device::{LogDevice, NoDevice};
pub use kept::Finding;
pub use log::{LogStats, MOST_PAGES, NoLog, PageLog};
pub use room::Places;
pub use run::{Entry, RUN_PAGES, Run};
pub use segments::Misplaced;
pub use wanted::{AT_ONCE, Wanted};
pub use words::NotLeft;
