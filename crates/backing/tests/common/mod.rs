//! Files, file systems and loop devices for the tests.
#![allow(dead_code, reason = "each test program uses some of this")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Need, TempDir};

pub const P: u64 = 4096;

pub const MOUNT: [Need; 3] =
    [Need::Root, Need::program("mount", "mount"), Need::program("umount", "mount")];

/// A sparse file of `bytes` bytes.
pub fn sparse(path: &Path, bytes: u64) -> PathBuf {
    File::create(path).unwrap().set_len(bytes).unwrap();
    path.to_path_buf()
}

/// Tries for a while: a child that another test is just starting has all files of this process
/// open for a moment, and with them a block device that was closed here.
pub fn eventually<R>(what: &str, mut attempt: impl FnMut() -> Option<R>) -> R {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < end, "{what}: not after a minute");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A file system of its own; unmounted when dropped.
pub struct Mounted {
    root: TempDir,
}

impl Mounted {
    /// A tmpfs for so many bytes.
    pub fn tmpfs(bytes: u64) -> Mounted {
        let root = TempDir::new();
        let at = root.join("at");
        fs::create_dir(&at).unwrap();
        let options = format!("size={bytes}");
        testkit::run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(&at));
        Mounted { root }
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.root.join("at").join(name)
    }

    /// Nothing can be written any more.
    pub fn read_only(&self) {
        let at = self.root.join("at");
        testkit::run(Command::new("mount").args(["-o", "remount,ro"]).arg(at));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        testkit::try_run(Command::new("umount").arg("-l").arg(self.root.join("at")));
    }
}

/// A loop device on a file of its own; detached when dropped.
pub struct Loop {
    pub path: PathBuf,
    pub root: TempDir,
}

impl Loop {
    pub fn new(bytes: u64, options: &[&str]) -> Loop {
        let root = TempDir::new();
        let file = sparse(&root.join("file"), bytes);
        Loop { path: testkit::attach_loop(options, file), root }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        testkit::try_run(Command::new("losetup").arg("--detach").arg(&self.path));
    }
}
