//! What a run has shown: as a table, as JSON, and as a picture.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::Experiment;
use crate::plot::Bars;
use crate::statistics::{deviation, mean, median};

/// Which figure of a cell a table shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// The median of the repetitions.
    Median,
    /// Their mean.
    Mean,
}

/// All of it.
#[derive(Serialize)]
pub struct Report {
    command: &'static str,
    workload: &'static str,
    content: String,
    through: &'static str,
    algorithm: String,
    kernel_algorithm: Option<String>,
    block_bytes: usize,
    /// Of each thread in the modes of iozone, else of the device that all share.
    area_bytes: usize,
    /// Loops of a job of fio, or pages of each thread on the small device.
    laps: Option<u32>,
    repeat: usize,
    cpus: usize,
    unit: &'static str,
    base: String,
    subjects: Vec<Line>,
    cells: Vec<Cell>,
    #[serde(skip)]
    described: String,
    #[serde(skip)]
    threads: Vec<usize>,
    #[serde(skip)]
    modes: Vec<&'static str>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    slots: Option<String>,
    streams: Option<String>,
    counters: Option<String>,
    slot_bytes_per_page: Option<f64>,
}

/// One figure of the table.
#[derive(Serialize)]
struct Cell {
    workload: &'static str,
    content: String,
    through: &'static str,
    threads: usize,
    mode: &'static str,
    subject: String,
    median: f64,
    mean: f64,
    deviation: f64,
    over_base: f64,
    samples: Vec<f64>,
}

impl Report {
    /// Without figures.
    ///
    /// # Errors
    /// A subject's, when it is asked what it takes for a page.
    pub fn new(command: &'static str, experiment: &Experiment) -> Result<Report> {
        let Experiment { workload, content, threads, subjects, setting, .. } = experiment;
        let mut lines = Vec::new();
        for subject in subjects {
            let variants = subject.ours.as_ref().map(|ours| &ours.variants);
            lines.push(Line {
                name: subject.name.clone(),
                slots: variants.map(|variants| variants.slots.clone()),
                streams: variants.map(|variants| variants.streams.clone()),
                counters: variants.map(|variants| variants.counters.clone()),
                slot_bytes_per_page: subject.slot_bytes()?,
            });
        }
        let through = |name: &str| match name {
            "kernel" => super::Through::Device.name(),
            _ => setting.through.name(),
        };
        let mut cells = Vec::new();
        for &threads in threads {
            for mode in workload.modes() {
                cells.extend(subjects.iter().map(|subject| Cell {
                    workload: workload.name(),
                    content: content.name(),
                    through: through(&subject.name),
                    threads,
                    mode,
                    subject: subject.name.clone(),
                    median: 0.0,
                    mean: 0.0,
                    deviation: 0.0,
                    over_base: 0.0,
                    samples: Vec::new(),
                }));
            }
        }
        Ok(Report {
            command,
            workload: workload.name(),
            content: content.name(),
            through: setting.through.name(),
            algorithm: setting.algorithm.clone(),
            kernel_algorithm: setting.kernel.as_ref().map(|(_, algorithm)| algorithm.clone()),
            block_bytes: workload.block(),
            area_bytes: workload.device_bytes(1),
            laps: workload.repeats(),
            repeat: experiment.repeat,
            cpus: experiment.cpus.len(),
            unit: "KB/s",
            base: subjects.first().map(|subject| subject.name.clone()).unwrap_or_default(),
            subjects: lines,
            cells,
            described: content.describe(),
            threads: threads.clone(),
            modes: workload.modes(),
        })
    }

    /// A subject's turn: KB/s of each mode.
    pub fn add(&mut self, threads: usize, subject: usize, rates: &[f64]) {
        for (mode, rate) in rates.iter().enumerate() {
            if let Some(index) = self.index(threads, mode, subject) {
                self.cells[index].samples.push(*rate);
            }
        }
    }

    /// All turns are over.
    #[must_use]
    pub fn finished(mut self) -> Report {
        let step = self.subjects.len().max(1);
        for cells in self.cells.chunks_mut(step) {
            let base = cells[0].samples.clone();
            for cell in cells {
                cell.median = median(cell.samples.iter().copied());
                cell.mean = mean(&cell.samples);
                cell.deviation = deviation(&cell.samples);
                let ratios = cell.samples.iter().zip(&base).map(|(ours, base)| ours / base);
                cell.over_base = median(ratios);
            }
        }
        self
    }

