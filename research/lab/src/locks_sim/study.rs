//! The study: measurements, simulation, and the errors of the simulation.
//!
//! Nothing is fitted to the measurements of two threads. A situation's private work is the time of
//! one thread, less the simulated cost of lines and locks for one thread. Everything else comes
//! from the primitives and the sections. So one thread is right by construction, except in the mix,
//! and two threads are the test.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use designs::Variants;
use serde::Serialize;

use super::content::Contents;
use super::engine::{Parts, Scene, simulate};
use super::points::{self, Device, Rates};
use super::primitives::Primitives;
use super::schemes::{Cell, Content, Op, SCHEMES, StreamPolicy, Workload};
use super::sections::{Bench, Sections};
use crate::args::LocksSimArgs;
use crate::report::{begin, step};
use crate::sim::lines::Costs;
use crate::sim::machine::{Length, Outcome};
use crate::threads::{on_each, two_cpus};

/// The variants of the engine in a situation, if this build has them.
fn variants(cell: &Cell) -> Option<Variants> {
    let counters = if cell.shared_counters { "shared" } else { "percpu" };
    let streams = match cell.streams {
        StreamPolicy::PerCpu => "percpu",
        StreamPolicy::Single => "single",
        StreamPolicy::Multi(_) => return None,
    };
    let variants = Variants {
        slots: cell.scheme.name.to_owned(),
        counters: counters.to_owned(),
        streams: streams.to_owned(),
        ..Variants::default()
    };
    variants.check().is_ok().then_some(variants)
}

/// A simulated rate, with its uncertainty.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Always true.
    pub simulated: bool,
    /// Pages a second, of all threads together.
    pub pages_per_s: f64,
    /// Half of the interval that contains the simulation's own rate with 95 % confidence.
    pub confidence: f64,
    /// Pages a second if lines moved at half and at twice the cost: the smaller, the larger.
    pub band: [f64; 2],
    /// The ratio to the base scheme in the same situation.
    pub over_base: Option<f64>,
    /// The lock or line with the highest use.
    pub bottleneck: String,
    /// The part of the time that `bottleneck` is in use.
    pub utilisation: f64,
    /// The part of the time that threads sleep.
    pub asleep: f64,
}

/// A measured number and the simulated one.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Threads.
    pub threads: usize,
    /// Pages a second, measured.
    pub measured: f64,
    /// Turns that count, and all turns.
    pub turns: [usize; 2],
    /// Pages a second, simulated.
    pub simulated_pages_per_s: f64,
    /// Half of its interval with 95 % confidence.
    pub confidence: f64,
    /// The percentage by which the simulated rate exceeds the measured one.
    pub error_percent: f64,
}

/// A situation with its numbers.
pub struct Row {
    /// The situation.
    pub cell: Cell,
    /// Checks at one and two threads, where they were measured.
    pub checks: Vec<Check>,
    /// Predictions for more threads.
    pub predictions: Vec<Prediction>,
}

/// How much longer a thread takes while another thread works on a device of its own.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The contents of the pages.
    pub content: &'static str,
    /// The operation.
    pub op: &'static str,
    /// The factor.
    pub factor: f64,
}

/// All results.
pub struct Study {
    /// The costs of lines and waiting.
    pub primitives: Primitives,
    /// The times of the sections.
    pub sections: Sections,
    /// The name of the contents.
    pub contents: String,
    /// Mean length of the objects.
    pub mean_length: f64,
    /// The effect of a neighbour thread.
    pub beside: Vec<Beside>,
    /// The situations.
    pub rows: Vec<Row>,
}

/// Bytes of a private cache, where the system does not tell.
const CACHE: u64 = 2 << 20;

/// The cache bytes of an operation with pages besides the object: the page itself.
const PAGE_BYTES: f64 = 4096.0;

