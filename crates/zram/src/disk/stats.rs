//! The statistics of a device.

/// What is there of packing and sharing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Density {
    /// Pages in extents.
    pub packed_pages: u64,
    /// Extents.
    pub extents: u64,
    /// Bytes of all extents.
    pub extent_bytes: u64,
    /// Bytes of extents for pages that have left them.
    pub wasted_bytes: u64,
    /// Pages that name an object which others may name, too; not those in extents.
    pub shared_pages: u64,
    /// The objects that they name.
    pub shared_objects: u64,
    /// The bytes of the pool that they would take more, had each an object of its own.
    pub saved_bytes: u64,
}

/// A snapshot of the statistics of a device. While it is not initialised, all are zero except
/// settings.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// The size of the device in bytes; 0 while it is not initialised.
    pub disksize: u64,
    /// The codec of new objects.
    pub algorithm: &'static str,
    /// The number of streams of its primary codec, or the limit if that is lower. While the device
    /// is not initialised: the default number.
    pub streams: u64,
    /// Pages with contents, same-filled ones among them.
    pub pages_stored: u64,
    /// The uncompressed size of `pages_stored` in bytes.
    pub orig_bytes: u64,
    /// Bytes of all objects.
    pub compressed_bytes: u64,
    /// Memory of the frames allocated to the pool, in bytes. The kernel's name is mem_used_total.
    pub pool_bytes: u64,
    /// Memory of the pool's own structures, in bytes: descriptors of zspages. The kernel has
    /// similar structures and does not count them.
    pub overhead_bytes: u64,
    /// The peak of `pool_bytes` since the last reset of the peak.
    pub pool_bytes_peak: u64,
    /// Memory of the slot table, in bytes.
    pub metadata_bytes: u64,
    /// The limit of `pool_bytes`; 0 for no limit.
    pub mem_limit: u64,
    /// Pages filled with one eight-byte pattern, zero-filled pages among them.
    pub same_filled_pages: u64,
    /// Zero-filled pages.
    pub zero_pages: u64,
    /// Pages stored uncompressed because they did not shrink.
    pub huge_pages: u64,
    /// Pages stored uncompressed since the device was initialised.
    pub huge_pages_since: u64,
    /// Frames freed by compaction since the device was initialised.
    pub pages_compacted: u64,
    /// Pages read since the device was initialised.
    pub num_reads: u64,
    /// Pages written since the device was initialised.
    pub num_writes: u64,
    /// Page reads that failed.
    pub failed_reads: u64,
    /// Page writes that failed.
    pub failed_writes: u64,
    /// Requests that passed the end of the device.
    pub invalid_io: u64,
    /// Pages emptied by discards.
    pub notify_free: u64,
    /// Pages that are on the backing device now.
    pub backed_pages: u64,
    /// Pages read from the backing device.
    pub backed_reads: u64,
    /// Pages written to the backing device.
    pub backed_writes: u64,
    /// Pages whose contents could not be recovered after the death of a process. A read of them
    /// fails until they are written or discarded.
    pub lost_pages: u64,
}
