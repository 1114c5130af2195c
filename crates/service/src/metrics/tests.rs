use super::*;
use crate::protocol::Add;
use crate::root::Root;
use crate::swap::report::{LogReport, Protection};
use control::Access;

fn value_of(found: &Found, name: &str, labels: &[(&str, &str)]) -> f64 {
    let metric = found.0.get(name).unwrap_or_else(|| panic!("no {name}"));
    let labels: Vec<_> =
        labels.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect();
    let sample = metric.samples.iter().find(|sample| sample.labels == labels);
    sample.unwrap_or_else(|| panic!("{name} has no {labels:?}: {metric:?}")).value
}

#[test]
fn names_have_units_and_say_what_only_rises() {
    let name = |part, number: Number| named(part, &number).0;
    assert_eq!(name("zram", Number::gauge("disksize", "bytes", "")), "rampack_zram_disksize_bytes");
    let reads = Number::counter("num_reads", "pages", "");
    assert_eq!(name("zram", reads), "rampack_zram_reads_pages_total");
    let faults = Number::counter("major_faults", "count", "");
    assert_eq!(name("swap", faults), "rampack_swap_major_faults_total");
    let stored = Number::gauge("stored_pages", "pages", "");
    assert_eq!(name("zswap", stored), "rampack_zswap_stored_pages");
    assert_eq!(name("", Number::gauge("zone/free", "pages", "")), "rampack_zone_free_pages");
    let time = Number::counter("recompress_us", "us", "");
    assert_eq!(named("zswap", &time), ("rampack_zswap_recompress_seconds_total".to_string(), 1e-6));
}

#[test]
fn a_value_may_hold_several_numbers() {
    let mut found = Found::default();
    let mut shown = |name, kind, value| {
        let info = AttributeInfo { name, access: Access::Read, unit: "count", kind, help: "it" };
        found.value("zram", &[("device", "zram7")], &info, value);
    };
    shown("level", ValueKind::Gauge, "7\n");
    shown("text", ValueKind::Plain, "9\n");
    shown("reject_compress_poor", ValueKind::Counter, "3\n");
    shown("reject_disabled", ValueKind::Counter, "4\n");
    const ROW: &[Number] = &[
        Number::gauge("first", "bytes", "the first"),
        Number::counter("second", "pages", "the second"),
    ];
    shown("row", ValueKind::Row(ROW), "   1 2 \n");
    shown("table", ValueKind::Table("tier", ROW), "cold - 5\nwarm 6 7\npasses 1 cpu 2 a 3\n");
    let disk = ("device", "zram7");
    assert_eq!(value_of(&found, "rampack_zram_level", &[disk]), 7.0);
    assert_eq!(value_of(&found, "rampack_zram_first_bytes", &[disk]), 1.0);
    assert_eq!(value_of(&found, "rampack_zram_second_pages_total", &[disk]), 2.0);
    let second =
        |tier| value_of(&found, "rampack_zram_second_pages_total", &[disk, ("tier", tier)]);
    assert_eq!([second("cold"), second("warm")], [5.0, 7.0]);
    let rejects =
        |reason| value_of(&found, "rampack_zram_rejects_total", &[disk, ("reason", reason)]);
    assert_eq!([rejects("compress_poor"), rejects("disabled")], [3.0, 4.0]);
    assert_eq!(found.0["rampack_zram_first_bytes"].samples.len(), 2, "a dash is no number");
    let names: Vec<&String> = found.0.keys().collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

/// The metrics of a daemon with a disk and a swap device.
fn all() -> Found {
    let root = Root::choose(Some(std::path::Path::new("/nonexistent/rampack"))).unwrap();
    let devices = Arc::new(Devices::new(root, crate::engine::new().unwrap(), None));
    let disk = Add { size: Some("16M".into()), ..Add::default() };
    devices.add(&disk).unwrap();
    let protection = Protection { name: "it".into(), had: true, text: String::new() };
    let swap = SwapReport {
        name: "swap0".into(),
        used: 4096,
        log: Some(LogReport::default()),
        protections: vec![protection],
        ..SwapReport::default()
    };
    let mut classes = vec![0; BOUNDS.len() + 1];
    (classes[0], classes[2], classes[BOUNDS.len()]) = (3, 1, 1);
    let (device, operation) = ("swap0".into(), "read".into());
    let latency = Latency { device, operation, classes, sum: 2_000_000_000 };
    let report = DaemonReport {
        rampack: "1.2.3".into(),
        pid: 1,
        root: String::new(),
        file: None,
        nbd: Vec::new(),
        block_devices: false,
        by_io_uring: false,
        is_abandoned: true,
        is_timed: true,
        devices: devices.reports(),
        swaps: vec![swap],
        swap_cache: Some(PoolReport { headroom_bytes: Some(7), ..PoolReport::default() }),
        zone: crate::zone::ZoneReport::default(),
        latencies: vec![latency],
    };
    Found(of(&devices, &report).into_iter().map(|metric| (metric.name.clone(), metric)).collect())
}

#[test]
fn a_daemon_counts_what_its_attributes_and_reports_tell() {
    let found = all();
    let zram0 = [("device", "zram0")];
    assert_eq!(value_of(&found, "rampack_zram_disksize_bytes", &zram0), f64::from(16 << 20));
    assert_eq!(value_of(&found, "rampack_zram_saved_bytes", &zram0), 0.0);
    assert_eq!(value_of(&found, "rampack_swap_used_bytes", &[("device", "swap0")]), 4096.0);
    let protected = [("device", "swap0"), ("protection", "it")];
    assert_eq!(value_of(&found, "rampack_swap_protected", &protected), 1.0);
    assert_eq!(value_of(&found, "rampack_zswap_headroom_bytes", &[]), 7.0);
    assert_eq!(value_of(&found, "rampack_zswap_rejects_total", &[("reason", "disabled")]), 0.0);
    assert_eq!(value_of(&found, "rampack_build_info", &[("version", "1.2.3")]), 1.0);
    assert_eq!(value_of(&found, "rampack_abandoned", &[]), 1.0);
    assert!(found.0.contains_key("rampack_zone_allocated_pages"));
    assert_eq!(value_of(&found, "rampack_zswap_saved_bytes", &[]), 0.0);
    let times = &found.0["rampack_request_seconds"];
    assert_eq!((times.kind, times.samples[0].value), (MetricKind::Histogram, 2.0));
    let buckets = &times.samples[0].buckets;
    assert_eq!(buckets[..3], [(1e-6, 3), (2e-6, 3), (4e-6, 4)]);
    assert_eq!(buckets[BOUNDS.len() - 1..], [(0.256, 4), (f64::MAX, 5)]);
    for (name, metric) in &found.0 {
        assert!(!metric.help.is_empty(), "{name}");
        let mut labels: Vec<_> = metric.samples.iter().map(|sample| &sample.labels).collect();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), metric.samples.len(), "{name} has two values of the same");
    }
}
