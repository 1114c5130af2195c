//! What every attribute takes and refuses: through the tree's files, through `rampack set`, and
//! beside the kernel's own device where the machine has one.
//!
//! [`cases`] says what is written and what happens, before and after the device has a size. What
//! the kernel does otherwise must stand in docs/reference/zram.md, and what stands there must be
//! so.

mod cases;
mod document;
mod subject;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use testkit::{Need, met};

use crate::common::{Daemon, Place};
use cases::{CASES, Case, NOT_TRIED, State, text_of};
use document::Document;
use subject::{Commands, Files, Kernel, Subject};

/// One of the kernels that the document compares with; others differ in other ways.
fn compared_with() -> Need {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let what = "Linux 6.18, with which docs/reference/zram.md compares (boot such a kernel)";
    Need::other(release.starts_with("6.18."), what)
}

/// Attributes that have nothing to tell of a device without contents, and say so.
const NOTHING_TO_TELL: [(&str, State); 1] = [("kernel/debug/zram/zram0/block_state", State::Fresh)];

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
    for state in [State::Fresh, State::Sized] {
        subject.prepare(state, SIZE);
        for (name, mode) in &listed {
            let expected = match mode & 0o400 {
                0 => Some("EACCES"),
                _ if NOTHING_TO_TELL.contains(&(name, state)) => Some("EINVAL"),
                _ => None,
            };
            let found = subject.read(name).err();
            if found.as_deref() != expected {
                let _ = writeln!(wrong, "read {name} {state:?}: {found:?}, not {expected:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{wrong}", subject.name());
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

/// The kernel's device, which one test sets up, and each wants unused.
static ZRAM: Mutex<()> = Mutex::new(());

#[test]
fn the_kernels_device_differs_as_is_written() {
    let _alone = ZRAM.lock().unwrap_or_else(PoisonError::into_inner);
    let needs = [Need::Fuse, Need::Zram, compared_with()];
    if !met("the_kernels_device_differs_as_is_written", &needs) {
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
    assert!(complaints.is_empty(), "docs/reference/zram.md:\n{complaints}");
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
    assert!(complaints.is_empty(), "docs/reference/zram.md:\n{complaints}");
}

#[test]
fn the_kernels_attributes_are_all_in_the_document() {
    let _alone = ZRAM.lock().unwrap_or_else(PoisonError::into_inner);
    if !met("the_kernels_attributes_are_all_in_the_document", &[Need::Zram]) {
        return;
    }
    let document = Document::read();
    let missing: Vec<String> =
        Kernel::names().into_iter().filter(|name| document.here(name).is_none()).collect();
    assert!(missing.is_empty(), "docs/reference/zram.md has no line for {missing:?}");
}
