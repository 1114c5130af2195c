//! The results of `zone`: text, JSON and picture.

use std::fmt::Write;

use anyhow::Result;
use serde_json::{Map, Value, json};
use units::{PAGE_SIZE, human};

use super::plan::Plan;
use super::run::Run;
use super::workload::Workload;
use crate::args::ZoneArgs;
use crate::plot::Bars;
use crate::table;

/// All results.
pub struct Report {
    cpus: usize,
    repeat: usize,
    cycles: u32,
    give_back: bool,
    seed: u64,
    ping_pong_ns: Option<f64>,
    runs: Vec<Run>,
}

impl Report {
    /// A report of these runs.
    pub fn new(args: &ZoneArgs, plan: &Plan, ping_pong_ns: Option<f64>, runs: Vec<Run>) -> Report {
        let (repeat, cycles, seed) = (plan.repeat, plan.cycles, plan.seed);
        let (cpus, give_back) = (plan.cpus.len(), args.give_back);
        Report { cpus, repeat, cycles, give_back, seed, ping_pong_ns, runs }
    }

    /// Prints the results, and draws them if the command line asks for a picture.
    ///
    /// # Errors
    /// The picture cannot be written.
    pub fn show(&self, args: &ZoneArgs) -> Result<()> {
        if let Some(path) = &args.plot {
            self.picture().write(path)?;
        }
        match args.json {
            true => println!("{}", serde_json::to_string_pretty(&self.json()?)?),
            false => print!("{}", self.text()),
        }
        Ok(())
    }

    /// All results as one object. If there is only one run, its fields are also next to `runs`.
    fn json(&self) -> Result<Value> {
        let mut all = Map::new();
        if let [run] = &self.runs[..]
            && let Value::Object(fields) = serde_json::to_value(run)?
        {
            all.extend(fields);
        }
        let head = json!({
            "command": "zone",
            "dispatch": "Arc<dyn Frames>, as in the engine",
            "cpus": self.cpus,
            "line_transfer_ns": self.ping_pong_ns,
            "repeat": self.repeat,
            "cycles": self.cycles,
            "give_back": self.give_back,
            "seed": self.seed,
            "runs": self.runs,
        });
        if let Value::Object(head) = head {
            all.extend(head);
        }
        Ok(Value::Object(all))
    }

    /// The runs, grouped by situation.
    fn cells(&self) -> Vec<&[Run]> {
        self.runs
            .chunk_by(|one, other| (one.workload, one.threads) == (other.workload, other.threads))
            .collect()
    }

    fn picture(&self) -> Bars {
        let cells = self.cells();
        let mut designs: Vec<&'static str> = self.runs.iter().map(|run| run.design).collect();
        let mut seen = Vec::new();
        designs.retain(|name| {
            !seen.contains(name) && {
                seen.push(*name);
                true
            }
        });
        let of = |design: &'static str| {
            let pair = |cell: &&[Run]| {
                cell.iter().find(|run| run.design == design).map_or(0.0, |run| run.pair_ns)
            };
            (design.to_owned(), cells.iter().map(pair).collect())
        };
        let group = |cell: &&[Run]| format!("{} {}", cell[0].workload.name(), cell[0].threads);
        Bars {
            title: "Allocating and freeing a frame".to_owned(),
            unit: "ns of a thread".to_owned(),
            groups: cells.iter().map(group).collect(),
            series: designs.into_iter().map(of).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        match self.ping_pong_ns {
            Some(ns) => writeln!(text, "A line from one CPU to the other: {ns:.0} ns")?,
            None => writeln!(text, "There is one CPU only")?,
        }
        writeln!(
            text,
            "Calls go through Arc<dyn Frames>, as in the engine. Medians of {} turns of {} cycles; \
             times with nobody\nat the locks, locks from turns of their own. (c) is a control.",
            self.repeat, self.cycles
        )?;
        for cell in self.cells() {
            let run = &cell[0];
            writeln!(
                text,
                "\n{}, {} thread(s), {}, {}; a zone of {}, {} frames of each thread\n",
                run.workload.name(),
                run.threads,
                run.mode,
                run.start.name(),
                human(u64::from(run.frames) * PAGE_SIZE as u64),
                run.frames_per_thread
            )?;
            text.push_str(&times(cell));
            text.push_str(&locks(cell));
            text.push_str(&fragments(cell));
        }
        Ok(())
    }
}

