//! The tiers of a disk, and how pages are compressed in them.

use crate::Tier;

/// The tiers, the hot one first. The slowest reads are those of 99 in 100 pages of real programs,
/// with room for slower machines.
pub const TIERS: [Tier; 4] = [
    Tier { name: "hot", slowest_read: 0, worth: 0, on_device: false },
    Tier { name: "warm", slowest_read: 20, worth: 64, on_device: false },
    Tier { name: "cold", slowest_read: 40, worth: 64, on_device: false },
    Tier { name: "out", slowest_read: 1000, worth: 1024, on_device: true },
];
/// See [`TIERS`].
pub const WARM: usize = 1;
/// See [`TIERS`].
pub const COLD: usize = 2;
/// See [`TIERS`]: the tiers before it are in memory.
pub const OUT: usize = 3;

/// The priority of the codec of the warm tier.
pub const WARM_PRIORITY: u8 = 1;
/// The codec of the warm tier, if the device has no other, and its level.
pub const WARM_CODEC: (&str, i32) = ("zstd", 1);
