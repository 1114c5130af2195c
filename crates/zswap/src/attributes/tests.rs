extern crate std;

use std::vec::Vec;

use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/reference/zswap.md");

/// Names in the first two columns of its tables.
fn named() -> Vec<&'static str> {
    let attributes = DOCUMENT.lines().filter(|line| line.starts_with("| `"));
    let cells = attributes.flat_map(|line| line.split('|').skip(1).take(2));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_parameter_and_counter_is_in_the_document() {
    let named = named();
    let attributes = PARAMETERS.iter().chain(DEBUG).map(|attribute| attribute.name);
    let missing: Vec<&str> = attributes.filter(|name| !named.contains(name)).collect();
    assert!(missing.is_empty(), "docs/reference/zswap.md says nothing of {missing:?}");
    for attribute in MEMCG_ATTRIBUTES {
        assert!(
            DOCUMENT.contains(attribute.name),
            "docs/reference/zswap.md says nothing of {}",
            attribute.name
        );
    }
}

/// What it names and is not there has to be `zpool`, which Linux has given up too.
#[test]
fn the_document_names_nothing_else() {
    let known =
        |name: &&str| PARAMETERS.iter().chain(DEBUG).any(|attribute| attribute.name == *name);
    let unknown: Vec<&str> = named().into_iter().filter(|name| !known(name)).collect();
    assert_eq!(unknown, ["zpool"]);
}

#[test]
fn switches_are_read_as_the_kernel_reads_them() {
    for (text, on) in [("Y\n", true), ("1", true), ("on", true), ("n", false), ("off\n", false)] {
        assert_eq!(parse_switch("enabled", text), Ok(on), "{text:?}");
    }
    for text in ["", "o", "2", "maybe"] {
        assert_eq!(parse_switch("enabled", text).unwrap_err().errno, Errno::EINVAL, "{text:?}");
    }
}
