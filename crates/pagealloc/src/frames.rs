//! The interface between the users of frames and the designs that allocate them.
//!
//! # Why unsafe
//! Users write to the addresses that a zone returns. The zone promises that no other user does.

use core::ptr::NonNull;

use units::{Cpu, Frame, MAX_ORDER};

/// A zone: it allocates frames. Any number of threads may call every method at once.
///
/// # Safety
/// A frame from [`Frames::alloc`] lies within `base() .. base() + capacity() * 4096`, and is
/// readable and writable there. It is allocated to no other caller until [`Frames::free`] takes it
/// back. Its contents are arbitrary.
pub unsafe trait Frames: Send + Sync {
    /// The address of frame 0; frame `n` lies `n * 4096` bytes above it. Never changes.
    fn base(&self) -> NonNull<u8>;

    /// One more than the highest possible frame number. Never changes.
    fn capacity(&self) -> u32;

    /// Allocates a frame; `None` when memory is out.
    fn alloc(&self, cpu: Cpu) -> Option<Frame>;

    /// Takes a frame back. It must have been allocated and not been freed since.
    fn free(&self, cpu: Cpu, frame: Frame);

    /// Gives every cached frame back to the zone, and the memory of all free frames back to the
    /// operating system, down to single frames. Slow; for `compact` and for tests.
    fn drain(&self);

    /// Asks the system for huge pages, for at most `most` blocks of 2 MiB, and returns the number
    /// of blocks; gives memory back that was free during the last calls. Each block may take some
    /// milliseconds, so a background thread calls this, about each second. Some designs do nothing
    /// here.
    fn maintain(&self, most: u32) -> u32 {
        let _ = most;
        0
    }

    /// If memory is provided ahead: provides memory until about `free` frames with memory are free,
    /// and returns their number. Asks the system in pieces of 256 KiB, under no lock that
    /// [`Frames::alloc`] or [`Frames::free`] needs, and stops at the first refusal. Gives back 2
    /// MiB blocks that are free beyond that number, except a few. It may wait for memory, so one
    /// thread that may wait calls it. Otherwise memory comes with its first use, and this does
    /// nothing.
    fn provide(&self, cpu: Cpu, free: u64) -> u64 {
        let _ = (cpu, free);
        u64::MAX
    }

    /// Frames that have memory, allocated or not, if memory is provided ahead; otherwise
    /// `u64::MAX`.
    fn provided(&self) -> u64 {
        u64::MAX
    }

    /// A snapshot of the statistics.
    fn stats(&self) -> ZoneStats;

    /// Passes the first frame and the order of every free block of the buddy system to `see`, in
    /// any sequence. Frames in per-CPU caches are not free. Exact only while no thread allocates or
    /// frees; for laboratories and tests.
    fn free_blocks(&self, see: &mut dyn FnMut(Frame, u8));

    /// Checks every structure against the others. Call it only while no thread allocates or frees.
    ///
    /// # Panics
    /// The message names the structures that contradict each other.
    fn validate(&self);
}

/// The statistics of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ZoneStats {
    /// Frames allocated, not counting those in per-CPU caches.
    pub allocated: u64,
    /// Frames in per-CPU caches.
    pub cached: u64,
    /// Free blocks in the zone, by order: aligned runs of `1 << order` free frames.
    pub free_blocks: [u64; MAX_ORDER as usize + 1],
    /// Frames that the zone has asked the provider for so far.
    pub managed: u64,
    /// 2 MiB blocks given back to the operating system so far.
    pub returned_blocks: u64,
    /// The number of bad frees: the frame was not allocated. A bad free has no other effect; in a
    /// debug build it panics instead.
    pub bad_frees: u64,
}
