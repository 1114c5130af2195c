//! `rampack-soak upgrade`, at a small size.

mod common;

use common::{Place, rampack};

#[test]
fn an_upgrade_under_load_is_measured() {
    let place = Place::new();
    let rampack = rampack();
    let rampack = rampack.to_str().expect("a path");
    let sizes = ["--stored", "4M,8M", "--milliseconds", "100", "--repeat", "2"];
    let arguments = [&["upgrade", "--rampack", rampack, "--json"], &sizes[..]].concat();
    let output = testkit::run(&mut place.soak(&arguments));
    let result: serde_json::Value = serde_json::from_str(&output.stdout).expect("an object");
    let sizes = result["sizes"].as_array().expect("a list");
    assert_eq!((sizes.len(), &result["rounds"]), (2, &2.into()));
    for (size, stored) in sizes.iter().zip([4u64 << 20, 8 << 20]) {
        assert_eq!(size["stored_bytes"], stored);
        let compressed = size["compressed_bytes"].as_u64().expect("bytes");
        assert!((stored / 4..stored).contains(&compressed), "{size}");
        assert_eq!(size["pauses_ms"].as_array().expect("a list").len(), 2);
        for figure in ["pause_ms", "usual_ms", "pause_ms_per_gb", "stored_gb_per_second"] {
            assert!(size[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {size}");
        }
        assert!(size["requests"].as_u64().is_some_and(|requests| requests > 0), "{size}");
    }
    place.assert_nothing_left();
}

#[test]
fn what_cannot_be_upgraded_is_told() {
    let place = Place::new();
    let rampack = rampack();
    let arguments = ["upgrade", "--rampack", rampack.to_str().expect("a path"), "--stored", "4M"];
    let said = place.refused(&[&arguments[..], &["--to", "/nonexistent/rampack"]].concat());
    assert!(said.contains("cannot run /nonexistent/rampack"), "{said}");
    assert!(place.refused(&["upgrade", "--stored", "1"]).contains("no multiple of 128K"));
    place.assert_nothing_left();
}
