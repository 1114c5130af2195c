//! `rampack-lab index`, at a small size: what it promises of its results, never how fast it was.

use crate::common::{Place, list};

const SHORT: &str = "index --pages 32768 --milliseconds 2 --repeat 2";

#[test]
fn every_index_is_measured_in_every_mix() {
    let place = Place::new();
    let result = place.json(&format!("{SHORT} --threads 1"));
    let measured = list(&result, "measured");
    assert_eq!(measured.len(), 5 * 3);
    assert!(measured.iter().all(|m| m["ns"].as_f64() > Some(0.0)), "{result}");
}

#[test]
fn the_engine_round_it_is_measured_in_every_mix() {
    let place = Place::new();
    let result = place.json(&format!("{SHORT} --threads 1 --whole"));
    assert_eq!(result["whole"], true);
    assert_eq!(list(&result, "measured").len(), 5 * 3);
}
