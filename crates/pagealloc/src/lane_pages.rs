//! A lane's own stock of single frames.

/// The most a stock can hold.
pub(crate) const MOST: usize = 64;

/// Frames, the last one given taken first: it's the one whose lines are still in the cache.
pub(crate) struct LanePages {
    count: usize,
    frames: [u32; MOST],
}

impl LanePages {
    pub const EMPTY: LanePages = LanePages { count: 0, frames: [0; MOST] };

    pub fn len(&self) -> usize {
        self.count
    }

    /// The frames, the one that's next to be taken last.
    pub fn frames(&self) -> &[u32] {
        &self.frames[..self.count]
    }

    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        Some(self.frames[self.count])
    }

    /// The caller sees to it that there is room.
    #[inline]
    pub fn push(&mut self, frame: u32) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    /// Hands the `n` frames that have been here longest to `receive`, or all if there are fewer.
    pub fn give_oldest(&mut self, n: usize, mut receive: impl FnMut(u32)) {
        let n = n.min(self.count);
        for frame in &self.frames[..n] {
            receive(*frame);
        }
        self.frames.copy_within(n..self.count, 0);
        self.count -= n;
    }
}
