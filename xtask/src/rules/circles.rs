//! The rule that files of a crate do not import each other in a circle. Calls go down and values
//! come up, between files as between crates. So a reader of a file can read the files below it
//! first.
//!
//! An import leads to the file that defines the name, through all `pub use` on the way. A `mod`
//! line imports nothing, nor does a `pub use` of a name that the file itself does not use. Tests
//! may import anything.

mod modules;
mod names;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::modules::{Imports, Modules};
use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Finds the circles of every crate.
pub fn check(tree: &Tree) -> Vec<Finding> {
    circles_by_crate(tree).values().flatten().map(Circle::finding).collect()
}

/// Files that all import each other, directly or through other files.
struct Circle {
    files: BTreeSet<String>,
    /// The shortest circle: a file, the line of its import, the next file, and so on.
    way: Vec<(String, usize)>,
}

impl Circle {
    fn finding(&self) -> Finding {
        let way: Vec<String> =
            self.way.iter().map(|(path, line)| format!("{}:{line}", in_src(path))).collect();
        let (path, line) = self.way[0].clone();
        let message = format!(
            "{} files import each other, as {} -> {}: move what they share into a file below \
             them, or hand a value or a closure up",
            self.files.len(),
            way.join(" -> "),
            in_src(&path)
        );
        Finding { path, line, rule: "circles", message }
    }
}

fn in_src(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, rest)| rest)
}

fn circles_by_crate(tree: &Tree) -> BTreeMap<String, Vec<Circle>> {
    let mut crates: BTreeMap<&str, BTreeMap<&str, &Source>> = BTreeMap::new();
    for source in tree.sources.iter().filter(|source| !source.test) {
        if let Some(name) = source.crate_name()
            && source.path.contains("/src/")
        {
            crates.entry(name).or_default().insert(&source.path, source);
        }
    }
    let of_crate = |(name, sources): (&str, BTreeMap<&str, &Source>)| {
        // A program beside the library is a separate crate.
        let roots = sources.keys().filter(|path| is_root(path));
        let found = roots.flat_map(|root| circles(&Modules::new(root, &sources).imports()));
        (name.to_string(), found.collect())
    };
    crates.into_iter().map(of_crate).collect()
}

fn is_root(path: &str) -> bool {
    match in_src(path).split_once('/') {
        None => matches!(in_src(path), "lib.rs" | "main.rs"),
        Some((directory, file)) => directory == "bin" && !file.contains('/'),
    }
}

fn circles(imports: &Imports) -> Vec<Circle> {
    let mut circles: Vec<Circle> = Vec::new();
    for file in imports.keys() {
        if circles.iter().any(|circle| circle.files.contains(file)) {
            continue;
        }
        let below = reached(imports, file);
        let files: BTreeSet<String> = below
            .into_iter()
            .filter(|other| reached(imports, other).contains(file.as_str()))
            .map(String::from)
            .collect();
        if !files.is_empty() {
            let ways = files.iter().map(|file| way_round(imports, file));
            let way = ways.min_by_key(Vec::len).unwrap_or_default();
            circles.push(Circle { files, way });
        }
    }
    circles
}

/// Every file that `file` imports, directly or through others. `file` itself is in the set only if
/// it is in a circle.
fn reached<'a>(imports: &'a Imports, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![file];
    while let Some(file) = waiting.pop() {
        for next in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.as_str()) {
                waiting.push(next);
            }
        }
    }
    reached
}

/// The shortest way from `file`, which is in a circle, back to it.
fn way_round(imports: &Imports, file: &str) -> Vec<(String, usize)> {
    let mut came_from: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    let mut waiting = VecDeque::from([file]);
    while let Some(at) = waiting.pop_front()
        && !came_from.contains_key(file)
    {
        for (next, line) in imports.get(at).into_iter().flatten() {
            came_from.entry(next).or_insert_with(|| {
                waiting.push_back(next);
                (at, *line)
            });
        }
    }
    let mut way = Vec::new();
    let mut at = file;
    while let Some(&(from, line)) = came_from.get(at) {
        way.insert(0, (from.to_string(), line));
        at = from;
        if at == file {
            break;
        }
    }
    way
}

#[cfg(test)]
mod tests;
