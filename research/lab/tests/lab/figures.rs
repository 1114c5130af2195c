//! `rampack-lab figures`, quickly: what it leaves in its directory, never how fast anything was.

use std::fs;
use std::process::Command;

use crate::common::{self, Place};
use serde_json::Value;

const QUICK: &str = "figures --out out --quick --commit";

fn figures(place: &Place, commit: &str, only: &str) -> String {
    testkit::run(&mut place.lab(&format!("{QUICK} {commit} --only {only}")));
    fs::read_to_string(place.path("out/report.html")).expect("the page")
}

#[test]
fn measurements_make_files_and_a_page() {
    let place = Place::new();
    let text = figures(&place, "0123abc", "index,zone-sim");
    for word in
        ["0123abc", "A quick run", ">Indexes of swap</h2>", "<td>xarray-split", "</svg>", "±"]
    {
        assert!(text.contains(word), "{word:?} is missing in {text}");
    }
    for (name, runs) in [("index", 2), ("zone-sim", 1)] {
        let file = fs::read_to_string(place.path(&format!("out/{name}.json"))).expect("a file");
        let taken: Value = serde_json::from_str(&file).expect("JSON");
        assert_eq!(taken["name"], name);
        assert_eq!(taken["commit"], "0123abc");
        assert_eq!(taken["missing"], Value::Null);
        assert_eq!(taken["runs"].as_array().expect("a list").len(), runs);
        let table = fs::read_to_string(place.path(&format!("out/{name}-1.csv"))).expect("a file");
        assert!(table.starts_with('"') && table.lines().count() > 2, "{table}");
    }
    // What is measured later is added to what there is, in the order of the list.
    let text = figures(&place, "0123abc", "zone");
    let place_of = |title: &str| text.find(title).unwrap_or_else(|| panic!("{title} in {text}"));
    assert!(place_of("Indexes of swap</h2>") < place_of("Page allocators</h2>"));
    assert!(place_of("Page allocators</h2>") < place_of("on more CPUs, simulated</h2>"));
    // But not to what another commit did.
    let text = figures(&place, "f00", "index");
    assert!(text.contains("Indexes of swap</h2>") && !text.contains("Page allocators"), "{text}");
    place.assert_nothing_left();
}

#[test]
fn what_is_missing_is_named() {
    let place = Place::new();
    let mut command = place.lab(&format!("{QUICK} 0123abc --only nbd,density"));
    command.env("PATH", "");
    testkit::run(&mut command);
    let text = fs::read_to_string(place.path("out/report.html")).expect("the page");
    assert!(text.contains("there was no program fio"), "{text}");
    assert!(text.contains("there was no dump of a program"), "{text}");
    assert!(fs::metadata(place.path("out/dumps/half.pages")).expect("made pages").len() > 0);
}

/// A build of the lab alone has no rampack beside it.
#[test]
fn rampack_is_named_with_the_command_that_builds_it() {
    let place = Place::new();
    for (profile, how) in [("debug", "build -p"), ("release", "build --release -p")] {
        let lab = place.path(profile).join("rampack-lab");
        fs::create_dir(place.path(profile)).expect("a directory");
        testkit::copy_program(env!("CARGO_BIN_EXE_rampack-lab"), &lab);
        let line = format!("{QUICK} 0123abc --only estimate");
        testkit::run(Command::new(&lab).args(line.split(' ')).current_dir(place.path("")));
        let text = fs::read_to_string(place.path("out/report.html")).expect("the page");
        let rampack = lab.with_file_name("rampack");
        let wanted = format!(
            "there was no program {}, which cargo {how} rampack-cli makes",
            rampack.display()
        );
        assert!(text.contains(&wanted), "{wanted:?} is missing in {text}");
        let asked = testkit::try_run(Command::new(&lab).arg("nbd"));
        assert!(asked.stderr.contains(how) || asked.stderr.contains("fio"), "{}", asked.stderr);
    }
}

/// The product is measured as it is.
#[test]
fn the_page_has_the_estimate() {
    common::rampack();
    let place = Place::new();
    fs::create_dir_all(place.path("out/dumps")).expect("a directory");
    common::write_corpus(&place.path("out/dumps/python.pages"), 512);
    let text = figures(&place, "0123abc", "estimate");
    for word in ["<td>lzo-rle", "<td>deflate", "<td>warm", "<td>cold", "± us", "</svg>"] {
        assert!(text.contains(word), "{word:?} is missing in {text}");
    }
    assert!(text.contains("rampack estimate dumps/python.pages"), "{text}");
    place.assert_nothing_left();
}

#[test]
fn all_measurements_are_listed() {
    let list = testkit::run(&mut Place::new().lab("figures --list")).stdout;
    assert!(list.lines().count() >= 10 && list.contains("only if it is named"), "{list}");
}
