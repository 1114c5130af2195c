//! `cargo xtask dist --library`: the library for C, as it is given to users.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::cargo::cargo;

/// The crate of the library.
const CRATE: &str = "crates/capi";
/// The name that programs are linked with: another number when they would have to be built anew.
const SHARED: &str = "librampack.so.0";
/// What [`tries`] compiles and runs. One has a socket, and ends with its input.
const EXAMPLES: [&str; 2] = ["cold.c", "serve.c"];

/// Builds the library and puts it into `out`, with what belongs to it.
///
/// # Errors
/// It does not build, or a program in C does not run with it.
pub fn put(root: &Path, target: &Path, out: &Path) -> Result<()> {
    let mut build = cargo(root);
    build.args(["rustc", "--quiet", "--profile", "static", "--package", "rampack-capi", "--lib"]);
    build.args(["--features", "serve"]);
    build.args(["--crate-type", "cdylib,staticlib"]);
    ensure!(build.stdin(Stdio::null()).status()?.success(), "the library does not build");

    let (from, crate_directory) = (target.join("static"), root.join(CRATE));
    let (lib, include, man) = (out.join("lib"), out.join("include"), out.join("man"));
    for directory in [&lib.join("pkgconfig"), &include, &man] {
        fs::create_dir_all(directory)?;
    }
    fs::copy(from.join("librampack_capi.so"), lib.join(SHARED))?;
    let link = lib.join("librampack.so");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(SHARED, &link).with_context(|| link.display().to_string())?;
    fs::copy(from.join("librampack_capi.a"), lib.join("librampack.a"))?;
    fs::copy(crate_directory.join("include/rampack.h"), include.join("rampack.h"))?;
    fs::copy(crate_directory.join("man/rampack.3"), man.join("rampack.3"))?;
    let template = fs::read_to_string(crate_directory.join("rampack.pc.in"))?;
    let text = template.replace("@VERSION@", &version(root)?);
    fs::write(lib.join("pkgconfig/rampack.pc"), text)?;
    tries(&crate_directory, out)?;
    for name in [SHARED, "librampack.a"] {
        let file = lib.join(name);
        println!("{}: {} KiB", file.display(), fs::metadata(&file)?.len() >> 10);
    }
    println!("{}: rampack.h, rampack.pc, rampack.3", out.display());
    Ok(())
}

/// The version of the workspace.
fn version(root: &Path) -> Result<String> {
    let manifest: toml::Table = toml::from_str(&fs::read_to_string(root.join("Cargo.toml"))?)?;
    let package = manifest.get("workspace").and_then(|it| it.get("package"));
    let version = package.and_then(|it| it.get("version")).and_then(toml::Value::as_str);
    Ok(version.context("the workspace has no version")?.to_string())
}

/// Compiles and runs programs, as a user does: with the shared library, then with the other.
fn tries(crate_directory: &Path, out: &Path) -> Result<()> {
    let out = std::path::absolute(out)?;
    let program = out.join("try");
    for (kind, library) in [("shared", "-lrampack"), ("static", "-l:librampack.a")] {
        let mut flags = Command::new("pkg-config");
        flags.env("PKG_CONFIG_PATH", out.join("lib/pkgconfig"));
        let said = flags.args(["--static", "--cflags", "--libs", "rampack"]).output();
        let said = said.context("pkg-config, of the package pkgconf")?;
        ensure!(said.status.success(), "pkg-config does not know rampack.pc");
        let words = String::from_utf8_lossy(&said.stdout).replace("-lrampack", library);
        for example in EXAMPLES {
            let mut compile = Command::new("cc");
            compile.arg(crate_directory.join("examples").join(example)).arg("-o").arg(&program);
            compile.args(words.split_whitespace());
            let is_built = compile.status().context("cc")?.success();
            ensure!(is_built, "no {example} with the {kind} library");
            let mut run = Command::new(&program);
            run.arg("socket").current_dir(&out).env("LD_LIBRARY_PATH", out.join("lib"));
            let status = run.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
            fs::remove_file(&program)?;
            if !status.success() {
                bail!("{example} with the {kind} library fails: {status}");
            }
        }
    }
    Ok(())
}
