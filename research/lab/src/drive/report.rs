//! The results of a run: as a table, as JSON, and as a picture.

use std::fmt::Write;
use std::iter;

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;

use super::plan::Plan;
use super::subject::Through;
use super::workers::{Clock, Rate};
use crate::args::DriveArgs;
use crate::plot::Bars;
use crate::statistics::{deviation, mean, median};
use crate::table;

/// The figure of a cell that a table shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// The median of the repetitions.
    Median,
    /// The mean of the repetitions.
    Mean,
}

/// All results of a run.
#[derive(Serialize)]
pub struct Report {
    command: &'static str,
    workload: &'static str,
    content: String,
    through: &'static str,
    algorithm: String,
    kernel_algorithm: Option<String>,
    block_bytes: usize,
    /// Bytes of each thread in the modes of iozone, else of the shared device.
    area_bytes: usize,
    /// Loops of a fio job, or pages of each thread on the small device.
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

/// One cell of the table.
#[derive(Serialize)]
struct Cell {
    workload: &'static str,
    content: String,
    through: &'static str,
    threads: usize,
    mode: &'static str,
    subject: String,
    #[serde(flatten)]
    wall: Figures,
    /// By CPU time. `None` where other processes do the work.
    cpu: Option<Figures>,
}

/// The figures of all repetitions.
#[derive(Clone, Default, Serialize)]
struct Figures {
    median: f64,
    mean: f64,
    deviation: f64,
    /// The median of the ratios to the base in the same repetition.
    over_base: f64,
    samples: Vec<f64>,
}

impl Figures {
    fn finish(&mut self, base: &[f64]) {
        self.median = median(self.samples.iter().copied());
        self.mean = mean(&self.samples);
        self.deviation = deviation(&self.samples);
        let ratios = self.samples.iter().zip(base).map(|(ours, base)| ours / base);
        self.over_base = median(ratios);
    }
}

impl Cell {
    fn by(&self, clock: Clock) -> &Figures {
        match (clock, &self.cpu) {
            (Clock::Cpu, Some(cpu)) => cpu,
            _ => &self.wall,
        }
    }
}

impl Report {
    /// A report without figures.
    ///
    /// # Errors
    /// A subject cannot report its bytes for a page.
    pub fn new(command: &'static str, plan: &Plan) -> Result<Report> {
        let Plan { workload, content, threads, repeat, subjects, setting, cpus } = plan;
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
            "kernel" => Through::Device.name(),
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
                    wall: Figures::default(),
                    cpu: (setting.through == Through::Process).then(Figures::default),
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
            repeat: *repeat,
            cpus: cpus.len(),
            unit: "KB/s",
            base: subjects.first().map(|subject| subject.name.clone()).unwrap_or_default(),
            subjects: lines,
            cells,
            described: content.describe(),
            threads: threads.clone(),
            modes: workload.modes(),
        })
    }

    /// Adds a subject's turn: the rate of each mode.
    pub fn add(&mut self, threads: usize, subject: usize, rates: &[Rate]) {
        for (mode, rate) in rates.iter().enumerate() {
            if let Some(index) = self.index(threads, mode, subject) {
                let cell = &mut self.cells[index];
                cell.wall.samples.push(rate.wall);
                if let Some(cpu) = &mut cell.cpu {
                    cpu.samples.push(rate.cpu);
                }
            }
        }
    }

    /// Completes the report after all turns.
    #[must_use]
    pub fn finished(mut self) -> Report {
        let step = self.subjects.len().max(1);
        for cells in self.cells.chunks_mut(step) {
            let wall = cells[0].wall.samples.clone();
            let cpu = cells[0].cpu.as_ref().map(|cpu| cpu.samples.clone()).unwrap_or_default();
            for cell in cells {
                cell.wall.finish(&wall);
                if let Some(figures) = &mut cell.cpu {
                    figures.finish(&cpu);
                }
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

    /// The results as text: the seed experiment's table, with a deviation and a ratio added.
    pub fn table(&self, figure: Figure, clock: Clock) -> String {
        let what = if figure == Figure::Mean { "means" } else { "medians" };
        let block = units::human(self.block_bytes as u64);
        let area = units::human(self.area_bytes as u64);
        let much = match (self.workload, self.laps) {
            ("fio", Some(laps)) => format!("{laps} loops over {area} that all threads share"),
            (_, Some(laps)) => format!("{laps} of them by each thread, all on the same {area}"),
            (_, None) => format!("{area} for each thread"),
        };
        let mut text =
            format!("{}: {}, blocks of {block}, {much}\n", self.workload, self.described);
        let kernels = self.kernel_algorithm.as_ref();
        let kernels = kernels.map_or(String::new(), |name| format!(", the kernel's {name}"));
        let cpu = if clock == Clock::Cpu { " by time on the CPU" } else { "" };
        let _ = writeln!(
            text,
            "{}{kernels}; KB/s{cpu}, {what} of {} repetition(s), standard deviation, times {}",
            self.algorithm, self.repeat, self.base
        );
        let process = self.through == Through::Process.name();
        let way = if process { "in process" } else { "through a block device" };
        for &threads in &self.threads {
            let over = if threads > self.cpus { ", more than CPUs" } else { "" };
            let _ = write!(text, "\n{threads} thread(s){over}, {way}\n\n");
            let mut table = self.headed();
            for (mode, name) in self.modes.iter().enumerate() {
                let cell = |subject| self.cell(threads, mode, subject);
                let figures = |cell: &Cell| {
                    let Figures { median, mean, deviation, over_base: ratio, .. } = *cell.by(clock);
                    let value = if figure == Figure::Mean { mean } else { median };
                    let percent = 100.0 * deviation / mean.max(1e-9);
                    format!("{value:.0} {percent:>5.1}% {ratio:>5.2}")
                };
                let cells =
                    (0..self.subjects.len()).map(|n| cell(n).map_or(String::new(), figures));
                table.add_row(iter::once((*name).to_owned()).chain(cells));
            }
            text.push_str(&table::text(table, &[0]));
        }
        let mut table = self.headed();
        let bytes = self.subjects.iter().map(|line| line.slot_bytes_per_page);
        let bytes = bytes.map(|bytes| bytes.map_or("-".to_owned(), |bytes| bytes.to_string()));
        table.add_row(iter::once("bytes a slot".to_owned()).chain(bytes));
        let _ = write!(text, "\n{}", table::text(table, &[0]));
        if process && self.kernel_algorithm.is_some() {
            text.push_str("\nthe kernel's figures include its block layer and system calls\n");
        }
        text
    }

    /// A table with the names of subjects as heads. Long names take two lines.
    fn headed(&self) -> Table {
        let long = self.subjects.iter().any(|line| line.name.contains(", "));
        let name = |name: &str| match name.split_once(", ") {
            Some((scheme, what)) => format!("{scheme},\n{what}"),
            None if long => format!("\n{name}"),
            None => name.to_owned(),
        };
        let names = self.subjects.iter().map(|line| name(&line.name));
        table::table(iter::once(name("Test")).chain(names))
    }

    /// Bars of the ratio to the base, mode by mode, with the most threads.
    pub fn bars(&self, clock: Clock) -> Bars {
        let threads = self.threads.iter().copied().max().unwrap_or(1);
        let values = |subject: usize| {
            let ratio = |mode| {
                self.cell(threads, mode, subject).map_or(0.0, |cell| cell.by(clock).over_base)
            };
            (0..self.modes.len()).map(ratio).collect()
        };
        let series = self.subjects.iter().enumerate();
        Bars {
            title: format!(
                "{}, {}, through {}, {threads} thread(s)",
                self.workload, self.content, self.through
            ),
            unit: format!("times {}", self.base),
            groups: self.modes.iter().map(|&mode| mode.to_owned()).collect(),
            series: series.map(|(number, line)| (line.name.clone(), values(number))).collect(),
        }
    }

    /// Prints the results, and draws them if the command line asks for a picture.
    ///
    /// # Errors
    /// The picture cannot be written.
    pub fn show(&self, args: &DriveArgs, figure: Figure) -> Result<()> {
        if let Some(path) = &args.plot {
            self.bars(args.clock).write(path)?;
        }
        if args.json {
            println!("{}", serde_json::to_string_pretty(self)?);
        } else {
            print!("{}", self.table(figure, args.clock));
        }
        Ok(())
    }
}
