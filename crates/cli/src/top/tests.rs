use std::collections::BTreeMap;
use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::model::{Sort, What};
use super::pressure::Pressure;
use super::*;
use service::latency::Latency;
use service::protocol::DeviceReport;
use service::swap::report::{PoolReport, Protection, ServingReport, SwapReport};
use service::zone::ZoneReport;

const GIB: u64 = 1 << 30;

fn disk(number: u64, pages: u64, reads: u64) -> DeviceReport {
    let attributes = [
        ("disksize", format!("{}", 4 * GIB)),
        ("mm_stat", format!("{} 1 {} 0 0 0 0 0 0", pages * 4096, pages * (1000 + 100 * number))),
        ("bd_stat", "256 0 0".into()),
        ("comp_algorithm", "lzo [zstd] lz4".into()),
        ("num_reads", reads.to_string()),
        ("num_writes", (2 * reads).to_string()),
        ("auto", "1".into()),
        (
            "auto_stat",
            format!("recompressed 60 2560 {reads} 4194304 0 0 0\npacked - 0 0 0 0 0 0\npasses 1"),
        ),
    ];
    DeviceReport {
        name: format!("zram{number}"),
        mountpoints: vec![format!("/mnt/{number}")],
        attributes: attributes.map(|(name, value)| (name.to_string(), value)).into(),
        ..DeviceReport::default()
    }
}

fn latency(device: &str, operation: &str, classes: &[u64]) -> Latency {
    let (device, operation) = (device.into(), operation.into());
    Latency { device, operation, classes: classes.to_vec(), sum: 0 }
}

fn report(disks: u64, reads: u64) -> DaemonReport {
    let protection = |name: &str, had| Protection { name: name.into(), had, text: String::new() };
    let serving = ServingReport { by: "ublk".into(), threads: 2, minor_faults: 3, major_faults: 0 };
    let swap = SwapReport {
        name: "swap0".into(),
        block_device: "/dev/ublkb0".into(),
        bytes: 8 * GIB,
        active: true,
        used: 2 * GIB,
        cached_pages: (GIB + GIB / 2) / 4096,
        disk_pages: GIB / 2 / 4096,
        serving,
        protections: vec![protection("memory locked", true), protection("served at once", false)],
        ..SwapReport::default()
    };
    let cache = PoolReport {
        compressor: "lzo-rle".into(),
        stored_pages: swap.cached_pages,
        pool_bytes: GIB / 2,
        limit_bytes: 3 * GIB,
        stores: 10 * reads,
        loads: reads,
        ..PoolReport::default()
    };
    DaemonReport {
        rampack: "1.2.3".into(),
        pid: 4711,
        root: "/run/rampack".into(),
        file: None,
        nbd: Vec::new(),
        block_devices: true,
        by_io_uring: false,
        is_abandoned: false,
        is_timed: false,
        devices: (0..disks).map(|number| disk(number, 100_000 * (number + 1), reads)).collect(),
        swaps: vec![swap],
        swap_cache: Some(cache),
        zone: ZoneReport { managed_bytes: GIB, free_bytes: GIB / 8, ..ZoneReport::default() },
        latencies: vec![
            latency("zram0", "read", &[50, 49, 1]),
            latency("zram0", "write", &[0, 0, 7]),
            latency("zram1", "read", &[1]),
            latency("swap0", "read", &[0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 40]),
        ],
    }
}

/// A model after two looks, two seconds apart, at so many disks.
fn model(disks: u64) -> Model {
    let (mut model, begin) = (Model::default(), Instant::now());
    let pressure = Some(Pressure { some: 12.5, full: 0.25 });
    assert!(model.take(begin, Ok(report(disks, 1000)), pressure));
    assert!(model.take(begin + Duration::from_secs(2), Ok(report(disks, 2000)), pressure));
    model
}

/// What is on the screen, without the blanks at the ends of lines.
fn screen(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(model, frame)).unwrap();
    let text = terminal.backend().to_string();
    let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Compares the screen with a file; `RAMPACK_GOLDEN=write` makes it anew, to be looked at.
#[track_caller]
fn is_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("RAMPACK_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
}

#[test]
fn it_fits_into_80_columns_and_24_lines() {
    let model = model(2);
    let text = screen(&model, 80, 24);
    is_golden("top.txt", &text);
    // Nothing is cut off: a wider screen has no more on it.
    assert_eq!(screen(&model, 120, 24), text);
}

#[test]
fn many_disks_scroll_and_can_be_sorted() {
    let mut model = model(40);
    assert!(screen(&model, 80, 24).contains("and 3"), "{}", screen(&model, 80, 24));
    for _ in 0..100 {
        assert_eq!(press(&mut model, KeyCode::Down.into()), None);
    }
    let text = screen(&model, 80, 24);
    assert!(text.contains("> zram39") && !text.contains("zram0 "), "{text}");
    assert_eq!(text.lines().count(), 24);
    assert!(text.contains("TIERS of zram39") && text.contains("q quit"), "{text}");
    model.key('s');
    assert_eq!(model.sort, Sort::Data);
    assert_eq!(model.disks()[0].report.name, "zram39");
    assert_eq!(model.place(&model.disks()), Some(0), "the disk stays chosen");
    for sort in [Sort::Memory, Sort::Ratio, Sort::Rate, Sort::Name] {
        model.key('s');
        assert_eq!(model.sort, sort);
    }
    assert_eq!(model.disks()[0].report.name, "zram0");
}