fn name(run: &Run) -> String {
    format!("{}{}", run.design, if run.control { " (c)" } else { "" })
}

fn times(cell: &[Run]) -> String {
    let mut table = table::table([
        "ns of a thread",
        "M pages/s",
        "alloc",
        "free",
        "pair",
        "95 %",
        "alloc p50/99",
        "free p50/99",
    ]);
    for run in cell {
        let percentiles = |percentiles: Option<super::run::Percentiles>| {
            percentiles.map_or("-".to_owned(), |p| format!("{:.0}/{:.0}", p.p50, p.p99))
        };
        let [low, high] = run.pair_ns_interval;
        table.add_row([
            name(run),
            format!("{:.2}", run.pages_per_s / 1e6),
            format!("{:.1}", run.alloc_ns),
            format!("{:.1}", run.free_ns),
            format!("{:.1}", run.pair_ns),
            format!("{low:.1}-{high:.1}"),
            percentiles(run.alloc_percentiles),
            percentiles(run.free_percentiles),
        ]);
    }
    table::text(table, &[0])
}

fn locks(cell: &[Run]) -> String {
    let mut table = table::table([
        "locks",
        "wait %",
        "read",
        "write",
        "head",
        "held/page",
        "taken/page",
        "held mean",
        "p99",
    ]);
    for run in cell {
        let Some(lock_classes) = &run.lock_classes else {
            table.add_row([&name(run), "-"]);
            continue;
        };
        let lock =
            if lock_classes.read.acquisitions_per_page > lock_classes.write.acquisitions_per_page {
                &lock_classes.read
            } else {
                &lock_classes.write
            };
        table.add_row([
            name(run),
            format!("{:.2}", run.lock_wait_percent.unwrap_or(0.0)),
            format!("{:.2}", lock_classes.read.wait_percent),
            format!("{:.2}", lock_classes.write.wait_percent),
            format!("{:.2}", lock_classes.head.wait_percent),
            format!("{:.2} ns", run.lock_held_ns_per_page.unwrap_or(0.0)),
            format!("{:.4}", run.acquisitions_per_page.unwrap_or(0.0)),
            format!("{:.0} ns", lock.hold_mean_ns),
            format!("{:.0} ns", lock.hold_p99_ns),
        ]);
    }
    table::text(table, &[0])
}

fn fragments(cell: &[Run]) -> String {
    let mut table = table::table([
        "free memory",
        "o0 %",
        "live",
        "U5",
        "U9",
        "unmerged",
        "drained",
        "order 9 (p99 ns)",
        "buddyinfo",
    ]);
    for run in cell {
        let (Some(share), Some(shares), Some(unusable), Some(unmerged), Some(info)) = (
            run.order0_share,
            &run.order0_shares,
            &run.unusable_free_index,
            &run.unmerged,
            &run.buddyinfo,
        ) else {
            table.add_row([&name(run), "-"]);
            continue;
        };
        let order9 =
            if run.workload == Workload::MixedOrder9 { run.order9 } else { run.order9_at_rest };
        let order9 = order9.map_or("-".to_owned(), |o| {
            let slow = o.alloc.map_or(0.0, |alloc| alloc.p99);
            format!("{:.1} % ({slow:.0})", o.success * 100.0)
        });
        let row = |info: &[u64; 11]| info.map(|count| count.to_string()).join(" ");
        table.add_row([
            name(run),
            format!("{:.3}", share * 100.0),
            format!("{:.3}", shares.live * 100.0),
            format!("{:.4}", unusable.before_drain[5]),
            format!("{:.4}", unusable.before_drain[9]),
            run.unmerged_buddies.unwrap_or(0).to_string(),
            unmerged.after_drain.to_string(),
            order9,
            row(&info.before_drain),
        ]);
        table.add_row(["", "", "", "", "", "", "", "drained", &row(&info.after_drain)]);
    }
    table::text(table, &[0, 8])
}
