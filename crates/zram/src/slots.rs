//! The seam between the engine and the schemes that guard its slots.
//!
//! A scheme answers two questions: how is the word of a slot swapped, and when may what it named
//! be freed? The product has one, [`BitLock`].
//!
//! # Why unsafe
//! What a slot names is read and freed by what its table says: see [`SlotTable`].

mod bit_lock;
mod touched;

use pagealloc::{MemoryProvider, NoMemory};

pub use bit_lock::BitLock;
pub use touched::Touched;
use units::Cpu;

use crate::slot::Slot;

/// A table of slots. Every method may be called by any number of threads at once; no closure may
/// call the table again.
///
/// # Safety
/// The engine frees by what a table says. A slot that `update` put there comes out of it at most
/// once, as displaced. Each that was given to `retire` is given to `free` once at most, and no
/// other is; and none while the closure of a `load` that was shown it may be running.
pub unsafe trait SlotTable: Send + Sync + Sized {
    /// The scheme's name.
    const NAME: &'static str;
    /// Bytes a slot takes.
    const BYTES: usize;

    /// A table of `slots` empty slots in lazily backed memory, for readers and writers on `cpus`
    /// CPUs.
    ///
    /// # Errors
    /// [`NoMemory`] when there are no addresses for it.
    fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Self, NoMemory>;

    /// How many slots there are.
    fn count(&self) -> usize;

    /// Lets `read` see a slot. What the slot names stays until `read` returns. It may be run more
    /// than once; the last result counts.
    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R;

    /// Swaps a slot for what `next` makes of it; the commit point of everything. `next` may be run
    /// more than once.
    ///
    /// # Errors
    /// The slot as it is, when `next` declines.
    fn update(&self, index: usize, next: impl FnMut(Slot) -> Option<Slot>) -> Result<Slot, Slot>;

    /// Calls `free` for each displaced slot that no reader can hold any more: this one, or ones
    /// displaced earlier. May wait for readers, so the caller must hold nothing that the closure
    /// of a `load` may want.
    fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot));

    /// Calls `free` for every slot that was given to `retire` before this call and not yet freed,
    /// after waiting for readers if need be; tells whether there was any. As with `retire`, the
    /// caller must hold nothing that the closure of a `load` may want.
    fn quiesce(&self, free: impl FnMut(Slot)) -> bool {
        let _ = free;
        false
    }

    /// The slot as it was a moment ago; nothing it names may be touched.
    fn peek(&self, index: usize) -> Slot;

    /// The first index from `from` on whose slot may be other than empty; `end` if there is none
    /// before it. Skips what was never written without looking at it.
    fn next_touched(&self, from: usize, end: usize) -> usize;

    /// How many of the first `end` slots lie in parts of the table that were ever written.
    fn touched(&self, end: usize) -> u64;

    /// Asks the processor for what `peek` will look at.
    fn prefetch(&self, index: usize);
}
