//! What a daemon counts, for programs that watch it, in the manner of Prometheus.
//!
//! The numbers of the control tree have their names, units and meanings from the attribute rows:
//! `recompress_us` of the swap cache, a counter in microseconds, is
//! `rampack_zswap_recompress_seconds_total`. The tables here hold what only reports tell.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::{AttributeInfo, Bound, Number, Object, ValueKind, tree::attributes};
use units::PAGE_SIZE;
use zswap::DEBUG;

use crate::devices::Devices;
use crate::latency::{BOUNDS, EVERY, Latency};
use crate::protocol::{DaemonReport, DeviceReport, Metric, MetricKind, Sample};
use crate::swap::report::{PoolReport, SwapReport};
use crate::tree::tree;

/// The beginning of the attributes that count refused stores, whose rest is the reason.
const REJECT: &str = "reject_";
/// The metric that they make together, with its label and help.
const REJECTS: (&str, &str, &str) = ("rejects", "reason", "stores that the cache refused");

type Row<T> = (Number, fn(&T) -> Option<u64>);

/// What the report of a disk tells beside its attributes.
const DISK: &[Row<DeviceReport>] = &[
    (Number::gauge("refused", "flag", "1: the daemon could not take the disk over"), |disk| {
        Some(disk.refused.is_some().into())
    }),
    (Number::gauge("nbd_clients", "count", "NBD clients connected to the disk"), |disk| {
        disk.refused.is_none().then_some(disk.nbd_clients)
    }),
];

const SWAP: &[Row<SwapReport>] = &[
    (Number::gauge("active", "flag", "1: the kernel swaps to the device"), |swap| {
        Some(swap.active.into())
    }),
    (Number::gauge("size", "bytes", "size of the swap device"), |swap| Some(swap.bytes)),
    (
        Number::gauge("used", "bytes", "bytes of the swap device that the kernel has in use"),
        |swap| Some(swap.used),
    ),
    (Number::gauge("cached", "pages", "pages of the swap device in the cache"), |swap| {
        Some(swap.cached_pages)
    }),
    (Number::gauge("device", "pages", "pages of the swap device on its backing device"), |swap| {
        Some(swap.disk_pages)
    }),
    (Number::gauge("threads", "count", "threads that serve the swap device"), |swap| {
        Some(swap.serving.threads)
    }),
    (
        Number::counter(
            "minor_faults",
            "count",
            "page faults of these threads that needed no read; there should be none",
        ),
        |swap| Some(swap.serving.minor_faults),
    ),
    (
        Number::counter(
            "major_faults",
            "count",
            "page faults of these threads that needed a read; there should be none",
        ),
        |swap| Some(swap.serving.major_faults),
    ),
    (Number::gauge("log_capacity", "bytes", "bytes that the log can hold"), |swap| {
        swap.log.as_ref().map(|log| log.capacity)
    }),
    (Number::gauge("log_live", "bytes", "bytes of the log in use"), |swap| {
        swap.log.as_ref().map(|log| log.live)
    }),
    (Number::counter("log_written", "bytes", "bytes written to the log"), |swap| {
        swap.log.as_ref().map(|log| log.written)
    }),
    (Number::counter("log_copied", "bytes", "bytes among these copied by cleaning"), |swap| {
        swap.log.as_ref().map(|log| log.copied)
    }),
];

const POOL: &[Row<PoolReport>] = &[
    (Number::gauge("pool_limit", "bytes", "most memory that the cache may take"), |pool| {
        Some(pool.limit_bytes)
    }),
    (Number::gauge("headroom", "bytes", "memory that is ready for the next pages"), |pool| {
        pool.headroom_bytes
    }),
    (Number::gauge("waiting", "pages", "pages that backing devices are asked for"), |pool| {
        Some(pool.waiting_pages)
    }),
    (
        Number::gauge(
            "silent",
            "seconds",
            "time for which a backing device did not answer although pages wait; 0 below ten",
        ),
        |pool| Some(pool.silent_seconds),
    ),
    (
        Number::counter("freed", "pages", "pages dropped because the kernel had freed them"),
        |pool| Some(pool.freed_pages),
    ),
];

/// Metrics by their names.
#[derive(Default)]
struct Found(BTreeMap<String, Metric>);

impl Found {
    /// Adds a value of `number` of a part of the program.
    fn add(&mut self, part: &str, number: &Number, labels: &[(&str, &str)], value: f64) {
        let (name, scale) = named(part, number);
        let kind = if number.is_counter { MetricKind::Counter } else { MetricKind::Gauge };
        let sample = Sample { labels: owned(labels), value: value * scale, buckets: Vec::new() };
        self.sample(name, kind, number.help.to_string(), sample);
    }

    fn sample(&mut self, name: String, kind: MetricKind, help: String, sample: Sample) {
        let new = Metric { name: name.clone(), kind, help, samples: Vec::new() };
        self.0.entry(name).or_insert(new).samples.push(sample);
    }

    /// Adds the times of an operation on a device.
    fn latency(&mut self, latency: &Latency) {
        let (mut sum, mut buckets) = (0, Vec::new());
        let bounds = BOUNDS.iter().map(|bound| seconds(*bound)).chain([f64::MAX]);
        for (bound, count) in bounds.zip(&latency.classes) {
            sum += count;
            buckets.push((bound, sum));
        }
        let labels = owned(&[("device", &latency.device), ("operation", &latency.operation)]);
        let help = format!("time of requests to a device, of one in {EVERY}");
        let sample = Sample { labels, value: seconds(latency.sum), buckets };
        self.sample("rampack_request_seconds".into(), MetricKind::Histogram, help, sample);
    }

