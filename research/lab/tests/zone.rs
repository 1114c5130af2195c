//! `rampack-lab zone`, `zone-sim` and `churn`, at small sizes: what they promise of their results,
//! never how fast it was or how right.

mod common;

use common::{Place, write_corpus};
use serde_json::Value;
use testkit::Need;

const ZONE: [&str; 8] = ["zone", "--frames", "8192", "--repeat", "2", "--cycles", "1", "--json"];
const SIM: [&str; 10] =
    ["zone-sim", "--size", "32M", "--repeat", "1", "--pages", "256", "--cycles", "1", "--json"];
const CHURN: [&str; 6] = ["churn", "--size", "8M", "--rounds", "3", "--json"];

fn list<'a>(result: &'a Value, key: &str) -> &'a Vec<Value> {
    result[key].as_array().unwrap_or_else(|| panic!("{key} of {result}"))
}

fn number(result: &Value, key: &str) -> f64 {
    result[key].as_f64().unwrap_or_else(|| panic!("{key} of {result}"))
}

fn assert_buddyinfo(run: &Value) {
    let frames = number(run, "frames");
    for moment in ["live", "before_drain", "after_drain"] {
        let counts = list(&run["buddyinfo"], moment);
        assert_eq!(counts.len(), 11, "{run}");
        let sizes = counts.iter().enumerate();
        let free: f64 =
            sizes.map(|(order, n)| n.as_f64().expect("a count") * f64::from(1 << order)).sum();
        assert!(free <= frames, "{run}");
        let unusable = list(&run["unusable_free_index"], moment);
        assert_eq!(unusable.len(), 11, "{run}");
        let of = |at: usize| unusable[at].as_f64().expect("a part");
        assert!((0..10).all(|at| of(at) <= of(at + 1) && of(at + 1) <= 1.0), "{run}");
        assert_eq!(of(0), 0.0);
    }
}

#[test]
fn one_run_stands_at_the_top() {
    let place = Place::new();
    let one = ["--design", "mutex-buddy", "--threads", "1", "--workload", "bulk"];
    let result = place.json(&[&ZONE[..], &one].concat());
    assert_eq!(result["command"], "zone");
    let text = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    assert_eq!((text("design"), text("workload")), ("mutex-buddy".into(), "bulk".into()));
    assert_eq!(result["threads"], 1);
    let (alloc, free) = (number(&result, "alloc_ns"), number(&result, "free_ns"));
    assert!(alloc > 0.0 && free > 0.0 && number(&result, "pair_ns") > 0.0, "{result}");
    assert_eq!(number(&result, "lock_wait_percent"), 0.0, "one thread waits for nobody");
    assert!(number(&result, "lock_held_ns_per_page") >= 0.0);
    assert_eq!(number(&result, "acquisitions_per_page"), 2.0);
    assert_eq!(number(&result, "order0_share"), 0.0);
    assert_eq!(number(&result, "unmerged_buddies"), 0.0);
    assert_buddyinfo(&result);
    let runs = list(&result, "runs");
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["pair_ns"], result["pair_ns"]);
}

#[test]
fn every_workload_and_mode_of_every_design() {
    let place = Place::new();
    let all = "bulk,repeat,rand,page-fault1,cross-free,mixed-order9";
    for mode in ["raw", "touch", "zero", "think=20"] {
        let start = if mode == "raw" { "stagger" } else { "lockstep" };
        let more = ["--workload", all, "--threads", "1", "--mode", mode, "--start", start];
        let result = place.json(&[&ZONE[..], &more].concat());
        assert!(result["design"].is_null(), "several runs have no top");
        let runs = list(&result, "runs");
        for workload in all.split(',') {
            let of: Vec<&Value> = runs.iter().filter(|run| run["workload"] == workload).collect();
            assert!(of.len() > 1, "{workload} of {result}");
            for run in of {
                assert_eq!(run["mode"], mode);
                assert!(number(run, "pages_per_s") > 0.0, "{run}");
                if run["buddyinfo"].is_null() {
                    assert_eq!(run["design"], "pcp-only");
                } else {
                    assert_buddyinfo(run);
                }
                if workload == "mixed-order9" {
                    let order9 = &run["order9"];
                    let success = number(order9, "obtained") / number(order9, "ideal");
                    assert!((number(order9, "success") - success).abs() < 1e-9, "{run}");
                }
            }
        }
    }
}

