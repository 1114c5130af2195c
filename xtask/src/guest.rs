//! `cargo xtask guest`: boots the distribution's kernel in a virtual machine under software
//! emulation and runs a command in it. It tests swap under global memory pressure, which this
//! machine's own kernel must not suffer. `docs/internals/testing.md` describes its use.

pub mod cases;
mod image;
mod kernel;
mod machine;
mod options;
mod served;
mod status;
mod tools;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::cargo::cargo;
use kernel::{Flavour, Kernel};
use machine::Machine;
pub use options::Options;
use served::Daemon;
pub use status::{DIED, HANG, TIME_OUT};

/// How the programs of a guest are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Build {
    /// In the profile `emulated`: as a release.
    Release,
    /// As for the tests of the workspace, which has built nearly all of it.
    Tests,
}

impl Build {
    /// Of the cases: all run where there is time.
    pub fn of_cases(all: bool) -> Build {
        if all { Build::Release } else { Build::Tests }
    }

    /// The command.
    pub fn command(self, root: &Path) -> Command {
        let mut build = cargo(root);
        build.args(["build", "--quiet", "--bins", "--example", "serve_ublk"]);
        match self {
            Build::Release => {
                build.args([
                    "--profile",
                    "emulated",
                    "--features",
                    "rampack-cli/top,rampack-cli/vhost",
                ]);
                let packages = ["rampack-cli", "rampack-guestkit", "rampack-ublk"];
                build.args(packages.iter().flat_map(|package| ["--package", package]))
            }
            // With other packages, crates would have other features.
            Build::Tests => build.arg("--workspace"),
        };
        build
    }

    /// The directory of the programs, below cargo's.
    fn directory(self) -> &'static str {
        match self {
            Build::Release => "emulated",
            Build::Tests => "debug",
        }
    }
}

/// Runs the chore with these words and returns the exit status.
pub fn run(root: &Path, target: &Path, words: &[&str]) -> Result<u8> {
    let options = Options::parse(words.iter().copied())?;
    if let Some(missing) = tools::missing() {
        bail!("a guest needs {missing}");
    }
    let guest = Guest::new(root, target, Build::Release)?;
    guest.run(&options, &mut io::stdout())
}

/// The programs, kernels and images that guests of one checkout share.
struct Guest {
    root: PathBuf,
    cache: PathBuf,
    programs: PathBuf,
}

impl Guest {
    /// Builds the programs that run in a guest.
    fn new(root: &Path, target: &Path, build: Build) -> Result<Guest> {
        let cache = target.join("guest");
        fs::create_dir_all(&cache)?;
        remove_leftovers(&cache)?;
        if !build.command(root).status().context("cargo build")?.success() {
            bail!("the programs for the guest do not build");
        }
        Ok(Guest { root: root.to_owned(), cache, programs: target.join(build.directory()) })
    }

    /// The kernel. Fetches it if it is missing.
    fn kernel(&self, flavour: &Flavour) -> Result<Kernel> {
        kernel::ready(&self.cache, flavour)
    }

    /// Boots a guest, runs the command in it, and writes its console to `output`.
    fn run(&self, options: &Options, output: &mut dyn io::Write) -> Result<u8> {
        let kernel = self.kernel(&options.kernel)?;
        let image = image::ready(&self.root, &self.cache, &self.programs, kernel)?;
        let directory = self.cache.join(format!("run-{}", process::id()));
        fs::create_dir_all(&directory)?;
        let job = self.job(options, &directory)?;
        let program = self.programs.join("rampack");
        let served = options.served.map(|seconds| Daemon::start(&program, &directory, seconds));
        let served = served.transpose()?;
        let machine = Machine::start(&image, options, &job, (&directory, served.as_ref()))?;
        let status = machine.watch(options, output);
        if let Some(daemon) = &served {
            writeln!(output, "=== HOST the daemon was killed {} times", daemon.kills())?;
        }
        drop(served);
        let _ = fs::remove_dir_all(&directory);
        status
    }

    /// Packs the scripts, the files and the command line.
    fn job(&self, options: &Options, directory: &Path) -> Result<PathBuf> {
        let tree = directory.join("job");
        fs::create_dir_all(&tree)?;
        let scripts = self.root.join("guest");
        for entry in fs::read_dir(&scripts)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|it| it == "sh") {
                fs::copy(entry.path(), tree.join(entry.file_name()))?;
            }
        }
        for file in &options.files {
            let name = file.file_name().with_context(|| format!("{}: no file", file.display()))?;
            fs::copy(file, tree.join(name))?;
        }
        let is_script = |name: &str| tree.join(format!("{name}.sh")).is_file();
        fs::write(tree.join("command"), command_line(&options.command, is_script))?;
        let archive = directory.join("job.tar");
        let mut tar = tools::command("tar");
        tools::run(tar.arg("--create").arg("--file").arg(&archive).arg("-C").arg(&tree).arg("."))?;
        fs::remove_dir_all(&tree)?;
        Ok(archive)
    }
}

/// The command for the guest's shell: one of our scripts, a shell's line, or a program. Words are
/// quoted, unless there is only one.
fn command_line(words: &[String], is_script: impl Fn(&str) -> bool) -> String {
    let quoted = |words: &[String]| {
        let words = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        words.collect::<Vec<_>>().join(" ")
    };
    match words {
        [script] if is_script(script) => format!("exec bash ./{script}.sh\n"),
        [script, words @ ..] if is_script(script) => {
            format!("exec bash ./{script}.sh {}\n", quoted(words))
        }
        [line] => format!("{line}\n"),
        words => format!("{}\n", quoted(words)),
    }
}

/// Removes the files of killed runs.
fn remove_leftovers(cache: &Path) -> Result<()> {
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = ["run-", "new-"].iter().find_map(|prefix| name.strip_prefix(prefix));
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::command_line;

    fn line(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        command_line(&words, |name| name == "pressure")
    }

    #[test]
    fn a_script_and_a_program_get_their_words_and_a_shell_its_line() {
        assert_eq!(line(&["pressure"]), "exec bash ./pressure.sh\n");
        assert_eq!(
            line(&["pressure", "a b", "it's"]),
            "exec bash ./pressure.sh 'a b' 'it'\\''s'\n"
        );
        assert_eq!(line(&["free -m; uname -r"]), "free -m; uname -r\n");
        assert_eq!(line(&["cat", "/proc/swaps"]), "'cat' '/proc/swaps'\n");
        assert_eq!(line(&["sh", "-c", "echo a  b; exit 3"]), "'sh' '-c' 'echo a  b; exit 3'\n");
    }
}
