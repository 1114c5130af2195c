//! The study: measurements, simulation, and the errors of the simulation.
//!
//! Nothing is fitted to the measurements of two threads. A situation's private work is the time of
//! one thread, less the simulated cost of lines and locks for one thread. So one thread is right by
//! construction, except in the mix, and two threads are the test.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use designs::Variants;
use serde_json::{Value, json};

use super::engine::{Costs, Scene, simulate};
use super::points::{self, Contents, Device};
use super::schemes::{Cell, Content, Op, SCHEMES, Streams, Workload};
use crate::args::LocksSimArgs;
use crate::report::{begin, step};
use crate::sim::{Length, Outcome};
use crate::statistics::median;
use crate::threads::two_cpus;

/// A larger error, in percent, is pointed out.
const LARGE: f64 = 25.0;
const CALIBRATION: Length = Length::of(4000);

/// The variants of the engine in a situation, if this build has them.
fn variants(cell: &Cell) -> Option<Variants> {
    let streams = match cell.streams {
        Streams::Multi(_) => return None,
        streams => streams.name(),
    };
    Some(Variants {
        slots: cell.scheme.name.to_owned(),
        streams,
        alike: true,
        ..Variants::default()
    })
}

/// What a situation is.
fn about(cell: &Cell, threads: usize) -> Value {
    json!({
        "workload": cell.workload,
        "content": cell.content,
        "op": cell.op,
        "scheme": cell.scheme.name,
        "streams": cell.streams.name(),
        "threads": threads,
    })
}

/// Measured rates of one thread and of two.
type Rates = [Vec<f64>; 2];

fn rate(rates: &Rates, threads: usize) -> f64 {
    median(rates[threads - 1].iter().copied())
}

/// What a simulation needs besides the cell.
struct Ground {
    /// The rates of each cell that could be measured.
    rates: HashMap<usize, Rates>,
    /// How much longer a thread takes while another thread works on a device of its own.
    beside: HashMap<(Content, Op), f64>,
    /// Factors of the times of single operations.
    spreads: HashMap<(Content, Op), Vec<f64>>,
    costs: Costs,
    seed: u64,
    operations: u64,
}

const CONTENTS: [Content; 2] = [Content::SameFilled, Content::Pages];
const OPS: [Op; 2] = [Op::Store, Op::Load];

fn measure(
    cells: &[Cell],
    args: &LocksSimArgs,
    contents: &Contents,
    cpus: [usize; 2],
) -> Result<Ground> {
    let time = Duration::from_micros(u64::from(args.milliseconds) * 1000 / u64::from(args.repeat));
    let costs = Costs::measure(cpus)?;
    // A device for all operations of a scheme.
    let mut devices: Vec<(Cell, Device)> = Vec::new();
    for cell in cells {
        let same = Cell { op: Op::Store, ..*cell };
        if let Some(variants) = variants(cell)
            && !devices.iter().any(|(other, _)| *other == same)
        {
            let device = Device::new(&variants, cell.workload, cell.content, contents)?;
            devices.push((same, device));
        }
    }
    let mut apart = Vec::new();
    let free = Variants { slots: "epoch".to_owned(), ..Variants::default() };
    for content in CONTENTS {
        let make = || Device::new(&free, Workload::Spread, content, contents);
        apart.push((content, [make()?, make()?]));
    }
    let mut rates: HashMap<usize, Rates> = HashMap::new();
    let mut alone: HashMap<(Content, Op), Rates> = HashMap::new();
    for round in 0..args.repeat {
        // The second turn finds warm caches, so the order alternates.
        let order = if round % 2 == 0 { [1, 2] } else { [2, 1] };
        for (number, cell) in cells.iter().enumerate() {
            step("measuring")?;
            let same = Cell { op: Op::Store, ..*cell };
            let Some((_, device)) = devices.iter().find(|(other, _)| *other == same) else {
                continue;
            };
            for threads in order {
                let devices = vec![device; threads];
                let rate = points::turn(&devices, contents, cell.op, cpus, time)?;
                rates.entry(number).or_default()[threads - 1].push(rate);
            }
        }
        for (content, [first, second]) in &apart {
            for (op, threads) in OPS.into_iter().flat_map(|op| order.map(|n| (op, n))) {
                let rate = points::turn(&[first, second][..threads], contents, op, cpus, time)?;
                alone.entry((*content, op)).or_default()[threads - 1].push(rate);
            }
        }
    }
    let mut spreads = HashMap::new();
    for (content, [first, _]) in &apart {
        for op in OPS {
            spreads.insert((*content, op), points::spread(first, contents, op)?);
        }
    }
    let factor = |rates: Rates| (2.0 * rate(&rates, 1) / rate(&rates, 2)).max(1.0);
    let beside = alone.into_iter().map(|(key, rates)| (key, factor(rates))).collect();
    let (seed, operations) = (args.seed, u64::from(args.operations));
    Ok(Ground { rates, beside, spreads, costs, seed, operations })
}