#[test]
fn two_threads_meet_at_a_lock() {
    if !testkit::met("two_threads_meet_at_a_lock", &[Need::TwoCpus]) {
        return;
    }
    let place = Place::new();
    let more = ["--workload", "cross-free,page-fault1", "--threads", "1,2", "--start", "stagger"];
    let result = place.json(&[&ZONE[..], &more, &["--design", "mutex-buddy,pcp-only"]].concat());
    assert!(number(&result, "line_transfer_ns") > 0.0);
    let runs = list(&result, "runs");
    assert_eq!(runs.len(), 2 * 2 * 2);
    for run in runs {
        let wait = &run["lock_wait_percent"];
        match run["design"].as_str() {
            Some("mutex-buddy") => assert!(wait.as_f64() >= Some(0.0), "{run}"),
            _ => assert!(wait.is_null(), "{run}"),
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let refused = |arguments: &[&str]| place.refused(&[&ZONE[..], arguments].concat());
    let error = refused(&["--threads", "1024"]);
    assert!(error.contains("CPUs") && error.contains("zone-sim"), "{error}");
    let error = refused(&["--design", "hope"]);
    assert!(error.contains("mutex-buddy"), "{error}");
    assert!(refused(&["--workload", "hope"]).contains("page-fault1"));
    assert!(refused(&["--mode", "hope"]).contains("think=NS"));
    assert!(refused(&["--workload", "bulk,bulk"]).contains("already"));
    assert!(refused(&["--size", "64M"]).contains("--frames"));
    let few = ["zone", "--frames", "1024", "--workload", "mixed-order9", "--threads", "1"];
    assert!(place.refused(&few).contains("too few"));
    let sim = |arguments: &[&str]| place.refused(&[&SIM[..], arguments].concat());
    assert!(sim(&["--held", "spin"]).contains("NAME=NS"));
    assert!(sim(&["--held", "hope=1"]).contains("no-merge-cluster"));
    assert!(sim(&["--design", "pcp-only"]).contains("--held"));
    let churn = |arguments: &[&str]| place.refused(&[&CHURN[..], arguments].concat());
    assert!(churn(&["--zone", "hope"]).contains("there are:"));
    assert!(churn(&["--corpus", "missing"]).contains("missing"));
}

#[test]
fn what_is_simulated_of_zones_says_so() {
    let place = Place::new();
    let more = ["--threads", "1,5,8", "--design", "mutex-buddy"];
    let held = ["--held", "spin=217,rwlock-range=150/60"];
    let result = place.json(&[&SIM[..], &more, &held].concat());
    assert_eq!(result["simulated"], true);
    // The errors come before anything that is predicted from it.
    assert_eq!(list(&result, "errors").len(), 5);
    // Each number that is not measured says where it is from.
    for constant in list(&result, "constants") {
        assert!(constant["source"].as_str().is_some_and(|source| !source.is_empty()), "{constant}");
    }
    for curve in list(&result, "validation") {
        for point in list(curve, "points") {
            let error =
                (number(point, "simulated_ns") / number(point, "published_ns") - 1.0) * 100.0;
            assert!((number(point, "error_percent") - error).abs() < 1e-6, "{point}");
            assert_eq!(point["simulated"], true);
        }
    }
    let rows = list(&result, "seed_rows");
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["simulated"] == true), "{rows:?}");
    let designs = list(&result, "designs");
    let names: Vec<&str> = designs.iter().filter_map(|row| row["design"].as_str()).collect();
    for name in ["mutex-buddy", "spin", "rwlock-range"] {
        assert_eq!(names.iter().filter(|other| **other == name).count(), 1, "{names:?}");
    }
    let of = |name: &str| designs.iter().find(|row| row["design"] == name).expect("a design");
    assert_eq!(of("spin")["source"], "given");
    assert_eq!(of("mutex-buddy")["source"], "measured");
    assert!((number(of("spin"), "lock_held_alone_ns_per_page") - 217.0).abs() < 1e-6);
    assert!((number(of("rwlock-range"), "lock_held_alone_ns_per_page") - 150.0).abs() < 1e-6);
    // What is not simulated comes from the measurement.
    assert_eq!(number(of("mutex-buddy"), "order0_share"), 0.0);
    let predictions = list(&result, "predictions");
    assert_eq!(predictions.len(), names.len() * 3 * 2);
    for prediction in predictions {
        assert_eq!(prediction["simulated"], true);
        let rate = number(prediction, "pages_per_s");
        assert!(rate > 0.0, "{prediction}");
        let bands = ["one_socket", "across_sockets"];
        for band in bands.map(|band| &prediction[band]).into_iter().filter(|b| !b.is_null()) {
            for key in ["pages_per_s", "lock_wait_percent", "head_wait_percent"] {
                let edge = |at: usize| list(band, key)[at].as_f64().expect("a number");
                let value = number(prediction, key);
                assert!(edge(0) <= value && value <= edge(1), "{key} of {prediction}");
            }
        }
        assert_eq!(prediction["one_socket"].is_null(), prediction["around"] == "bare");
    }
}

#[test]
fn the_same_times_give_the_same_simulation() {
    let place = Place::new();
    let more = ["--threads", "6", "--design", "spin", "--held", "spin=217"];
    let [one, other] = [(); 2].map(|()| place.json(&[&SIM[..], &more].concat()));
    assert_eq!(one["seed_rows"], other["seed_rows"]);
    let page_fault1 = |result: &Value| -> Vec<Value> {
        let all = list(result, "predictions").iter();
        all.filter(|p| p["around"] == "page-fault1").cloned().collect()
    };
    assert_eq!(page_fault1(&one), page_fault1(&other));
}

#[test]
fn a_pool_is_churned() {
    let place = Place::new();
    write_corpus(&place.path("c"), 300);
    for corpus in [&[][..], &["--corpus", "c"]] {
        let result = place.json(&[&CHURN[..], corpus].concat());
        let rounds = list(&result, "rounds");
        assert_eq!(rounds.len(), 3);
        let mut worst: f64 = 0.0;
        for round in rounds {
            let ratio = number(round, "pool_bytes") / number(round, "fresh_pool_bytes");
            assert!((number(round, "ratio") - ratio).abs() < 1e-9, "{round}");
            worst = worst.max(ratio);
            assert!(number(round, "pool_bytes") <= number(round, "pool_bytes_before_compaction"));
            assert!(number(round, "half_free_pool_bytes") < number(round, "pool_bytes"));
            assert_eq!(number(round, "replaced_pages"), 1024.0);
        }
        assert!((number(&result, "worst_ratio") - worst).abs() < 1e-9, "{result}");
        assert_eq!(result["within_target"], worst <= number(&result, "target_ratio"));
        assert_eq!(number(&result, "emptied_pool_bytes"), 0.0);
        assert_eq!(number(&result, "verified_pages"), 2048.0);
    }
}
