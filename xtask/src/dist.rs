//! `cargo xtask dist`: the program as it is given to users, with its man pages and completions. It
//! is static, so that it runs on any Linux of this architecture, in a container without a C
//! library, too.

mod library;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::cargo::cargo;
use crate::git;

/// The largest program in bytes.
const LIMIT: u64 = 11 << 20;
/// The same with remote stores, and disks of virtual machines.
const LIMIT_WITH_REMOTE: u64 = 20 << 20;

/// What runs a program as root of a namespace of its own.
const ENTER: &[&str] = &["unshare", "--user", "--map-root-user", "--mount"];

/// The words after `cargo xtask dist`.
#[derive(Default, PartialEq, Eq, Debug)]
struct Options {
    remote: bool,
    library: bool,
    out: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--remote" => options.remote = true,
                "--library" => options.library = true,
                "--out" => {
                    options.out = Some(words.next().context("--out needs a directory")?.into());
                }
                _ => {
                    bail!("dist has no option {word}; there are --remote, --library and --out DIR")
                }
            }
        }
        Ok(options)
    }
}

/// Builds the program, puts it and its manuals into `--out`, or `target/dist`, and tries it in an
/// empty directory where this user may make one.
///
/// # Errors
/// An unknown option; the program does not build, is too large, or does not serve.
pub fn run(root: &Path, target: &Path, words: &[&str]) -> Result<bool> {
    let options = Options::parse(words)?;
    if options.library {
        ensure!(!options.remote, "the library has no remote stores: leave out --remote");
        library::put(root, target, &options.out.unwrap_or_else(|| target.join("dist")))?;
        return Ok(true);
    }
    let mut build = build(root)?;
    build.args(["--package", "rampack-cli", "--bin", "rampack"]);
    // What users watch with, which `cargo run` leaves out because it takes a tree of crates.
    build.args(["--features", "metrics,top"]);
    if options.remote {
        build.args(["--features", "remote,vhost"]);
    }
    build.env("RAMPACK_COMMIT", commit(root));
    ensure!(
        build.stdin(Stdio::null()).status()?.success(),
        "the program does not build; where the linker cannot find -lc, the static C library is \
         missing (Fedora: glibc-static)"
    );

    let out = options.out.unwrap_or_else(|| target.join("dist"));
    fs::create_dir_all(&out)?;
    let program = out.join("rampack");
    fs::copy(programs(target)?.join("rampack"), &program)?;
    let bytes = fs::metadata(&program)?.len();
    let limit = if options.remote { LIMIT_WITH_REMOTE } else { LIMIT };
    write_manuals(root, &out)?;
    let said = Command::new(&program).arg("--version").output()?.stdout;
    let version = String::from_utf8_lossy(&said);
    println!("{}: {} KiB, {}", program.display(), bytes >> 10, version.trim());
    ensure!(bytes <= limit, "it may have {} KiB", limit >> 10);
    match may_enter(ENTER)? {
        None => serves_alone(&program)?,
        Some(why) => println!("not tried in an empty directory: {why}"),
    }
    Ok(true)
}

/// `cargo xtask manuals`: man pages and completions in `--out`, or `target/dist`.
///
/// # Errors
/// An unknown option; what makes them does not build, or fails.
pub fn manuals(root: &Path, target: &Path, words: &[&str]) -> Result<bool> {
    let options = Options::parse(words)?;
    ensure!(!options.remote && !options.library, "manuals has no option but --out DIR");
    let out = options.out.unwrap_or_else(|| target.join("dist"));
    write_manuals(root, &out)
}

/// Writes `man` and `completions` into `out`, with the date of the last commit.
fn write_manuals(root: &Path, out: &Path) -> Result<bool> {
    let date = git::said(root, &["log", "-1", "--format=%cs"]).ok().filter(|it| !it.is_empty());
    let mut make = cargo(root);
    make.args(["run", "--quiet", "--package", "rampack-cli", "--example", "manuals", "--"]);
    // Below the directory of the caller, not of the checkout.
    make.arg(std::path::absolute(out)?).arg(date.as_deref().unwrap_or("1970-01-01"));
    ensure!(make.stdin(Stdio::null()).status()?.success(), "the manuals cannot be made");
    println!("{}: man, completions", out.display());
    Ok(true)
}

