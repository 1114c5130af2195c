//! `rampack-lab pages`, at a small size: what it promises of its results, never how fast it was.

use std::fs;
use std::process::Command;

use crate::common::{Place, write_corpus};
use serde_json::Value;
use testkit::Need;

const PAGES: u64 = 1000;

/// What every result has, by the specification.
fn assert_whole(result: &Value) {
    for key in ["target", "algorithm"] {
        assert!(result[key].is_string(), "{key} of {result}");
    }
    for key in ["threads", "pages", "verified_pages"] {
        assert!(result[key].is_u64(), "{key} of {result}");
    }
    for pass in ["store", "overwrite", "load", "reload"] {
        for key in ["ns_per_page", "mb_per_s"] {
            assert!(
                result[pass][key].as_f64().is_some_and(|n| n > 0.0),
                "{pass} {key} of {result}"
            );
        }
    }
    for key in ["compress_ns", "decompress_ns"] {
        assert!(result["codec"][key].as_f64().is_some_and(|ns| ns > 0.0), "{key} of {result}");
    }
    let ns = |pass: &str| result[pass]["ns_per_page"].as_f64().expect("a number");
    let codec = |key: &str| result["codec"][key].as_f64().expect("a number");
    for (ratio, wanted) in [
        ("store_over_codec", ns("overwrite") / codec("compress_ns")),
        ("load_over_codec", ns("reload") / codec("decompress_ns")),
    ] {
        let ratio = result[ratio].as_f64().expect("a ratio");
        assert!((ratio / wanted - 1.0).abs() < 1e-6, "{ratio} is not {wanted}");
    }
    let rounds = result["rounds"].as_u64().expect("a number") as usize;
    for key in ["store", "overwrite", "load", "reload", "compress", "decompress"] {
        let samples = result["samples"][key].as_array().expect("a list");
        assert_eq!(samples.len(), rounds, "{key} of {result}");
    }
    // Of another block device only the time is known.
    let is_ours = !result["target"].as_str().expect("a name").starts_with('/');
    for key in
        ["orig_bytes", "compressed_bytes", "pool_bytes", "metadata_bytes", "rss_growth_bytes"]
    {
        assert!(if is_ours { result[key].is_u64() } else { result[key].is_null() }, "{result}");
    }
    assert_eq!(result["pages"], PAGES);
    assert_eq!(result["verified_pages"], PAGES);
}

fn place() -> Place {
    let place = Place::new();
    write_corpus(&place.path("c"), PAGES as usize);
    place
}

#[test]
fn designs_take_turns() {
    let place = place();
    let zone = format!("zone:{}", designs::ZONES[designs::ZONES.len() - 1]);
    let with = format!("--device engine:epoch --compare engine:cas --compare {zone}");
    let result = place.json(&format!("pages --corpus c --repeat 1 {with}"));
    let (cas, other) = (&result["compare"][0], &result["compare"][1]);
    for (result, target) in [(&result, "engine:epoch"), (cas, "engine:cas"), (other, &*zone)] {
        assert_whole(result);
        assert_eq!(result["target"], target);
    }
}

#[test]
fn the_engine_keeps_every_page() {
    let place = place();
    for (algorithm, threads) in [("lz4", 1), ("zstd", 2), ("deflate", 3)] {
        let with = format!("--algorithm {algorithm} --threads {threads}");
        let result = place.json(&format!("pages --churn --corpus c {with} --repeat 2"));
        assert_whole(&result);
        assert_eq!(result["target"], "engine");
        assert_eq!(result["algorithm"], algorithm);
        assert_eq!(result["threads"], threads);
        assert_eq!(result["rounds"], 2);
        let bytes = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key}: {result}"));
        assert_eq!(bytes("orig_bytes"), PAGES * 4096);
        let compressed = bytes("compressed_bytes");
        assert!(compressed > 0 && compressed < PAGES * 4096);
        assert!(bytes("pool_bytes") >= compressed);
        assert!(bytes("metadata_bytes") >= PAGES * 8);
        assert!(bytes("rss_growth_bytes") > 0);
    }
}

#[test]
fn a_table_and_a_picture() {
    let place = place();
    let output = testkit::run(&mut place.lab("pages --corpus c --repeat 1 --plot p.svg"));
    for word in ["engine", "lz4", "codec", "growth", &PAGES.to_string()] {
        assert!(output.stdout.contains(word), "{word:?} is missing in {}", output.stdout);
    }
    let picture = fs::read_to_string(place.path("p.svg")).expect("a picture");
    assert!(picture.contains("</svg>") && picture.contains("engine"));
}

/// A loop device on a file, detached in the end.
struct Loop {
    path: String,
}

impl Loop {
    fn new(place: &Place, bytes: u64) -> Loop {
        let file = fs::File::create(place.path("disk")).expect("a file");
        file.set_len(bytes).expect("its size");
        let path = testkit::attach_loop(&[], place.path("disk"));
        Loop { path: path.display().to_string() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        testkit::try_run(Command::new("losetup").args(["--detach", &self.path]));
    }
}

#[test]
fn a_block_device_beside_the_engine() {
    if !testkit::met("a_block_device_beside_the_engine", &[Need::Root, Need::Loop]) {
        return;
    }
    let place = place();
    let device = Loop::new(&place, PAGES * 4096);
    let with = format!("--device {} --compare engine --threads 2", device.path);
    let result = place.json(&format!("pages --corpus c {with} --repeat 2"));
    assert_whole(&result);
    assert_eq!(result["target"], device.path.as_str());
    for key in ["orig_bytes", "pool_bytes", "metadata_bytes", "rss_growth_bytes"] {
        assert!(result[key].is_null(), "{key} of {result}");
    }
    let other = &result["compare"][0];
    assert_whole(other);
    assert_eq!(other["target"], "engine");
    for pass in ["store", "overwrite", "load", "reload"] {
        let ratio = other["ns_over_main"][pass].as_f64().expect("a ratio");
        let ns = |result: &Value| result[pass]["ns_per_page"].as_f64().expect("a number");
        assert!((ratio / (ns(other) / ns(&result)) - 1.0).abs() < 1e-6);
    }
}

#[test]
fn a_device_that_is_too_small_stays_as_it_is() {
    let place = place();
    let file = fs::File::create(place.path("small")).expect("a file");
    file.set_len(PAGES * 4096 - 1).expect("its size");
    let message = place.refused("pages --corpus c --device small");
    assert!(message.contains(&(PAGES * 4096).to_string()), "{message}");
    assert_eq!(fs::metadata(place.path("small")).expect("the file").len(), PAGES * 4096 - 1);
}