/// The situations of the study.
fn cells() -> Vec<Cell> {
    let mut cells = Cell::plain_ones();
    // The scheme without locks, so that the counters and the streams show.
    let epoch = |cell: &&Cell| {
        cell.scheme.name == "epoch" && cell.workload == Workload::Spread && cell.op != Op::Mix
    };
    let epoch: Vec<Cell> = cells.iter().filter(epoch).copied().collect();
    cells.extend(epoch.iter().map(|cell| Cell { shared_counters: true, ..*cell }));
    let policies = [
        StreamPolicy::Single,
        StreamPolicy::Multi(2),
        StreamPolicy::Multi(4),
        StreamPolicy::Multi(16),
    ];
    for cell in epoch.iter().filter(|cell| cell.content == Content::Pages && cell.op == Op::Store) {
        cells.extend(policies.map(|streams| Cell { streams, ..*cell }));
    }
    cells
}

/// Measured rates of each cell that could be measured, and the spread of single operations.
struct Measured {
    rates: HashMap<usize, [Rates; 2]>,
    beside: HashMap<(Content, Op), f64>,
    spreads: HashMap<(Content, Op), Vec<f64>>,
}

fn measure(
    cells: &[Cell],
    args: &LocksSimArgs,
    contents: &Contents,
    clock: f64,
    cpus: [usize; 2],
) -> Result<Measured> {
    let time = Duration::from_micros(u64::from(args.milliseconds) * 1000 / u64::from(args.repeat));
    let mut devices: Vec<(Variants, Workload, Content, Device)> = Vec::new();
    let mut places: Vec<Option<usize>> = Vec::new();
    for cell in cells {
        let Some(variants) = variants(cell) else {
            places.push(None);
            continue;
        };
        let same = |device: &(Variants, Workload, Content, Device)| {
            (&device.0, device.1, device.2) == (&variants, cell.workload, cell.content)
        };
        let place = match devices.iter().position(same) {
            Some(place) => place,
            None => {
                let device = Device::new(&variants, cell.workload, cell.content, contents)?;
                devices.push((variants, cell.workload, cell.content, device));
                devices.len() - 1
            }
        };
        places.push(Some(place));
    }
    // Two more devices, for two threads that share nothing.
    let mut apart = Vec::new();
    let free = Variants { slots: "epoch".to_owned(), ..Variants::default() };
    for content in Content::ALL {
        let make = || Device::new(&free, Workload::Spread, content, contents);
        apart.push((content, [make()?, make()?]));
    }
    let mut rates: HashMap<usize, [Rates; 2]> = HashMap::new();
    let mut alone: HashMap<(Content, Op), [Rates; 2]> = HashMap::new();
    for round in 0..args.repeat {
        for (number, place) in places.iter().enumerate() {
            step("measuring")?;
            let Some(place) = place else { continue };
            let device = &devices[*place].3;
            let rates = rates.entry(number).or_default();
            // The second turn finds warm caches, so the order alternates.
            for threads in if round % 2 == 0 { [1, 2] } else { [2, 1] } {
                let (op, rates) = (cells[number].op, &mut rates[threads - 1]);
                points::turn(&vec![device; threads], contents, op, cpus, time, rates)?;
            }
        }
        for (content, [first, second]) in &apart {
            for op in [Op::Store, Op::Load] {
                let rates = alone.entry((*content, op)).or_default();
                for threads in if round % 2 == 0 { [1, 2] } else { [2, 1] } {
                    let devices = &[first, second][..threads];
                    points::turn(devices, contents, op, cpus, time, &mut rates[threads - 1])?;
                }
            }
        }
    }
    let mut spreads = HashMap::new();
    for (content, [first, _]) in &apart {
        for op in [Op::Store, Op::Load] {
            spreads.insert((*content, op), points::spread(first, contents, op, clock)?);
        }
    }
    let factor = |rates: [Rates; 2]| (2.0 * rates[0].median() / rates[1].median()).max(1.0);
    let beside = alone.into_iter().map(|(key, rates)| (key, factor(rates))).collect();
    Ok(Measured { rates, beside, spreads })
}

/// The data that a simulation needs besides the cell.
struct Ground<'a> {
    measured: Measured,
    sections: &'a Sections,
    costs: Costs,
    spread_objects: Vec<(usize, u32)>,
    eight_objects: Vec<(usize, u32)>,
    mean_length: f64,
    cache: u64,
    seed: u64,
    operations: u64,
}

