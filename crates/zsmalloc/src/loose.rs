//! Frames that the pool has and no zspage has. They are on their way to a zspage, or from one.
//!
//! A frame is allocated before the lock of a class is taken, and freed after it is released: the
//! page allocator may make a system call then, and no other thread waits for that.

use units::Frame;

use crate::class::CHAIN_MAX;

/// A few frames, in an array.
#[derive(Default)]
pub(crate) struct LooseFrames {
    frames: [Option<Frame>; CHAIN_MAX],
    count: usize,
}

impl LooseFrames {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a frame. The caller makes sure that there are fewer than `CHAIN_MAX`.
    pub(crate) fn push(&mut self, frame: Frame) {
        self.frames[self.count] = Some(frame);
        self.count += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        self.count = self.count.checked_sub(1)?;
        self.frames[self.count].take()
    }
}
