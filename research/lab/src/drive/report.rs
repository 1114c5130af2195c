//! The results of a run.

use anyhow::Result;
use serde_json::{Value, json};

use super::content::Content;
use super::modes::Workload;
use super::subject::{Setting, Subject};
use super::workers::Rate;
use crate::args::name_of;
use crate::statistics::{deviation, mean, median};

/// The plan of a run.
pub struct Plan {
    /// The workload of the threads.
    pub workload: Workload,
    /// The contents of the pages.
    pub content: Content,
    /// Numbers of threads, in the order of the command line.
    pub threads: Vec<usize>,
    /// Turns of each subject.
    pub repeat: usize,
    /// The subjects that take turns. The others are compared with the first.
    pub subjects: Vec<Subject>,
    /// The setting that all subjects share.
    pub setting: Setting,
    /// The CPUs of the threads.
    pub cpus: Vec<usize>,
}

/// The rates of all repetitions.
pub struct Report<'a> {
    plan: &'a Plan,
    /// By number of threads, mode and subject.
    samples: Vec<Vec<Rate>>,
}

/// Adds the figures of all repetitions to an object. `over_base` is the median of the ratios to the
/// base in the same repetition.
fn figures(mut all: Value, rates: &[Rate], base: &[Rate], of: fn(&Rate) -> f64) -> Value {
    let [samples, base] = [rates, base].map(|rates| rates.iter().map(of).collect::<Vec<f64>>());
    all["median"] = json!(median(samples.iter().copied()));
    all["mean"] = json!(mean(&samples));
    all["deviation"] = json!(deviation(&samples));
    all["over_base"] = json!(median(samples.iter().zip(&base).map(|(ours, base)| ours / base)));
    all["samples"] = json!(samples);
    all
}

impl Report<'_> {
    /// A report without figures.
    pub fn new(plan: &Plan) -> Report<'_> {
        let Plan { workload, threads, subjects, .. } = plan;
        let cells = threads.len() * workload.modes().len() * subjects.len();
        Report { plan, samples: vec![Vec::new(); cells] }
    }

    /// Adds a turn of a subject: the rate of each mode.
    pub fn add(&mut self, block: usize, subject: usize, rates: &[Rate]) {
        let subjects = self.plan.subjects.len();
        for (mode, rate) in rates.iter().enumerate() {
            self.samples[(block * rates.len() + mode) * subjects + subject].push(*rate);
        }
    }

    /// All results, after all turns.
    pub fn finished(&self, command: &str) -> Result<Value> {
        let Plan { workload, content, threads, repeat, subjects, setting, cpus } = self.plan;
        let line = |subject: &Subject| {
            let variants = subject.variants.as_ref();
            Ok(json!({
                "name": subject.name,
                "slots": variants.map(|variants| &variants.slots),
                "streams": variants.map(|variants| &variants.streams),
                "slot_bytes_per_page": subject.slot_bytes()?,
            }))
        };
        let (mut cells, mut summary) = (Vec::new(), Vec::new());
        let mut rows = self.samples.chunks(subjects.len());
        for threads in threads {
            for (mode, row) in workload.modes().into_iter().zip(&mut rows) {
                cells.extend(subjects.iter().zip(row).map(|(subject, rates)| {
                    let cell = json!({ "threads": threads, "mode": mode, "subject": subject.name });
                    let mut cell = figures(cell, rates, &row[0], |rate| rate.wall);
                    cell["cpu"] = figures(json!({}), rates, &row[0], |rate| rate.cpu);
                    cell
                }));
            }
            // The medians of each mode together.
            let of = &cells[cells.len() - workload.modes().len() * subjects.len()..];
            let all = |subject: usize, key: &str| -> Vec<Value> {
                of.iter().skip(subject).step_by(subjects.len()).map(|c| c[key].clone()).collect()
            };
            summary.extend(subjects.iter().enumerate().map(|(n, subject)| {
                json!({
                    "threads": threads,
                    "subject": subject.name,
                    "kb_per_s": all(n, "median"),
                    "over_base": all(n, "over_base"),
                })
            }));
        }
        Ok(json!({
            "command": command,
            "workload": name_of(&workload.kind),
            "content": content.name(),
            "algorithm": setting.algorithm,
            "block_bytes": workload.block(),
            // Bytes of each thread in the modes of iozone, else of the shared device.
            "area_bytes": workload.device_bytes(1),
            // Loops of a fio job, or pages of each thread on the small device.
            "laps": workload.repeats(),
            "repeat": repeat,
            "cpus": cpus.len(),
            "unit": "KB/s",
            "base": subjects[0].name,
            "subjects": subjects.iter().map(line).collect::<Result<Vec<Value>>>()?,
            "summary": summary,
            "cells": cells,
        }))
    }
}
