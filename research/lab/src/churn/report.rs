//! The results of `churn`.

use serde::Serialize;

/// The ratio that a churned pool may have to a fresh one.
pub const TARGET: f64 = 1.03;

/// The results of a round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// The number of the round, from 1 on.
    pub round: u32,
    /// Pages that were discarded and stored anew.
    pub replaced_pages: usize,
    /// Bytes of the pool when it was full again, before compaction.
    pub pool_bytes_before_compaction: u64,
    /// Bytes of the full pool after compaction.
    pub pool_bytes: u64,
    /// Bytes of the pool of a fresh disk with the same contents.
    pub fresh_pool_bytes: u64,
    /// Bytes of the fresh disk's pool after compaction.
    pub fresh_compacted_bytes: u64,
    /// `pool_bytes` over `fresh_pool_bytes`.
    pub ratio: f64,
    /// Bytes of the pool and the engine's tables.
    pub engine_bytes: u64,
    /// Growth of this process since before the disk was made.
    pub rss_growth_bytes: u64,
    /// Bytes of the pool after half of the pages were discarded and it was compacted.
    pub half_free_pool_bytes: u64,
    /// Bytes of the half-free pool and the engine's tables.
    pub half_free_engine_bytes: u64,
    /// Growth of this process at that time.
    pub half_free_rss_growth_bytes: u64,
}

impl Round {
    /// The larger excess of the process's growth over the engine's bytes in this round.
    pub fn rss_over_engine(&self) -> f64 {
        let ratio = |rss: u64, engine: u64| rss as f64 / engine.max(1) as f64;
        ratio(self.rss_growth_bytes, self.engine_bytes)
            .max(ratio(self.half_free_rss_growth_bytes, self.half_free_engine_bytes))
    }
}

/// All results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `churn`.
    pub command: &'static str,
    /// The design of the zone.
    pub zone: String,
    /// The name of the stored contents.
    pub content: String,
    /// The codec.
    pub algorithm: &'static str,
    /// Bytes of all pages.
    pub size_bytes: u64,
    /// The seed of all that is drawn at random.
    pub seed: u64,
    /// Bytes of the pool after the first filling.
    pub filled_pool_bytes: u64,
    /// Growth of this process after the first filling.
    pub filled_rss_growth_bytes: u64,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The largest ratio.
    pub worst_ratio: f64,
    /// The largest excess of the process's growth over the engine's bytes.
    pub worst_rss_over_engine: f64,
    /// The ratio that no round should exceed.
    pub target_ratio: f64,
    /// Whether every round stayed within `target_ratio`.
    pub within_target: bool,
    /// Bytes of the pool after all pages were discarded.
    pub emptied_pool_bytes: u64,
    /// Growth of this process after all pages were discarded.
    pub emptied_rss_growth_bytes: u64,
    /// Pages that were read after the last round and had the stored contents.
    pub verified_pages: usize,
}
