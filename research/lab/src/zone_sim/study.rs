//! The study: measurements, tests of the simulation, and predictions.

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Serialize;

use super::engine::{Outcome, simulate};
use super::held::{Held, Source, Wanted};
use super::load::{Costs, Demand, Load};
use super::published::{self, Curve, SEED_THREADS, SOCKET, SeedRow, page_fault1};
use crate::args::ZoneSimArgs;
use crate::interrupt;

/// Factors for the uncertainty of the times under the lock.
const HELD: [f64; 2] = [0.8, 1.2];
/// Transfer times of a line within a socket, and below between sockets, in nanoseconds.
const WITHIN: [f64; 2] = [40.0, 60.0];
const ACROSS: [f64; 2] = [110.0, 140.0];

/// The threads' work besides allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Around {
    /// The work of page_fault1 in the kernel: faults, zeroing, a limit by memory.
    PageFault1,
    /// No work: only the allocator's own time, which is the hardest case for a lock.
    Bare,
}

/// The range of results under other assumptions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Band {
    /// Pages a second.
    pub pages_per_s: [f64; 2],
    /// Waiting for the zone's lock, in percent.
    pub lock_wait_percent: [f64; 2],
    /// Waiting for heads of lists, in percent.
    pub head_wait_percent: [f64; 2],
}

impl Band {
    fn of(outcomes: &[Outcome]) -> Band {
        let range = |of: fn(&Outcome) -> f64| {
            let values = outcomes.iter().map(of);
            [values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max)]
        };
        Band {
            pages_per_s: range(|outcome| outcome.pages_per_s),
            lock_wait_percent: range(Outcome::lock_wait_percent),
            head_wait_percent: range(|outcome| outcome.head_wait_percent),
        }
    }
}

/// The prediction for a design.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The design.
    pub design: String,
    /// Threads of the machine, half of them on each of two zones.
    pub threads: usize,
    /// The threads' other work.
    pub around: Around,
    /// Always true.
    pub simulated: bool,
    /// Pages a second of all threads.
    pub pages_per_s: f64,
    /// Waiting for the zone's lock, in percent of the time.
    pub lock_wait_percent: f64,
    /// The part of that for the shared lock.
    pub read_wait_percent: f64,
    /// The part of that for the exclusive lock.
    pub write_wait_percent: f64,
    /// Waiting for heads of lists, in percent of the time.
    pub head_wait_percent: f64,
    /// The results if all threads begin at once.
    pub lockstep: Outcome,
    /// The range for hold times 20 % off, lines within a socket of 40 to 60 ns, and both starts.
    pub one_socket: Option<Band>,
    /// The range for lines of 110 to 140 ns, as if each zone's threads were on both sockets.
    pub across_sockets: Option<Band>,
}

/// A row of the seed and the simulation of the kernel's own design.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name in the seed.
    pub row: &'static str,
    /// Our design of the same kind.
    pub design: &'static str,
    /// Pages a second in the seed.
    pub published_pages_per_s: f64,
    /// Waiting for the lock in the seed, in percent.
    pub published_lock_percent: f64,
    /// Whether its rate was an input of the simulation. Then its error proves nothing.
    pub given: bool,
    /// The simulation from published times.
    pub kernel: Outcome,
    /// The simulation if all threads begin at once.
    pub kernel_lockstep: Outcome,
    /// The error of its rate, in percent.
    pub error_percent: f64,
    /// Always true.
    pub simulated: bool,
}

/// The measurement of one or two threads here, and the simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The design.
    pub design: String,
    /// Threads.
    pub threads: usize,
    /// Measured pages a second.
    pub measured_pages_per_s: f64,
    /// Simulated pages a second.
    pub simulated_pages_per_s: f64,
    /// The error of the simulation, in percent. One thread calibrates the simulation.
    pub error_percent: f64,
    /// Always true.
    pub simulated: bool,
}

/// The study.
pub struct Study {
    /// Transfer time of a line on this machine.
    pub transfer_ns: Option<f64>,
    /// Published curves and their simulation.
    pub curves: Vec<Curve>,
    /// Rows of the seed and their simulation.
    pub rows: Vec<Row>,
    /// The known data of the designs.
    pub held: Vec<Held>,
    /// Checks on this machine.
    pub checks: Vec<Check>,
    /// Predictions for more threads.
    pub predictions: Vec<Prediction>,
}

/// A machine of two zones.
fn machine(
    demand: &Demand,
    threads: usize,
    costs: &Costs,
    seed: u64,
    load: impl Fn(usize) -> Load,
) -> Outcome {
    let zones = [threads.div_ceil(2), threads / 2];
    let mut all = Outcome::default();
    let mut before: Option<(usize, Outcome)> = None;
    for count in zones.into_iter().filter(|count| *count > 0) {
        let zone = match before {
            Some((same, outcome)) if same == count => outcome,
            _ => simulate(demand, &load(count), costs, seed),
        };
        before = Some((count, zone));
        let part = count as f64 / threads as f64;
        all.pages_per_s += zone.pages_per_s;
        all.write_wait_percent += part * zone.write_wait_percent;
        all.read_wait_percent += part * zone.read_wait_percent;
        all.head_wait_percent += part * zone.head_wait_percent;
    }
    all
}

fn bare(own: (f64, f64), threads: usize, args: &ZoneSimArgs, stagger: bool) -> Load {
    Load {
        threads,
        pages: f64::from(args.pages),
        frees: true,
        cycles: args.cycles,
        alloc_ns: own.0,
        free_ns: own.1,
        stagger,
    }
}

