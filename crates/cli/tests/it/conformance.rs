//! What every attribute takes and refuses: through the tree's files, through `rampack set`, and
//! beside the kernel's own device where the machine has one.
//!
//! [`cases`] says what is written and what happens, before and after the device has a size. What
//! the kernel does otherwise must stand in docs/compatibility.md, and what stands there must be so.

mod cases;
mod document;
mod subject;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use testkit::{Need, met};

use crate::common::{Daemon, Place};
use cases::{CASES, Case, NOT_TRIED, State, text_of};
use document::Document;
use subject::{Commands, Files, Kernel, Subject};

/// The kernels the document compares with; others differ in other ways.
const COMPARED_WITH: &str = "6.18.";

/// Has this kernel a zram of its own? No package brings one.
fn has_zram() -> bool {
    let has = std::path::Path::new("/sys/block/zram0").exists();
    if !has {
        eprintln!("this kernel has no zram to compare with");
    }
    has
}

/// The size of a device in its second state.
const SIZE: &str = "1M";

/// What belongs to swap devices, not to zram.
const OF_SWAP: [&str; 3] = ["module/zswap/", "kernel/debug/zswap/", "fs/cgroup/"];

/// Paths of one device's attributes, less `block/zram0/`, and of the others as they are.
fn listed() -> BTreeMap<String, u32> {
    crate::golden::rows()
        .into_iter()
        .filter(|row| !OF_SWAP.iter().any(|place| row.path.starts_with(place)))
        .map(|row| {
            let path = row.path.strip_prefix("block/zram0/").unwrap_or(&row.path);
            (path.to_string(), row.mode)
        })
        .collect()
}

/// The table's cases, and one for each attribute that takes no writes.
fn all_cases(listed: &BTreeMap<String, u32>) -> Vec<Case> {
    let mut cases = CASES.to_vec();
    for case in CASES {
        let name = case.attribute;
        assert!(listed.contains_key(name), "there is a case for {name}, which the tree has not");
    }
    for (name, mode) in listed {
        if mode & 0o200 == 0 {
            let attribute: &'static str = name.clone().leak();
            cases.push(Case { attribute, written: "1", fresh: "EACCES", sized: "EACCES" });
        }
    }
    cases
}

/// Puts the subject in a state, tries the case, and tells what happened. A refusal must change
/// nothing.
fn tried(subject: &dyn Subject, case: &Case, state: State) -> String {
    subject.prepare(state, SIZE);
    let before = subject.settings();
    let outcome = subject.write(case.attribute, &text_of(case.written));
    if outcome != "ok" {
        let after = subject.settings();
        assert_eq!(before, after, "{} {case:?} {state:?} was refused", subject.name());
    }
    outcome
}

fn expected(case: &Case, state: State) -> &'static str {
    match state {
        State::Fresh => case.fresh,
        State::Sized => case.sized,
    }
}

