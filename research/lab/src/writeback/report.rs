//! The results of `writeback`.

use serde::Serialize;
use zram::LogStats;

/// A dump in a layout. Times are medians of all rounds, with the least and the greatest.
#[derive(Clone, Debug, Serialize)]
pub struct Out {
    /// The dump.
    pub corpus: String,
    /// The layout.
    pub layout: &'static str,
    /// Pages that were written back.
    pub pages: u64,
    /// Bytes of the compressed pages.
    pub object_bytes: u64,
    /// Bytes that were written to the file.
    pub written_bytes: u64,
    /// The second over the first.
    pub written_per_object_byte: f64,
    /// MB of uncompressed pages that went out in a second.
    pub out_mb_per_second: f64,
    pub out_spread: [f64; 2],
    /// Microseconds for a page that is read alone.
    pub alone_us: f64,
    pub alone_spread: [f64; 2],
    /// Microseconds for a page of 32 that are read together.
    pub together_us: f64,
    pub together_spread: [f64; 2],
    /// Pages that were compared.
    pub verified_pages: u64,
}

/// A log whose pages are replaced.
#[derive(Clone, Debug, Serialize)]
pub struct Replaced {
    /// The dump.
    pub corpus: String,
    /// The share of the log that objects fill, in percent.
    pub full_percent: f64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of the compressed pages that were written back.
    pub object_bytes: u64,
    /// Bytes that were written to the file, with copies.
    pub written_bytes: u64,
    /// Bytes of objects that cleaning copied.
    pub copied_bytes: u64,
    /// Segments that were cleaned.
    pub cleaned_segments: u64,
    /// The written bytes over those of objects.
    pub written_per_object_byte: f64,
}

impl Replaced {
    /// What was written between two looks at a log.
    pub fn new(
        corpus: &str,
        full_percent: f64,
        log_bytes: u64,
        seen: &[(u64, LogStats); 2],
    ) -> Replaced {
        let [(objects_before, before), (objects, after)] = seen;
        let object_bytes = objects - objects_before;
        let written_bytes = after.written_bytes - before.written_bytes;
        Replaced {
            corpus: corpus.to_owned(),
            full_percent,
            log_bytes,
            object_bytes,
            written_bytes,
            copied_bytes: after.copied_bytes - before.copied_bytes,
            cleaned_segments: after.cleaned_segments - before.cleaned_segments,
            written_per_object_byte: written_bytes as f64 / object_bytes.max(1) as f64,
        }
    }
}

/// All results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `writeback`.
    pub command: &'static str,
    /// The codec.
    pub algorithm: String,
    /// Whether what is written is encrypted and authenticated.
    pub sealed: bool,
    /// Rounds.
    pub repeat: u32,
    /// The seed of all that is drawn at random.
    pub seed: u64,
    /// Out and back.
    pub out: Vec<Out>,
    /// Replaced.
    pub replaced: Vec<Replaced>,
}
