//! The policy of tiers passes its suite, and every broken one is rejected.

use std::{env, fs};

use sim::tiers::{Flaw, Setting, compare, parse, suite};

#[test]
fn the_policy_passes_the_suite() {
    for seed in 1..=3 {
        let table = suite(None, seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        println!("{table}");
    }
}

/// The trace that `RAMPACK_TRACE` names, if it does.
#[test]
fn my_trace() {
    let Some(path) = env::var_os("RAMPACK_TRACE") else { return };
    let text = fs::read_to_string(path).expect("a trace");
    let trace = parse(&text).unwrap_or_else(|why| panic!("{why}"));
    let table = compare("it", &trace, 0, Setting::default());
    println!("{}", table.unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn every_broken_policy_is_rejected() {
    for flaw in Flaw::ALL {
        let rejected = suite(Some(flaw), 1).expect_err(&format!("{flaw:?} passed"));
        println!("{flaw:?}: {rejected}");
    }
}
