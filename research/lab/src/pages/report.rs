//! The results of a run, and their picture.

use serde::Serialize;
use serde_json::{Map, Value, json};
use units::PAGE_SIZE;

use super::contest::{Contestant, Round};
use super::target::Figures;
use super::work::Speed;
use crate::level::default_level;
use crate::plot::Bars;
use crate::statistics::{median, median_of};

/// The results of one target. Each figure is the median of the rounds.
#[derive(Serialize)]
pub struct Outcome {
    target: String,
    algorithm: String,
    level: Option<i32>,
    threads: usize,
    rounds: usize,
    pages: usize,
    verified_pages: u64,
    store: Speed,
    overwrite: Speed,
    load: Speed,
    reload: Speed,
    codec: Codec,
    store_over_codec: Option<f64>,
    load_over_codec: Option<f64>,
    #[serde(flatten)]
    figures: Figures,
    rss_growth_bytes: Option<u64>,
    codec_bytes: Option<u64>,
    pool_over_compressed: Option<f64>,
    rss_over_pool_and_metadata: Option<f64>,
    orig_over_compressed: Option<f64>,
    /// The figures before all pages were stored again.
    after_first_store: Figures,
    cpu: Cpu,
    samples: Samples,
}

/// Nanoseconds for a page in each round; medians and spreads come from these. A pass and the
/// codec's pass next to it have the same index.
#[derive(Serialize)]
struct Samples {
    store: Vec<f64>,
    overwrite: Vec<f64>,
    load: Vec<f64>,
    reload: Vec<f64>,
    /// Empty if the codec is not one of ours.
    compress: Vec<f64>,
    decompress: Vec<f64>,
    /// Megabytes (10^6 bytes) a second of all threads.
    store_mb_per_s: Vec<f64>,
    overwrite_mb_per_s: Vec<f64>,
    reload_mb_per_s: Vec<f64>,
}

impl Samples {
    fn new(rounds: &[Round]) -> Samples {
        let ns = |of: fn(&Round) -> Option<Speed>| -> Vec<f64> {
            rounds.iter().filter_map(|round| Some(of(round)?.ns_per_page)).collect()
        };
        let mb = |of: fn(&Round) -> Speed| -> Vec<f64> {
            rounds.iter().map(|round| of(round).mb_per_s).collect()
        };
        Samples {
            store: ns(|r| Some(r.store)),
            overwrite: ns(|r| Some(r.overwrite)),
            load: ns(|r| Some(r.load)),
            reload: ns(|r| Some(r.reload)),
            compress: ns(|r| r.compress),
            decompress: ns(|r| r.decompress),
            store_mb_per_s: mb(|r| r.store),
            overwrite_mb_per_s: mb(|r| r.overwrite),
            reload_mb_per_s: mb(|r| r.reload),
        }
    }
}

/// The figures by the threads' CPU time. They help where other programs take the CPU away, and the
/// target does all its work in the calling thread.
#[derive(Serialize)]
struct Cpu {
    store_ns: Option<f64>,
    overwrite_ns: Option<f64>,
    reload_ns: Option<f64>,
    compress_ns: Option<f64>,
    decompress_ns: Option<f64>,
    store_over_codec: Option<f64>,
    load_over_codec: Option<f64>,
}

impl Cpu {
    fn new(rounds: &[Round]) -> Cpu {
        let ns = |of: fn(&Round) -> Option<Speed>| {
            median_of(rounds.iter().map(|round| of(round)?.cpu_ns_per_page))
        };
        let (overwrite_ns, reload_ns) = (ns(|r| Some(r.overwrite)), ns(|r| Some(r.reload)));
        let (compress_ns, decompress_ns) = (ns(|r| r.compress), ns(|r| r.decompress));
        let ratio = |part: Option<f64>, whole: Option<f64>| Some(part? / whole?);
        Cpu {
            store_ns: ns(|r| Some(r.store)),
            overwrite_ns,
            reload_ns,
            compress_ns,
            decompress_ns,
            store_over_codec: ratio(overwrite_ns, compress_ns),
            load_over_codec: ratio(reload_ns, decompress_ns),
        }
    }
}

#[derive(Serialize)]
struct Codec {
    compress_ns: Option<f64>,
    decompress_ns: Option<f64>,
}

