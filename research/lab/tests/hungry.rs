//! `rampack-lab hungry`, at a small size: programs that verify their memory come through.

mod common;

use common::{Place, swap};
use serde_json::Value;
use testkit::Need;

const SMALL: [&str; 12] = [
    "hungry",
    "--dir",
    ".",
    "--limit",
    "64M",
    "--size",
    "72M",
    "--swap-size",
    "256M",
    "--timeout",
    "600",
    "--force",
];

const PROGRAMS: [Need; 3] = [
    Need::program("stress-ng", "stress-ng"),
    Need::program("redis-server", "redis-server"),
    Need::program("sort", "coreutils"),
];

/// Without `sort`, which takes most of the time: for the ways to swap that are only compared with.
const QUICK: &str = "stress-ng,redis";

fn all_pass(place: &Place, (modes, programs): (&str, &str), more: &[&str]) {
    let swap = ["--json", "--swap", modes, "--program", programs];
    let result = place.json(&[&SMALL[..], &swap, more].concat());
    let runs = result["runs"].as_array().expect("a list");
    let count = if programs == "all" { PROGRAMS.len() } else { programs.split(',').count() };
    assert_eq!(runs.len(), count * modes.split(',').count(), "{result}");
    for run in runs {
        assert_eq!(run["passed"], Value::Bool(true), "{run}");
        let out = &run["measured"]["vmstat"];
        let out = [&out["pswpout"], &out["zswpout"]].map(|value| value.as_u64().unwrap_or(0));
        assert!(out[0] + out[1] > 0, "{run}");
    }
    common::assert_no_swap_of(place);
    place.assert_nothing_left();
}

#[test]
fn programs_come_through_plain_swap() {
    let test = "programs_come_through_plain_swap";
    if testkit::met(test, &[&PROGRAMS, swap().as_slice()].concat()) {
        all_pass(&Place::new(), ("file", QUICK), &[]);
    }
}

#[test]
fn programs_come_through_the_kernels_own() {
    let test = "programs_come_through_the_kernels_own";
    let needs = [&PROGRAMS, swap().as_slice(), &[Need::Zram, Need::Zswap]].concat();
    if testkit::met(test, &needs) {
        all_pass(&Place::new(), ("kernel-zswap,kernel-zram", QUICK), &[]);
    }
}

#[test]
fn programs_come_through_ours() {
    let test = "programs_come_through_ours";
    let needs = [&PROGRAMS, swap().as_slice(), &[Need::Fuse, Need::Loop]].concat();
    if !testkit::met(test, &needs) {
        return;
    }
    let rampack = common::rampack();
    let rampack = rampack.to_str().expect("a path");
    // Little memory for compressed pages, so that the oldest go to the disk.
    let more = ["--rampack", rampack, "--max-pool", "8M"];
    all_pass(&Place::new(), ("rampack", "all"), &more);
}

#[test]
fn a_table() {
    if !testkit::met("a_table", &[&PROGRAMS, swap().as_slice()].concat()) {
        return;
    }
    let place = Place::new();
    let arguments = [&SMALL[..], &["--swap", "file", "--program", "redis"]].concat();
    let output = testkit::run(&mut place.lab(&arguments));
    for word in ["redis", "file", "pass", "values", "pswpout"] {
        assert!(output.stdout.contains(word), "{word:?} is missing in {}", output.stdout);
    }
    place.assert_nothing_left();
}

#[test]
fn nonsense_is_refused_and_named() {
    let place = Place::new();
    for (arguments, word) in [
        (&["--program", "emacs"][..], "stress-ng, sort, redis"),
        (&["--program", "sort,all"], "already"),
        (&["--program", "sort", "--swap", "tape"], "kernel-zswap"),
        (&["--program", "sort", "--limit", "64M", "--size", "64M"], "nothing would be swapped"),
        (&["--limit", "0"], "4M"),
    ] {
        let message = place.refused(&[&["hungry"], arguments].concat());
        assert!(message.contains(word), "{arguments:?}: {word:?} is missing in {message}");
    }
}
