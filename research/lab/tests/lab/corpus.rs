//! `rampack-lab corpus`, at a small size.

use std::fs;

use crate::common::Place;
use serde_json::Value;
use sha2::{Digest, Sha256};
use testkit::Need;

const PAGES: &str = "600";

fn dumps(name: &str, needs: &[Need]) {
    if !testkit::met(&format!("dumps_{name}"), needs) {
        return;
    }
    let place = Place::new();
    let line = format!("corpus --out out --pages {PAGES} --program {name}");
    testkit::run(&mut place.lab(&line));

    let text = fs::read_to_string(place.path("out/manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    let programs = manifest["programs"].as_array().expect("a list");
    assert_eq!(programs.len(), 1, "{manifest}");
    let entry = &programs[0];
    assert_eq!(entry["program"], name);
    for key in ["version", "command", "date"] {
        assert!(entry[key].as_str().is_some_and(|text| !text.is_empty()), "{key} of {entry}");
    }
    let file = entry["file"].as_str().expect("a file");
    let bytes = fs::read(place.path("out").join(file)).expect("a dump");
    assert_eq!(bytes.len(), 600 * 4096);
    assert_eq!(entry["pages"], 600);
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(entry["sha256"], hash.as_str());
    for key in ["zero_percent", "same_filled_percent", "identical_percent"] {
        let percent = entry[key].as_f64().unwrap_or_else(|| panic!("{key} of {entry}"));
        assert!((0.0..=100.0).contains(&percent), "{key} of {entry}");
    }
    // Memory that was never written would compress without end, and noise not at all.
    let ratio = entry["lz4_ratio"].as_f64().expect("a ratio");
    assert!((1.05..100.0).contains(&ratio), "{entry}");
    place.assert_nothing_left();

    // Another dump leaves this one's entry alone.
    let mut command = place.lab(&format!("corpus --out out --pages {PAGES}"));
    testkit::try_run(command.env("PATH", "/nonexistent"));
    let text = fs::read_to_string(place.path("out/manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(manifest["programs"][0], *entry);

    let result = place.json(&format!("pages --corpus out/{file} --repeat 1"));
    assert_eq!(result["verified_pages"], 600);
}

#[test]
fn dumps_python() {
    dumps("python", &[Need::program("python3", "python3")]);
}

#[test]
fn dumps_node() {
    dumps("node", &[Need::program("node", "nodejs")]);
}

#[test]
fn dumps_java() {
    let needs = [
        Need::program("java", "default-jre-headless"),
        Need::program("javac", "default-jdk-headless"),
    ];
    dumps("java", &needs);
}

#[test]
fn dumps_redis() {
    let needs = [
        Need::program("redis-server", "redis-server"),
        Need::program("redis-benchmark", "redis-tools"),
    ];
    dumps("redis", &needs);
}

#[test]
fn what_is_not_installed_is_skipped_by_name() {
    let place = Place::new();
    let mut command = place.lab("corpus --out out --pages 100");
    let output = testkit::try_run(command.env("PATH", "/nonexistent"));
    assert!(!output.status.success());
    assert!(output.stderr.contains("none of the programs is installed"), "{}", output.stderr);
    for word in ["python3", "nodejs", "redis-server", "default-jdk-headless"] {
        assert!(output.stdout.contains(word), "{word:?} is missing in {}", output.stdout);
    }
    let text = fs::read_to_string(place.path("out/manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(manifest["skipped"].as_array().map(Vec::len), Some(4));
}

#[test]
fn made_pages_are_half_compressible() {
    let place = Place::new();
    testkit::run(&mut place.lab("corpus --out out --half --pages 64"));
    let bytes = fs::read(place.path("out/half.pages")).expect("pages");
    assert_eq!(bytes.len(), 64 * 4096);
    let pages: Vec<&[u8]> = bytes.chunks(4096).collect();
    assert!(pages.iter().all(|page| page[2048..].iter().all(|byte| *byte == 0)));
    assert!((1..64).all(|n| pages[n][..2048] != pages[n - 1][..2048]));
}
