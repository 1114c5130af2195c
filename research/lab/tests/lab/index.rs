//! `rampack-lab index`, at a small size: what it promises of its results, never how fast it was.

use crate::common::Place;
use serde_json::Value;
use testkit::Need;

const SHORT: &str = "index --pages 32768 --milliseconds 2 --repeat 2";

fn list<'a>(result: &'a Value, key: &str) -> &'a Vec<Value> {
    result[key].as_array().unwrap_or_else(|| panic!("{key} of {result}"))
}

#[test]
fn every_index_is_measured_in_every_mix() {
    let place = Place::new();
    let result = place.json(&format!("{SHORT} --threads 1"));
    let measured = list(&result, "measured");
    assert_eq!(measured.len(), 5 * 3);
    assert!(measured.iter().all(|m| m["ns"].as_f64() > Some(0.0)), "{result}");
    assert!(list(&result, "predicted").is_empty());
}

#[test]
fn the_engine_round_it_is_measured_in_every_mix() {
    let place = Place::new();
    let result = place.json(&format!("{SHORT} --threads 1 --whole"));
    assert_eq!(result["whole"], true);
    assert_eq!(list(&result, "measured").len(), 5 * 3);
}

#[test]
fn what_is_simulated_says_so() {
    if !testkit::met("what_is_simulated_says_so", &[Need::TwoCpus]) {
        return;
    }
    let place = Place::new();
    let more = "--threads 1,2 --simulate 4,16 --between 0 --variants xarray";
    let result = place.json(&format!("{SHORT} {more}"));
    assert_eq!(list(&result, "measured").len(), 3 * 2);
    let validation = list(&result, "validation");
    assert_eq!(validation.len(), 3 * 2);
    for check in validation {
        let ns = |key: &str| check[key].as_f64().expect("a number");
        let error = (ns("simulated_ns") / ns("measured_ns") - 1.0) * 100.0;
        assert!((ns("error_percent") - error).abs() < 1e-6, "{check}");
    }
    let predicted = list(&result, "predicted");
    assert_eq!(predicted.len(), 3 * 2);
    for prediction in predicted {
        assert_eq!(prediction["simulated"], true);
        assert!(prediction["ns"].as_f64() > Some(0.0), "{prediction}");
    }
}
