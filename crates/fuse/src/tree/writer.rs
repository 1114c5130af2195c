//! Who writes to a file of the tree.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use control::ControlError;

use crate::own_files;

/// A thread that waits for the answer to its write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    /// Its number here; 0 if it is not to be seen from here.
    pub(super) thread: u32,
    pub(super) user: u32,
}

impl Writer {
    /// A relative path that it wrote, in its working directory.
    ///
    /// # Errors
    /// `EINVAL` where that is not to be seen from here, or what the writer finds there is another
    /// file than what this process would: the writer may have mounts of its own.
    pub(super) fn absolute(self, path: &str) -> Result<String, ControlError> {
        let bytes = control::bytes_of(path);
        let relative = Path::new(std::ffi::OsStr::from_bytes(&bytes));
        let found = self.find(relative).ok_or_else(|| {
            ControlError::invalid(format!(
                "{} is a relative path, and its directory is not to be seen from the daemon; write \
                 an absolute one",
                relative.display()
            ))
        })?;
        Ok(control::text_of(&found.into_os_string().into_vec()))
    }

    fn find(self, relative: &Path) -> Option<PathBuf> {
        let process = PathBuf::from(format!("/proc/{}", self.thread));
        // The number may be that of another thread by now, if the writer was killed.
        let owner = fs::metadata(&process).ok().filter(|_| self.thread != 0)?.uid();
        if ![0, self.user].contains(&owner) {
            return None;
        }
        let directory = process.join("cwd");
        let path = fs::read_link(&directory).ok()?.join(relative);
        let is_it =
            match (own_files::metadata(&directory.join(relative)), own_files::metadata(&path)) {
                (Ok(meant), Ok(found)) => is_same(&meant, &found),
                (Err(meant), Err(found)) => {
                    [meant, found].iter().all(|error| error.kind() == ErrorKind::NotFound)
                }
                _ => false,
            };
        (is_it && path.is_absolute()).then_some(path)
    }
}

/// Is it the same file, or a node of the same device?
fn is_same(meant: &Metadata, found: &Metadata) -> bool {
    let device = |file: &Metadata| file.file_type().is_block_device().then(|| file.rdev());
    match (device(meant), device(found)) {
        (None, None) => (meant.dev(), meant.ino()) == (found.dev(), found.ino()),
        (meant, found) => meant == found,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Waits(Child);

    impl Drop for Waits {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_directory_is_that_of_the_writer() {
        let dir = testkit::TempDir::new();
        fs::write(dir.path().join("there"), "").unwrap();
        let mut command = Command::new("sleep");
        let child = Waits(command.arg("600").current_dir(dir.path()).spawn().unwrap());
        let user = fs::metadata(format!("/proc/{}", child.0.id())).unwrap().uid();
        let by = Writer { thread: child.0.id(), user };
        for name in ["there", "not there", "../there", "./there"] {
            let expected = dir.path().canonicalize().unwrap().join(name);
            assert_eq!(by.absolute(name).unwrap(), expected.to_str().unwrap());
        }
        for unknown in [Writer { thread: 0, user }, Writer { thread: u32::MAX, user }] {
            let error = unknown.absolute("there").unwrap_err();
            assert_eq!(error.errno, control::Errno::EINVAL);
            assert!(error.message.contains("there is a relative path"), "{}", error.message);
        }
        // Its directory has a name, and another one is there.
        fs::create_dir(dir.path().join("a")).unwrap();
        let mut command = Command::new("sleep");
        let child = command.arg("600").current_dir(dir.path().join("a")).spawn().unwrap();
        let child = Waits(child);
        fs::remove_dir(dir.path().join("a")).unwrap();
        fs::create_dir(dir.path().join("a (deleted)")).unwrap();
        fs::write(dir.path().join("a (deleted)/there"), "").unwrap();
        assert!(Writer { thread: child.0.id(), user }.absolute("there").is_err());
    }
}
