//! `rampack-lab log`, at a small size: its figures fit together, and a log writes less than one
//! block for each page does.

mod common;

use common::{Place, write_corpus};
use serde_json::Value;

fn number(run: &Value, key: &str) -> f64 {
    run[key].as_f64().unwrap_or_else(|| panic!("{key}: {run}"))
}

#[test]
fn every_fullness_has_a_run_with_all_its_figures() {
    let place = Place::new();
    write_corpus(&place.path("small.pages"), 512);
    let arguments = [
        "log",
        "--corpus",
        "small.pages",
        "--full",
        "50,80",
        "--ages",
        "zipf,phases",
        "--pages",
        "65536",
        "--seconds",
        "1200",
        "--json",
        "--plot",
        "out.svg",
    ];
    let report = place.json(&arguments);
    let runs = report["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 8);
    for run in runs {
        assert_eq!(run["corpus"], "small");
        let written = number(run, "new_bytes") + number(run, "copied_bytes");
        let ratio = written / number(run, "object_bytes");
        assert!((number(run, "written_per_object_byte") / ratio - 1.0).abs() < 1e-9, "{run}");
        // A header and less than a unit come to each object.
        let added = number(run, "new_bytes") - number(run, "object_bytes");
        let pages = number(run, "written_pages");
        assert!(added >= 24.0 * pages && added < (24.0 + 64.0) * pages, "{run}");
        assert!(number(run, "punched_segments") >= number(run, "cleaned_segments") - 1.0, "{run}");
        assert!(number(run, "read_bytes") >= number(run, "copied_bytes"), "{run}");
    }
    for (half, most) in [(0, 2), (4, 6)] {
        let [half, most] = [half, most].map(|at| &runs[at]);
        assert_eq!((&half["full_percent"], &most["full_percent"]), (&50.into(), &80.into()));
        assert_eq!(half["object_bytes"], most["object_bytes"], "one trace");
        assert!(number(half, "copied_bytes") <= number(most, "copied_bytes"), "{half} {most}");
        let block = number(half, "block_per_object_byte");
        assert!(number(half, "written_per_object_byte") < block, "{half}");
    }
    let picture = std::fs::read_to_string(place.path("out.svg")).expect("a picture");
    assert!(picture.contains("small zipf") && picture.contains("80% full"));
    place.assert_nothing_left();
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let place = Place::new();
    write_corpus(&place.path("small.pages"), 64);
    let refused = place.refused(&["log", "--corpus", "none.pages"]);
    assert!(refused.contains("none.pages"), "{refused}");
    let small = ["log", "--corpus", "small.pages", "--pages", "1024", "--seconds", "300"];
    let refused = place.refused(&small);
    assert!(refused.contains("three segments"), "{refused}");
    let refused = place.refused(&["log", "--corpus", "small.pages", "--full", "96"]);
    assert!(refused.contains("96"), "{refused}");
    let refused = place.refused(&["log", "--corpus", "small.pages", "--algorithm", "rot13"]);
    assert!(refused.contains("rot13"), "{refused}");
    std::fs::write(place.path("zero.pages"), [0; 4096]).expect("a file");
    let refused = place.refused(&["log", "--corpus", "zero.pages"]);
    assert!(refused.contains("same-filled"), "{refused}");
}
