//! `rampack-lab kernel-build`, with a tree whose build takes a moment and more memory than it gets.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{self, Place, list, swap};
use serde_json::Value;
use testkit::Need;

const TOOLS: [Need; 2] =
    [Need::program("make", "build-essential"), Need::program("gcc", "build-essential")];

fn met(test: &str, more: &[Need]) -> bool {
    testkit::met(test, &[&TOOLS, swap().as_slice(), more].concat())
}

/// A place with a tree that makes a program which fills memory, reads it back and writes a source
/// from it, as generators of code do; and runs the compiler on that.
fn place() -> Place {
    place_with(include_str!("tree/Makefile"), include_str!("tree/generator.c"))
}

fn place_with(makefile: &str, generator: &str) -> Place {
    let place = Place::new();
    fs::create_dir(place.path("tree")).expect("a directory");
    fs::write(place.path("tree/Makefile"), makefile).expect("a file");
    fs::write(place.path("tree/generator.c"), generator).expect("a file");
    place
}

const FOREVER: &str = "all:\n\tsleep 100000 & sleep 100000\n\nclean:\n";

const SMALL: &str =
    "kernel-build --source tree --dir . --jobs 1 --limit 40M --swap-size 128M --force";

fn build(place: &Place, more: &str) -> Value {
    place.json(&format!("{SMALL} {more}"))
}

fn number(run: &Value, path: &str) -> u64 {
    let value = run.pointer(path).unwrap_or_else(|| panic!("no {path} in {run}"));
    value.as_u64().unwrap_or_else(|| panic!("{path} is no number in {run}"))
}

#[test]
fn plain_swap_and_none() {
    if !met("plain_swap_and_none", &[]) {
        return;
    }
    let place = place();
    let result = build(&place, "--swap none,file --repeat 2");
    let runs = list(&result, "runs");
    let names: Vec<_> = runs.iter().map(|run| run["swap"].as_str().expect("a name")).collect();
    assert_eq!(names, ["none", "file", "file", "none"]);
    for run in runs {
        assert_eq!((&run["outcome"], &run["jobs"]), (&Value::from("done"), &Value::from(1)));
        assert!(run["measured"]["seconds"].as_f64().is_some_and(|s| s > 0.0), "{run}");
        assert!(run["measured"]["user_seconds"].as_f64().is_some_and(|s| s > 0.0), "{run}");
        if run["swap"] == "file" {
            assert!(number(run, "/measured/vmstat/pswpout") > 0, "{run}");
            assert!(number(run, "/measured/swap/disk_written_bytes") > 0, "{run}");
            assert!(number(run, "/measured/major_faults") > 0, "{run}");
        }
    }
    place.assert_nothing_left();
}

#[test]
fn the_kernels_own() {
    let _alone = common::zram();
    if !met("the_kernels_own", &[Need::Zram, Need::Zswap]) {
        return;
    }
    let place = place();
    let before = common::zswap_parameters();
    let result = build(&place, "--swap kernel-zswap,zswap+rampack,kernel-zram --max-pool 64M");
    let runs = list(&result, "runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(run["outcome"], "done", "{run}");
        assert!(number(run, "/measured/swap/stored") > 0, "{run}");
        assert!(number(run, "/measured/swap/loaded") > 0, "{run}");
    }
    assert_eq!(number(&runs[2], "/measured/swap/disk_written_bytes"), 0);
    assert_eq!(common::zswap_parameters(), before);
    let state = fs::read_to_string("/sys/block/zram0/initstate").expect("its state");
    assert_eq!(state.trim(), "0");
    place.assert_nothing_left();
}

/// A build that takes too long is killed, and so is everything it has started.
#[test]
fn time_is_over() {
    if !met("time_is_over", &[]) {
        return;
    }
    let place = place_with(FOREVER, "");
    let result = build(&place, "--timeout 1 --swap file");
    assert_eq!(result["runs"][0]["outcome"], "timeout");
    place.assert_nothing_left();
}

/// However often it is asked to stop, it first takes away what it has made.
#[test]
fn interrupted() {
    if !met("interrupted", &[]) {
        return;
    }
    let place = place_with(FOREVER, "");
    let mut command = place.lab(&format!("{SMALL} --swap file"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a child");
    while !common::swaps_to(&place) {
        assert!(child.try_wait().expect("its status").is_none(), "it has ended");
        thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    for _ in 0..3 {
        // The last ones may find nobody.
        testkit::try_run(Command::new("kill").args(["-INT", &id]));
    }
    assert!(!child.wait().expect("its status").success());
    place.assert_nothing_left();
    let left: Vec<_> = fs::read_dir(place.path("")).expect("a directory").flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name() == "tree" || entry.file_name() == "t"));
}

/// Ours, with little memory for compressed pages, so that the oldest go to the disk.
#[test]
fn ours_with_each_index() {
    if !met("ours_with_each_index", &[Need::Fuse, Need::Loop]) {
        return;
    }
    let place = place();
    let rampack = common::rampack();
    let modes = "design:rbtree,rampack:lzo-rle";
    let rampack = rampack.to_str().expect("a path");
    let result = build(&place, &format!("--swap {modes} --rampack {rampack} --max-pool 8M"));
    let runs = list(&result, "runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["outcome"], "done", "{run}");
        if run["swap"] == "design:rbtree" {
            continue;
        }
        for path in ["stored", "loaded", "written_back", "disk_written_bytes", "pool_peak_bytes"] {
            assert!(number(run, &format!("/measured/swap/{path}")) > 0, "{path} of {run}");
        }
    }
    place.assert_nothing_left();
}

#[test]
fn a_build_that_fails_is_shown_and_is_a_failure() {
    let test = "a_build_that_fails_is_shown_and_is_a_failure";
    if !met(test, &[]) {
        return;
    }
    let place = place_with(include_str!("tree/Makefile"), "no C");
    let output = testkit::try_run(&mut place.lab(&format!("{SMALL} --json --swap none")));
    assert!(!output.status.success());
    assert!(output.stderr.contains("1 of 1 builds failed"), "{}", output.stderr);
    assert!(output.stdout.contains("generator.c"), "{}", output.stdout);
    place.assert_nothing_left();
}