const CALIBRATION: Length = Length::of(4000, u64::MAX);
/// An operation that needs more events is in an obvious collapse.
const EVENTS_EACH: u64 = 40;

impl Ground<'_> {
    fn scene<'s>(&'s self, cell: &Cell, parts: Parts, spread: &'s [f64]) -> Scene<'s> {
        let spread_out = cell.workload == Workload::Spread && cell.content == Content::Pages;
        let bytes = PAGE_BYTES + 2.0 * self.mean_length;
        let reach = if spread_out { (self.cache as f64 / bytes) as u64 } else { u64::MAX };
        let objects = match cell.workload {
            Workload::Spread => &self.spread_objects,
            Workload::Eight => &self.eight_objects,
        };
        Scene { cell: *cell, parts, spread, objects, reach }
    }

    /// The parts of stores and loads in a cell, from the times of one thread.
    fn calibrate(&self, cells: &[Cell], cell: &Cell) -> Parts {
        let mut parts = Parts {
            outside: self.sections.outside_ns,
            update_held: self.sections.update_held(cell.scheme.name, self.costs.local),
            class_take: (self.sections.pool_store_ns - 2.0 * self.costs.local).max(5.0),
            class_leave: (self.sections.pool_free_ns - 2.0 * self.costs.local).max(5.0),
            ..Parts::default()
        };
        for op in [Op::Store, Op::Load] {
            let wanted = Cell { op, ..cell.plain() };
            let Some(rates) = self.rates_of(cells, &wanted) else { continue };
            let scene = self.scene(&wanted, parts.clone(), &[1.0]);
            let bare = simulate(&scene, 1, &self.costs, self.seed, CALIBRATION);
            let body = (1e9 / rates[0].median() - 1e9 / bare.rate).max(0.0);
            match op {
                Op::Load => parts.load_body = body,
                _ => parts.store_body = body,
            }
        }
        if let (Op::Mix, Some(rates)) = (cell.op, self.rates_of(cells, cell)) {
            // Alternating stores and loads disturb each other's caches and predictors.
            let scene = self.scene(cell, parts.clone(), &[1.0]);
            let simulated = 1e9 / simulate(&scene, 1, &self.costs, self.seed, CALIBRATION).rate;
            let body = (parts.store_body + parts.load_body) / 2.0;
            let factor = ((1e9 / rates[0].median() - simulated) / body.max(1.0) + 1.0).max(0.0);
            parts.store_body *= factor;
            parts.load_body *= factor;
        }
        parts
    }

    fn rates_of(&self, cells: &[Cell], cell: &Cell) -> Option<&[Rates; 2]> {
        let number = cells.iter().position(|other| other == cell)?;
        self.measured.rates.get(&number)
    }

    fn simulate(&self, cell: &Cell, parts: &Parts, threads: usize, costs: &Costs) -> Outcome {
        let mut parts = parts.clone();
        if threads > 1 {
            let beside = |op| self.measured.beside.get(&(cell.content, op)).copied();
            parts.store_body *= beside(Op::Store).unwrap_or(1.0);
            parts.load_body *= beside(Op::Load).unwrap_or(1.0);
        }
        let op = if cell.op == Op::Load { Op::Load } else { Op::Store };
        let spread = self.measured.spreads.get(&(cell.content, op));
        let scene = self.scene(cell, parts, spread.map_or(&[1.0], |spread| spread));
        // Enough operations to fill the bag of each CPU before the first search of a bag.
        let operations = self.operations.max(200 * threads as u64);
        let length = Length::of(operations, operations * EVENTS_EACH);
        simulate(&scene, threads, costs, self.seed, length)
    }

    fn row(&self, cells: &[Cell], number: usize, threads: &[usize]) -> Row {
        let cell = cells[number];
        let parts = self.calibrate(cells, &cell);
        let mut checks = Vec::new();
        if let Some(rates) = self.measured.rates.get(&number) {
            for (threads, rates) in (1..).zip(rates) {
                let outcome = self.simulate(&cell, &parts, threads, &self.costs);
                let measured = rates.median();
                checks.push(Check {
                    threads,
                    measured,
                    turns: [rates.counted(), rates.turns()],
                    simulated_pages_per_s: outcome.rate,
                    confidence: outcome.confidence,
                    error_percent: (outcome.rate / measured - 1.0) * 100.0,
                });
            }
        }
        let predict = |&threads: &usize| {
            let at = |factor| {
                let costs = self.costs.with_transfers(factor);
                self.simulate(&cell, &parts, threads, &costs)
            };
            let (outcome, half, twice) = (at(1.0), at(0.5).rate, at(2.0).rate);
            let rates = [outcome.rate, half, twice];
            Prediction {
                threads,
                simulated: true,
                pages_per_s: outcome.rate,
                confidence: outcome.confidence,
                band: [
                    rates.into_iter().fold(f64::MAX, f64::min),
                    rates.into_iter().fold(0.0, f64::max),
                ],
                over_base: None,
                bottleneck: outcome.busiest,
                utilisation: outcome.utilisation,
                asleep: outcome.asleep,
            }
        };
        Row { cell, checks, predictions: threads.iter().map(predict).collect() }
    }
}

