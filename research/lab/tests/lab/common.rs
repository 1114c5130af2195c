//! Running the program, in a place of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs};

use serde_json::Value;
use testkit::{Need, Output, Rng, TempDir};

/// A directory for files, and one that the program takes for temporary ones.
pub struct Place {
    directory: TempDir,
}

/// What a memory cgroup with a swap file takes.
pub fn swap() -> [Need; 4] {
    let mkswap = Need::program("mkswap", "util-linux");
    [Need::MemoryGroup, Need::Swap, Need::SwapFiles, mkswap]
}

/// Whether the system swaps to a file in this place.
pub fn swaps_to(place: &Place) -> bool {
    let swaps = fs::read_to_string("/proc/swaps").expect("/proc/swaps");
    swaps.contains(place.path("").display().to_string().trim_end_matches('/'))
}

/// The kernel's zram device, which one test at a time sets up. Take it before the test asks whether
/// the device is unused.
pub fn zram() -> MutexGuard<'static, ()> {
    static ZRAM: Mutex<()> = Mutex::new(());
    ZRAM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All parameters of the kernel's zswap.
pub fn zswap_parameters() -> Vec<(PathBuf, String)> {
    let directory = fs::read_dir("/sys/module/zswap/parameters").expect("parameters");
    let paths = directory.map(|entry| entry.expect("an entry").path());
    let value = |path: &PathBuf| fs::read_to_string(path).expect("a value");
    let mut all: Vec<_> = paths.map(|path| (path.clone(), value(&path))).collect();
    all.sort();
    all
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

    /// The program with the arguments of this line, to be run here.
    pub fn lab(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rampack-lab"));
        command.args(line.split_ascii_whitespace()).current_dir(self.directory.path());
        command.env("TMPDIR", self.directory.join("t"));
        command
    }

    /// Runs it, expects success, and returns the JSON it prints.
    pub fn json(&self, line: &str) -> Value {
        let output = testkit::run(self.lab(line).arg("--json"));
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stdout))
    }

    /// Runs it, expects failure, and returns what it says of it.
    pub fn refused(&self, line: &str) -> String {
        let Output { status, stdout, stderr } = testkit::try_run(&mut self.lab(line));
        assert!(!status.success(), "{line} succeeded: {stdout}");
        assert!(stderr.lines().count() > 0 && !stderr.contains("panicked"), "{stderr}");
        stderr
    }

    /// Panics if the program left anything among its temporary files, or swap.
    pub fn assert_nothing_left(&self) {
        assert!(!swaps_to(self), "the system still swaps to {}", self.path("").display());
        let left: Vec<_> = fs::read_dir(self.path("t"))
            .expect("the directory")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// The program rampack, of the same build as this test; built if nobody has done so yet.
pub fn rampack() -> PathBuf {
    let lab = PathBuf::from(env!("CARGO_BIN_EXE_rampack-lab"));
    let rampack = lab.with_file_name("rampack");
    if !rampack.is_file() {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--package", "rampack-cli", "--bin", "rampack", "--manifest-path"]);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
        if lab.parent().is_some_and(|directory| directory.ends_with("release")) {
            command.arg("--release");
        }
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        testkit::run(&mut command);
    }
    rampack
}

/// The list of this name.
pub fn list<'a>(result: &'a Value, key: &str) -> &'a Vec<Value> {
    result[key].as_array().unwrap_or_else(|| panic!("{key} of {result}"))
}

/// The number of this name.
pub fn number(result: &Value, key: &str) -> f64 {
    result[key].as_f64().unwrap_or_else(|| panic!("{key} of {result}"))
}

/// A file of pages that look like memory: pointers into a few regions, small numbers, text, zeroes;
/// and some that are the same all over, equal to another, or noise.
pub fn write_corpus(path: &Path, pages: usize) {
    let mut rng = Rng::new(testkit::seed("corpus"));
    let mut bytes: Vec<u8> = Vec::new();
    for number in 0..pages {
        let mut page = Vec::with_capacity(4096);
        match number % 16 {
            0 => page.resize(4096, 0),
            1 => page.resize(4096, rng.next_u64() as u8),
            2 => {
                page.resize(4096, 0);
                rng.fill(&mut page);
            }
            3 if number > 16 => page.extend_from_slice(&bytes[4096 * 5..4096 * 6]),
            _ => {
                while page.len() < 4096 {
                    match rng.below(4) {
                        0 => {
                            page.extend((0x7f00_0000_0000 + rng.below(1 << 20) * 16).to_le_bytes())
                        }
                        1 => page.extend(rng.below(500).to_le_bytes()),
                        2 => page.extend(*b"some text in a heap, "),
                        _ => page.extend([0; 24]),
                    }
                }
                page.truncate(4096);
            }
        }
        bytes.append(&mut page);
    }
    fs::write(path, bytes).expect("a corpus");
}
