//! All ways into a disk beside each other, and beside the kernel's zram: the time of a request of
//! 4 KiB alone, requests a second when 16 are under way, and the CPU time of one of them, of all
//! that works for it: the program that asks, the kernel and the daemon. By turns, as often as
//! `--rounds` says; the medians are printed. fio asks; its pages shrink to half.
//!
//! ```sh
//! cargo bench -p rampack-cli --bench ways -- [--rounds 5] [--seconds 2] [--json] [WAY...]
//! ```
//!
//! What is missing (root, a driver, fio) is said, and left out.

#[allow(dead_code, reason = "the others measure with a file")]
mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Daemon, measures, program};
use serde_json::{Value, json};
use testkit::TempDir;

/// A way: its name, the words of `rampack serve`, and where the disk is, below the root.
struct Way {
    name: &'static str,
    serve: &'static [&'static str],
    place: &'static str,
}

const WAYS: [Way; 5] = [
    Way { name: "file", serve: &["--transport", "fuse"], place: "files/zram0" },
    // By io_uring where the kernel has that, and without.
    Way { name: "loop", serve: &["--transport", "fuse"], place: "dev/zram0" },
    Way { name: "loop-classic", serve: &["--transport", "fuse-classic"], place: "dev/zram0" },
    Way { name: "ublk", serve: &["--transport", "ublk"], place: "dev/zram0" },
    Way { name: "nbd", serve: &["--transport", "nbd"], place: "nbd.sock" },
];
/// The kernel's own, if nobody uses it.
const KERNEL: &str = "/sys/block/zram0";
/// Until a device is there.
const PATIENCE: Duration = Duration::from_secs(20);
/// Requests of one load.
const LOADS: [(&str, u32); 4] =
    [("randread", 1), ("randwrite", 1), ("randread", 16), ("randwrite", 16)];

/// Something to measure, until it is dropped.
struct Subject {
    name: &'static str,
    /// What fio is told.
    target: Vec<String>,
    daemon: Option<Daemon>,
    _directory: Option<TempDir>,
}

impl Drop for Subject {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            let _ = fs::write(Path::new(KERNEL).join("reset"), "1");
        }
    }
}

fn file(path: &Path) -> Vec<String> {
    vec!["--ioengine=libaio".into(), format!("--filename={}", path.display())]
}

