//! The statistics of a pool.

/// A snapshot of the statistics of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PoolStats {
    /// Frames allocated by the page allocator.
    pub frames: u64,
    /// The most frames since the peak was last reset.
    pub frames_peak: u64,
    /// Objects stored.
    pub objects: u64,
    /// Zspages that have frames.
    pub zspages: u64,
    /// Bytes of the descriptors in use.
    pub overhead_bytes: u64,
    /// Frames that compaction has given back so far, less those that it took for the moved objects.
    pub frames_compacted: u64,
}

/// A snapshot of the statistics of a size class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassStats {
    /// Bytes of a slot.
    pub slot: usize,
    /// Frames of a complete chain.
    pub chain: usize,
    /// Slots in use.
    pub objects: u64,
    /// Free slots in frames that are allocated.
    pub holes: u64,
    /// Frames allocated.
    pub frames: u64,
    /// Zspages that have frames.
    pub zspages: u64,
}

/// Zspages by how many of the slots of a complete chain they use: up to 9 percent, up to 19 and so
/// on, 90 to 99, and all.
pub type Fullness = [u64; 11];

/// The size classes of a pool, the smallest slots first.
pub type Classes = alloc::vec::Vec<(ClassStats, Fullness)>;
