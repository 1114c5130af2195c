//! `rampack-lab locks-sim`, at a small size: what it promises of its results, never how fast it was
//! or how right.

use crate::common::{Place, list, write_corpus};
use serde_json::Value;
use testkit::Need;

const SHORT: &str = "locks-sim --milliseconds 1 --repeat 1 --operations 200";

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

#[test]
fn measured_and_simulated_are_told_apart() {
    if !testkit::met("measured_and_simulated_are_told_apart", &[Need::TwoCpus]) {
        return;
    }
    let place = Place::new();
    write_corpus(&place.path("c"), 200);
    let result = place.json(&format!("{SHORT} --corpus c --threads 4,16"));
    assert_eq!(result["seed"], 1);
    for key in ["local_ns", "transfer_ns", "spin_ns", "waker_ns"] {
        assert!(is_positive(&result["primitives"][key]), "{key} of {}", result["primitives"]);
    }
    let errors = list(&result, "errors");
    assert_eq!((&errors[0]["threads"], &errors[1]["threads"]), (&1.into(), &2.into()));
    let validation = list(&result, "validation");
    for check in validation {
        assert_eq!(check["measured"]["simulated"], false);
        assert_eq!(check["simulation"]["simulated"], true);
        assert!(is_positive(&check["measured"]["pages_per_s"]), "{check}");
        assert!(is_positive(&check["simulation"]["pages_per_s"]), "{check}");
        let rate = |key: &str| check[key]["pages_per_s"].as_f64().expect("a number");
        let error = check["error_percent"].as_f64().expect("a number");
        let wanted = (rate("simulation") / rate("measured") - 1.0) * 100.0;
        assert!((error - wanted).abs() < 1e-6, "{check}");
        assert_eq!(check["large_error"], error.abs() > 25.0);
    }
    let predictions = list(&result, "predictions");
    for prediction in predictions {
        assert_eq!(prediction["simulated"], true);
        assert!([4, 16].contains(&prediction["threads"].as_u64().expect("threads")));
        let rate = prediction["pages_per_s"].as_f64().expect("a number");
        let band = list(prediction, "band");
        let edge = |at: usize| band[at].as_f64().expect("a number");
        assert!(edge(0) <= rate && rate <= edge(1) && edge(0) > 0.0, "{prediction}");
        assert!(prediction["bottleneck"].is_string(), "{prediction}");
    }
    for scheme in designs::SLOT_SCHEMES {
        for workload in ["spread", "eight"] {
            for content in ["same-filled", "pages"] {
                for op in ["store", "load", "mix"] {
                    let of = |row: &&Value| {
                        row["scheme"] == *scheme
                            && row["workload"] == workload
                            && row["content"] == content
                            && row["op"] == op
                            && row["streams"] == "percpu"
                    };
                    let what = format!("{scheme} {workload} {content} {op}");
                    assert_eq!(validation.iter().filter(of).count(), 2, "{what}");
                    assert_eq!(predictions.iter().filter(of).count(), 2, "{what}");
                }
            }
        }
    }
    for special in [&"single", &"multi:2", &"multi:16"] {
        assert!(predictions.iter().any(|row| row["streams"] == *special), "{special}");
    }
}

#[test]
fn errors_come_first() {
    if !testkit::met("errors_come_first", &[Need::TwoCpus]) {
        return;
    }
    let place = Place::new();
    write_corpus(&place.path("c"), 200);
    let output = testkit::run(&mut place.lab(&format!("{SHORT} --corpus c --threads 3")));
    let at = |text: &str| {
        output.stdout.find(text).unwrap_or_else(|| panic!("no {text:?} in {}", output.stdout))
    };
    assert!(at("contents: ") < at("\nerrors\n") && at("\nerrors\n") < at("\npredictions\n"));
    // Every simulated rate has its mark.
    let predictions = &output.stdout[at("\npredictions\n")..];
    let rates: Vec<&str> = predictions.lines().filter(|line| line.contains("percpu")).collect();
    assert!(!rates.is_empty(), "{predictions}");
    assert!(rates.iter().all(|line| line.contains(" true ")), "{rates:?}");
}

#[test]
fn a_missing_corpus_is_named() {
    if !testkit::met("a_missing_corpus_is_named", &[Need::TwoCpus]) {
        return;
    }
    let message = Place::new().refused("locks-sim --corpus missing");
    assert!(message.contains("missing"), "{message}");
}
