//! The seam between those who need frames and the designs that allocate them.
//!
//! # Why unsafe
//! Those above write to addresses a zone gives them; that nobody else does is its promise.

use core::ptr::NonNull;

use units::{Cpu, Frame, MAX_ORDER, Order};

/// A zone: allocates blocks of frames. Every method may be called by any number of threads at once.
///
/// # Safety
/// Implementations promise that a block allocated by [`Frames::alloc`] lies within `base() ..
/// base() + capacity() * 4096`, is readable and writable there, and is allocated to nobody else
/// until it is given back to [`Frames::free`]. Its contents are arbitrary.
pub unsafe trait Frames: Send + Sync {
    /// The address of frame 0; frame `n` lies `n * 4096` bytes above it. Never changes.
    fn base(&self) -> NonNull<u8>;

    /// One more than the highest frame number there can ever be. Never changes.
    fn capacity(&self) -> u32;

    /// Allocates a block of `1 << order` frames, aligned to its size; `None` when memory is out.
    fn alloc(&self, cpu: Cpu, order: Order) -> Option<Frame>;

    /// Takes a block back. It must have been allocated with this order and not been given back
    /// since.
    fn free(&self, cpu: Cpu, frame: Frame, order: Order);

    /// Gives every cached frame back to the zone, and the memory of all that is free back to the
    /// operating system, down to single frames. Slow; for `compact` and for tests.
    fn drain(&self);

    /// Asks the system for huge pages, for at most `most` blocks of 2 MiB, and tells for how many.
    /// Each may take some milliseconds, so a background thread calls this. A design may have
    /// nothing to do.
    fn maintain(&self, most: u32) -> u32 {
        let _ = most;
        0
    }

    /// Where memory is provided ahead: sees to it that about `free` frames with memory wait to be
    /// allocated, and tells how many do. Asks the system in pieces of 256 KiB, under no lock that
    /// [`Frames::alloc`] or [`Frames::free`] wants, and stops at the first that it refuses; gives
    /// back 2 MiB blocks that are free beyond that, but for a few. It may wait for memory: for one
    /// thread that has time. Elsewhere memory comes with its use, and this does nothing.
    fn provide(&self, cpu: Cpu, free: u64) -> u64 {
        let _ = (cpu, free);
        u64::MAX
    }

    /// Frames that have memory, allocated or not, where it is provided ahead; elsewhere `u64::MAX`.
    fn provided(&self) -> u64 {
        u64::MAX
    }

    /// Counts, of the moment.
    fn stats(&self) -> ZoneStats;

    /// Shows every free block of the zone to `see`, with its order, in any order. What is in
    /// per-CPU caches is not free. Exact while nobody allocates or frees; for laboratories and
    /// tests.
    fn free_blocks(&self, see: &mut dyn FnMut(Frame, Order));

    /// Checks every structure against every other, while nobody allocates or frees.
    ///
    /// # Panics
    /// Says what contradicts what.
    fn validate(&self);
}

/// What a zone tells of itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ZoneStats {
    /// Frames allocated, not counting those in per-CPU caches.
    pub allocated: u64,
    /// Frames in per-CPU caches.
    pub cached: u64,
    /// Free blocks in the zone, by order.
    pub free_blocks: [u64; MAX_ORDER as usize + 1],
    /// Frames of the arenas asked for so far.
    pub managed: u64,
    /// 2 MiB blocks given back to the operating system since the beginning.
    pub returned_blocks: u64,
    /// How often something was freed that was not allocated, or not with that order. Such a call
    /// has no other effect; in a debug build it panics instead.
    pub bad_frees: u64,
}
