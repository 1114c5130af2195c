//! Runs each fuzz target on random and mutated inputs, in every test run and on a stable compiler.
//! `fuzz/` has the same targets for a real fuzzer.

#[path = "smoke/mutate.rs"]
mod mutate;

use std::panic;

use fuzzing::{TARGETS, Target};
use testkit::Rng;

const INPUTS: usize = 5_000;

fn smoke(name: &str) {
    let target: &Target =
        TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let mut rng = Rng::new(testkit::seed(name));
    let seeds = (target.seeds)();
    for round in 0..INPUTS {
        let input = mutate::input(&mut rng, &seeds);
        if let Err(fault) = panic::catch_unwind(|| (target.run)(&input)) {
            println!("{name}: round {round}, input of {} bytes: {input:?}", input.len());
            panic::resume_unwind(fault);
        }
    }
}

#[test]
fn nbd_negotiation() {
    smoke("nbd_negotiation");
}

#[test]
fn nbd_requests() {
    smoke("nbd_requests");
}

#[test]
fn fuse_requests() {
    smoke("fuse_requests");
}

#[test]
fn attribute_stores() {
    smoke("attribute_stores");
}

#[test]
fn sealed_blocks() {
    smoke("sealed_blocks");
}

#[test]
fn nbd_put_off() {
    smoke("nbd_put_off");
}

#[test]
fn fuse_files() {
    smoke("fuse_files");
}

#[test]
fn plain_blocks() {
    smoke("plain_blocks");
}

#[test]
fn swap_contents() {
    smoke("swap_contents");
}

#[test]
fn value_store() {
    smoke("value_store");
}

#[test]
fn parse_size() {
    smoke("parse_size");
}

#[test]
fn control_message() {
    smoke("control_message");
}

#[test]
fn kept_table() {
    smoke("kept_table");
}

#[test]
fn remote_stores() {
    smoke("remote_stores");
}

#[test]
fn segment_walk() {
    smoke("segment_walk");
}

#[test]
fn snapshots() {
    smoke("snapshots");
}

#[test]
fn decompress() {
    smoke("decompress");
}

#[test]
fn decompress_lzo() {
    smoke("decompress_lzo");
}

#[test]
fn decompress_lz4() {
    smoke("decompress_lz4");
}

#[test]
fn decompress_zstd() {
    smoke("decompress_zstd");
}

#[test]
fn decompress_deflate() {
    smoke("decompress_deflate");
}

#[test]
fn decompress_842() {
    smoke("decompress_842");
}

#[test]
fn every_target_is_smoked() {
    let source = include_str!("smoke.rs");
    for target in TARGETS {
        let call = format!("smoke(\"{}\")", target.name);
        assert!(source.contains(&call), "{} has no test here", target.name);
        let program = format!("{}.rs", target.name);
        let programs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
        assert!(programs.join("fuzz_targets").join(&program).is_file(), "no {program} in fuzz/");
    }
}
