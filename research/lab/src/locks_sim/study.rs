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
use serde_json::{Value, json};

use super::content::Contents;
use super::engine::{Parts, Scene, simulate};
use super::points::{self, Device, Rates};
use super::primitives::Primitives;
use super::report::{LARGE, about, errors};
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
        // Enough operations to fill the queue of each CPU before the first search of a queue.
        let operations = self.operations.max(200 * threads as u64);
        let length = Length::of(operations, operations * EVENTS_EACH);
        simulate(&scene, threads, costs, self.seed, length)
    }

    /// The measured rates of a situation on one thread and two, where there are any, beside the
    /// simulated ones. The error is the percentage by which those are higher.
    fn checks(&self, number: usize, cell: &Cell, parts: &Parts) -> Vec<Value> {
        let rates = self.measured.rates.get(&number).into_iter().flatten();
        let check = |(threads, rates): (usize, &Rates)| {
            let outcome = self.simulate(cell, parts, threads, &self.costs);
            let error_percent = (outcome.rate / rates.median() - 1.0) * 100.0;
            let mut check = about(cell);
            check["threads"] = json!(threads);
            check["measured"] = json!({ "simulated": false, "pages_per_s": rates.median() });
            check["simulation"] = json!({
                "simulated": true,
                "pages_per_s": outcome.rate,
                "confidence": outcome.confidence,
            });
            // Turns that count, and all turns.
            check["turns"] = json!([rates.counted(), rates.turns()]);
            check["error_percent"] = json!(error_percent);
            check["large_error"] = json!(error_percent.abs() > LARGE);
            check
        };
        (1..).zip(rates).map(check).collect()
    }

    /// The simulated rate of a situation, and its band if lines moved at half and at twice the
    /// cost. `base` is the rate of the base in the same situation.
    fn predict(&self, cell: &Cell, parts: &Parts, threads: usize, base: Option<f64>) -> Value {
        let at = |factor| {
            let costs = self.costs.with_transfers(factor);
            self.simulate(cell, parts, threads, &costs)
        };
        let (outcome, half, twice) = (at(1.0), at(0.5).rate, at(2.0).rate);
        let rates = [outcome.rate, half, twice];
        let mut prediction = about(cell);
        prediction["threads"] = json!(threads);
        prediction["simulated"] = json!(true);
        prediction["pages_per_s"] = json!(outcome.rate);
        // Half of the interval that contains the simulation's own rate with 95 % confidence.
        prediction["confidence"] = json!(outcome.confidence);
        prediction["band"] = json!([
            rates.into_iter().fold(f64::MAX, f64::min),
            rates.into_iter().fold(0.0, f64::max),
        ]);
        prediction["over_base"] = json!(outcome.rate / base.unwrap_or(outcome.rate));
        // The lock or line with the highest use.
        prediction["bottleneck"] = json!(outcome.busiest);
        prediction["utilisation"] = json!(outcome.utilisation);
        prediction["asleep"] = json!(outcome.asleep);
        prediction
    }
}

/// Bytes of a CPU's private cache (sysfs, `cacheinfo`).
fn private_cache() -> u64 {
    let path = "/sys/devices/system/cpu/cpu0/cache/index2/size";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    units::parse_size(text.trim()).unwrap_or(CACHE)
}

/// Measures and simulates. Returns all results as one object.
pub fn study(args: &LocksSimArgs) -> Result<Value> {
    let cpus = two_cpus()?;
    let cells = cells();
    begin(cells.len() as u64 * (u64::from(args.repeat) + 1));
    let primitives = Primitives::measure(cpus)?;
    let sections = on_each(&cpus[..1], Ok, |_| Sections::measure())?.remove(0);
    let contents = Contents::new(args.corpus.as_deref(), &Bench::new()?)?;
    let measured = measure(&cells, args, &contents, primitives.clock_ns, cpus)?;
    let situations = Content::ALL.map(|content| [Op::Store, Op::Load].map(|op| (content, op)));
    let beside: Vec<Value> = situations
        .iter()
        .flatten()
        .map(|of @ (content, op)| {
            json!({ "content": content.name(), "op": op.name(), "factor": measured.beside[of] })
        })
        .collect();
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
    let (mut validation, mut predictions) = (Vec::new(), Vec::<Value>::new());
    for (number, cell) in cells.iter().enumerate() {
        step("simulating")?;
        let parts = ground.calibrate(&cells, cell);
        validation.extend(ground.checks(number, cell, &parts));
        // The base scheme, or the plain situation, comes first.
        let plain = cell.plain();
        let base = if *cell == plain { Cell { scheme: SCHEMES[0], ..plain } } else { plain };
        let base = cells.iter().position(|other| *other == base).unwrap_or(number);
        for (place, &threads) in args.threads.iter().enumerate() {
            let base = predictions.get(base * args.threads.len() + place);
            let base = base.and_then(|base| base["pages_per_s"].as_f64());
            predictions.push(ground.predict(cell, &parts, threads as usize, base));
        }
    }
    Ok(json!({
        "seed": args.seed,
        "contents": contents.name,
        "mean_object_bytes": contents.mean_length,
        "primitives": primitives,
        "sections": sections,
        // How much longer a thread takes while another thread works on a device of its own.
        "two_threads_on_devices_of_their_own": beside,
        "errors": [errors(&validation, 1), errors(&validation, 2)],
        "validation": validation,
        "predictions": predictions,
    }))
}
