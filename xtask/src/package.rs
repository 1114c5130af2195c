//! `cargo xtask package`: the static program, its services, manuals and completions as a package of
//! Debian and as an rpm. What is in them is said in crates/cli/Cargo.toml, for cargo-deb and
//! cargo-generate-rpm.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::cargo::cargo;
use crate::{dist, git};

/// Where the manifest expects what is made here, below the checkout.
const STAGE: &str = "target/package";
/// The changelog of the project.
const CHANGELOG: &str = "CHANGELOG.md";
/// Without a commit.
const NO_DATE: [&str; 2] = ["Thu, 1 Jan 1970 00:00:00 +0000", "0"];

/// The words after `cargo xtask package`.
#[derive(Default, PartialEq, Eq, Debug)]
struct Options {
    out: Option<PathBuf>,
    from: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let place = match *word {
                "--out" => &mut options.out,
                "--from" => &mut options.from,
                _ => bail!("package has no option {word}; there are --out DIR and --from DIR"),
            };
            *place =
                Some(words.next().with_context(|| format!("{word} needs a directory"))?.into());
        }
        Ok(options)
    }
}

/// Builds the program as `dist --remote` does, unless `--from` has one, and puts both packages into
/// `--out`, or `target/packages`.
///
/// # Errors
/// An unknown option; a program that makes packages is missing, or fails; errors of [`dist::run`].
pub fn run(root: &Path, target: &Path, words: &[&str]) -> Result<bool> {
    let options = Options::parse(words)?;
    for [chore, package] in [["deb", "cargo-deb"], ["generate-rpm", "cargo-generate-rpm"]] {
        let asked = cargo(root).args([chore, "--version"]).stdin(Stdio::null()).output()?;
        ensure!(
            asked.status.success(),
            "no {package}: `cargo install {package} --locked` brings it"
        );
    }
    let from = match options.from {
        Some(from) => from,
        None => {
            let from = target.join("dist");
            let place = from.to_str().context("a path that is no text")?;
            ensure!(dist::run(root, target, &["--remote", "--out", place])?);
            from
        }
    };
    stage(root, &from, &root.join(STAGE))?;
    let out = std::path::absolute(options.out.unwrap_or_else(|| target.join("packages")))?;
    fs::create_dir_all(&out)?;
    let [_, seconds] = date(root);
    let mut deb = cargo(root);
    deb.args(["deb", "--quiet", "--package", "rampack-cli", "--no-build", "--no-strip"]);
    made(deb.arg("--output").arg(&out).env("SOURCE_DATE_EPOCH", &seconds))?;
    let mut rpm = cargo(root);
    rpm.args(["generate-rpm", "--package", "crates/cli", "--source-date", &seconds]);
    made(rpm.arg("--output").arg(&out))?;
    Ok(true)
}

/// Runs what makes a package.
fn made(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status()?;
    ensure!(status.success(), "{command:?} fails");
    Ok(())
}

/// Puts the program, and what belongs below /usr/share of either package, into `stage`. `from` has
/// what [`dist::run`] made.
fn stage(root: &Path, from: &Path, stage: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(stage);
    let [deb, rpm] = ["deb", "rpm"].map(|kind| stage.join(kind));
    put(&stage.join("rampack"), &fs::read(from.join("rampack"))?)?;
    let changes = fs::read(root.join(CHANGELOG))?;
    put(&rpm.join("doc/rampack").join(CHANGELOG), &changes)?;
    put_gzip(&deb.join("doc/rampack/changelog"), &changes)?;
    let [date, _] = date(root);
    let version = env!("CARGO_PKG_VERSION");
    let entry = format!(
        "rampack ({version}-1) unstable; urgency=medium\n\n  * Version {version}: \
         /usr/share/doc/rampack/changelog.gz has what is new.\n\n -- The rampack authors \
         <rampack@users.noreply.github.com>  {date}\n"
    );
    put_gzip(&deb.join("doc/rampack/changelog.Debian"), entry.as_bytes())?;
    for page in files(&from.join("man"))? {
        let name =
            page.file_name().and_then(|name| name.to_str()).context("a page without a name")?;
        let section = name.rsplit('.').next().unwrap_or_default();
        for kind in [&deb, &rpm] {
            put_gzip(&kind.join(format!("man/man{section}/{name}")), &fs::read(&page)?)?;
        }
    }
    let completions = [
        ("rampack.bash", &deb, "bash-completion/completions/rampack"),
        ("rampack.bash", &rpm, "bash-completion/completions/rampack"),
        ("rampack.fish", &deb, "fish/vendor_completions.d/rampack.fish"),
        ("rampack.fish", &rpm, "fish/vendor_completions.d/rampack.fish"),
        ("_rampack", &deb, "zsh/vendor-completions/_rampack"),
        ("_rampack", &rpm, "zsh/site-functions/_rampack"),
    ];
    for (name, kind, place) in completions {
        let file = from.join("completions").join(name);
        if file.exists() {
            put(&kind.join(place), &fs::read(file)?)?;
        }
    }
    Ok(())
}

/// The files of a directory; none without it.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file without a directory")?)?;
    Ok(fs::write(path, bytes)?)
}

/// Puts it compressed as packages have it: as small as it gets, without name and time.
fn put_gzip(path: &Path, bytes: &[u8]) -> Result<()> {
    put(path, bytes)?;
    let status = Command::new("gzip").arg("-9nf").arg(path).status()?;
    ensure!(status.success(), "gzip fails");
    Ok(())
}

/// The date of the last commit, as mails have it, and in seconds.
fn date(root: &Path) -> [String; 2] {
    let text = git::said(root, &["log", "-1", "--format=%cD%n%ct"]).unwrap_or_default();
    match text.split_once('\n') {
        Some((date, seconds)) => [date, seconds].map(str::to_owned),
        None => NO_DATE.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests;
