//! The rule that CI installs the packages that tests need.

use super::Finding;
use crate::tree::Tree;

/// The file that installs packages.
const CI: &str = ".ci/run";
/// Packages of programs that come with every Rust toolchain.
const TOOLCHAIN: &[&str] = &["cargo", "rustc"];

/// Finds packages that a `Need::program(name, package)` names and CI does not install.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ci = tree.files.iter().find(|file| file.path == CI).and_then(|file| file.text());
    let ci = ci.unwrap_or_default();
    // The words of the array. The first line with only a parenthesis ends the array.
    let packages = ci.split_once("packages=(").map_or("", |(_, rest)| rest);
    let packages = packages.split("\n)").next().unwrap_or("");
    let packages: Vec<&str> = packages.split_whitespace().collect();
    for source in &tree.sources {
        if source.crate_name() == Some("testkit") || source.crate_name() == Some("xtask") {
            continue;
        }
        for (number, line) in (1..).zip(&source.lines) {
            if !line.code.contains("Need::program(") {
                continue;
            }
            for call in line.text.split("Need::program(").skip(1) {
                // The second text of `"fio", "fio")`.
                let package = call.split('"').nth(3).unwrap_or("");
                if !packages.contains(&package) && !TOOLCHAIN.contains(&package) {
                    findings.push(Finding {
                        path: source.path.clone(),
                        line: number,
                        rule: "needs",
                        message: format!("{CI} does not install {package:?}: add it there"),
                    });
                }
            }
        }
    }
    findings
}