#[test]
fn rates_are_those_between_two_looks() {
    let mut model = model(1);
    assert_eq!(model.disks()[0].reads, Some(500.0 * 4096.0));
    assert_eq!(model.disks()[0].writes, Some(1000.0 * 4096.0));
    assert_eq!(model.pool_rates().unwrap().stores, 5000.0 * 4096.0);
    let tiers = model.tiers(model.disks()[0].report);
    assert_eq!(tiers.len(), 2);
    assert_eq!(tiers[0].moved, Some(500.0 * 4096.0));
    // A daemon that was started meanwhile has counted from 0.
    let other = DaemonReport { pid: 4712, ..report(1, 10) };
    model.take(Instant::now(), Ok(other), None);
    assert_eq!(model.disks()[0].reads, None);
}

#[test]
fn a_pause_shows_what_was_there() {
    let mut model = model(1);
    model.key('p');
    assert!(!model.take(Instant::now(), Ok(report(3, 9)), None));
    assert!(screen(&model, 80, 24).contains("PAUSED"));
    assert_eq!(model.disks().len(), 1);
    model.key('p');
    assert!(model.take(Instant::now(), Ok(report(3, 9)), None));
    assert_eq!(model.disks().len(), 3);
}

#[test]
fn pages_are_written_back_only_after_a_yes() {
    let mut model = model(2);
    model.choose(1);
    assert_eq!(model.key('y'), None, "nobody asked");
    assert_eq!(model.key('w'), None);
    assert!(screen(&model, 80, 24).contains("write back every page of zram1?"));
    assert_eq!(model.key('n'), None);
    assert_eq!(model.key('y'), None, "another key takes it back");
    model.key('w');
    let doing = model.key('y').expect("something to do");
    assert_eq!(doing, Doing { what: What::WriteBack, device: "zram1".into() });
    assert_eq!(model.key('c'), None, "one at a time");
    model.done(&doing, Err("no backing device (EINVAL)".into()));
    assert!(screen(&model, 80, 24).contains("zram1: not written back: no backing device"));
    let doing = model.key('c').expect("something to do");
    assert_eq!(doing.what, What::Recompress);
    model.done(&doing, Ok(()));
    assert!(screen(&model, 80, 24).contains("zram1: compressed again"));
}

#[test]
fn requests_are_timed_and_no_more() {
    let mut model = model(1);
    let doing = model.key('l').expect("something to do");
    assert_eq!(doing.what.stores(), [("latencies", "1")]);
    model.done(&doing, Ok(()));
    assert!(screen(&model, 80, 24).contains("requests: timed\n"));
    let timed = DaemonReport { is_timed: true, ..report(1, 3000) };
    assert!(model.take(Instant::now(), Ok(timed), None));
    assert_eq!(model.key('l').expect("something to do").what.stores(), [("latencies", "0")]);
    let text = screen(&model, 80, 24);
    assert!(text.contains("  zram0     reads: p50 1 us, p99 2 us   writes: p50 4 us, p99 4 us\n"));
    assert!(text.contains("  swap0     reads: p50 4 us, p99 4 ms\n"), "{text}");
    assert!(!text.contains("zram1"), "{text}");
}

#[test]
fn what_is_missing_is_told() {
    let mut model = Model::default();
    model.take(Instant::now(), Err("no daemon (ENOENT)".into()), None);
    let text = screen(&model, 80, 24);
    assert!(text.contains("no daemon (ENOENT)"), "{text}");
    assert_eq!(model.key('w').or(model.key('c')), None);
    let empty = DaemonReport { devices: vec![], swaps: vec![], swap_cache: None, ..report(0, 0) };
    model.take(Instant::now(), Ok(empty), None);
    let text = screen(&model, 80, 24);
    assert!(text.contains("no disks") && text.contains("not told by this kernel"), "{text}");
    assert!(text.contains("saves 0B now"), "{text}");
    let refused = DeviceReport {
        name: "zram5".into(),
        refused: Some("it is\u{1b} torn".into()),
        attributes: BTreeMap::new(),
        ..DeviceReport::default()
    };
    model.take(
        Instant::now(),
        Ok(DaemonReport { devices: vec![refused], is_abandoned: true, ..report(0, 0) }),
        None,
    );
    let text = screen(&model, 80, 24);
    assert!(text.contains("zram5     could not be taken over"), "{text}");
    assert!(text.contains("NOT KEPT") && text.contains("NOT PROTECTED: served at once"), "{text}");
    // Small screens are no error.
    for (width, height) in [(1, 1), (80, 2), (10, 50)] {
        let _ = screen(&model, width, height);
    }
}

#[test]
fn keys_end_it() {
    for key in [
        KeyEvent::from(KeyCode::Char('q')),
        KeyEvent::from(KeyCode::Esc),
        KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        let mut model = model(1);
        assert_eq!(press(&mut model, key), None);
        assert!(model.is_over);
    }
}
