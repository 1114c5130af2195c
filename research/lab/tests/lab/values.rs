//! `rampack-lab values`, at a small size: what it promises of its results, never how fast anything
//! was.

use crate::common::{Place, list, number, write_corpus};

#[test]
fn every_subject_has_a_row_for_each_set_and_codec() {
    let place = Place::new();
    write_corpus(&place.path("small.pages"), 512);
    let line = "values --corpus small.pages --kib 4,64 --records 3000 --repeat 2 --plot p.svg";
    let report = place.json(line);
    let runs = list(&report, "runs");
    assert_eq!(runs.len(), 2 * (2 * 4 + 5), "one-by-one has small values only");
    for run in runs {
        let samples = |key: &str| -> Vec<f64> {
            list(run, key).iter().map(|it| it.as_f64().expect("a number")).collect()
        };
        for key in [
            "first_put_ns",
            "put_ns",
            "put_over_codec",
            "get_ns",
            "get_over_codec",
            "put_two_threads",
            "get_two_threads",
            "memory_bytes",
            "memory_over_bound",
            "data_in_a_byte",
            "churned_over_before",
            "counted_over_bound",
            "counted_churned_over_before",
        ] {
            let samples = samples(key);
            assert!(samples.len() == 2 && samples.iter().all(|it| *it > 0.0), "{key}: {run}");
        }
        let (data, compressed) = (number(run, "data_bytes"), number(run, "compressed_bytes"));
        assert!(compressed < data, "{run}");
        let bound = 1.05 * compressed + 24.0 * number(run, "values");
        let own = samples("memory_bytes")[0] / samples("memory_over_bound")[0];
        assert!((own / bound - 1.0).abs() < 1e-9, "{run}");
        // No subject has fewer bytes than the codec makes; the store groups records.
        let counted = samples("counted_over_bound")[0] * bound;
        let groups = run["set"] == "records" && run["subject"] == "rampack";
        assert!(groups || counted > 0.9 * compressed, "{run}");
        let is_records = run["set"] == "records";
        assert_eq!(samples("data_over_one_by_one").len(), if is_records { 2 } else { 0 }, "{run}");
        if groups {
            let single = runs
                .iter()
                .find(|it| it["subject"] == "one-by-one" && it["algorithm"] == run["algorithm"]);
            let single =
                list(single.expect("a row"), "counted_over_bound")[0].as_f64().expect("a number");
            assert!(counted < single * bound, "together they take less: {run}");
        }
    }
    assert!(place.path("p.svg").exists());
    std::fs::remove_file(place.path("small.pages")).expect("it is there");
    place.assert_nothing_left();
}