/// Bytes of a CPU's private cache (sysfs, `cacheinfo`).
fn private_cache() -> u64 {
    let path = "/sys/devices/system/cpu/cpu0/cache/index2/size";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    units::parse_size(text.trim()).unwrap_or(CACHE)
}

impl Study {
    /// Measures and simulates.
    pub fn make(args: &LocksSimArgs) -> Result<Study> {
        let cpus = two_cpus()?;
        let cells = cells();
        begin(cells.len() as u64 * (u64::from(args.repeat) + 1));
        let primitives = Primitives::measure(cpus)?;
        let sections = on_each(&cpus[..1], Ok, |_| Sections::measure())?.remove(0);
        let contents = Contents::new(args.corpus.as_deref(), &Bench::new()?)?;
        let measured = measure(&cells, args, &contents, primitives.clock_ns, cpus)?;
        let beside = beside(&measured);
        let classes = |objects: &[(usize, usize, u32)]| {
            objects.iter().map(|&(_, class, lines)| (class, lines)).collect()
        };
        let ground = Ground {
            measured,
            sections: &sections,
            costs: primitives.costs.clone(),
            spread_objects: classes(&contents.objects),
            eight_objects: classes(&contents.eight),
            mean_length: contents.mean_length,
            cache: private_cache(),
            seed: args.seed,
            operations: u64::from(args.operations),
        };
        let threads: Vec<usize> = args.threads.iter().map(|&threads| threads as usize).collect();
        let mut rows: Vec<Row> = Vec::new();
        for number in 0..cells.len() {
            step("simulating")?;
            let mut row = ground.row(&cells, number, &threads);
            compare(&rows, &mut row);
            rows.push(row);
        }
        let (mean_length, contents) = (contents.mean_length, contents.name);
        Ok(Study { primitives, sections, contents, mean_length, beside, rows })
    }
}

/// Sets the ratio of a row to the base, which comes before it.
fn compare(rows: &[Row], row: &mut Row) {
    let plain = row.cell.plain();
    let base_cell = match row.cell == plain {
        true => Cell { scheme: SCHEMES[0], ..plain },
        false => plain,
    };
    let Some(base) = rows.iter().find(|base| base.cell == base_cell) else { return };
    for (mine, its) in row.predictions.iter_mut().zip(&base.predictions) {
        mine.over_base = Some(mine.pages_per_s / its.pages_per_s);
    }
}

fn beside(measured: &Measured) -> Vec<Beside> {
    let mut beside = Vec::new();
    for content in Content::ALL {
        for op in [Op::Store, Op::Load] {
            let factor = measured.beside.get(&(content, op)).copied().unwrap_or(1.0);
            beside.push(Beside { content: content.name(), op: op.name(), factor });
        }
    }
    beside
}
