//! Running the program, in a place of its own.

#![allow(dead_code, reason = "not every test file uses all of it")]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use testkit::{Output, TempDir};

/// A directory for files, and one that the program takes for temporary ones.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let directory = TempDir::new();
        fs::create_dir(directory.join("t")).expect("a directory");
        Place { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The program with these arguments, to be run here.
    pub fn soak(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rampack-soak"));
        command.args(arguments).current_dir(self.directory.path());
        command.env("TMPDIR", self.directory.join("t"));
        command
    }

    /// Runs it, expects failure, and returns what it says of it.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = testkit::try_run(&mut self.soak(arguments));
        assert!(!status.success(), "{arguments:?} succeeded: {stdout}");
        assert!(stderr.lines().count() > 0 && !stderr.contains("panicked"), "{stderr}");
        stderr
    }

    /// Panics if the program left anything among its temporary files.
    pub fn assert_nothing_left(&self) {
        let left: Vec<_> = fs::read_dir(self.path("t"))
            .expect("the directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// The program rampack, of the same build as this test; built if nobody has done so yet.
pub fn rampack() -> PathBuf {
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_rampack-soak"));
    let rampack = ours.with_file_name("rampack");
    if !rampack.is_file() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--package", "rampack-cli", "--bin", "rampack"]);
        if ours.parent().is_some_and(|directory| directory.ends_with("release")) {
            command.arg("--release");
        }
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        testkit::run(&mut command);
    }
    rampack
}
