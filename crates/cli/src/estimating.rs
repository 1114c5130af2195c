//! `rampack estimate`: what compression would save.

use std::collections::BTreeSet;
use std::fs;
use std::io::IsTerminal;

use control::{ControlError, Errno};
use estimate::{ByCodec, ByTier, Error, Image, Options, Process, Report, Source, Stored};
use host::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use units::human;

use crate::args;
use crate::table;
use crate::terminal::answer;
use service::failure::{failed, say};

/// `rampack estimate`.
///
/// # Errors
/// The error of a process, a control group or a file that was named and cannot be read; `EACCES` if
/// nothing may be read; the error of the file for the picture.
pub fn run(wanted: &args::Estimate) -> Result<(), ControlError> {
    let mut left_out = LeftOut::default();
    let sources = sources(wanted, &mut left_out)?;
    let seed = wanted.seed.unwrap_or_else(|| fastrand::u64(..));
    let options = Options { codecs: wanted.algorithm.clone(), sample: wanted.sample.bytes, seed };
    let bar = bar();
    // Of processes that were found, not named, some may end or may not be read.
    let sought = wanted.all || !wanted.cgroup.is_empty();
    let report = estimate::estimate(
        &sources,
        &options,
        &mut |error| left_out.add(&error, sought),
        &mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
        },
    );
    bar.finish_and_clear();
    let report = report.map_err(|error| told(&error))?;
    let are_refused = left_out.refused > 0;
    left_out.tell()?;
    if report.sources.is_empty() && are_refused {
        let message = "no process may be read; try as root";
        return Err(ControlError::new(Errno::EACCES, message));
    }
    if let Some(path) = &wanted.svg {
        let what = format!("cannot draw {}", path.display());
        let picture = estimate::svg(&report)
            .map_err(|error| ControlError::new(Errno::EIO, format!("{what}: {error}")))?;
        fs::write(path, picture).map_err(|error| failed(&what, &error))?;
    }
    let text = match wanted.json {
        true => format!("{:#}\n", json!(report)),
        false => tables(&report),
    };
    answer(text)
}

/// What could not be read.
#[derive(Default)]
struct LeftOut {
    /// Processes that were found, not named, and may not be read.
    refused: u32,
    /// The first other error.
    failed: Option<ControlError>,
}

impl LeftOut {
    /// A process that was `found` and ended meanwhile is not missed.
    fn add(&mut self, error: &Error, found: bool) {
        match found {
            true if error.is_refused() => self.refused += 1,
            true if error.is_gone() => {}
            _ => _ = self.failed.get_or_insert_with(|| told(error)),
        }
    }

    /// Tells of processes that were left out.
    ///
    /// # Errors
    /// The other error.
    fn tell(self) -> Result<(), ControlError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.refused > 0 {
            let processes = if self.refused == 1 { "process" } else { "processes" };
            say(&format!(
                "rampack: {} {processes} left out that this user may not read\n",
                self.refused
            ));
        }
        Ok(())
    }
}

fn sources(wanted: &args::Estimate, left_out: &mut LeftOut) -> Result<Vec<Source>, ControlError> {
    let mut sources = Vec::new();
    let mut pids = BTreeSet::new();
    for pid in &wanted.pid {
        if pids.insert(*pid) {
            let process = Process::open(*pid).map_err(|error| told(&error))?;
            if !process.has_memory().map_err(|error| told(&error))? {
                return Err(ControlError::invalid(format!(
                    "process {pid}, {}, has no memory to compress: it is a thread of the kernel, \
                     or has ended",
                    printable(process.name())
                )));
            }
            sources.push(Source::Process(process));
        }
    }
    let mut found = Vec::new();
    for group in &wanted.cgroup {
        found.extend(estimate::in_cgroup(group).map_err(|error| told(&error))?);
    }
    if wanted.all {
        found.extend(estimate::all().map_err(|error| told(&error))?);
    }
    for pid in found {
        if pids.insert(pid) {
            match Process::open(pid) {
                Ok(process) => sources.push(Source::Process(process)),
                Err(error) => left_out.add(&error, true),
            }
        }
    }
    if let Some(error) = left_out.failed.take() {
        return Err(error);
    }
    for path in &wanted.files {
        sources.push(Source::Image(Image::open(path).map_err(|error| told(&error))?));
    }
    Ok(sources)
}