impl Ground {
    fn scene(&self, cell: &Cell, [store_ns, load_ns]: [f64; 2]) -> Scene<'_> {
        let op = if cell.op == Op::Load { Op::Load } else { Op::Store };
        let spread = self.spreads.get(&(cell.content, op)).map_or(&[1.0][..], |spread| spread);
        Scene { cell: *cell, store_ns, load_ns, spread, costs: self.costs }
    }

    /// The private work of stores and loads in a cell, from the times of one thread.
    fn calibrate(&self, cells: &[Cell], cell: &Cell) -> [f64; 2] {
        OPS.map(|op| {
            let wanted = Cell { op, streams: Streams::PerCpu, ..*cell };
            let number = cells.iter().position(|other| *other == wanted);
            let Some(rates) = number.and_then(|number| self.rates.get(&number)) else {
                return 0.0;
            };
            let bare = simulate(&self.scene(&wanted, [0.0; 2]), 1, self.seed, CALIBRATION);
            (1e9 / rate(rates, 1) - 1e9 / bare.rate).max(0.0)
        })
    }

    fn simulate(&self, cell: &Cell, own: [f64; 2], threads: usize, transfers: f64) -> Outcome {
        let mut own = own;
        if threads > 1 {
            for (own, op) in own.iter_mut().zip(OPS) {
                *own *= self.beside.get(&(cell.content, op)).copied().unwrap_or(1.0);
            }
        }
        let mut scene = self.scene(cell, own);
        scene.costs.transfer_ns *= transfers;
        let length = Length::of(self.operations.max(200 * threads as u64));
        simulate(&scene, threads, self.seed, length)
    }

    /// The measured rates of a situation on one thread and two, where there are any, beside the
    /// simulated ones. The error is the percentage by which those are higher.
    fn checks(&self, number: usize, cell: &Cell, own: [f64; 2]) -> Vec<Value> {
        let Some(rates) = self.rates.get(&number) else { return Vec::new() };
        let check = |threads| {
            let (measured, simulated) =
                (rate(rates, threads), self.simulate(cell, own, threads, 1.0));
            let error_percent = (simulated.rate / measured - 1.0) * 100.0;
            let mut check = about(cell, threads);
            check["measured"] = json!({ "simulated": false, "pages_per_s": measured });
            check["simulation"] = json!({
                "simulated": true,
                "pages_per_s": simulated.rate,
                "confidence": simulated.confidence,
            });
            check["error_percent"] = json!(error_percent);
            check["large_error"] = json!(error_percent.abs() > LARGE);
            check
        };
        [1, 2].map(check).to_vec()
    }

    /// The simulated rate of a situation, and its band if lines moved at half and at twice the
    /// cost. `base` is the rate of the base in the same situation.
    fn predict(&self, cell: &Cell, own: [f64; 2], threads: usize, base: Option<f64>) -> Value {
        let [outcome, half, twice] =
            [1.0, 0.5, 2.0].map(|factor| self.simulate(cell, own, threads, factor));
        let rates = [outcome.rate, half.rate, twice.rate];
        let mut prediction = about(cell, threads);
        prediction["simulated"] = json!(true);
        prediction["pages_per_s"] = json!(outcome.rate);
        prediction["confidence"] = json!(outcome.confidence);
        prediction["band"] = json!(crate::statistics::spread(&rates));
        prediction["over_base"] = json!(outcome.rate / base.unwrap_or(outcome.rate));
        // The lock or line with the highest use.
        prediction["bottleneck"] = json!(outcome.busiest.0);
        prediction["utilisation"] = json!(outcome.busiest.1);
        prediction
    }
}

/// The absolute errors of the simulation at this many threads, in percent.
fn errors(validation: &[Value], threads: usize) -> Value {
    let of = validation.iter().filter(|check| check["threads"] == threads);
    let sizes: Vec<f64> =
        of.filter_map(|check| Some(check["error_percent"].as_f64()?.abs())).collect();
    json!({
        "threads": threads,
        "points": sizes.len(),
        "median_absolute_error_percent": median(sizes.iter().copied()),
        "maximum_absolute_error_percent": crate::statistics::spread(&sizes)[1],
        "above_25_percent": sizes.iter().filter(|size| **size > LARGE).count(),
    })
}

/// Measures and simulates. Returns all results as one object.
pub fn study(args: &LocksSimArgs) -> Result<Value> {
    let cpus = two_cpus()?;
    let cells = Cell::all();
    begin(cells.len() as u64 * (u64::from(args.repeat) + 1));
    let contents = Contents::new(&args.corpus)?;
    let ground = measure(&cells, args, &contents, cpus)?;
    let (mut validation, mut predictions) = (Vec::new(), Vec::<Value>::new());
    for (number, cell) in cells.iter().enumerate() {
        step("simulating")?;
        let own = ground.calibrate(&cells, cell);
        validation.extend(ground.checks(number, cell, own));
        // The base scheme, or the usual streams, come first.
        let base = match cell.streams {
            Streams::PerCpu => Cell { scheme: SCHEMES[0], ..*cell },
            _ => Cell { streams: Streams::PerCpu, ..*cell },
        };
        let base = cells.iter().position(|other| *other == base).unwrap_or(number);
        for (place, &threads) in args.threads.iter().enumerate() {
            let base = predictions.get(base * args.threads.len() + place);
            let base = base.and_then(|base| base["pages_per_s"].as_f64());
            predictions.push(ground.predict(cell, own, threads as usize, base));
        }
    }
    Ok(json!({
        "seed": args.seed,
        "contents": contents.name,
        "primitives": ground.costs,
        "errors": [errors(&validation, 1), errors(&validation, 2)],
        "validation": validation,
        "predictions": predictions,
    }))
}
