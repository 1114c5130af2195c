//! The interface between the engine and the schemes that guard its slots.
//!
//! A scheme defines how the word of a slot is swapped, and when the object it named may be freed.
//! The product has [`BitLock`], and [`Lines`] for clones. With the feature `designs`, a test or an
//! experiment brings others (`MakeSlots`).
//!
//! # Why unsafe
//! An object is read and freed by what the slot table reports: see [`SlotTable`].

mod any;
mod bit_lock;
#[cfg(feature = "designs")]
mod brought;
mod lines;

use pagealloc::{MemoryProvider, NoMemory};

pub(crate) use any::Slots;
pub use bit_lock::BitLock;
#[cfg(feature = "designs")]
pub use brought::{AnySlots, MakeSlots};
pub use lines::Lines;
pub use pagealloc::Touched;
use units::Cpu;

use crate::engine::Slot;

/// A table of slots. Any number of threads may call every method at once. No closure may call the
/// table again.
///
/// # Safety
/// The engine frees what the table gives back. A slot that `update` stored is returned as displaced
/// at most once. Each slot given to `retire` is given to `free` at most once, and no other slot is.
/// A slot is not given to `free` while the closure of a `load` that got it may still run.
pub unsafe trait SlotTable: Send + Sync + Sized {
    /// The scheme's name.
    const NAME: &'static str;
    /// Bytes of one slot.
    const BYTES: usize;

    /// Makes a table of `slots` empty slots in lazily backed memory, for readers and writers on
    /// `cpus` CPUs.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for it is out.
    fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Self, NoMemory>;

    /// The number of slots.
    fn count(&self) -> usize;

    /// Passes a slot to `read`. The object it names stays until `read` returns. `read` may run more
    /// than once; the last result counts.
    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R;

    /// Replaces a slot by the result of `next`: the commit point of every change. `next` may run
    /// more than once. It sees what the thread saw that stored the slot it gets.
    ///
    /// # Errors
    /// The present slot, when `next` declines.
    fn update(&self, index: usize, next: impl FnMut(Slot) -> Option<Slot>) -> Result<Slot, Slot>;

    /// Calls `free` for each displaced slot that no reader can hold any more: this one, or ones
    /// displaced earlier. It may wait for readers, so the caller must hold nothing that the closure
    /// of a `load` may need.
    fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot));

    /// Calls `free` for every slot that was given to `retire` before this call and is not yet
    /// freed. Waits for readers if necessary. Returns whether there were any. As with `retire`, the
    /// caller must hold nothing that the closure of a `load` may need.
    fn quiesce(&self, free: impl FnMut(Slot)) -> bool {
        let _ = free;
        false
    }

    /// The slot as it was a moment ago. The caller must not touch what it names.
    fn peek(&self, index: usize) -> Slot;

    /// The first index from `from` on whose slot may be non-empty; `end` if no index before it has
    /// one. Skips parts that were never written.
    fn next_touched(&self, from: usize, end: usize) -> usize;

    /// How many of the first `end` slots lie in parts of the table that were ever written.
    fn touched(&self, end: usize) -> u64;

    /// Prefetches the word that `peek` reads.
    fn prefetch(&self, index: usize);
}
