//! `cargo xtask package`: the static program, its services, manuals and completions as a package of
//! Debian and as an rpm. What is in them is said in crates/cli/Cargo.toml, for cargo-deb and
//! cargo-generate-rpm.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::cargo::cargo;
use crate::dist;

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
    put(&deb.join("doc/rampack/changelog.gz"), &gzip(&changes)?)?;
    let [date, _] = date(root);
    let version = env!("CARGO_PKG_VERSION");
    let entry = format!(
        "rampack ({version}-1) unstable; urgency=medium\n\n  * Version {version}: \
         /usr/share/doc/rampack/changelog.gz has what is new.\n\n -- The rampack authors \
         <rampack@users.noreply.github.com>  {date}\n"
    );
    put(&deb.join("doc/rampack/changelog.Debian.gz"), &gzip(entry.as_bytes())?)?;
    for page in files(&from.join("man"))? {
        let name =
            page.file_name().and_then(|name| name.to_str()).context("a page without a name")?;
        let section = name.rsplit('.').next().unwrap_or_default();
        let text = gzip(&fs::read(&page)?)?;
        for kind in [&deb, &rpm] {
            put(&kind.join(format!("man/man{section}/{name}.gz")), &text)?;
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

/// Compressed as packages have it: as small as it gets, without name and time.
fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = Command::new("gzip");
    let mut child = gzip.arg("-9n").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("gzip was told nothing"))??;
    ensure!(output.status.success(), "gzip fails");
    Ok(output.stdout)
}

/// The date of the last commit, as mails have it, and in seconds.
fn date(root: &Path) -> [String; 2] {
    let mut git = Command::new("git");
    let git = git.args(["log", "-1", "--format=%cD%n%ct"]).current_dir(root).output();
    let text = git.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    let mut lines = text.lines().map(str::to_owned);
    match [lines.next(), lines.next()] {
        [Some(date), Some(seconds)] => [date, seconds],
        _ => NO_DATE.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests;
