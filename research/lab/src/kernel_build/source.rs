//! The source to build: a tree with a Makefile, best the kernel's from Debian's package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::programs::{self, Running};

/// Where Debian's packages put archives of the kernel's source.
const ARCHIVES: &str = "/usr/src";
/// The prefix of their names.
const PREFIX: &str = "linux-source-";
/// The tools that the kernel's build needs, and their packages.
const TOOLS: [(&str, &str); 5] =
    [("make", "make"), ("gcc", "gcc"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc")];
/// Time that unpacking may take.
const UNPACKING: std::time::Duration = std::time::Duration::from_secs(1800);

/// A tree to build.
pub struct Source {
    tree: PathBuf,
    make: PathBuf,
}

impl Source {
    /// The tree `wanted`; else one in `directory`; else an archive's, unpacked there.
    pub fn find(wanted: Option<&Path>, directory: &Path) -> Result<Source> {
        let found = match wanted {
            Some(path) => path.to_owned(),
            None => last(directory).or_else(|| last(Path::new(ARCHIVES))).with_context(|| {
                format!(
                    "there is no {PREFIX}* in {} or {ARCHIVES}: install the package \
                     linux-source, or name a tree or an archive with --source",
                    directory.display()
                )
            })?,
        };
        let tree = match found.is_dir() {
            true => found,
            false => unpack(&found, directory)?,
        };
        if !tree.join("Makefile").is_file() {
            bail!("{} has no Makefile", tree.display());
        }
        let make = programs::find("make").context("make is not installed (package make)")?;
        let source = Source { tree, make };
        if source.is_kernel() {
            let missing: Vec<String> = TOOLS
                .iter()
                .filter(|(tool, _)| programs::find(tool).is_none())
                .map(|(tool, package)| format!("{tool} (package {package})"))
                .collect();
            if !missing.is_empty() {
                bail!("the kernel's build takes {}", missing.join(", "));
            }
        }
        Ok(source)
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

/// The last `linux-source-*` in a directory, by name, that is a tree or else an archive.
fn last(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let usable = |path: &PathBuf| path.join("Makefile").is_file() || path.is_file();
    named.map(|entry| entry.path()).filter(usable).max_by_key(|path| (path.is_dir(), path.clone()))
}

/// The name without the archive's suffix.
fn stem(archive: &Path) -> Result<String> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.split_once(".tar") {
        Some((stem, _)) if !stem.is_empty() => Ok(stem.to_owned()),
        _ => bail!("{} is neither a directory nor a tar archive", archive.display()),
    }
}

/// Unpacks an archive in `directory`, once.
fn unpack(archive: &Path, directory: &Path) -> Result<PathBuf> {
    let tree = directory.join(stem(archive)?);
    if tree.join("Makefile").is_file() {
        return Ok(tree);
    }
    eprintln!("unpacking {}", archive.display());
    let part = tempfile::TempDir::with_prefix_in("rampack-lab-", directory)
        .with_context(|| format!("cannot write in {}", directory.display()))?;
    let tar = programs::find("tar").context("tar is not installed (package tar)")?;
    let mut command = Command::new(tar);
    command.arg("-xf").arg(archive).arg("-C").arg(part.path()).stdout(Stdio::null());
    let unpacked = Running::start(&mut command, false)?.finish(UNPACKING);
    unpacked.with_context(|| archive.display().to_string())?;
    let inside: Vec<PathBuf> =
        fs::read_dir(part.path())?.flatten().map(|entry| entry.path()).collect();
    let [top] = inside.as_slice() else {
        bail!("{} holds {} things, not one directory", archive.display(), inside.len());
    };
    fs::rename(top, &tree).with_context(|| format!("cannot make {}", tree.display()))?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_archives() {
        let stem = |name: &str| stem(Path::new(name)).map_err(|error| error.to_string());
        assert_eq!(stem("/usr/src/linux-source-6.1.tar.xz"), Ok("linux-source-6.1".to_owned()));
        assert_eq!(stem("x.tar"), Ok("x".to_owned()));
        assert!(stem("x.zip").expect_err("no archive").contains("neither"));
    }
}