impl Study {
    /// Measures and simulates.
    ///
    /// # Errors
    /// Memory is out, an interrupt, or a zone that allocates wrong frames.
    pub fn make(
        args: &ZoneSimArgs,
        transfer_ns: Option<f64>,
        wanted: &Wanted,
        bar: &ProgressBar,
    ) -> Result<Study> {
        let seed = published::seed();
        let rows = seed.len() as u64;
        bar.set_length(wanted.turns() + 1 + rows);
        let held = wanted.find_out(bar)?;
        bar.inc_length((held.len() * args.threads.len()) as u64);
        bar.set_message("curves of others");
        let curves = published::curves(args.seed);
        bar.inc(1);
        let mut study = Study {
            transfer_ns,
            curves,
            rows: Vec::new(),
            held,
            checks: Vec::new(),
            predictions: Vec::new(),
        };
        for row in &seed {
            interrupt::check()?;
            bar.set_message(format!("the seed: {}", row.row));
            study.rows.push(seed_row(row, args));
            bar.inc(1);
        }
        study.check_this_machine(args);
        let held = study.held.clone();
        for held in &held {
            for &threads in &args.threads {
                interrupt::check()?;
                bar.set_message(format!("{}, {threads} threads", held.design));
                for around in [Around::PageFault1, Around::Bare] {
                    study.predictions.push(predict(held, threads as usize, around, args));
                }
                bar.inc(1);
            }
        }
        Ok(study)
    }

    fn check_this_machine(&mut self, args: &ZoneSimArgs) {
        let costs = Costs::of(self.transfer_ns.unwrap_or(SOCKET));
        for held in self.held.iter().filter(|held| held.source == Source::Measured) {
            for point in &held.measured {
                let (threads, measured) = (point.threads, point.pages_per_s);
                // Threads meet at the beginning of each phase.
                let load = bare(held.own_ns, threads, args, false);
                let simulated = simulate(&point.demand, &load, &costs, args.seed).pages_per_s;
                self.checks.push(Check {
                    design: held.design.clone(),
                    threads,
                    measured_pages_per_s: measured,
                    simulated_pages_per_s: simulated,
                    error_percent: 100.0 * (simulated / measured - 1.0),
                    simulated: true,
                });
            }
        }
    }
}

fn seed_row(row: &SeedRow, args: &ZoneSimArgs) -> Row {
    let simulated = |stagger| {
        let load = |threads| page_fault1(threads, f64::from(args.pages), args.cycles, stagger);
        machine(&row.kernel, SEED_THREADS, &Costs::of(SOCKET), args.seed, load)
    };
    let kernel = simulated(true);
    Row {
        row: row.row,
        design: row.design,
        published_pages_per_s: row.rate * 1e6,
        published_lock_percent: row.lock_percent,
        given: row.given,
        kernel,
        kernel_lockstep: simulated(false),
        error_percent: 100.0 * (kernel.pages_per_s / (row.rate * 1e6) - 1.0),
        simulated: true,
    }
}

fn predict(held: &Held, threads: usize, around: Around, args: &ZoneSimArgs) -> Prediction {
    let simulated = |demand: &Demand, transfer: f64, stagger: bool| {
        let load = |count| match around {
            Around::PageFault1 => page_fault1(count, f64::from(args.pages), args.cycles, stagger),
            Around::Bare => bare(held.own_ns, count, args, stagger),
        };
        machine(demand, threads, &Costs::of(transfer), args.seed, load)
    };
    let (base, lockstep) =
        (simulated(&held.demand, SOCKET, true), simulated(&held.demand, SOCKET, false));
    let band = |factors: &[f64], transfers: [f64; 2]| {
        let mut outcomes = vec![base, lockstep];
        for &factor in factors {
            for transfer in transfers {
                for stagger in [true, false] {
                    outcomes.push(simulated(&held.demand.times(factor), transfer, stagger));
                }
            }
        }
        Band::of(&outcomes)
    };
    let banded = around == Around::PageFault1;
    Prediction {
        design: held.design.clone(),
        threads,
        around,
        simulated: true,
        pages_per_s: base.pages_per_s,
        lock_wait_percent: base.lock_wait_percent(),
        read_wait_percent: base.read_wait_percent,
        write_wait_percent: base.write_wait_percent,
        head_wait_percent: base.head_wait_percent,
        lockstep,
        one_socket: banded.then(|| band(&HELD, WITHIN)),
        across_sockets: banded.then(|| band(&[1.0], ACROSS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone_sim::load::Visit;

    #[test]
    fn a_machine_is_two_zones() {
        let demand = Demand { alloc: Visit::alone(16.0, 10.0), free: Visit::NONE };
        let load = |threads| Load {
            threads,
            pages: 1600.0,
            frees: false,
            cycles: 8,
            alloc_ns: 0.0,
            free_ns: 0.0,
            stagger: true,
        };
        let costs = Costs::of(50.0);
        let rate = |threads| machine(&demand, threads, &costs, 1, load).pages_per_s;
        // One thread has a zone of its own; two have one each; then each lock is full.
        let (one, two, eight) = (rate(1), rate(2), rate(8));
        assert!((two / one - 2.0).abs() < 0.01, "{one} {two}");
        assert!((eight / (2.0 * 16e9 / 210.0) - 1.0).abs() < 0.02, "{eight}");
        let odd = machine(&demand, 5, &costs, 1, load);
        assert!(odd.lock_wait_percent() > 10.0 && odd.lock_wait_percent() < 80.0, "{odd:?}");
    }
}
