//! The results of a run.

use anyhow::Result;
use serde::Serialize;

use super::plan::Plan;
use super::subject::Through;
use super::workers::Rate;
use crate::statistics::{deviation, mean, median};

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
}
