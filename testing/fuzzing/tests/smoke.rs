//! Runs each fuzz target on random and mutated inputs, in every test run and on a stable compiler.
//! `fuzz/` has the same targets for a real fuzzer.

#[path = "smoke/mutate.rs"]
mod mutate;

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, panic};

use fuzzing::{TARGETS, Target};
use testkit::Rng;

/// Makes a test of each target, by the name that the program of `fuzz/` calls.
macro_rules! smoked {
    ($($name:ident)*) => {
        const SMOKED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                smoke(stringify!($name), fuzzing::$name);
            }
        )*
    };
}

smoked! {
    nbd_negotiation
    nbd_requests
    fuse_requests
    attribute_stores
    sealed_blocks
    nbd_put_off
    fuse_files
    plain_blocks
    vhost_chains
    swap_contents
    value_store
    parse_size
    control_message
    kept_table
    remote_stores
    segment_walk
    snapshots
    decompress
    decompress_lzo
    decompress_lz4
    decompress_zstd
    pack_pages
    decompress_deflate
    decompress_842
}

fn smoke(name: &str, run: fn(&[u8])) {
    let target: &Target =
        TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    let mut rng = Rng::new(testkit::seed(name));
    let seeds = (target.seeds)();
    for round in 0..testkit::cases(5_000) {
        let input = mutate::input(&mut rng, &seeds);
        if let Err(fault) = panic::catch_unwind(|| run(&input)) {
            println!("{name}: round {round}, input of {} bytes: {input:?}", input.len());
            panic::resume_unwind(fault);
        }
    }
}

/// Each has a test here, and a program in `fuzz/` that does nothing else. So these need no build to
/// be known to be right.
#[test]
fn every_target_is_smoked_and_has_a_program() {
    let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, BTreeSet::from_iter(SMOKED.iter().copied()));
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for name in names {
        let path = format!("fuzz_targets/{name}.rs");
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"{path}\"\n")), "{name}");
        let text = fs::read_to_string(fuzz.join(&path)).expect(&path);
        let wanted = "#![no_main]\n\nlibfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::";
        assert_eq!(text, format!("{wanted}{name}(input));\n"));
    }
}
