//! `rampack-soak run`: a short run over each set of transports, and what it must notice.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::Place;
use serde_json::Value;
use testkit::Need;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A short soak: its result, or what it complained about.
fn soak(arguments: &[&str]) -> Result<Value, String> {
    let place = Place::new();
    let mut command = place.soak(&["run", "--json", "--pages", "1024"]);
    if !arguments.contains(&"--dir") {
        command.args(["--dir", "t"]);
    }
    let output = command.args(arguments).output().expect("the program");
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    // Whatever comes of it, nothing stays mounted, attached or running.
    place.assert_nothing_left();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).expect("an object")),
        false => Err(complaints),
    }
}

fn row<'v>(told: &'v Value, transport: &str) -> &'v Value {
    let rows = told["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["transport"] == transport).expect("a row")
}

fn checked(told: &Value, transports: &[&str]) {
    assert_eq!((told["wrong"].as_u64(), told["lost"].as_u64()), (Some(0), Some(0)), "{told}");
    for transport in transports {
        let row = row(told, transport);
        let count = |name: &str| row[name].as_u64().unwrap_or_default();
        assert!(count("read") > 0 && count("written") > 0, "{row}");
    }
}

#[test]
fn every_page_is_right_by_calls_and_over_nbd() {
    let operations = ["--operations", "1000000", "--kill-every", "300"];
    let transports = ["--transports", "library,nbd,swap"];
    let told = soak(&[&operations[..], &transports].concat()).expect("a soak without an error");
    checked(&told, &["library", "nbd", "swap"]);
    assert!(told["kills"].as_u64() > Some(0) && told["faults"].as_u64() > Some(0), "{told}");
    assert!(row(&told, "nbd")["discarded"].as_u64() > Some(0), "{told}");
    assert!(told["acts"]["pages_written_back"].as_u64() > Some(0), "{told}");
}

#[test]
fn every_page_is_right_over_files_and_loop_devices() {
    let name = "every_page_is_right_over_files_and_loop_devices";
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    // By io_uring, where the kernel can, and as before.
    for seed in ["2", "3"] {
        let operations = ["--operations", "500000", "--kill-every", "300", "--seed", seed];
        let told = soak(&operations).expect("a soak without an error");
        checked(&told, &["library", "nbd", "fuse", "loop", "swap"]);
        assert!(told["kills"].as_u64() > Some(0), "{told}");
    }
}

#[test]
fn a_device_that_answers_old_pages_is_found_out() {
    for transport in ["library", "nbd"] {
        let operations = ["--operations", "1000000000", "--transports", transport, "--stale"];
        let complaint = soak(&operations).expect_err("an old page was not noticed");
        assert!(complaint.contains("LOST page") && complaint.contains("seed"), "{complaint}");
    }
}

#[test]
fn an_interrupt_of_all_processes_leaves_nothing() {
    let name = "an_interrupt_of_all_processes_leaves_nothing";
    let kill = Need::program("kill", "procps");
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop, kill]) {
        return;
    }
    let place = Place::new();
    let mut command = place.soak(&["run", "--dir", "t", "--pages", "256"]);
    // As a terminal does: a group of its own, which gets the signal as a whole.
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut soak = command.spawn().expect("the program");
    let mounts = || std::fs::read_to_string("/proc/mounts").expect("the mounts");
    let own = place.path("t").canonicalize().expect("a directory").display().to_string();
    let begun = Instant::now();
    while mounts().matches(&own).count() < 2 {
        assert!(begun.elapsed() < PATIENCE, "it mounts nothing");
        assert!(soak.try_wait().expect("its state").is_none(), "it has ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
    testkit::run(Command::new("kill").args(["-s", "INT", "--", &format!("-{}", soak.id())]));
    assert!(!soak.wait().expect("its status").success());
    assert!(!mounts().contains(&own), "a mount is left");
    place.assert_nothing_left();
}

#[test]
fn what_is_not_there_is_refused() {
    let complaint = soak(&["--transports", "pigeons"]).expect_err("pigeons carried it");
    assert!(complaint.contains("pigeons") && complaint.contains("library"), "{complaint}");
    let complaint = soak(&["--dir", "/nowhere/at/all"]).expect_err("a directory was made");
    assert!(complaint.contains("/nowhere/at/all"), "{complaint}");
}
