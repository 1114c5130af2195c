//! A store of values by keys, compressed in memory: the engine of `rampack::Store`.
//!
//! # Definitions
//! A *value* is up to 16 MiB of bytes under a key of up to 1 KiB. It is cut in *units*, and each
//! unit is compressed by itself. What the pool has of a value is its *head* (an object with the
//! key, the length, the end of its life, and the value itself if that is small) and *chunks*: the
//! bytes of the units, in objects of up to a page. A *group* is a head without a key whose value is
//! a row of small heads, its *members*. The *index* has a word of eight bytes for each value, which
//! names a head, or a group and the number of a member.
//!
//! # Invariants
//! * Objects are write-once. A store makes all objects of a value before its word is swapped. What
//!   the old word names is retired, and freed when no reader can hold it.
//! * Each change is the swap of one word under the lock of its bucket: a store, a removal, the end
//!   of a life, an eviction, a move into a group or out of one, a move of objects. Of a group that
//!   moves, it is the word in the table of groups.
//! * A read takes no lock of the index and does not touch the heap.
//! * Who holds the lock of a bucket, or a buffer, never waits for readers. A reader retires
//!   nothing.
//!
//! # What outlives a process
//! The index, the table of groups, the zspages and the frames of a store that is kept
//! ([`Values::kept`]). As each change is the swap of one word, and objects are whole before a word
//! names them, another process has each value as of its last store that had ended, or of one that
//! had begun ([`Values::recover`]).
//!
//! # Operations
//! [`Values::put`], [`Values::get`], [`Values::get_range`], [`Values::remove`]; [`Values::keys`];
//! [`Values::saving`] and [`Values::loading`] for snapshots; [`Values::clone_contents`] for another
//! store that shares the objects; [`Values::upkeep`] for what a thread does that has time, with
//! [`Options::recompress`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod engine;
mod family;
mod groups;
mod head;
mod index;
mod numbers;
mod options;
mod outcome;
mod record;
mod saved;
mod scratch;
mod state;
mod word;

pub use engine::{LEAST_LIMIT, Loading, Saving, Values, judge_limit};
pub use options::{At, Options, Parts, PutOptions, Recompress, Tell, UNITS};
pub use outcome::{Cursor, Evicted, GetError, LoadError, NoStore, PutError, Reason, Stats};
pub use record::Record;

/// The most bytes of a key.
pub const MAX_KEY: usize = 1 << 10;

/// The most bytes of a value.
pub const MAX_VALUE: usize = 16 << 20;
