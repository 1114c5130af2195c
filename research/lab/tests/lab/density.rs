//! `rampack-lab density`, at a small size: what it promises of its results, never how fast
//! anything was.

use crate::common::{Place, list, number, write_corpus};

const PAGES: &str = "2048";

#[test]
fn every_load_has_a_run_with_all_its_figures() {
    let place = Place::new();
    write_corpus(&place.path("small.pages"), 4096);
    let loads = "--idle 0,50,100";
    let report =
        place.json(&format!("density --corpus small.pages {loads} --pages {PAGES} --cpu 100"));
    let runs = list(&report, "runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!((&run["corpus"], &run["pages"]), (&"small".into(), &2048.into()));
        assert_eq!(run["verified_pages"], run["pages"]);
        assert_eq!(number(run, "data_bytes"), 2048.0 * 4096.0);
        assert!(run["kernel_algorithm"].is_null() && run["kernel_data_per_byte"].is_null());
        let rss = number(run, "rss_bytes");
        let ratio = number(run, "data_bytes") / rss.max(1.0);
        assert!((number(run, "data_per_byte") / ratio - 1.0).abs() < 1e-9, "{run}");
        for key in ["store_ns", "load_ns", "background_cpu_percent"] {
            assert!(number(run, key) > 0.0, "{key}: {run}");
        }
        assert!(run["kernel_store_ns"].is_null());
    }
    let [none, half, all] = [0, 1, 2].map(|at| number(&runs[at], "moved_pages"));
    assert!(none < half && half < all, "{none} {half} {all}");
    let [none, all] = [0, 2].map(|at| number(&runs[at], "compressed_bytes"));
    assert!(all < none, "{all} {none}");
    let cold = &runs[2]["cold_read_us"];
    assert!(cold["p50"].as_f64() <= cold["p99"].as_f64() && cold["p50"].is_number(), "{cold}");
    assert!(runs[0]["cold_read_us"]["p50"].is_null(), "no page is cold");
    assert_eq!(runs[1]["idle_percent"], 50);
    place.assert_nothing_left();
}

#[test]
fn the_swap_cache_has_a_run_for_each_codec() {
    let place = Place::new();
    write_corpus(&place.path("small.pages"), 1024);
    let line = "density --swap --corpus small.pages --cpu 100";
    let report = place.json(line);
    let runs = list(&report, "runs");
    assert_eq!(runs.len(), 3);
    for run in runs {
        let [before, after] = [0, 1].map(|at| run["pool_per_page"][at].as_f64().expect("a number"));
        // Pages that have the stronger codec already are packed.
        assert!(after < before, "{run}");
        assert!(number(run, "recompressed") > 0.0, "{run}");
        assert!(run["load_us"][1]["p50"].is_number(), "{run}");
    }
    let text = testkit::run(&mut place.lab(line)).stdout;
    assert!(text.contains("lzo-rle") && text.contains("recompressed"), "{text}");
    place.assert_nothing_left();
}
