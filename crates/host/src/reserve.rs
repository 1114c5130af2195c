//! Frames set aside, in memory already.
//!
//! # Why unsafe
//! Frames are touched so that the system has memory behind them.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use pagealloc::Frames;
use units::{Frame, Lane, Order, PAGE_SIZE};

/// What is lent at a time: 64 KiB.
const ORDER: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::ZERO,
};
const PIECE: u32 = 1 << 4;
/// Frames of the unit in which a zone gives memory back.
const BLOCK: u32 = 512;

/// Frames that nobody has, with memory behind them, for a time when there is no memory: they are
/// given to the zone then, which lends them to whoever asks. One piece of each block of 2 MiB
/// stays here: a block that is free as a whole would go back to the system.
pub struct Reserve {
    frames: Arc<dyn Frames>,
    lane: Lane,
    bytes: usize,
    held: Vec<Frame>,
    given: bool,
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes in reserve", self.held_bytes(), self.bytes)
    }
}

impl Reserve {
    /// Sets aside as much of `bytes` as there is.
    #[must_use]
    pub fn new(frames: Arc<dyn Frames>, lane: Lane, bytes: usize) -> Reserve {
        let mut reserve = Reserve { frames, lane, bytes, held: Vec::new(), given: false };
        // Never allocates after this.
        reserve.held.reserve_exact(bytes.div_ceil(PIECE as usize * PAGE_SIZE));
        reserve.refill();
        reserve
    }

    /// How much is set aside now, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.len() * PIECE as usize * PAGE_SIZE
    }

    /// How much is to be set aside, in bytes.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        self.bytes
    }

    /// Is it given away?
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.given
    }

    /// Gives it to the zone, but for the pieces that keep it there.
    pub fn give(&mut self) {
        self.given = true;
        self.held.sort_unstable_by_key(|frame| frame.0);
        let mut block = None;
        let (frames, lane) = (&self.frames, self.lane);
        self.held.retain(|frame| {
            let first = block.replace(frame.0 / BLOCK) != Some(frame.0 / BLOCK);
            if !first {
                frames.free(lane, *frame, ORDER);
            }
            first
        });
    }

    /// Sets aside again what was given, as far as there is memory.
    pub fn refill(&mut self) {
        self.given = false;
        while self.held_bytes() < self.bytes {
            let Some(frame) = self.frames.alloc(self.lane, ORDER) else { return };
            self.touch(frame);
            self.held.push(frame);
        }
    }

    fn touch(&self, frame: Frame) {
        let base: NonNull<u8> = self.frames.base();
        for n in 0..PIECE as usize {
            // SAFETY: the piece is lent to us, so its frames are readable and writable and nobody
            // else's; frame `n` lies `n * 4096` bytes above the base.
            unsafe {
                let at = base.as_ptr().add((frame.0 as usize + n) * PAGE_SIZE);
                at.write_volatile(0);
            }
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        for frame in self.held.drain(..) {
            self.frames.free(self.lane, frame, ORDER);
        }
    }
}
