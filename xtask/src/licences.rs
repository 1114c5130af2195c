//! `cargo xtask licences`: under what terms everything that is linked in comes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::check::cargo;

/// Licences a program under MIT OR Apache-2.0 may link, by their SPDX names.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Prints the licence of every package of the workspace and below. True when all are allowed.
pub fn run(root: &Path) -> Result<bool> {
    let metadata = metadata(root)?;
    let mut by_licence: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut refused = Vec::new();
    for package in used_packages(&metadata)? {
        let text = |key: &str| package.get(key).and_then(Value::as_str).unwrap_or("");
        let name = format!("{} {}", text("name"), text("version"));
        let licence = text("license");
        match is_allowed(licence) {
            Ok(true) => {}
            Ok(false) if licence.is_empty() => refused.push(format!("{name}: names no licence")),
            Ok(false) => refused.push(format!("{name}: {licence}")),
            Err(error) => refused.push(format!("{name}: {licence}: {error}")),
        }
        by_licence.entry(licence.to_string()).or_default().push(name);
    }
    for (licence, mut names) in by_licence {
        names.sort();
        println!("{licence}: {}", names.join(", "));
    }
    for line in &refused {
        println!("licences: not allowed: {line}");
    }
    println!("licences: {} refused; allowed: {}", refused.len(), ALLOWED.join(", "));
    Ok(refused.is_empty())
}

fn metadata(root: &Path) -> Result<Value> {
    // Only what is built on this platform: the rest need not be downloaded.
    let version = cargo(root).args(["--version", "--verbose"]).output().context("cargo")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let platform = version.lines().find_map(|line| line.strip_prefix("host: "));
    let platform = platform.context("cargo --version --verbose names no host")?;
    let mut command = cargo(root);
    command.args(["metadata", "--format-version", "1", "--filter-platform", platform]);
    let output =
        command.stderr(std::process::Stdio::inherit()).output().context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("what cargo metadata printed")
}

/// The packages in the resolved graph; `packages` also lists those of other platforms.
fn used_packages(metadata: &Value) -> Result<Vec<&Value>> {
    let array = |value: &'static str, of: &Value| -> Result<Vec<Value>> {
        let found = of.get(value).and_then(Value::as_array).cloned();
        found.with_context(|| format!("cargo metadata has no {value}"))
    };
    let nodes = array("nodes", metadata.get("resolve").unwrap_or(&Value::Null))?;
    let used: Vec<&Value> = nodes.iter().filter_map(|node| node.get("id")).collect();
    let packages = metadata.get("packages").and_then(Value::as_array);
    let packages = packages.context("cargo metadata has no packages")?;
    Ok(packages
        .iter()
        .filter(|package| package.get("id").is_some_and(|id| used.contains(&id)))
        .collect())
}

/// Whether an SPDX expression leaves a choice that is allowed. The old `MIT/Apache-2.0` means OR.
fn is_allowed(expression: &str) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if words.is_empty() {
        return Ok(false);
    }
    let mut rest = &words[..];
    let allowed = any_of(&mut rest)?;
    match rest.first() {
        None => Ok(allowed),
        Some(word) => bail!("unexpected `{word}`"),
    }
}

fn any_of(words: &mut &[&str]) -> Result<bool> {
    let mut allowed = all_of(words)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        allowed |= all_of(words)?;
    }
    Ok(allowed)
}

fn all_of(words: &mut &[&str]) -> Result<bool> {
    let mut allowed = one(words)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        allowed &= one(words)?;
    }
    Ok(allowed)
}

fn one(words: &mut &[&str]) -> Result<bool> {
    let Some((first, rest)) = words.split_first() else { bail!("ends too early") };
    *words = rest;
    if *first == "(" {
        let allowed = any_of(words)?;
        if words.first() != Some(&")") {
            bail!("a parenthesis is not closed");
        }
        *words = &words[1..];
        return Ok(allowed);
    }
    if let ["WITH", exception, ..] = **words {
        *words = &words[2..];
        return Ok(ALLOWED.contains(&format!("{first} WITH {exception}").as_str()));
    }
    Ok(ALLOWED.contains(first))
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn a_choice_is_enough_and_a_sum_must_be_whole() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0-only",
            "GPL-2.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MPL-2.0",
        ] {
            assert!(is_allowed(good).unwrap(), "{good}");
        }
        for bad in [
            "",
            "GPL-2.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR ISC) AND MPL-2.0",
            "GPL-2.0-only WITH Linux-syscall-note",
        ] {
            assert!(!is_allowed(bad).unwrap(), "{bad}");
        }
        for unreadable in ["MIT OR", "(MIT", "MIT ISC", "MIT )"] {
            assert!(is_allowed(unreadable).is_err(), "{unreadable}");
        }
    }
}
