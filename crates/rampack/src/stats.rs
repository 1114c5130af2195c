//! What is said of memory.

/// What a disk has and takes.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskStats {
    /// Pages with contents, same-filled ones among them.
    pub pages: u64,
    /// Pages filled with one pattern of eight bytes.
    pub same_filled: u64,
    /// Pages that did not shrink.
    pub incompressible: u64,
    /// Bytes of all compressed pages.
    pub compressed_bytes: u64,
    /// Bytes of memory that the disk takes, tables among them.
    pub memory_bytes: u64,
    /// The most memory that its pages took so far.
    pub peak_bytes: u64,
    /// Pages that could not be read or written, and requests past the end.
    pub failed: u64,
    /// Its limit; 0 for none.
    pub mem_limit: u64,
}

impl DiskStats {
    pub(crate) fn of(stats: &zram::Stats) -> DiskStats {
        DiskStats {
            pages: stats.pages_stored,
            same_filled: stats.same_filled_pages,
            incompressible: stats.huge_pages,
            compressed_bytes: stats.compressed_bytes,
            memory_bytes: stats.pool_bytes + stats.overhead_bytes + stats.metadata_bytes,
            peak_bytes: stats.pool_bytes_peak,
            failed: stats.failed_reads + stats.failed_writes + stats.invalid_io,
            mem_limit: stats.mem_limit,
        }
    }
}

/// What a [`Rampack`](crate::Rampack) takes.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryStats {
    /// Bytes of memory in use for compressed data of disks and stores.
    pub used_bytes: u64,
    /// The most that they may be: [`Builder::memory`](crate::Builder::memory).
    pub limit_bytes: u64,
}
