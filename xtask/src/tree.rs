//! The files of the checkout, as the rules see them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::source::Source;

/// One file: its path from the top of the checkout, with `/`, and its bytes.
pub struct File {
    pub path: String,
    pub bytes: Vec<u8>,
}

impl File {
    /// The text, or `None` for a file that is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }
}

/// Every file of the project, and its split Rust sources.
pub struct Tree {
    pub files: Vec<File>,
    pub sources: Vec<Source>,
}

/// Directories of built or found files. They hold no sources.
const NOT_OURS: &[&str] =
    &[".git", "target", "corpus", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

impl Tree {
    /// Reads the checkout at `root`.
    pub fn read(root: &Path) -> Result<Tree> {
        Ok(Tree::new(files(root)?))
    }

    /// Makes a tree of these files. Marks Rust sources that only a `#[cfg(test)] mod` line reaches
    /// as tests.
    pub fn new(files: Vec<File>) -> Tree {
        let mut sources: Vec<Source> = files
            .iter()
            .filter(|file| file.path.ends_with(".rs"))
            .filter_map(|file| Some(Source::new(&file.path, file.text()?)))
            .collect();
        let mut test_modules = BTreeSet::new();
        for source in &sources {
            test_modules.extend(source.test_modules());
        }
        for source in &mut sources {
            let stem = source.path.trim_end_matches(".rs");
            let inside = |module: &String| {
                stem.strip_prefix(module.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if test_modules.iter().any(inside) {
                source.mark_as_test();
            }
        }
        Tree { files, sources }
    }
}

/// Reads the files of the checkout at `root`, sorted by their paths.
pub fn files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    read_directory(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_directory(root: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    let directory = root.join(prefix);
    let entries = fs::read_dir(&directory)?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        if NOT_OURS.contains(&path.as_str()) {
            continue;
        }
        if kind.is_dir() {
            read_directory(root, &path, files)?;
        } else if kind.is_file() {
            // A temporary file of an editor or a compiler may have vanished.
            match fs::read(entry.path()) {
                Ok(bytes) => files.push(File { path, bytes }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| path),
            }
        }
    }
    Ok(())
}
