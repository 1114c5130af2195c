//! Packs objects of any size up to a page into frames, and compacts them.
//!
//! # Definitions
//! An *object* is a run of bytes, written once when it is stored and never changed. A *zspage* is a
//! chain of up to 16 frames divided into equal slots for objects; a *size class* is the set of
//! zspages with one slot size. A *handle* is the place of an object: its zspage and its slot.
//!
//! # Invariants
//! * A frame belongs to a zspage only while it holds a part of an object of that zspage. The frames
//!   of a chain are allocated one by one as slots are filled from the front, and given back one by
//!   one. So a class wastes half a frame, not half a zspage, on empty slots.
//! * A handle says where its object is, and nothing else is kept of an object. So an object costs
//!   no bytes beyond its slot.
//! * The owner of the handles moves the objects: [`Pool::compact`] chooses the zspages to empty,
//!   and the owner stores a new handle wherever it kept the old one. The old place stays as it is
//!   until the owner frees it, as it frees any object.
//! * The page allocator is called without the lock of a class: it may make a system call.
//! * The state of a class changes only under the lock of the class. Reading takes no lock: the
//!   frames of an object stay until it is freed, and its owner sees to it that no thread reads it
//!   then.
//!
//! # Operations
//! [`Pool::store`], [`Pool::read`], [`Pool::free`], [`Pool::compact`], [`Pool::validate`];
//! [`Recovery`] after the death of another process.
//!
//! After the behaviour of Nitin Gupta's zsmalloc (Linux `Documentation/mm/zsmalloc.rst`). The
//! lazily allocated chain, the handles without a table and the moves by the owner are this
//! project's.
#![no_std]

extern crate alloc;

mod class;
mod compact;
mod fullness;
mod handle;
mod loose;
mod pool;
mod recover;
mod slots;
mod stats;
mod validate;
mod zspage;

pub use class::{CHAIN_MAX, RAW_THRESHOLD, SizeClass, SizeClasses};
pub use compact::Pass;
pub use handle::Handle;
pub use pool::{Limits, Object, PREFETCH_BYTES, Pool, Room, StoreError};
pub use recover::{BadObject, Census, Recovery, Unfit};
pub use stats::{ClassStats, Classes, Fullness, PoolStats};

#[cfg(test)]
mod tests;
