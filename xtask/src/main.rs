//! The chores of rampack: `cargo xtask help` lists them.
#![forbid(unsafe_code)]

mod cargo;
mod check;
mod checkers;
mod count;
mod crates;
mod dist;
mod fuzz;
mod git;
mod guest;
mod mutants;
mod package;
mod python;
mod rules;
mod seed;
mod signals;
mod source;
mod test;
mod tree;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <chore>

  test [--strict] [--long] [--guest]
                   build and run every test: unit, integration and documentation tests, loom
                   models, the engine under shuttle, the tests of concurrency under
                   AddressSanitizer, and a kernel's swap in a guest. The last line is `N passed,
                   N failed, N skipped`. A test that needs more than this machine has says what
                   and is skipped; --strict fails it instead. --long runs all cases in the guest,
                   a thousand kills of daemons, packages, the soak of 10^9 operations, `dist` and
                   `python`; --guest nothing but the cases.
  check [--long]   formatting, clippy, the rules, and licences and sources of dependencies (by
                   cargo-deny, where it is installed). --long also builds the fuzz targets, and
                   compares the library's interface with that of the last release (by
                   cargo-semver-checks, where it is installed)
  dist [--remote] [--out DIR]
                   build the static program that runs on any Linux, put it into DIR
                   (target/dist) with what `manuals` makes, and try it in a directory with /proc
                   alone, if a user may make namespaces here; --remote: with remote stores and
                   vhost-user
  dist --library [--out DIR]
                   build librampack.so.0 and librampack.a, try them with a program in C, and put
                   them into DIR/lib (target/dist), with rampack.h, rampack.pc and rampack(3)
  python           build the wheel for Python, and test it in a fresh environment: pytest, mypy
                   --strict; needs python3 with venv, and pip to fetch what the tests need
  manuals [--out DIR]
                   make the man pages and the completions of shells, in DIR (target/dist)
  package [--out DIR] [--from DIR]
                   make a package of Debian and an rpm in DIR (target/packages) of what
                   `dist --remote` makes, or of what is in --from; needs cargo-deb and
                   cargo-generate-rpm
  fuzz [--time SECONDS] [--jobs N] [--json] [TARGET...]
                   build the fuzz targets with libFuzzer and AddressSanitizer and run each, or
                   those named, for so long (60), --jobs of them side by side; then a table of
                   inputs, executions a second, coverage and faults
  mutants [--changed COMMIT] [--json] [NAME...]
                   apply each patch of testing/mutants to a copy of the checkout, or those named,
                   or those of files that have changed since COMMIT: the test that the patch names
                   must fail. `test` does this with those of the last change, `test --long` with
                   all
  rules            the rules of the workspace alone: who may depend on whom, where atomics and
                   unsafe may be, file sizes and the like
  guest [--memory 512M] [--cpus 2] [--append \"KERNEL ARGUMENTS\"] [--kernel cloud|generic]
        [--time SECONDS] [--hang SECONDS] [--served SECONDS] [--file FILE]... -- COMMAND...
                   boot the distribution's kernel under software emulation and run a command in it:
                   a script of guest/ or a program and its words, or a single word as a shell's
                   command line. Exits with the command's status; 123 if the guest hangs (no page
                   was swapped and nothing said for --hang seconds, 60 if not given; 0: never), 124
                   after --time seconds (600), 125 if it died. Then the kernel says first which
                   tasks are blocked.
";

const TEST_FLAGS: [&str; 3] = ["--strict", "--long", "--guest"];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match words[..] {
        ["test", ref flags @ ..] if flags.iter().all(|it| TEST_FLAGS.contains(it)) => {
            let [strict, long, guest] = TEST_FLAGS.map(|flag| flags.contains(&flag));
            signals::listen();
            test::run(&root, test::Extent { strict, long, guest })
        }
        ["guest", ref words @ ..] => {
            return match guest::run(&root, &test::target_directory(&root), words) {
                Ok(status) => ExitCode::from(status),
                Err(error) => {
                    eprintln!("error: {error:#}");
                    ExitCode::FAILURE
                }
            };
        }
        ["dist", ref words @ ..] => dist::run(&root, &test::target_directory(&root), words),
        ["python"] => python::run(&root, &test::target_directory(&root)),
        ["manuals", ref words @ ..] => dist::manuals(&root, &test::target_directory(&root), words),
        ["package", ref words @ ..] => package::run(&root, &test::target_directory(&root), words),
        ["fuzz", ref words @ ..] => fuzz::run(&root, &test::target_directory(&root), words),
        ["mutants", ref words @ ..] => mutants::run(&root, &test::target_directory(&root), words),
        ["check"] => check::run(&root, false),
        ["check", "--long"] => check::run(&root, true),
        ["rules"] => rules::run(&root),
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