impl Outcome {
    /// Makes the outcome from a contestant's rounds, of which there is at least one.
    pub fn new(
        contestant: &Contestant,
        level: Option<i32>,
        pages: usize,
        threads: usize,
    ) -> Outcome {
        let rounds = &contestant.rounds;
        let speed = |of: fn(&Round) -> Speed| Speed {
            ns_per_page: median(rounds.iter().map(|round| of(round).ns_per_page)),
            mb_per_s: median(rounds.iter().map(|round| of(round).mb_per_s)),
            cpu_ns_per_page: None,
        };
        let ns = |of: fn(&Round) -> Option<Speed>| {
            median_of(rounds.iter().map(|round| of(round).map(|speed| speed.ns_per_page)))
        };
        let bytes = |of: &dyn Fn(&Round) -> Option<u64>| {
            let median = median_of(rounds.iter().map(|round| of(round).map(|bytes| bytes as f64)));
            median.map(|bytes| bytes as u64)
        };
        let figures = |of: fn(&Round) -> Figures| Figures {
            orig: bytes(&|round| of(round).orig),
            compressed: bytes(&|round| of(round).compressed),
            pool: bytes(&|round| of(round).pool),
            metadata: bytes(&|round| of(round).metadata),
        };
        let codec = Codec { compress_ns: ns(|r| r.compress), decompress_ns: ns(|r| r.decompress) };
        let (overwrite, reload) = (speed(|r| r.overwrite), speed(|r| r.reload));
        let after_first_store = figures(|r| r.first_figures);
        let figures = figures(|r| r.figures);
        let growth = bytes(&|round| round.growth);
        let ratio = |part: Option<u64>, whole: Option<u64>| {
            Some(part? as f64 / whole.filter(|&whole| whole > 0)? as f64)
        };
        let held = figures.pool.zip(figures.metadata).map(|(pool, metadata)| pool + metadata);
        Outcome {
            target: contestant.kind.name(),
            algorithm: contestant.algorithm.clone(),
            level: level.or(default_level(&contestant.algorithm)),
            threads,
            rounds: rounds.len(),
            pages,
            verified_pages: rounds.iter().map(|round| round.verified).min().unwrap_or(0),
            store: speed(|r| r.store),
            overwrite,
            load: speed(|r| r.load),
            reload,
            store_over_codec: codec.compress_ns.map(|codec| overwrite.ns_per_page / codec),
            load_over_codec: codec.decompress_ns.map(|codec| reload.ns_per_page / codec),
            codec,
            figures,
            rss_growth_bytes: growth,
            codec_bytes: contestant.codec_bytes,
            pool_over_compressed: ratio(figures.pool, figures.compressed),
            rss_over_pool_and_metadata: ratio(growth, held),
            orig_over_compressed: ratio(figures.orig, figures.compressed),
            after_first_store,
            cpu: Cpu::new(rounds),
            samples: Samples::new(rounds),
        }
    }

    /// The passes with their nanoseconds for a page.
    fn passes(&self) -> [(&'static str, f64); 4] {
        [
            ("store", self.store.ns_per_page),
            ("overwrite", self.overwrite.ns_per_page),
            ("load", self.load.ns_per_page),
            ("reload", self.reload.ns_per_page),
        ]
    }
}

/// The first outcome as one object, with the others and their ratios in `compare`.
pub fn json(outcomes: &[Outcome]) -> serde_json::Result<Value> {
    let Some((main, others)) = outcomes.split_first() else { return Ok(Value::Null) };
    let mut object = serde_json::to_value(main)?;
    if !others.is_empty() {
        let compare = others.iter().map(|other| {
            let mut value = serde_json::to_value(other)?;
            insert(&mut value, "ns_over_main", ratios(other, main));
            Ok(value)
        });
        let compare: serde_json::Result<Vec<Value>> = compare.collect();
        insert(&mut object, "compare", json!(compare?));
    }
    Ok(object)
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object {
        map.insert(key.to_owned(), value);
    }
}

/// The ratio of `other`'s time to `main`'s, for each pass.
fn ratios(other: &Outcome, main: &Outcome) -> Value {
    let both = other.passes().into_iter().zip(main.passes());
    let map: Map<String, Value> =
        both.map(|((name, other), (_, main))| (name.to_owned(), json!(other / main))).collect();
    Value::Object(map)
}

/// Bars of the passes of each target and of the bare codec.
pub fn bars(outcomes: &[Outcome]) -> Bars {
    let groups = ["overwrite", "reload"].map(str::to_owned).to_vec();
    let mut series: Vec<(String, Vec<f64>)> = Vec::new();
    for outcome in outcomes {
        let values = vec![outcome.overwrite.ns_per_page, outcome.reload.ns_per_page];
        series.push((format!("{} {}", outcome.target, outcome.algorithm), values));
        let (compress, decompress) = (outcome.codec.compress_ns, outcome.codec.decompress_ns);
        if let Some(values) = compress.zip(decompress) {
            let name = format!("{} alone, beside {}", outcome.algorithm, outcome.target);
            series.push((name, vec![values.0, values.1]));
        }
    }
    let threads = outcomes.first().map_or(0, |outcome| outcome.threads);
    let megabytes = outcomes.first().map_or(0, |outcome| outcome.pages * PAGE_SIZE / 1_000_000);
    Bars {
        title: format!("4 KiB pages of {megabytes} MB, {threads} thread(s)"),
        unit: "ns per page per thread".to_owned(),
        groups,
        series,
    }
}