/// A build of static programs. The caller adds which.
fn build(root: &Path) -> Result<Command> {
    let host = host()?;
    let mut build = cargo(root);
    // With a target the flags are those of the programs alone, without those of build scripts.
    build.args(["build", "--quiet", "--profile", "static", "--target", &host, "--config"]);
    // For a package with an opt-level of its own, cargo forgets what its profile says of `strip`.
    let flags = r#"["-Ctarget-feature=+crt-static", "-Cstrip=symbols"]"#;
    build.arg(format!("target.{host}.rustflags={flags}"));
    Ok(build)
}

/// The directory in which [`build`] leaves programs.
fn programs(target: &Path) -> Result<PathBuf> {
    Ok(target.join(host()?).join("static"))
}

/// The target of the machine that builds, such as `x86_64-unknown-linux-gnu`.
fn host() -> Result<String> {
    let said = Command::new("rustc").arg("-vV").output().context("rustc")?.stdout;
    let text = String::from_utf8_lossy(&said);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_string())
}

/// The commit of the checkout, with a `+` if something has changed since; empty outside of git.
fn commit(root: &Path) -> String {
    let Ok(commit) = git::said(root, &["rev-parse", "--short=12", "HEAD"]) else {
        return String::new();
    };
    let is_clean = git::said(root, &["status", "--porcelain"]).is_ok_and(|it| it.is_empty());
    if is_clean { commit } else { commit + "+" }
}

/// Why this user cannot run programs by `enter`: Ubuntu and containers restrict namespaces. `None`
/// if it works.
fn may_enter(enter: &[&str]) -> Result<Option<String>> {
    let tried = Command::new(enter[0]).args(&enter[1..]).arg("true").output();
    let tried = tried.with_context(|| format!("{}, of the package util-linux", enter[0]))?;
    let said = String::from_utf8_lossy(&tried.stderr).trim().to_string();
    Ok((!tried.status.success()).then(|| format!("no namespace can be made here ({said})")))
}

/// Runs the program in a directory with nothing but the program and /proc: it must serve a disk,
/// and end well when it is asked to.
fn serves_alone(program: &Path) -> Result<()> {
    let directory = program.with_extension("alone");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(directory.join("proc"))?;
    fs::copy(program, directory.join("rampack"))?;
    let outcome = serves_in(&directory);
    fs::remove_dir_all(&directory)?;
    outcome
}

fn serves_in(directory: &Path) -> Result<()> {
    let mut alone = Command::new("timeout");
    let enter = "mount --rbind /proc \"$0/proc\" && exec chroot \"$0\" /rampack \"$@\"";
    alone.args(["--kill-after=10", "120"]).args(ENTER);
    alone.args(["sh", "-c", enter]).arg(directory);
    alone.args(["--root", "/r", "up", "--transport", "nbd", "--size", "16M"]);
    alone.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = alone.spawn().context("timeout, of the package coreutils")?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let is_up = lines.by_ref().map_while(Result::ok).any(|line| line.contains("end it"));
    // timeout passes it on.
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    ensure!(is_up, "the program does not serve in an empty directory");
    ensure!(child.wait()?.success(), "the program does not end well in an empty directory");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood_or_refused_by_name() {
        let options = Options::parse(&["--remote", "--out", "x"]).unwrap();
        assert_eq!(options, Options { remote: true, out: Some("x".into()), ..Options::default() });
        assert!(Options::parse(&["--library"]).unwrap().library);
        assert_eq!(Options::parse(&[]).unwrap(), Options::default());
        let error = Options::parse(&["--musl"]).unwrap_err().to_string();
        assert!(error.contains("--musl") && error.contains("--remote"), "{error}");
        assert!(Options::parse(&["--out"]).is_err());
    }

    #[test]
    fn where_no_namespace_can_be_made_it_is_said() {
        assert_eq!(may_enter(&["env"]).unwrap(), None);
        let refusing = ["sh", "-c", "echo unshare failed >&2; exit 1"];
        let why = may_enter(&refusing).unwrap().unwrap();
        assert!(why.contains("namespace") && why.contains("(unshare failed)"), "{why}");
    }
}
