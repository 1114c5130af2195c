//! `rampack-lab zone` and `zone-sim`, at small sizes: what they promise of their results, never how
//! fast it was or how right.

use crate::common::{Place, list, number};
use serde_json::Value;
use testkit::Need;

const ZONE: &str = "zone --frames 8192 --repeat 2 --cycles 1";
const SIM: &str = "zone-sim --frames 8192 --repeat 1 --pages 256 --cycles 1";

fn assert_buddyinfo(run: &Value) {
    let counts = list(run, "buddyinfo");
    assert_eq!(counts.len(), 11, "{run}");
    let sizes = counts.iter().enumerate();
    let free: f64 =
        sizes.map(|(order, n)| n.as_f64().expect("a count") * f64::from(1 << order)).sum();
    assert!(free > 0.0 && free <= number(run, "frames"), "{run}");
    let unusable = list(run, "unusable_free_index");
    assert_eq!(unusable.len(), 11, "{run}");
    let of = |at: usize| unusable[at].as_f64().expect("a part");
    assert!((0..10).all(|at| of(at) <= of(at + 1) && of(at + 1) <= 1.0), "{run}");
    assert_eq!(of(0), 0.0);
}

#[test]
fn every_workload_of_every_design() {
    let place = Place::new();
    let all = "bulk,repeat,page-fault1,cross-free";
    let result = place.json(&format!("{ZONE} --workload {all} --threads 1"));
    assert_eq!(result["command"], "zone");
    let runs = list(&result, "runs");
    for workload in all.split(',') {
        let of: Vec<&Value> = runs.iter().filter(|run| run["workload"] == workload).collect();
        assert_eq!(of.len(), 8, "{workload} of {result}");
        for run in of {
            assert!(number(run, "pages_per_s") > 0.0 && number(run, "pair_ns") > 0.0, "{run}");
            assert_eq!(list(run, "pair_ns_samples").len(), 2);
            assert_buddyinfo(run);
            assert_eq!(number(run, "lock_wait_percent"), 0.0, "one thread waits for nobody");
            if run["design"] == "no-pcp" {
                assert_eq!(number(run, "acquisitions_per_page"), 2.0);
                assert_eq!(number(run, "order0_share"), 0.0);
                assert_eq!(number(run, "unmerged_buddies"), 0.0);
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
    let more = "--workload cross-free,page-fault1 --threads 1,2";
    let result = place.json(&format!("{ZONE} {more} --design no-pcp,spin"));
    assert!(number(&result, "line_transfer_ns") > 0.0);
    let runs = list(&result, "runs");
    assert_eq!(runs.len(), 2 * 2 * 2);
    assert!(runs.iter().all(|run| number(run, "lock_wait_percent") >= 0.0), "{result}");
}

#[test]
fn what_is_simulated_of_zones_says_so() {
    let place = Place::new();
    let more = "--threads 1,5,8 --design no-pcp,spin";
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
    assert_eq!(names, ["no-pcp", "spin"]);
    let of = |name: &str| designs.iter().find(|row| row["design"] == name).expect("a design");
    assert!(number(of("spin"), "lock_held_alone_ns_per_page") > 0.0);
    // What is not simulated comes from the measurement.
    assert_eq!(number(of("no-pcp"), "order0_share"), 0.0);
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
