//! Packs objects of any size up to a page into frames, and compacts them.
//!
//! # Definitions
//! An *object* is a run of bytes, written once when it is stored and never changed. A *zspage* is a
//! chain of up to eight frames divided into equal slots for objects; a *size class* is the set of
//! zspages with one slot size. A *handle* names an object for its whole life, wherever it is moved.
//!
//! # Invariants
//! * A frame belongs to a zspage only while it holds a part of an object of that zspage. The frames
//!   of a chain are allocated one by one as slots are filled from the front, and given back one by
//!   one. So a class wastes half a frame, not half a zspage, on empty slots.
//! * A handle is the zspage and slot that an object was first stored in. An object that compaction
//!   moves leaves a forwarding entry there. So an object that never moves costs no bytes beyond its
//!   slot.
//! * The page allocator is called without the lock of a class: it may make a system call.
//! * The state of a class changes only under the lock of the class. Reading takes no lock: the
//!   reading thread holds a reader. Frames that objects were moved out of are given back after all
//!   earlier readers have been dropped.
//!
//! # Operations
//! [`Pool::store`], [`Pool::read`], [`Pool::free`], [`Pool::compact`], [`Pool::validate`].
//!
//! After the behaviour of Nitin Gupta's zsmalloc (Linux `Documentation/mm/zsmalloc.rst`). The
//! lazily allocated chain, the handles without a table and the forwarding are this project's.
#![no_std]

extern crate alloc;

mod class;
mod compact;
mod forward;
mod fullness;
mod handle;
mod loose;
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
