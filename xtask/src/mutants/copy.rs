//! A copy of the checkout, in which patches are applied and tests built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

use crate::git;
use crate::tree;

/// The copy.
pub struct Copy {
    root: PathBuf,
    /// Its top.
    pub tree: PathBuf,
    logs: PathBuf,
    /// Where it is built, each kind in its own directory, in which the checkout has built what
    /// both need.
    pub target: PathBuf,
}

impl Copy {
    /// Makes `mutants/tree` below `target` a copy of the checkout at `root`. A file that is there
    /// already and is the same is not written, so that cargo builds only what has changed.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn of(root: &Path, target: &Path) -> Result<Copy> {
        let (tree, logs) = (target.join("mutants/tree"), target.join("mutants/logs"));
        let copy = Copy { root: root.into(), tree, logs, target: target.into() };
        fs::create_dir_all(&copy.tree)?;
        if copy.logs.exists() {
            fs::remove_dir_all(&copy.logs)?;
        }
        let files = tree::files(root)?;
        let ours: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        for file in tree::files(&copy.tree)? {
            if !ours.contains(file.path.as_str()) {
                fs::remove_file(copy.tree.join(&file.path))?;
            }
        }
        for file in &files {
            let at = copy.tree.join(&file.path);
            if !fs::read(&at).is_ok_and(|bytes| bytes == file.bytes) {
                copy.take(&file.path)?;
            }
        }
        Ok(copy)
    }

    /// Copies one file.
    fn take(&self, path: &str) -> Result<()> {
        let to = self.tree.join(path);
        if let Some(directory) = to.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::copy(self.root.join(path), to)?;
        Ok(())
    }

    /// Applies the patch at `path`. Inside is what git says if it does not apply; nothing has
    /// changed then.
    ///
    /// # Errors
    /// Git cannot be run.
    pub fn apply(&self, path: &str) -> Result<Result<(), String>> {
        git::apply(&self.tree, &self.root.join(path), &[])
    }

    /// Takes files from the checkout again.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn restore(&self, files: &[String]) -> Result<()> {
        files.iter().try_for_each(|path| self.take(path))
    }

    /// The file for what a run prints.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn log(&self, name: &str) -> Result<PathBuf> {
        fs::create_dir_all(&self.logs)?;
        Ok(self.logs.join(format!("{}.txt", name.replace("::", "-"))))
    }
}
