//! `rampack-lab zone`, `zone-sim` and `churn`, at small sizes: what they promise of their results,
//! never how fast it was or how right.

use crate::common::{Place, write_corpus};
use serde_json::Value;
use testkit::Need;

const ZONE: &str = "zone --frames 8192 --repeat 2 --cycles 1";
const SIM: &str = "zone-sim --size 32M --repeat 1 --pages 256 --cycles 1";
const CHURN: &str = "churn --size 8M --rounds 3";

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
    let one = "--design mutex-buddy --threads 1 --workload bulk";
    let result = place.json(&format!("{ZONE} {one}"));
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
        let more = format!("--workload {all} --threads 1 --mode {mode} --start {start}");
        let result = place.json(&format!("{ZONE} {more}"));
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
    let more = "--workload cross-free,page-fault1 --threads 1,2 --start stagger";
    let result = place.json(&format!("{ZONE} {more} --design mutex-buddy,pcp-only"));
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
fn what_is_simulated_of_zones_says_so() {
    let place = Place::new();
    let more = "--threads 1,5,8 --design mutex-buddy,spin";
    let result = place.json(&format!("{SIM} {more}"));
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
    assert_eq!(names, ["mutex-buddy", "spin"]);
    let of = |name: &str| designs.iter().find(|row| row["design"] == name).expect("a design");
    assert!(number(of("spin"), "lock_held_alone_ns_per_page") > 0.0);
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
    let [one, other] = [(); 2].map(|()| place.json(&format!("{SIM} --threads 6")));
    // From published times; those of this machine are never the same.
    assert_eq!(one["seed_rows"], other["seed_rows"]);
    assert_eq!(one["validation"], other["validation"]);
}

#[test]
fn a_pool_is_churned() {
    let place = Place::new();
    write_corpus(&place.path("c"), 300);
    for corpus in ["", "--corpus c"] {
        let result = place.json(&format!("{CHURN} {corpus}"));
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