    fn index(&self, threads: usize, mode: usize, subject: usize) -> Option<usize> {
        let block = self.threads.iter().position(|&other| other == threads)?;
        Some((block * self.modes.len() + mode) * self.subjects.len() + subject)
    }

    fn cell(&self, threads: usize, mode: usize, subject: usize) -> Option<&Cell> {
        self.cells.get(self.index(threads, mode, subject)?)
    }

    /// For people to read: as the seed of the experiment, with a deviation and a ratio beside.
    pub fn table(&self, figure: Figure) -> String {
        let each = if self.workload == "modes" { "for each thread" } else { "for all threads" };
        let what = if figure == Figure::Mean { "means" } else { "medians" };
        let kernels = self.kernel_algorithm.as_ref();
        let mut text = format!(
            "{}, {}, blocks of {}, {} {each}, {}{}\n{} of {} repetition(s) in KB/s, their standard \
             deviation, and the ratio to {}\n",
            self.workload,
            self.described,
            units::human(self.block_bytes as u64),
            units::human(self.area_bytes as u64),
            self.algorithm,
            kernels.map_or(String::new(), |algorithm| format!(", the kernel's {algorithm}")),
            what,
            self.repeat,
            self.base
        );
        for &threads in &self.threads {
            let over = if threads > self.cpus { ", more than CPUs" } else { "" };
            let _ = write!(text, "\n{threads} thread(s){over}, through a {}\n\n", self.through);
            let _ = write!(text, "{:15}", "Test");
            for line in &self.subjects {
                let _ = write!(text, " {:>23}", line.name);
            }
            text.push('\n');
            for (mode, name) in self.modes.iter().enumerate() {
                let _ = write!(text, "{name:15}");
                for subject in 0..self.subjects.len() {
                    let Some(cell) = self.cell(threads, mode, subject) else { continue };
                    let value = if figure == Figure::Mean { cell.mean } else { cell.median };
                    let percent = 100.0 * cell.deviation / cell.mean.max(1e-9);
                    let ratio = cell.over_base;
                    let _ = write!(text, " {value:>10.0} {percent:>5.1}% {ratio:>5.2}");
                }
                text.push('\n');
            }
        }
        let _ = write!(text, "\n{:15}", "bytes a slot");
        for line in &self.subjects {
            let bytes = line.slot_bytes_per_page.map_or("-".to_owned(), |b| b.to_string());
            let _ = write!(text, " {bytes:>23}");
        }
        text.push('\n');
        if self.through == "process" && self.kernel_algorithm.is_some() {
            text.push_str("\nthe kernel's figures include its block layer and system calls\n");
        }
        text
    }

    /// The ratio to the base, mode by mode, with the most threads.
    pub fn bars(&self) -> Bars {
        let threads = self.threads.iter().copied().max().unwrap_or(1);
        let values = |subject: usize| {
            let ratio = |mode| self.cell(threads, mode, subject).map_or(0.0, |cell| cell.over_base);
            (0..self.modes.len()).map(ratio).collect()
        };
        let series = self.subjects.iter().enumerate();
        Bars {
            title: format!(
                "{} through a {}, {}, {threads} thread(s)",
                self.workload, self.through, self.content
            ),
            unit: format!("times {}", self.base),
            groups: self.modes.iter().map(|&mode| mode.to_owned()).collect(),
            series: series.map(|(number, line)| (line.name.clone(), values(number))).collect(),
        }
    }

    /// Prints it, and draws it if that was asked for.
    ///
    /// # Errors
    /// The picture cannot be written.
    pub fn show(&self, args: &crate::args::DriveArgs, figure: Figure) -> Result<()> {
        if let Some(path) = &args.plot {
            self.bars().write(path)?;
        }
        if args.json {
            println!("{}", serde_json::to_string_pretty(self)?);
        } else {
            print!("{}", self.table(figure));
        }
        Ok(())
    }
}
