//! The state of a CPU: a pcp list of single frames, and the pageblock that fills it.

/// The capacity of a pcp list.
pub(crate) const MOST: usize = 64;

/// The state of a CPU. It lies behind the CPU's own lock, on cache lines of its own.
#[derive(Default)]
pub(super) struct CpuState {
    pub pcp: PcpList,
    pub reserved: Option<Reserved>,
}

/// A pageblock that a CPU has reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reserved {
    pub block: u32,
    /// The first of its 512 frames that may have no memory; 512 if all have memory.
    pub dry_from: u32,
}

/// Frames, taken in last-in first-out order: the cache lines of the last frame are still in the
/// cache.
pub(super) struct PcpList {
    count: usize,
    frames: [u32; MOST],
}

impl Default for PcpList {
    fn default() -> PcpList {
        PcpList { count: 0, frames: [0; MOST] }
    }
}

impl PcpList {
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The frames; the next one to be taken is the last.
    pub fn frames(&self) -> &[u32] {
        &self.frames[..self.count]
    }

    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        let last = self.count.checked_sub(1)?;
        self.count = last;
        self.frames.get(last).copied()
    }

    /// Adds a frame. The caller makes sure that there is room.
    #[inline]
    pub fn push(&mut self, frame: u32) {
        self.frames[self.count] = frame;
        self.count += 1;
    }

    /// Up to `most` places behind the last frame. A caller that fills some calls [`PcpList::grew`].
    pub fn room(&mut self, most: usize) -> &mut [u32] {
        let end = (self.count + most).min(MOST);
        &mut self.frames[self.count..end]
    }

    /// Adds the first `frames` places of [`PcpList::room`] to the list.
    pub fn grew(&mut self, frames: usize) {
        self.count = (self.count + frames).min(MOST);
    }

    /// Reverses the order.
    pub fn reverse(&mut self) {
        self.frames[..self.count].reverse();
    }

    /// The `n` oldest frames, or all if there are fewer.
    pub fn oldest(&self, n: usize) -> &[u32] {
        &self.frames[..n.min(self.count)]
    }

    /// Removes the frames that [`PcpList::oldest`] returned.
    pub fn forget_oldest(&mut self, n: usize) {
        let n = n.min(self.count);
        self.frames.copy_within(n..self.count, 0);
        self.count -= n;
    }
}
