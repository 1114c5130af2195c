//! The results of `log`: runs, text and picture.

use anyhow::Result;
use segments::{Layout, Survivors};
use serde::Serialize;
use units::{PAGE_SIZE, human};

use super::replay::Counts;
use super::trace::Trace;
use crate::args::LogArgs;
use crate::density::Ages;
use crate::plot::Bars;
use crate::table::{table, text};

/// A dump under a load, on a device of some size. Counts are of the second half of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The dump.
    pub corpus: String,
    /// How pages age.
    pub ages: Ages,
    /// The most live bytes, in percent of the device.
    pub full_percent: u32,
    /// What survives cleaning goes to segments of its own.
    pub survivors_apart: bool,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Pages that were written back.
    pub written_pages: u64,
    /// Bytes of the compressed pages.
    pub object_bytes: u64,
    /// Bytes that were written for them: headers, objects, zeroes up to the next unit.
    pub new_bytes: u64,
    /// Bytes that cleaning wrote.
    pub copied_bytes: u64,
    /// Bytes that cleaning read.
    pub read_bytes: u64,
    /// Segments that were cleaned.
    pub cleaned_segments: u64,
    /// Segments that were punched, cleaned or empty by themselves.
    pub punched_segments: u64,
    /// All bytes written, over `object_bytes`.
    pub written_per_object_byte: f64,
    /// `copied_bytes` over all bytes written.
    pub cleaning_share: f64,
    /// All bytes written for a page that was written back.
    pub bytes_per_page: f64,
    /// What one block for each page writes, over `object_bytes`.
    pub block_per_object_byte: f64,
}

impl Run {
    /// The run of these counts.
    pub fn new(
        corpus: &str,
        ages: Ages,
        full_percent: u32,
        layout: Layout,
        trace: &Trace,
        counts: &Counts,
    ) -> Run {
        let all = (counts.new_bytes + counts.copied_bytes) as f64;
        let objects = trace.object_bytes as f64;
        let pages = trace.written as f64;
        Run {
            corpus: corpus.to_owned(),
            ages,
            full_percent,
            survivors_apart: layout.survivors == Survivors::Apart,
            device_bytes: layout.bytes,
            written_pages: trace.written,
            object_bytes: trace.object_bytes,
            new_bytes: counts.new_bytes,
            copied_bytes: counts.copied_bytes,
            read_bytes: counts.read_bytes,
            cleaned_segments: counts.cleaned,
            punched_segments: counts.punched,
            written_per_object_byte: all / objects,
            cleaning_share: counts.copied_bytes as f64 / all,
            bytes_per_page: all / pages,
            block_per_object_byte: pages * PAGE_SIZE as f64 / objects,
        }
    }

    fn load(&self) -> String {
        format!("{:?}", self.ages).to_lowercase()
    }
}

/// All results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `log`.
    pub command: &'static str,
    /// The codec.
    pub algorithm: String,
    /// The pages of the disk.
    pub pages: u32,
    /// Seconds of the lab's clock.
    pub seconds: u32,
    /// Seconds until a page is written back.
    pub idle_seconds: u32,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// The seed of all that is drawn at random.
    pub seed: u64,
    /// The runs.
    pub runs: Vec<Run>,
}

impl Report {
    /// Prints the results, and draws them if the command line asks for a picture.
    ///
    /// # Errors
    /// The picture cannot be written.
    pub fn show(&self, args: &LogArgs) -> Result<()> {
        if let Some(path) = &args.plot {
            self.picture().write(path)?;
        }
        match args.json {
            true => println!("{}", serde_json::to_string_pretty(self)?),
            false => print!("{}", self.text()),
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut table = table([
            "corpus",
            "ages",
            "survivors",
            "full %",
            "device",
            "pages",
            "object",
            "bytes/page",
            "block",
            "written/object",
            "block",
            "cleaning %",
            "cleaned",
            "punched",
        ]);
        for run in &self.runs {
            table.add_row([
                run.corpus.clone(),
                run.load(),
                if run.survivors_apart { "apart" } else { "together" }.to_owned(),
                run.full_percent.to_string(),
                human(run.device_bytes).to_string(),
                run.written_pages.to_string(),
                format!("{:.0}", run.object_bytes as f64 / run.written_pages as f64),
                format!("{:.0}", run.bytes_per_page),
                PAGE_SIZE.to_string(),
                format!("{:.3}", run.written_per_object_byte),
                format!("{:.3}", run.block_per_object_byte),
                format!("{:.1}", run.cleaning_share * 100.0),
                run.cleaned_segments.to_string(),
                run.punched_segments.to_string(),
            ]);
        }
        text(table, &[0, 1, 2])
    }

    /// A group for each dump and kind of ages: each fullness, and one block for each page.
    fn picture(&self) -> Bars {
        let mut groups: Vec<String> = Vec::new();
        let mut series: Vec<(String, Vec<f64>)> = Vec::new();
        let mut add = |name: String, value| match series.iter_mut().find(|(it, _)| *it == name) {
            Some((_, values)) => values.push(value),
            None => series.push((name, vec![value])),
        };
        for run in self.runs.iter().filter(|run| run.survivors_apart) {
            let group = format!("{} {}", run.corpus, run.load());
            if groups.last() != Some(&group) {
                groups.push(group);
                add("a block for each page".to_owned(), run.block_per_object_byte);
            }
            add(format!("{}% full", run.full_percent), run.written_per_object_byte);
        }
        let title = "Bytes written for each byte of a compressed page".to_owned();
        Bars { title, unit: "bytes".to_owned(), groups, series }
    }
}
