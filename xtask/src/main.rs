//! The chores of rampack: `cargo xtask help` lists them.
#![forbid(unsafe_code)]

mod check;
mod checkers;
mod count;
mod licences;
mod rules;
mod source;
mod test;
mod tree;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <chore>

  test [--strict]  build and run every test: unit, integration and documentation tests, loom
                   models, the engine under shuttle, and the tests of concurrency under
                   AddressSanitizer. The last line is `N passed, N failed, N skipped`. A test that
                   needs more than this machine has says what and is skipped; --strict fails it
                   instead.
  check            formatting, clippy, the rules, the licences, and that the fuzz targets build
  rules            the rules of the house alone: who may depend on whom, where atomics and unsafe
                   may be, file sizes and the like
  licences         the licence of every dependency; fails on one that is not on the list
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match words[..] {
        ["test"] => test::run(&root, false),
        ["test", "--strict"] => test::run(&root, true),
        ["check"] => check::run(&root),
        ["rules"] => rules::run(&root),
        ["licences"] => licences::run(&root),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => {
            eprint!("cargo xtask {}: no such chore\n\n{HELP}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The top of the checkout: the directory above this package.
fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    here.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
