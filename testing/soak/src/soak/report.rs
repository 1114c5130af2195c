//! The result of a soak.

use anyhow::Result;
use serde::Serialize;
use units::human;

use super::admin::Acts;
use super::layout::Transport;
use super::watch::Sample;
use super::worker::Counts;

/// What the workers of a transport did.
#[derive(Clone, Serialize, Debug)]
pub struct Row {
    pub transport: Transport,
    pub workers: usize,
    #[serde(flatten)]
    pub counts: Counts,
    /// Clients that were killed.
    pub kills: u64,
}

/// All results.
#[derive(Clone, Serialize, Debug)]
pub struct Report {
    /// `soak`.
    pub command: &'static str,
    pub seed: u64,
    pub seconds: f64,
    /// Pages that were written, discarded, or read and compared.
    pub operations: u64,
    pub operations_per_second: f64,
    pub rows: Vec<Row>,
    /// Pages that were not what they should be. A soak ends at the first.
    pub wrong: u64,
    pub lost: u64,
    /// Operations of backing devices that failed.
    pub faults: u64,
    pub kills: u64,
    pub acts: Acts,
    /// The most that the server had in the second third of the run, and in the last one; null for
    /// a short run.
    pub second_third: Option<Sample>,
    pub last_third: Option<Sample>,
}

impl Report {
    /// Prints it.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn show(&self, json: bool) -> Result<()> {
        match json {
            true => println!("{}", serde_json::to_string_pretty(self)?),
            false => print!("{}", self.text()),
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let Counts { read, written, discarded, refused, settled } = row.counts;
            text += &format!(
                "{:8} {} workers: {read} pages read, {written} written, {discarded} discarded, \
                 {refused} refused, {settled} settled; {} kills\n",
                row.transport.name(),
                row.workers,
                row.kills
            );
        }
        let Report { operations, seconds, operations_per_second, faults, kills, acts, .. } = self;
        text += &format!(
            "\n{operations} operations on pages in {seconds:.0} s ({operations_per_second:.0} a \
             second): {} wrong, {} lost\n{faults} operations of backing devices failed; {kills} \
             clients were killed\n",
            self.wrong, self.lost
        );
        text += &format!(
            "{} pages written back in {} runs; {} recompressions, {} compactions, {} resizes, {} \
             changes of codecs, {} of limits; {} of these refused\n",
            acts.pages_written_back,
            acts.writebacks,
            acts.recompressions,
            acts.compactions,
            acts.resizes,
            acts.codec_changes,
            acts.limits,
            acts.refused
        );
        match (self.second_third, self.last_third) {
            (Some(before), Some(after)) => {
                text += &format!(
                    "the server had at most {} of memory, {} descriptors, {} threads in the second \
                     third, and {}, {}, {} in the last\n",
                    human(before.rss),
                    before.descriptors,
                    before.threads,
                    human(after.rss),
                    after.descriptors,
                    after.threads
                );
            }
            _ => text += "too short to tell whether the server grows\n",
        }
        text
    }
}
