//! The policy of tiers passes its suite, and every broken one is rejected.

use sim::tiers::{Flaw, suite};

#[test]
fn the_policy_passes_the_suite() {
    for seed in 1..=3 {
        let table = suite(None, seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        println!("{table}");
    }
}

#[test]
fn every_broken_policy_is_rejected() {
    for flaw in Flaw::ALL {
        let rejected = suite(Some(flaw), 1).expect_err(&format!("{flaw:?} passed"));
        println!("{flaw:?}: {rejected}");
    }
}
