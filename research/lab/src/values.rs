//! `rampack-lab values`: `rampack::Store` beside caches that have blocks of the same codec.
//!
//! In each round all subjects take turns. One puts all values, puts each again twice in another
//! order, and reads them; then two threads do. Next to each of these stands the bare codec, on the
//! same values in the same order.
//!
//! * [`sets`]: the values. [`subjects`]: the store and its peers.

mod sets;
mod subjects;

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{ValuesArgs, chosen};
use crate::report::{begin, step};
use crate::statistics::median;
use crate::{sys, threads};
use sets::Set;
use subjects::{Bare, Hand, ONE_BY_ONE, SUBJECTS};

/// What memory may be, of what the codec makes of the values, and bytes more for each.
const BOUND: (f64, f64) = (1.05, 24.0);

/// The samples of a subject, one of each round.
#[derive(Default, Serialize)]
struct Samples {
    /// The first put of each value, which takes memory from the system.
    first_put_ns: Vec<f64>,
    /// Putting each again.
    put_ns: Vec<f64>,
    put_over_codec: Vec<f64>,
    get_ns: Vec<f64>,
    get_over_codec: Vec<f64>,
    /// Values a second of two threads over those of one.
    put_two_threads: Vec<f64>,
    get_two_threads: Vec<f64>,
    /// What the process gained for it, with all values put once.
    memory_bytes: Vec<f64>,
    memory_over_bound: Vec<f64>,
    data_in_a_byte: Vec<f64>,
    /// Memory after all values were put again twice, over that before.
    churned_over_before: Vec<f64>,
    /// The same two by counts: what is in use on the heap, and what the store says it has.
    counted_over_bound: Vec<f64>,
    counted_churned_over_before: Vec<f64>,
    /// Data in a byte over that of the store that keeps small values one by one.
    data_over_one_by_one: Vec<f64>,
}

/// Runs the command.
pub fn run(args: &ValuesArgs) -> Result<Value> {
    let asked = chosen("--subjects", &args.subjects, &SUBJECTS)?;
    let cpus = threads::cpus(2)?;
    let dumps = sets::dumps(args)?;
    let mut sets = sets::cut(&dumps, &args.kib);
    sets.extend(sets::records(args.records as usize));
    ensure!(!sets.is_empty(), "there are no values: neither --corpus nor --records");
    begin((sets.len() * args.algorithms.len() * asked.len()) as u64 * u64::from(args.repeat));
    let mut runs = Vec::new();
    for (set, algorithm) in
        sets.iter().flat_map(|set| args.algorithms.iter().map(move |it| (set, it)))
    {
        // Larger values are never together.
        let mut names = asked.clone();
        names.retain(|name| set.is_small || *name != ONE_BY_ONE);
        let mut all: Vec<Samples> = names.iter().map(|_| Samples::default()).collect();
        let mut bare = Bare::new(set, algorithm)?;
        for round in 0..args.repeat as usize {
            for turn in 0..names.len() {
                let which = (round + turn) % names.len();
                step(format!("{} {algorithm} {}", set.name, names[which]))?;
                let turn = Turn { set, algorithm, cpus: &cpus };
                turn.take(names[which], &mut bare, &mut all[which])?;
            }
        }
        let single = names.iter().position(|name| *name == ONE_BY_ONE);
        let single = single.map_or_else(Vec::new, |at| all[at].data_in_a_byte.clone());
        for (name, mut samples) in names.into_iter().zip(all) {
            let both = samples.data_in_a_byte.iter().zip(&single);
            samples.data_over_one_by_one = both.map(|(own, single)| own / single).collect();
            let mut row = json!({
                "set": set.name,
                "algorithm": algorithm,
                "subject": name,
                "values": set.values.len(),
                "data_bytes": set.data,
                "compressed_bytes": bare.compressed,
                "codec_put_ns": median(bare.put_ns.iter().copied()),
                "codec_get_ns": median(bare.get_ns.iter().copied()),
            });
            if let (Some(row), Value::Object(more)) = (row.as_object_mut(), json!(samples)) {
                row.extend(more);
            }
            runs.push(row);
        }
    }
    Ok(json!({ "command": "values", "repeat": args.repeat, "runs": runs }))
}