/// Starts a daemon; `None` if this way is not here.
fn ours(way: &Way, size: &str) -> Option<Subject> {
    let directory = TempDir::new();
    let root = directory.path().join("root");
    let serve = program(&root).arg("serve").args(way.serve).args(["--size", size]).spawn();
    let mut daemon = Daemon(serve.expect("the program"));
    let place = root.join(way.place);
    let begun = Instant::now();
    while !place.exists() {
        // It says itself what is missing, and may have the file without the block device.
        if daemon.0.try_wait().expect("its status").is_some() || begun.elapsed() > PATIENCE {
            println!("{}: not here, or not for this user", way.name);
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let target = match way.name {
        "nbd" => {
            let uri = format!("--uri=nbd+unix:///zram0?socket={}", place.display());
            vec!["--ioengine=nbd".into(), uri]
        }
        _ => file(&place),
    };
    Some(Subject { name: way.name, target, daemon: Some(daemon), _directory: Some(directory) })
}

/// The kernel's zram with lz4, if nobody has set it up.
fn kernels(size: &str) -> Option<Subject> {
    let place = Path::new(KERNEL);
    let is_free = fs::read_to_string(place.join("disksize")).is_ok_and(|it| it.trim() == "0");
    let set = |name: &str, value: &str| fs::write(place.join(name), value).is_ok();
    if !is_free || !set("comp_algorithm", "lz4") || !set("disksize", size) {
        println!("kernel zram: not here, in use, or no root");
        return None;
    }
    let target = file(Path::new("/dev/zram0"));
    Some(Subject { name: "kernel zram", target, daemon: None, _directory: None })
}

/// Seconds in which a CPU was busy since the system began (proc_stat(5)).
fn busy() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers = text.lines().next().unwrap_or("").split_whitespace().skip(1);
    let ticks: Vec<f64> = numbers.filter_map(|it| it.parse().ok()).collect();
    // Without idle, iowait, and what guests are counted twice for.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|n| ticks.get(*n)).sum::<f64>();
    busy / 100.0
}

/// Runs fio, and gives the microseconds of a request (the median), requests a second, and
/// microseconds of CPU time of one.
fn run(subject: &Subject, (what, depth): (&str, u32), size: &str, seconds: f64) -> [f64; 3] {
    let mut fio = Command::new("fio");
    fio.args(["--name=way", "--direct=1", "--bs=4k", "--output-format=json", "--norandommap"]);
    fio.args(["--buffer_compress_percentage=50", "--time_based", "--randrepeat=1"]);
    // From the call on: the kernel's zram has answered when that returns.
    fio.args(["--lat_percentiles=1", "--clat_percentiles=0"]);
    fio.arg(format!("--rw={what}")).arg(format!("--size={size}"));
    fio.arg(format!("--iodepth={depth}")).arg(format!("--runtime={}ms", (seconds * 1e3) as u64));
    let begun = busy();
    let output = fio.args(&subject.target).stdin(Stdio::null()).output().expect("fio");
    let spent = busy() - begun;
    assert!(
        output.status.success(),
        "{}: {}",
        subject.name,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value =
        serde_json::from_str(&text[text.find('{').expect("a report")..]).expect("JSON");
    let side = &report["jobs"][0][if what == "randread" { "read" } else { "write" }];
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let median = number(&side["lat_ns"]["percentile"]["50.000000"]) / 1e3;
    [median, number(&side["iops"]), spent * 1e6 / number(&side["total_ios"]).max(1.0)]
}

/// Megabytes that a process has in memory.
fn resident(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1e3)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn option(words: &[String], name: &str) -> Option<f64> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1)?.parse().ok()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (size, rounds, seconds) = match measures() {
        true => (
            "256M",
            option(&words, "--rounds").unwrap_or(5.0) as usize,
            option(&words, "--seconds").unwrap_or(2.0),
        ),
        false => ("8M", 1, 0.1),
    };
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        return println!("fio is not installed; the package fio brings it");
    }
    let named = WAYS.iter().any(|way| words.iter().any(|word| word == way.name));
    let wanted = WAYS.iter().filter(|way| !named || words.iter().any(|word| word == way.name));
    let mut subjects: Vec<Subject> = wanted.filter_map(|way| ours(way, size)).collect();
    // Tests leave the kernel's device alone: others may use it meanwhile.
    subjects.extend(measures().then(|| kernels(size)).flatten());
    for subject in &subjects {
        // Pages that were never written cost nothing to read.
        run(subject, ("write", 16), size, seconds.max(0.5));
    }
    let mut found = vec![LOADS.map(|_| [Vec::new(), Vec::new(), Vec::new()]); subjects.len()];
    for _ in 0..rounds {
        for (subject, found) in subjects.iter().zip(&mut found) {
            for (load, found) in LOADS.iter().zip(found) {
                let figures = run(subject, *load, size, seconds);
                found.iter_mut().zip(figures).for_each(|(all, one)| all.push(one));
            }
        }
    }
    let rows = subjects.iter().zip(found).map(|(subject, found)| {
        let [read, write, reads, writes] = found.map(|figures| figures.map(median));
        json!({
            "way": subject.name,
            "read_us": read[0], "write_us": write[0],
            "reads_per_second": reads[1], "writes_per_second": writes[1],
            "cpu_us_a_read": reads[2], "cpu_us_a_write": writes[2],
            "resident_mb": subject.daemon.as_ref().and_then(|daemon| resident(daemon.0.id())),
        })
    });
    let rows: Vec<Value> = rows.collect();
    if words.iter().any(|word| word == "--json") {
        return println!("{}", json!({ "rounds": rounds, "seconds": seconds, "ways": rows }));
    }
    println!(
        "way          alone, us: read write   16, thousands/s: read write   CPU us: read write   MB"
    );
    for row in rows {
        let number = |name: &str, by: f64| row[name].as_f64().map_or(f64::NAN, |it| it / by);
        println!(
            "{:12} {:15.1} {:5.1} {:22.1} {:5.1} {:14.1} {:5.1} {:7.0}",
            row["way"].as_str().unwrap_or(""),
            number("read_us", 1.0),
            number("write_us", 1.0),
            number("reads_per_second", 1e3),
            number("writes_per_second", 1e3),
            number("cpu_us_a_read", 1.0),
            number("cpu_us_a_write", 1.0),
            number("resident_mb", 1.0),
        );
    }
}
