//! What a device tells of itself.

/// Statistics of a device, of the moment. All zero while it is not initialised, but for settings.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// The size of the device in bytes; 0 while it is not initialised.
    pub disksize: u64,
    /// The codec of new objects.
    pub algorithm: &'static str,
    /// How many streams its primary codec has, or may use if that is less; while it is not
    /// initialised, how many it would have if nobody asked for any number.
    pub streams: u64,
    /// Pages with contents, same-filled ones among them.
    pub pages_stored: u64,
    /// Their uncompressed size in bytes.
    pub orig_bytes: u64,
    /// Bytes of all objects.
    pub compressed_bytes: u64,
    /// Memory of the frames allocated to the pool, in bytes; what the kernel calls mem_used_total.
    pub pool_bytes: u64,
    /// Memory the pool takes to find objects in its frames, in bytes: descriptors of zspages and
    /// what compaction leaves behind. The kernel has the like and does not count it.
    pub overhead_bytes: u64,
    /// The most of it since the peak was last reset.
    pub pool_bytes_peak: u64,
    /// Memory taken by the slot table, in bytes.
    pub metadata_bytes: u64,
    /// The limit of `pool_bytes`, 0 for none.
    pub mem_limit: u64,
    /// Pages that are the same eight bytes over and over, zero-filled ones among them.
    pub same_filled_pages: u64,
    /// Zero-filled pages.
    pub zero_pages: u64,
    /// Pages stored as they are because they would not shrink.
    pub huge_pages: u64,
    /// Pages stored as they are since the device was initialised.
    pub huge_pages_since: u64,
    /// Frames freed by compaction since the device was initialised.
    pub pages_compacted: u64,
    /// Pages read.
    pub num_reads: u64,
    /// Pages written.
    pub num_writes: u64,
    /// Page reads that failed.
    pub failed_reads: u64,
    /// Page writes that failed.
    pub failed_writes: u64,
    /// Requests that passed the end of the device.
    pub invalid_io: u64,
    /// Pages given up by discards.
    pub notify_free: u64,
    /// Pages that are on the backing device now.
    pub backed_pages: u64,
    /// Pages read from the backing device.
    pub backed_reads: u64,
    /// Pages written to the backing device.
    pub backed_writes: u64,
}