    fn report<T>(&mut self, part: &str, rows: &[Row<T>], of: &T, labels: &[(&str, &str)]) {
        for (number, value) in rows {
            if let Some(value) = value(of) {
                self.add(part, number, labels, value as f64);
            }
        }
    }

    /// Adds the numbers in the value of an attribute.
    fn value(&mut self, part: &str, labels: &[(&str, &str)], row: &AttributeInfo, value: &str) {
        let words = |line: &str| -> Vec<String> {
            line.split_ascii_whitespace().map(str::to_owned).collect()
        };
        let mut row_of = |labels: &[(&str, &str)], numbers: &[Number], words: &[String]| {
            for (number, word) in numbers.iter().zip(words) {
                // What is not there now is a dash.
                if let Ok(value) = word.parse::<f64>() {
                    self.add(part, number, labels, value);
                }
            }
        };
        match row.kind {
            ValueKind::Plain => {}
            ValueKind::Gauge | ValueKind::Counter => {
                let is_counter = row.kind == ValueKind::Counter;
                let own = Number { name: row.name, is_counter, unit: row.unit, help: row.help };
                match row.name.strip_prefix(REJECT) {
                    Some(reason) => {
                        let (name, label, help) = REJECTS;
                        let labels = [labels, &[(label, reason)]].concat();
                        row_of(&labels, &[Number { name, help, ..own }], &words(value));
                    }
                    None => row_of(labels, &[own], &words(value)),
                }
            }
            ValueKind::Row(numbers) => row_of(labels, numbers, &words(value)),
            ValueKind::Table(label, numbers) => {
                for line in value.lines() {
                    let words = words(line);
                    if words.len() == numbers.len() + 1 {
                        let labels = [labels, &[(label, &*words[0])]].concat();
                        row_of(&labels, numbers, &words[1..]);
                    }
                }
            }
        }
    }
}

/// The name of a number of a part of the program, and what its values are multiplied by: units are
/// those that Prometheus wants.
fn named(part: &str, number: &Number) -> (String, f64) {
    let mut name = number.name.replace(['/', '.'], "_");
    let (unit, scale) = match number.unit {
        "us" => ("seconds", 1e-6),
        "count" | "flag" => ("", 1.0),
        unit => (unit, 1.0),
    };
    for (begin, end) in [("num_", ""), ("", "_us")] {
        let bare = name.strip_prefix(begin).and_then(|name| name.strip_suffix(end));
        name = bare.map(str::to_owned).unwrap_or(name);
    }
    if !part.is_empty() {
        name = format!("{part}_{name}");
    }
    if !unit.is_empty() && !name.split('_').any(|word| word == unit) {
        name = format!("{name}_{unit}");
    }
    let total = if number.is_counter { "_total" } else { "" };
    (format!("rampack_{name}{total}"), scale)
}

/// The part of the program that an attribute is of, with the label of its object, by its path.
fn place(path: &str) -> Option<(&'static str, Option<(&'static str, &str)>)> {
    let mut words = path.split('/');
    Some(match (words.next()?, words.next()?, words.next()?) {
        ("block", disk, _) => ("zram", Some(("device", disk))),
        ("kernel", "debug", "rampack") => ("", None),
        ("fs", "cgroup", group) => ("memcg", Some(("memcg", group))),
        _ => return None,
    })
}

/// Everything that a daemon counts, by name.
#[must_use]
pub fn of(devices: &Arc<Devices>, report: &DaemonReport) -> Vec<Metric> {
    let mut found = Found::default();
    for (path, file) in attributes(&*tree(devices)) {
        let Some((part, label)) = place(&path).filter(|_| file.info.kind != ValueKind::Plain)
        else {
            continue;
        };
        // A device may have gone meanwhile.
        if let Ok(value) = file.show() {
            found.value(part, label.as_slice(), &file.info, &value);
        }
    }
    let saved = Number::gauge("saved", "bytes", "memory that compression saves now; below 0: lost");
    // One look for all rows. It does not make the cache.
    if let Ok(zswap) = devices.machine().swap_to_look_at() {
        let rows = Bound::new(zswap.clone(), DEBUG);
        for info in rows.attributes() {
            if let Ok(value) = rows.show(info.name) {
                found.value("zswap", &[], &info, &value);
            }
        }
        let stats = zswap.stats();
        found.add("zswap", &saved, &[], bytes(stats.stored_pages) - stats.pool_bytes as f64);
    }
    let flag = |name, help| Number::gauge(name, "flag", help);
    let build = flag("build_info", "1, with the version of the daemon's program");
    found.add("", &build, &[("version", &report.rampack)], 1.0);
    let abandoned = flag("abandoned", "1: the service manager is gone that kept the devices");
    found.add("", &abandoned, &[], u8::from(report.is_abandoned).into());
    for disk in &report.devices {
        found.report("zram", DISK, disk, &[("device", &disk.name)]);
    }
    for swap in &report.swaps {
        let device = ("device", &*swap.name);
        found.report("swap", SWAP, swap, &[device]);
        for it in &swap.protections {
            let number = flag("protected", "1: the protection is in force");
            let labels = [device, ("protection", &it.name)];
            found.add("swap", &number, &labels, u8::from(it.had).into());
        }
    }
    if let Some(pool) = &report.swap_cache {
        found.report("zswap", POOL, pool, &[]);
    }
    for disk in devices.machine().disks() {
        let stats = disk.stats();
        let in_memory = stats.orig_bytes as f64 - bytes(stats.backed_pages);
        let value = in_memory - stats.pool_bytes as f64;
        found.add("zram", &saved, &[("device", &disk.name())], value);
    }
    report.latencies.iter().for_each(|latency| found.latency(latency));
    found.0.into_values().collect()
}

fn owned(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn bytes(pages: u64) -> f64 {
    pages as f64 * PAGE_SIZE as f64
}

#[cfg(test)]
mod tests;
