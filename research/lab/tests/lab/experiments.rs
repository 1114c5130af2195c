//! `rampack-lab locks` and `streams`, at a small size: what they promise of their results, never how
//! fast anything was.

use std::collections::BTreeSet;
use std::fs;

use crate::common::{Place, list, number, write_corpus};
use serde_json::Value;
use testkit::Need;

const MODES: &str = "Initial write,Rewrite,Read,Re-read,Reverse read,Stride read,Random read,\
                     Mixed workload,Random write,Pwrite,Pread";

fn names(result: &Value) -> Vec<&str> {
    list(result, "subjects")
        .iter()
        .map(|subject| subject["name"].as_str().expect("a name"))
        .collect()
}

/// Checks the figures of a cell, of which there is one of each repetition.
fn assert_figures(figures: &Value, base: &Value, repeat: usize) {
    let number = |key: &str| number(figures, key);
    let samples = |figures: &Value| -> Vec<f64> {
        list(figures, "samples").iter().map(|sample| sample.as_f64().expect("a number")).collect()
    };
    let ours = samples(figures);
    assert_eq!(ours.len(), repeat);
    assert!(ours.iter().all(|sample| *sample > 0.0), "{figures}");
    let close = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 1e-6;
    assert!(close(number("mean"), ours.iter().sum::<f64>() / repeat as f64), "{figures}");
    assert!(number("median") > 0.0 && number("deviation") >= 0.0, "{figures}");
    if repeat == 1 {
        assert!(close(number("median"), ours[0]), "{figures}");
        assert_eq!(number("deviation"), 0.0);
        assert!(close(number("over_base"), ours[0] / samples(base)[0]), "{figures}");
    }
}

/// Checks that every subject has figures in every mode with every number of threads.
fn assert_whole(result: &Value, threads: &[u64], modes: &str, repeat: usize) {
    let modes: Vec<&str> = modes.split(',').collect();
    assert_eq!(result["unit"], "KB/s");
    assert_eq!(result["repeat"], repeat);
    let names = names(result);
    assert_eq!(result["base"], names[0]);
    let cells = list(result, "cells");
    assert_eq!(cells.len(), threads.len() * modes.len() * names.len());
    let mut seen = BTreeSet::new();
    for row in cells.chunks(names.len()) {
        for cell in row {
            let text = |key: &str| cell[key].as_str().unwrap_or_else(|| panic!("{key}: {cell}"));
            let with = cell["threads"].as_u64().expect("a number");
            let (mode, subject) = (text("mode"), text("subject"));
            assert!(modes.contains(&mode) && names.contains(&subject) && threads.contains(&with));
            seen.insert((mode, subject, with));
            assert_figures(cell, &row[0], repeat);
            assert_figures(&cell["cpu"], &row[0]["cpu"], repeat);
        }
    }
    assert_eq!(seen.len(), cells.len());
}

#[test]
fn every_slot_scheme_takes_part_in_every_mode() {
    let place = Place::new();
    let result = place.json("locks --size 320K --repeat 1");
    assert_whole(&result, &[1, 2], MODES, 1);
    let names = names(&result);
    assert_eq!(names[0], "global-rwlock");
    for name in ["bit-spinlock", "cas", "spinlock", "rwlock", "epoch"] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    for (key, wanted) in
        [("command", "locks"), ("workload", "modes"), ("content", "iozone"), ("algorithm", "lz4")]
    {
        assert_eq!(result[key], wanted, "{key}");
    }
    assert_eq!(result["block_bytes"], 16 << 10);
    assert_eq!(result["area_bytes"], 320 << 10);
    for subject in list(&result, "subjects") {
        let bytes = number(subject, "slot_bytes_per_page");
        assert!((8.0..=64.0).contains(&bytes), "{subject}");
    }
    place.assert_nothing_left();
}

#[test]
fn jobs_of_fio_and_eight_pages() {
    let place = Place::new();
    let some = "--schemes cas,epoch --threads 3,1";
    let modes = "seq-write,seq-read,seq-rw,rand-rw";
    let fio = "locks --workload fio --loops 1 --content half";
    let result = place.json(&format!("{fio} {some} --repeat 1"));
    assert_whole(&result, &[3, 1], modes, 1);
    assert_eq!(names(&result), ["cas", "epoch"]);
    assert_eq!((&result["block_bytes"], &result["laps"]), (&(32 << 10).into(), &1.into()));
    assert_eq!(result["area_bytes"], 10 << 20);

    let eight = "locks --workload eight --operations 500 --content filled";
    let result = place.json(&format!("{eight} {some} --repeat 3"));
    assert_whole(&result, &[3, 1], "store,load,half of each", 3);
    assert_eq!((&result["area_bytes"], &result["laps"]), (&(8 * 4096).into(), &500.into()));
}

#[test]
fn stream_policies_and_pages_of_a_file() {
    let place = Place::new();
    write_corpus(&place.path("c.pages"), 100);
    let result = place.json("streams --size 64K --content c.pages --shuffle --repeat 1");
    assert_whole(&result, &[2, 3], MODES, 1);
    assert!(names(&result).contains(&"percpu"), "{result}");
    assert_eq!(result["command"], "streams");
    assert_eq!(result["content"], "c.pages shuffled");

    let policies = "--policies percpu:N,percpu:1,percpu";
    let line = format!("streams --size 64K --threads 2 --content random {policies} --repeat 1");
    let result = place.json(&line);
    assert_whole(&result, &[2], MODES, 1);
    assert_eq!(names(&result), ["percpu:N", "percpu:1", "percpu"]);
    assert_eq!(result["subjects"][0]["streams"], "percpu");
}

#[test]
fn tables() {
    let place = Place::new();
    let output = testkit::run(&mut place.lab("locks --size 32K --repeat 2"));
    for word in MODES.split(',').chain(["global-rwlock", "over", "deviation", "slot", "epoch"]) {
        assert!(output.stdout.contains(word), "{word:?}");
    }
}

#[test]
fn the_kernels_device_beside_ours() {
    let _alone = crate::common::zram();
    if !testkit::met("the_kernels_device_beside_ours", &[Need::Root, Need::Zram]) {
        return;
    }
    let known = fs::read_to_string("/sys/block/zram0/comp_algorithm").expect("algorithms");
    let place = Place::new();
    let ours = "locks --size 320K --schemes epoch --threads 1,2 --repeat 1 --algorithm lz4";
    let result = place.json(&format!("{ours} --kernel /dev/zram0"));
    assert_whole(&result, &[1, 2], MODES, 1);
    assert_eq!(names(&result), ["epoch", "kernel"]);
    assert!(result["subjects"][1]["slot_bytes_per_page"].is_null());
    let now =
        |name: &str| fs::read_to_string(format!("/sys/block/zram0/{name}")).expect("an attribute");
    assert_eq!(now("initstate").trim(), "0");
    assert_eq!(now("comp_algorithm"), known);
}