/// The work of one subject in a round.
struct Turn<'a> {
    set: &'a Set<'a>,
    algorithm: &'a str,
    cpus: &'a [usize],
}

impl Turn<'_> {
    fn take(&self, name: &str, bare: &mut Bare<'_>, samples: &mut Samples) -> Result<()> {
        let set = self.set;
        let (before, heap_before) = (sys::settled_bytes(), sys::heap_bytes());
        let subject = &*subjects::open(name, set, self.algorithm)?;
        let memory = || -> Result<(f64, f64)> {
            subject.rest()?;
            let gained = sys::settled_bytes().saturating_sub(before).max(1);
            let on_heap = sys::heap_bytes().saturating_sub(heap_before);
            Ok((gained as f64, (on_heap + subject.counted()).max(1) as f64))
        };
        let bound = BOUND.0 * bare.compressed as f64 + BOUND.1 * set.values.len() as f64;
        let put = |hand: &mut Hand, n: usize, of: usize| {
            subject.put(hand, &set.values[n].0, &set.values[of].1)
        };
        let get = |hand: &mut Hand, n: usize| {
            let length = subject.get(hand, &set.values[n].0)?;
            ensure!(length == set.values[n].1.len(), "{name}: {length} bytes of value {n}");
            Ok(length)
        };
        let in_order: Vec<usize> = (0..set.values.len()).collect();
        let (one, two) = (&self.cpus[..1], self.cpus);

        let first = self.pass(one, &in_order, |hand, n| put(hand, n, n))?;
        let (once, counted_once) = memory()?;
        // Another value first, so that the objects of a key change their sizes.
        let other = |n: usize| (n + 1) % set.values.len();
        self.pass(one, &set.order, |hand, n| put(hand, n, other(n)))?;
        let again = self.pass(one, &set.order, |hand, n| put(hand, n, n))?;
        let codec_put = bare.compress(&set.order);
        let read = self.pass(one, &set.order, |hand, n| get(hand, n).map(|_| ()))?;
        let codec_get = bare.decompress(&set.order)?;
        let (twice, counted_twice) = memory()?;
        let put_by_two = self.pass(two, &set.order, |hand, n| put(hand, n, n))?;
        let read_by_two = self.pass(two, &set.order, |hand, n| get(hand, n).map(|_| ()))?;
        self.pass(one, &in_order, |hand, n| {
            let length = get(hand, n)?;
            ensure!(hand.into[..length] == *set.values[n].1, "{name}: value {n} is another one");
            Ok(())
        })?;

        samples.first_put_ns.push(first);
        samples.put_ns.push(again);
        samples.put_over_codec.push(again / codec_put);
        samples.get_ns.push(read);
        samples.get_over_codec.push(read / codec_get);
        samples.put_two_threads.push(again / put_by_two);
        samples.get_two_threads.push(read / read_by_two);
        samples.memory_bytes.push(once);
        samples.memory_over_bound.push(once / bound);
        samples.data_in_a_byte.push(set.data as f64 / once);
        samples.churned_over_before.push(twice / once);
        samples.counted_over_bound.push(counted_once / bound);
        samples.counted_churned_over_before.push(counted_twice / counted_once);
        Ok(())
    }

    /// Does `work` with all values, a part on each CPU. Returns nanoseconds for a value.
    fn pass(
        &self,
        cpus: &[usize],
        order: &[usize],
        work: impl Fn(&mut Hand, usize) -> Result<()> + Sync,
    ) -> Result<f64> {
        let parts: Vec<&[usize]> = order.chunks(order.len().div_ceil(cpus.len())).collect();
        let times = threads::on_each(
            &cpus[..parts.len()],
            |n| Ok((Hand::new(self.algorithm)?, parts[n])),
            |(mut hand, part)| {
                let begun = Instant::now();
                part.iter().try_for_each(|n| work(&mut hand, *n))?;
                Ok(begun.elapsed().as_nanos() as f64)
            },
        )?;
        Ok(times.into_iter().fold(0.0, f64::max) / order.len() as f64)
    }
}
