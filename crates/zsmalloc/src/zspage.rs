//! The descriptor of a zspage: two cache lines. All but the frames of the second half of a long
//! chain is in the first.
//!
//! Every field is changed only under the lock of the zspage's class. Readers of objects also read
//! `frames` and `class` without it, and compaction reads `group`.
//!
//! # Why unsafe
//! Descriptors begin as zeroed memory. `Zeroed` promises that zeroed memory is a descriptor.

use pagealloc::Zeroed;
use sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use units::Frame;

use crate::class::{CHAIN_MAX, SizeClass};

/// In no list: unused.
pub(crate) const NO_GROUP: u8 = 0;
/// The list of the zspages that compaction is emptying: no thread takes a slot of them. A zspage
/// whose last object was freed stays in it until the pass ends.
pub(crate) const EMPTYING: u8 = 12;

/// The descriptor of a zspage. All zeroes is an unused one. Its layout is that of memory which
/// outlives the process. Descriptor 0 is none: in its `next` is the number of descriptors that were
/// ever used, and in its `previous` the mark of the size classes (see `recover`).
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Zspage {
    /// A bit for each slot that is taken.
    used: [AtomicU64; 2],
    /// Neighbours in the list of its fullness group, or the next unused descriptor.
    pub(crate) next: AtomicU32,
    pub(crate) previous: AtomicU32,
    class: AtomicU16,
    /// The list that it is in, see `fullness`.
    pub(crate) group: AtomicU8,
    /// Frame numbers plus one; 0 where the chain has no frame yet.
    frames: [AtomicU32; CHAIN_MAX],
}

// SAFETY: a descriptor is made of atomic integers and padding, for which all bytes are valid.
unsafe impl Zeroed for Zspage {}

impl Zspage {
    /// The frame at place `n` of the chain.
    #[inline]
    pub(crate) fn frame(&self, n: usize) -> Option<Frame> {
        // Relaxed: a thread that names a slot got the name from a word or a lock that was released
        // after the frame was entered. A frame stays while a slot in it is named.
        self.frames[n].load(Ordering::Relaxed).checked_sub(1).map(Frame)
    }

    /// The same for any `n`.
    #[inline]
    pub(crate) fn frame_at(&self, n: usize) -> Option<Frame> {
        if n < CHAIN_MAX { self.frame(n) } else { None }
    }

    pub(crate) fn set_frame(&self, n: usize, frame: Option<Frame>) {
        self.frames[n].store(frame.map_or(0, |frame| frame.0 + 1), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn used(&self) -> u128 {
        let [low, high] = &self.used;
        u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64
    }

    #[inline]
    pub(crate) fn set_used(&self, used: u128) {
        self.used[0].store(used as u64, Ordering::Relaxed);
        self.used[1].store((used >> 64) as u64, Ordering::Relaxed);
    }

    /// Makes it one that has no frame and is in no list.
    pub(crate) fn clear(&self) {
        self.group.store(NO_GROUP, Ordering::Relaxed);
        (0..CHAIN_MAX).for_each(|n| self.set_frame(n, None));
    }

    /// Takes a slot, while other threads do so too. Returns whether it was free.
    pub(crate) fn take(&self, slot: usize) -> bool {
        let bit = 1 << (slot % 64);
        self.used[slot / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    #[inline]
    pub(crate) fn class(&self) -> usize {
        usize::from(self.class.load(Ordering::Relaxed))
    }

    pub(crate) fn set_class(&self, class: usize) {
        self.class.store(class as u16, Ordering::Relaxed);
    }

    /// Whether compaction is emptying it.
    #[inline]
    pub(crate) fn is_emptying(&self) -> bool {
        self.group.load(Ordering::Relaxed) == EMPTYING
    }

    /// The number of frames that the chain has now.
    pub(crate) fn frame_count(&self, class: &SizeClass) -> usize {
        (0..class.frames).filter(|n| self.frame(*n).is_some()).count()
    }

    /// The slots that lie wholly in present frames of the chain.
    #[inline]
    pub(crate) fn backed(&self, class: &SizeClass) -> u128 {
        let mut backed = class.all_slots();
        for (n, in_frame) in class.in_frame[..class.frames].iter().enumerate() {
            if self.frame(n).is_none() {
                backed &= !in_frame;
            }
        }
        backed
    }
}
