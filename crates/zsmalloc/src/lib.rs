//! Packs objects of any size up to a page into frames, and moves them together again.
//!
//! # Definitions
//! An *object* is a run of bytes, written once when it is stored and never changed. A *zspage* is a
//! chain of up to eight frames divided into equal slots for objects; a *size class* is the set of
//! zspages with one slot size. A *handle* names an object for its whole life, wherever it is moved.
//!
//! # Invariants
//! * A frame belongs to a zspage only while some object of it lies in that frame: the frames of a
//!   chain are allocated one by one as slots are filled from the front, and given back one by one.
//!   So a class wastes half a frame, not half a zspage, on objects it does not have.
//! * A handle is the zspage and slot an object was first put into. An object that compaction moves
//!   leaves a forwarding entry there. So an object that never moves costs no bytes beyond its slot.
//! * Everything in a class changes under the lock of the class. Reading takes no lock: a reader
//!   holds a reader, and frames that objects were moved out of are given back after all readers
//!   taken before have been dropped.
//!
//! # Operations
//! [`Pool::store`], [`Pool::read`], [`Pool::free`], [`Pool::compact`], [`Pool::validate`].
//!
//! After Nitin Gupta's zsmalloc (Linux `Documentation/mm/zsmalloc.rst`), from its behaviour; the
//! lazily allocated chain, the handles without a table and the forwarding are this project's.
#![no_std]

extern crate alloc;

mod class;
mod compact;
mod forward;
mod fullness;
mod handle;
mod pool;
mod slots;
mod stats;
mod validate;
mod zspage;

pub use class::{CHAIN_MAX, RAW_THRESHOLD, SizeClass, SizeClasses};
pub use handle::Handle;
pub use pool::{Object, PREFETCH_BYTES, Pool, PoolOptions, StoreError};
pub use stats::{ClassStats, PoolStats};

#[cfg(test)]
mod tests;
