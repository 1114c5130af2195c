//! `rampack-lab codecs`, at a small size: what it promises of its results, never how fast it was.

use crate::common::{Place, write_corpus};
use serde_json::Value;

const PAGES: usize = 320;
const NAMES: [&str; 7] = ["lzo-rle", "lzo", "lz4", "lz4hc", "zstd", "deflate", "842"];

fn place() -> Place {
    let place = Place::new();
    write_corpus(&place.path("c"), PAGES);
    place
}

fn codec<'a>(result: &'a Value, name: &str) -> &'a Value {
    let mut codecs = result["codecs"].as_array().expect("a list").iter();
    codecs.find(|codec| codec["name"] == name).unwrap_or_else(|| panic!("no {name} in {result}"))
}

#[test]
fn every_codec_takes_part() {
    let place = place();
    let result = place.json("codecs --corpus c --repeat 2");
    // Two of sixteen pages are of one pattern.
    assert_eq!(result["pages"], PAGES - PAGES / 8);
    assert_eq!(result["same_filled_left_out"], PAGES / 8);
    assert_eq!(result["rounds"], 2);
    for name in NAMES {
        let codec = codec(&result, name);
        for key in ["compress_ns", "decompress_ns", "compress_cpu_ns", "decompress_cpu_ns"] {
            assert!(codec[key].as_f64().is_some_and(|ns| ns > 0.0), "{key} of {codec}");
        }
        let bytes = codec["bytes"].as_f64().expect("a number");
        let ratio = codec["ratio"].as_f64().expect("a number");
        let pages = (PAGES - PAGES / 8) as f64;
        assert!((ratio * bytes / (pages * 4096.0) - 1.0).abs() < 1e-9, "{codec}");
        assert!(ratio > 1.2, "{codec}");
    }
}

#[test]
fn only_what_was_asked_for() {
    let place = place();
    let levels = "--algorithm zstd:-7 --algorithm zstd --algorithm zstd:9";
    let result = place.json(&format!("codecs --corpus c --repeat 1 --pages 100 {levels}"));
    assert_eq!(result["pages"], 100);
    let codecs = result["codecs"].as_array().expect("a list");
    let levels: Vec<_> = codecs.iter().map(|codec| codec["level"].as_i64()).collect();
    assert_eq!(levels, [Some(-7), None, Some(9)]);
    let bytes: Vec<_> = codecs.iter().map(|codec| codec["bytes"].as_u64()).collect();
    assert!(bytes[0] > bytes[1] && bytes[1] > bytes[2], "{bytes:?}");
}

#[test]
fn a_table() {
    let place = place();
    let output = testkit::run(&mut place.lab("codecs --corpus c --repeat 1"));
    for word in NAMES.iter().chain(&["compress", "decompress", "ratio", "280"]) {
        assert!(output.stdout.contains(word), "{word:?} is missing in {}", output.stdout);
    }
}
