//! What is shown of it.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use units::human;

use crate::args::ChurnArgs;
use crate::plot::Bars;
use crate::table;

/// How much more than a fresh pool a churned one may take.
pub const TARGET: f64 = 1.03;

/// A round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// From 1 on.
    pub round: u32,
    /// Pages that were discarded and stored anew.
    pub replaced_pages: usize,
    /// Bytes of the pool when it was full again.
    pub pool_bytes_before_compaction: u64,
    /// And after compaction.
    pub pool_bytes: u64,
    /// What a fresh disk took for the same contents.
    pub fresh_pool_bytes: u64,
    /// And when that was compacted, too.
    pub fresh_compacted_bytes: u64,
    /// `pool_bytes` over `fresh_pool_bytes`.
    pub ratio: f64,
    /// The pool, and what the engine needs to find things in it.
    pub engine_bytes: u64,
    /// What this process has gained since before the disk was made.
    pub rss_growth_bytes: u64,
    /// The pool when half of the pages had been discarded, and it was compacted.
    pub half_free_pool_bytes: u64,
    /// With what the engine needs.
    pub half_free_engine_bytes: u64,
    /// What this process had gained then.
    pub half_free_rss_growth_bytes: u64,
}

impl Round {
    /// How much more this process had gained than the engine says it took, at worst.
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
    /// What was stored.
    pub content: String,
    /// By which codec.
    pub algorithm: &'static str,
    /// Bytes of all pages.
    pub size_bytes: u64,
    /// What was drawn at random.
    pub seed: u64,
    /// The pool after the first filling.
    pub filled_pool_bytes: u64,
    /// And what this process had gained.
    pub filled_rss_growth_bytes: u64,
    /// The rounds.
    pub rounds: Vec<Round>,
    /// The largest ratio.
    pub worst_ratio: f64,
    /// The most of this process's gain over what the engine says it has.
    pub worst_rss_over_engine: f64,
    /// What the ratio should not exceed.
    pub target_ratio: f64,
    /// Whether it never did.
    pub within_target: bool,
    /// The pool when all had been discarded.
    pub emptied_pool_bytes: u64,
    /// And what this process still had.
    pub emptied_rss_growth_bytes: u64,
    /// Pages that were read after the last round, and were what had been stored.
    pub verified_pages: usize,
}

impl Report {
    /// Prints it, and draws it if that is wanted.
    ///
    /// # Errors
    /// The picture cannot be written.
    pub fn show(&self, args: &ChurnArgs) -> Result<()> {
        if let Some(path) = &args.plot {
            self.picture().write(path)?;
        }
        match args.json {
            true => println!("{}", serde_json::to_string_pretty(self)?),
            false => print!("{}", self.text()),
        }
        Ok(())
    }

    fn picture(&self) -> Bars {
        let of = |name: &str, bytes: fn(&Round) -> u64| {
            let mega = self.rounds.iter().map(|round| bytes(round) as f64 / 1e6);
            (name.to_owned(), mega.collect())
        };
        Bars {
            title: format!("A pool after each round, on a zone called {}", self.zone),
            unit: "MB".to_owned(),
            groups: self.rounds.iter().map(|round| round.round.to_string()).collect(),
            series: vec![
                of("pool", |round| round.pool_bytes),
                of("fresh pool", |round| round.fresh_pool_bytes),
                of("RSS", |round| round.rss_growth_bytes),
                of("half free: pool", |round| round.half_free_pool_bytes),
                of("half free: RSS", |round| round.half_free_rss_growth_bytes),
            ],
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{} of pages ({}, {}) on a zone called {}; filled: pool {}, RSS +{}\n",
            human(self.size_bytes),
            self.content,
            self.algorithm,
            self.zone,
            human(self.filled_pool_bytes),
            human(self.filled_rss_growth_bytes),
        )?;
        let mut table = table::table([
            "round",
            "grown",
            "compacted",
            "fresh",
            "ratio",
            "engine",
            "RSS",
            "half: pool",
            "engine",
            "RSS",
        ]);
        for round in &self.rounds {
            table.add_row([
                round.round.to_string(),
                human(round.pool_bytes_before_compaction).to_string(),
                human(round.pool_bytes).to_string(),
                human(round.fresh_pool_bytes).to_string(),
                format!("{:.4}", round.ratio),
                human(round.engine_bytes).to_string(),
                human(round.rss_growth_bytes).to_string(),
                human(round.half_free_pool_bytes).to_string(),
                human(round.half_free_engine_bytes).to_string(),
                human(round.half_free_rss_growth_bytes).to_string(),
            ]);
        }
        text.push_str(&table::text(table, &[]));
        writeln!(
            text,
            "\nworst ratio {:.4} (at most {TARGET} wanted: {}); RSS at most {:.3} of the engine's\n\
             all discarded: pool {}, RSS +{}; {} pages were read and compared",
            self.worst_ratio,
            if self.within_target { "yes" } else { "NO" },
            self.worst_rss_over_engine,
            human(self.emptied_pool_bytes),
            human(self.emptied_rss_growth_bytes),
            self.verified_pages,
        )
    }
}
