//! The results of a run.

use serde_json::{Value, json};

use super::contest::{Contestant, Round};
use super::target::Figures;
use super::work::{Speed, Work};
use crate::statistics::{median, median_of};

/// A pass of a round. `None` for the bare codec where it is not one of ours.
type Pass = fn(&Round) -> Option<Speed>;

const STORE: Pass = |round| Some(round.store);
const OVERWRITE: Pass = |round| Some(round.overwrite);
const LOAD: Pass = |round| Some(round.load);
const RELOAD: Pass = |round| Some(round.reload);
const COMPRESS: Pass = |round| round.compress;
const DECOMPRESS: Pass = |round| round.decompress;

/// The results of one target. Each figure is the median of the rounds, of which there is at least
/// one. `cpu` has the figures by the threads' CPU time: they help where other programs take the CPU
/// away, and the target does all its work in the calling thread. `samples` has nanoseconds for a
/// page in each round; a pass and the codec's pass next to it have the same index.
pub fn outcome(contestant: &Contestant, work: &Work<'_>) -> Value {
    let rounds = &contestant.rounds;
    let samples = |of: Pass, value: fn(Speed) -> f64| -> Vec<f64> {
        rounds.iter().filter_map(|round| of(round).map(value)).collect()
    };
    let wall = |of: Pass| median_of(rounds.iter().map(|round| Some(of(round)?.ns_per_page)));
    let cpu = |of: Pass| median_of(rounds.iter().map(|round| of(round)?.cpu_ns_per_page));
    let speed = |of: Pass| {
        let mb_per_s = median(samples(of, |speed| speed.mb_per_s));
        json!({ "ns_per_page": wall(of), "mb_per_s": mb_per_s })
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
    let over = |part: Option<f64>, whole: Option<f64>| Some(part? / whole.filter(|it| *it > 0.0)?);
    let parts = |part: Option<u64>, whole: Option<u64>| {
        over(part.map(|bytes| bytes as f64), whole.map(|bytes| bytes as f64))
    };
    let Figures { orig, compressed, pool, metadata } = figures(|round| round.figures);
    let growth = bytes(&|round| round.growth);
    let held = pool.zip(metadata).map(|(pool, metadata)| pool + metadata);
    let (ns, mb) = (|speed: Speed| speed.ns_per_page, |speed: Speed| speed.mb_per_s);
    json!({
        "target": contestant.kind.name(),
        "algorithm": contestant.algorithm,
        "threads": work.threads(),
        "rounds": rounds.len(),
        "pages": work.pages(),
        "verified_pages": rounds.iter().map(|round| round.verified).min(),
        "store": speed(STORE),
        "overwrite": speed(OVERWRITE),
        "load": speed(LOAD),
        "reload": speed(RELOAD),
        "codec": { "compress_ns": wall(COMPRESS), "decompress_ns": wall(DECOMPRESS) },
        "store_over_codec": over(wall(OVERWRITE), wall(COMPRESS)),
        "load_over_codec": over(wall(RELOAD), wall(DECOMPRESS)),
        "orig_bytes": orig,
        "compressed_bytes": compressed,
        "pool_bytes": pool,
        "metadata_bytes": metadata,
        "rss_growth_bytes": growth,
        "codec_bytes": contestant.codec_bytes,
        "pool_over_compressed": parts(pool, compressed),
        "rss_over_pool_and_metadata": parts(growth, held),
        "orig_over_compressed": parts(orig, compressed),
        "after_first_store": figures(|round| round.first_figures),
        "cpu": {
            "store_ns": cpu(STORE),
            "overwrite_ns": cpu(OVERWRITE),
            "reload_ns": cpu(RELOAD),
            "compress_ns": cpu(COMPRESS),
            "decompress_ns": cpu(DECOMPRESS),
            "store_over_codec": over(cpu(OVERWRITE), cpu(COMPRESS)),
            "load_over_codec": over(cpu(RELOAD), cpu(DECOMPRESS)),
        },
        "samples": {
            "store": samples(STORE, ns),
            "overwrite": samples(OVERWRITE, ns),
            "load": samples(LOAD, ns),
            "reload": samples(RELOAD, ns),
            "compress": samples(COMPRESS, ns),
            "decompress": samples(DECOMPRESS, ns),
            "store_mb_per_s": samples(STORE, mb),
            "overwrite_mb_per_s": samples(OVERWRITE, mb),
            "reload_mb_per_s": samples(RELOAD, mb),
        },
    })
}

fn number(outcome: &Value, of: &str, key: &str) -> f64 {
    outcome[of][key].as_f64().unwrap_or(f64::NAN)
}

/// The first outcome as one object, with the others and the ratios of their times in `compare`.
pub fn compared(outcomes: &[Value]) -> Value {
    let Some((main, others)) = outcomes.split_first() else { return Value::Null };
    let mut all = main.clone();
    if !others.is_empty() {
        let beside = |other: &Value| {
            let mut other = other.clone();
            for pass in ["store", "overwrite", "load", "reload"] {
                let ratio = number(&other, pass, "ns_per_page") / number(main, pass, "ns_per_page");
                other["ns_over_main"][pass] = json!(ratio);
            }
            other
        };
        all["compare"] = others.iter().map(beside).collect();
    }
    all
}
