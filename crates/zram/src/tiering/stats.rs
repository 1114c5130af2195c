//! What the tiers of a device did.

use alloc::vec::Vec;

/// What the tiers of a device did since it got its size.
#[derive(Clone, Debug, Default)]
pub struct TierStats {
    /// Tier by tier, the hot one first.
    pub tiers: Vec<TierCounts>,
    /// Passes over all pages.
    pub passes: u64,
    /// Times that memory was put together.
    pub compactions: u64,
    /// CPU time of all this, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes written to the backing device.
    pub written_bytes: u64,
    /// Tries to write to it that failed.
    pub failed_writes: u64,
}

/// What is known of a tier.
#[derive(Clone, Debug, Default)]
pub struct TierCounts {
    /// Its name.
    pub name: &'static str,
    /// The age in seconds at which pages move there now; `None` if they do not.
    pub age: Option<u32>,
    /// Pages that were there in the last whole pass.
    pub pages: u64,
    /// Pages that moved there, and the bytes that this saved.
    pub moved: u64,
    /// See `moved`.
    pub saved: u64,
    /// Pages that came up from there.
    pub raised: u64,
    /// Pages that were used too soon after their move there.
    pub too_soon: u64,
    /// Pages that were used later.
    pub late: u64,
}
