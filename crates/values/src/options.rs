//! What a store is made of, and what a call is told.

use alloc::{boxed::Box, sync::Arc};

use pagealloc::Frames;
use units::Cpu;
use zcomp::Compressor;

use crate::outcome::Evicted;

/// The sizes of a unit that are allowed, in bytes.
pub const UNITS: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Where a call is made, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// The CPU of the calling thread. A wrong one is slower.
    pub cpu: Cpu,
    /// The present second on a clock of the caller that never goes back.
    pub now: u32,
}

/// What a user is told of a value that left by itself.
pub type Tell = dyn Fn(&Evicted<'_>) + Send + Sync;

/// What a store takes from its user.
pub struct Parts {
    /// The source of its frames. Memory is not provided ahead.
    pub frames: Arc<dyn Frames>,
    /// The CPUs that threads run on.
    pub cpus: usize,
    /// The codec of its units. lz4, lz4hc, zstd and deflate take units.
    pub codec: Arc<dyn Compressor>,
    /// A number that nobody outside can guess: who knows it can make keys that are all in one
    /// bucket.
    pub seed: u64,
    /// The options.
    pub options: Options,
}

/// The options of a store.
pub struct Options {
    /// The most bytes of memory, 1 MiB at least: the frames of its objects, the index, and the
    /// table of groups. `None` for as many as there are.
    pub limit: Option<u64>,
    /// Bytes of a unit, one of [`UNITS`].
    pub unit: usize,
    /// Whether values are evicted at the limit, those first that were not read lately. Otherwise a
    /// store is refused then.
    pub evict: bool,
    /// Whether values of up to 1 KiB are compressed together.
    pub group: bool,
    /// How values that are not read are compressed once more. A store that another process left
    /// must have the same codec.
    pub recompress: Option<Recompress>,
    /// Called with each value that is evicted or whose life ended, when nobody finds it any more.
    /// Never called for those that are removed or replaced. The calling thread holds no lock.
    pub evicted: Option<Box<Tell>>,
}

/// How values that are not read are compressed once more, by [`crate::Values::upkeep`].
pub struct Recompress {
    /// The codec that does it: one that takes units.
    pub codec: Arc<dyn Compressor>,
    /// Seconds for which a value was not read. It may take twice as long.
    pub after: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limit: None,
            unit: 16 << 10,
            evict: true,
            group: true,
            recompress: None,
            evicted: None,
        }
    }
}

/// The options of a store of one value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PutOptions {
    /// Seconds after which the value is not found any more; `None` for never.
    pub ttl: Option<u32>,
}