fn told(error: &Error) -> ControlError {
    let mut what = error.what.clone();
    if error.is_refused() {
        what.push_str(", which takes root or the right to trace it");
    }
    failed(what, &error.error)
}

fn bar() -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template("reading {bar:40} {bytes} of {total_bytes}, {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// A table of sources, the most memory first, one of codecs and one of tiers.
fn tables(report: &Report) -> String {
    let codecs = &report.sum.codecs;
    let mut head: Vec<String> =
        ["PID", "NAME", "RESIDENT", "SAMPLED", "SAME", "DUPL"].map(String::from).to_vec();
    for codec in codecs {
        let name = codec.codec.to_uppercase();
        head.extend([name.clone(), format!("{name} FREES")]);
    }
    // The hot tier is the first algorithm.
    head.extend(["WARM", "WARM FREES", "COLD", "COLD FREES"].map(String::from));
    let mut all = vec![head];
    let mut sources: Vec<_> = report.sources.iter().collect();
    sources.sort_by_key(|it| std::cmp::Reverse(it.resident_bytes));
    for it in sources {
        let pid = it.pid.map_or("-".into(), |pid| pid.to_string());
        let mut row = vec![pid, printable(&it.name)];
        let parts = [it.same_filled, it.duplicates];
        row.extend(cells(it.resident_bytes, it.sampled_bytes, parts, forms(&it.codecs, &it.tiers)));
        all.push(row);
    }
    let sum = &report.sum;
    let mut row = vec!["ALL".into(), String::new()];
    let parts = [sum.same_filled, sum.duplicates];
    row.extend(cells(sum.resident_bytes, sum.sampled_bytes, parts, forms(codecs, &sum.tiers)));
    all.push(row);

    let head = ["ALGORITHM", "RATIO", "COMPRESS", "DECOMPRESS", "CPU FOR ALL"];
    let mut costs = vec![head.map(String::from).to_vec()];
    for ByCodec { codec, stored } in codecs {
        costs.push(vec![
            codec.clone(),
            format!("{:.2}", stored.ratio),
            us(stored.compression_us, stored.compression_error_us),
            us(stored.decompression_us, stored.decompression_error_us),
            format!("{:.1} s", stored.cpu_seconds),
        ]);
    }
    let head = ["IDLE WITH --AUTO", "RATIO", "FREES", "COMPRESS", "DECOMPRESS", "CPU FOR ALL"];
    let mut idle = vec![head.map(String::from).to_vec()];
    for ByTier { tier, stored } in &sum.tiers {
        idle.push(vec![
            (*tier).to_owned(),
            format!("{:.2}", stored.ratio),
            freed(stored),
            us(stored.compression_us, stored.compression_error_us),
            us(stored.decompression_us, stored.decompression_error_us),
            format!("{:.1} s", stored.cpu_seconds),
        ]);
    }
    let text = |rows: &[Vec<String>], names| table::text(rows, "  ", |n| n >= names);
    format!("{}\n{}\n{}", text(&all, 2), text(&costs, 1), text(&idle, 1))
}

/// What has a column in the table of sources.
fn forms<'a>(
    codecs: &'a [ByCodec],
    tiers: &'a [ByTier],
) -> impl Iterator<Item = &'a Stored> + use<'a> {
    let tiers = tiers.iter().filter(|it| it.tier != "hot").map(|it| &it.stored);
    codecs.iter().map(|it| &it.stored).chain(tiers)
}

/// Microseconds, and how far they may be off.
fn us(mean: f64, error: Option<f64>) -> String {
    match error {
        Some(error) => format!("{mean:.1} us ±{error:.1}"),
        None => format!("{mean:.1} us ±?"),
    }
}

fn freed(stored: &Stored) -> String {
    match stored.error_bytes {
        Some(0) => human(stored.freed_bytes).to_string(),
        Some(error) => format!("{} ±{}", human(stored.freed_bytes), human(error)),
        None => format!("{} ±?", human(stored.freed_bytes)),
    }
}

fn cells<'a>(
    resident: u64,
    sampled: u64,
    parts: [f64; 2],
    forms: impl Iterator<Item = &'a Stored>,
) -> Vec<String> {
    let mut cells = vec![human(resident).to_string(), human(sampled).to_string()];
    cells.extend(parts.map(|part| format!("{:.1}%", part * 100.0)));
    for stored in forms {
        cells.extend([format!("{:.2}", stored.ratio), freed(stored)]);
    }
    cells
}
