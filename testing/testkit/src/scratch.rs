//! A directory that is removed after the test.

use std::env;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::process;

/// A fresh directory under the system's temporary directory. A drop of this value removes it with
/// its contents. Its path is short, so that the path of a Unix socket in it stays within 107 bytes.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes the directory, which only this user may enter.
    ///
    /// # Panics
    ///
    /// When the temporary directory cannot be written.
    pub fn new() -> TempDir {
        use std::os::unix::fs::DirBuilderExt;
        loop {
            let tag = RandomState::new().build_hasher().finish() as u32;
            let path = env::temp_dir().join(format!("rampack-{}-{tag:08x}", process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return TempDir { path },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Default for TempDir {
    fn default() -> TempDir {
        TempDir::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // The cleanup must not empty a file system that is still mounted in the directory.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let inside = |line: &str| {
            line.split(' ').nth(1).is_some_and(|point| Path::new(point).starts_with(&self.path))
        };
        if mounts.lines().any(inside) {
            eprintln!("{}: left in place, something is mounted in it", self.path.display());
            return;
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}