fn conforms(subject: &dyn Subject) {
    let listed = listed();
    let mut wrong = String::new();
    for case in all_cases(&listed) {
        for state in [State::Fresh, State::Sized] {
            let expected = expected(&case, state);
            if expected == NOT_TRIED || !subject.can_write(&case) {
                continue;
            }
            let outcome = tried(subject, &case, state);
            if outcome != expected {
                let (attribute, written) = (case.attribute, case.written);
                let _ =
                    writeln!(wrong, "{attribute} {state:?} {written:?}: {outcome}, not {expected}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{wrong}", subject.name());
    for (name, mode) in &listed {
        let opened = subject.read(name);
        match mode & 0o400 == 0 {
            true => assert_eq!(opened.unwrap_err(), "EACCES", "{name}"),
            // Some have nothing to tell of a device without contents, and say so.
            false => assert!(opened.is_ok() || opened == Err("EINVAL".into()), "{name}"),
        }
    }
}

#[test]
fn the_files_of_the_tree_conform() {
    if !met("the_files_of_the_tree_conform", &[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 1");
    let files = Files { tree: place.root().join("sys") };
    conforms(&files);
    daemon.stop();
    place.is_clean();
}

#[test]
fn the_commands_conform() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 1");
    conforms(&Commands { daemon: &daemon });
    daemon.stop();
}

#[test]
fn the_kernels_device_differs_as_is_written() {
    let needs = [Need::Fuse, Need::Zram];
    if !has_zram() || !met("the_kernels_device_differs_as_is_written", &needs) {
        return;
    }
    let document = Document::read();
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 1");
    let ours = Files { tree: place.root().join("sys") };
    let kernel = Kernel::take();
    let listed = listed();
    let mut found = BTreeMap::new();
    let mut tried_names = BTreeSet::new();
    for case in all_cases(&listed) {
        let Some(mode) = kernel.mode(case.attribute) else { continue };
        // A setting of the block layer would really be set.
        let settable = mode & 0o200 != 0 && !CASES.iter().any(|it| it.attribute == case.attribute);
        if settable || !ours.can_write(&case) {
            continue;
        }
        tried_names.insert(case.attribute.to_string());
        for state in [State::Fresh, State::Sized] {
            if expected(&case, state) == NOT_TRIED {
                continue;
            }
            let pair = [tried(&ours, &case, state), tried(&kernel, &case, state)];
            if pair[0] != pair[1] {
                let key = (case.attribute.to_string(), state.word(), case.written.to_string());
                found.insert(key, pair);
            }
        }
    }
    for (name, mode) in &listed {
        let Some(theirs) = kernel.mode(name) else { continue };
        tried_names.insert(name.clone());
        if *mode != theirs {
            let key = (name.clone(), "any", "(mode)".to_string());
            found.insert(key, [format!("{mode:04o}"), format!("{theirs:04o}")]);
        }
        if mode & 0o400 == 0 || theirs & 0o400 == 0 || name.ends_with("hot_add") {
            continue;
        }
        for state in [State::Fresh, State::Sized] {
            let shape = |subject: &dyn Subject| {
                subject.prepare(state, SIZE);
                subject.read(name).map_or_else(|errno| errno, |text| subject::shape(name, &text))
            };
            let pair = [shape(&ours), shape(&kernel)];
            if pair[0] != pair[1] {
                let key = (name.clone(), state.word(), "(read)".to_string());
                found.insert(key, pair);
            }
        }
    }
    drop(kernel);
    daemon.stop();
    let complaints = document.compare(&found, &tried_names);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if !release.starts_with(COMPARED_WITH) {
        eprintln!(
            "not judged, for the document compares with Linux {COMPARED_WITH}*:\n{complaints}"
        );
        return;
    }
    assert!(complaints.is_empty(), "docs/compatibility.md:\n{complaints}");
}

#[test]
fn every_attribute_has_its_line_in_the_document() {
    let document = Document::read();
    let mut complaints = String::new();
    let listed = listed();
    for name in listed.keys() {
        match document.here(name) {
            Some(true) => {}
            Some(false) => {
                let _ = writeln!(complaints, "{name} is said not to be here, and is");
            }
            None => {
                let _ = writeln!(complaints, "{name} has no line");
            }
        }
    }
    for name in document.names_here() {
        if !listed.contains_key(&name) {
            let _ = writeln!(complaints, "{name} is said to be here, and is not");
        }
    }
    assert!(complaints.is_empty(), "docs/compatibility.md:\n{complaints}");
}

#[test]
fn the_kernels_attributes_are_all_in_the_document() {
    if !has_zram() || !met("the_kernels_attributes_are_all_in_the_document", &[Need::Zram]) {
        return;
    }
    let document = Document::read();
    let missing: Vec<String> =
        Kernel::names().into_iter().filter(|name| document.here(name).is_none()).collect();
    assert!(missing.is_empty(), "docs/compatibility.md has no line for {missing:?}");
}
