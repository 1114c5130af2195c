//! The source to build: a tree with a Makefile, best the kernel's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::programs;

/// Where trees of the kernel's source often are.
const USUAL: &str = "/usr/src";
/// The prefix of their names, as of what Debian's package has in an archive.
const PREFIX: &str = "linux-source-";
/// The tools that the kernel's build needs; the packages that have them have the same names.
const TOOLS: [&str; 4] = ["gcc", "flex", "bison", "bc"];

/// A tree to build.
pub struct Source {
    tree: PathBuf,
    make: PathBuf,
}

impl Source {
    /// The tree `wanted`; else the last in `directory`, or in /usr/src.
    pub fn find(wanted: Option<&Path>, directory: &Path) -> Result<Source> {
        let tree = match wanted {
            Some(path) => path.to_owned(),
            None => last(directory).or_else(|| last(Path::new(USUAL))).with_context(|| {
                format!(
                    "there is no tree {PREFIX}* in {} or {USUAL}: unpack the archive of the \
                     package linux-source, or name a tree with --source",
                    directory.display()
                )
            })?,
        };
        if !tree.join("Makefile").is_file() {
            bail!("{} has no Makefile", tree.display());
        }
        let make = programs::find("make").context("make is not installed (package make)")?;
        let source = Source { tree, make };
        let missing = TOOLS.iter().find(|tool| programs::find(tool).is_none());
        match missing.filter(|_| source.is_kernel()) {
            Some(tool) => bail!("the kernel's build takes {tool} (the package has the same name)"),
            None => Ok(source),
        }
    }

    fn is_kernel(&self) -> bool {
        self.tree.join("Kconfig").is_file() && self.tree.join("scripts/kconfig").is_dir()
    }

    /// A description of the source.
    pub fn describe(&self) -> String {
        let name = self.tree.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !self.is_kernel() {
            return name;
        }
        let config = fs::read_to_string(self.tree.join(".config")).unwrap_or_default();
        let chosen = config.lines().filter(|line| line.ends_with("=y")).count();
        format!("{name}, {chosen} options of the configuration are y")
    }

    /// Configures a kernel's tree with `tinyconfig`, if it has no configuration.
    pub fn configure(&self) -> Result<()> {
        if self.is_kernel() && !self.tree.join(".config").is_file() {
            self.chore("tinyconfig")?;
        }
        Ok(())
    }

    /// Removes the results of a build.
    pub fn clean(&self) -> Result<()> {
        self.chore("clean")
    }

    fn chore(&self, target: &str) -> Result<()> {
        let output = self.make().arg(target).stdin(Stdio::null()).output().context("make")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("make {target} in {}: {}", self.tree.display(), text.trim());
        }
        Ok(())
    }

    /// The make command for the tree.
    pub fn make(&self) -> Command {
        let mut command = Command::new(&self.make);
        command.arg("-C").arg(&self.tree).env("LC_ALL", "C");
        // These come from a make that runs us.
        for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
            command.env_remove(name);
        }
        command
    }
}

/// The last tree `linux-source-*` in a directory, by name.
fn last(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    named.map(|entry| entry.path()).filter(|path| path.join("Makefile").is_file()).max()
}
