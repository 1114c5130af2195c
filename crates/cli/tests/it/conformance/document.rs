//! docs/reference/zram.md, whose tables are read by the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

type Key = (String, &'static str, String);

/// The two tables of the document.
pub struct Document {
    /// Attributes, and whether they are here.
    attributes: BTreeMap<String, bool>,
    /// Case by case, what happens here and in Linux.
    differences: BTreeMap<Key, [String; 2]>,
}

/// The texts in backquotes of a cell. In them `\n` is a newline.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(|text| text.replace("\\n", "\n")).collect()
}

impl Document {
    pub fn read() -> Document {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/zram.md");
        Document::parse(&std::fs::read_to_string(path).unwrap())
    }

    fn parse(text: &str) -> Document {
        let (mut attributes, mut differences) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            match cells[..] {
                // attribute, mode, in Linux, here, notes
                [names, _, _, here, _] => {
                    for name in quoted(names) {
                        let known = attributes.insert(name, here.starts_with("yes"));
                        assert!(known.is_none(), "there is a line for this already: {line}");
                    }
                }
                // attribute, state, written, here, in Linux, why
                [names, state, written, here, linux, _] => {
                    let states: &[&str] = match state {
                        "both" => &["fresh", "sized"],
                        "fresh" => &["fresh"],
                        "sized" => &["sized"],
                        "any" => &["any"],
                        _ => panic!("no such state: {line}"),
                    };
                    let written = match written.starts_with('(') {
                        true => vec![written.to_string()],
                        false => quoted(written),
                    };
                    let one = |cell: &str| {
                        let text = quoted(cell).pop().unwrap_or_else(|| cell.to_string());
                        text.replace('\n', "\\n")
                    };
                    for name in quoted(names) {
                        for written in &written {
                            for state in states {
                                let key = (name.clone(), *state, written.clone());
                                differences.insert(key, [one(here), one(linux)]);
                            }
                        }
                    }
                }
                _ => panic!("neither of the two tables has such a line: {line}"),
            }
        }
        assert!(!attributes.is_empty() && !differences.is_empty());
        Document { attributes, differences }
    }

    /// Is an attribute said to be here? Nothing, if nothing is said of it.
    pub fn here(&self, name: &str) -> Option<bool> {
        self.attributes.get(name).copied()
    }

    pub fn names_here(&self) -> Vec<String> {
        let here = self.attributes.iter().filter(|(_, here)| **here);
        here.map(|(name, _)| name.clone()).collect()
    }

    /// What is not as it is written, for the attributes in `tried`.
    pub fn compare(&self, found: &BTreeMap<Key, [String; 2]>, tried: &BTreeSet<String>) -> String {
        let mut complaints = String::new();
        for (key, [here, linux]) in found {
            if self.differences.get(key) != Some(&[here.clone(), linux.clone()]) {
                let (name, state, written) = key;
                let written = written.replace('\n', "\\n");
                let written = match written.starts_with('(') {
                    true => written,
                    false => format!("`{written}`"),
                };
                let line = format!("| `{name}` | {state} | {written} | `{here}` | `{linux}` |  |");
                let _ = writeln!(complaints, "is so and not written: {line}");
            }
        }
        for (key, pair) in &self.differences {
            if tried.contains(&key.0) && found.get(key).is_none() {
                let _ = writeln!(complaints, "is written and not so: {key:?} {pair:?}");
            }
        }
        complaints
    }
}

#[test]
fn differences_are_found_both_ways() {
    let text = "| `a` `b` | 0644 | yes | yes | |\n| `c` | 0444 | yes | no | |\n\
                | `a` | fresh | `1x` `1\\n` | EINVAL | ok | why |\n\
                | `a` | any | (mode) | 0444 | 0644 | why |\n";
    let document = Document::parse(text);
    assert_eq!(
        [document.here("b"), document.here("c"), document.here("d")],
        [Some(true), Some(false), None]
    );
    let pair = |here: &str, linux: &str| [here.to_string(), linux.to_string()];
    let mut found = BTreeMap::from([
        (("a".to_string(), "fresh", "1x".to_string()), pair("EINVAL", "ok")),
        (("a".to_string(), "fresh", "1\n".to_string()), pair("EINVAL", "ok")),
        (("a".to_string(), "any", "(mode)".to_string()), pair("0444", "0644")),
    ]);
    let tried = BTreeSet::from(["a".to_string()]);
    assert_eq!(document.compare(&found, &tried), "");
    found.insert(("a".to_string(), "sized", "1x".to_string()), pair("EINVAL", "ok"));
    assert!(document.compare(&found, &tried).contains("not written: | `a` | sized | `1x` |"));
    found.clear();
    assert_eq!(document.compare(&found, &tried).lines().count(), 3);
    assert_eq!(document.compare(&found, &BTreeSet::new()), "");
}
