//! The needs of a test, and the skip of a test whose need is missing.

use std::env;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

/// A need of a test beyond a Rust toolchain and a C compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The effective user is root.
    Root,
    /// The process can open `/dev/fuse`. A user other than root also has `fusermount3`.
    Fuse,
    /// A free loop device, which `losetup --find` names. Needs root.
    Loop,
    /// The kernel's own `/sys/block/zram0`, unused. Needs root.
    Zram,
    /// The process may call swapon and swapoff: it has `CAP_SYS_ADMIN`, and `/proc/swaps` exists.
    Swap,
    /// The process may make memory cgroups of version 1 or 2. Needs root.
    MemoryGroup,
    /// The process may make cgroups of version 2, with or without controllers. Needs root.
    UnifiedGroup,
    /// A temporary directory on a file system that can hold swap files.
    SwapFiles,
    /// The kernel's own zswap, switched off. Needs root.
    Zswap,
    /// The process may use two CPUs.
    TwoCpus,
    /// A program on the `PATH`.
    Program {
        /// The name of the program.
        name: &'static str,
        /// The Debian package of the program.
        package: &'static str,
    },
    /// A need that the test itself has checked.
    Other {
        /// Whether the machine has it.
        is_there: bool,
        /// Its name, and the way to get it.
        what: &'static str,
    },
}

impl Need {
    /// The need for the program `name` of the Debian package `package`.
    pub const fn program(name: &'static str, package: &'static str) -> Need {
        Need::Program { name, package }
    }

    /// The need for something that the test itself has checked.
    pub const fn other(is_there: bool, what: &'static str) -> Need {
        Need::Other { is_there, what }
    }

    /// Whether it needs root, so that the test may change the system.
    const fn takes_root(&self) -> bool {
        matches!(
            self,
            Need::Root
                | Need::Loop
                | Need::Zram
                | Need::Swap
                | Need::MemoryGroup
                | Need::UnifiedGroup
                | Need::Zswap
        )
    }

    /// Whether this machine has it now.
    pub fn is_met(&self) -> bool {
        match *self {
            Need::Root => is_root(),
            Need::Fuse => {
                let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
                opened.is_ok() && (is_root() || on_path("fusermount3"))
            }
            Need::Loop => is_root() && free_loop_device(),
            Need::Zram => is_root() && unused_zram(),
            Need::Swap => {
                is_root() && Path::new("/proc/swaps").exists() && has_capability(SYS_ADMIN)
            }
            Need::MemoryGroup => is_root() && memory_group(),
            Need::UnifiedGroup => is_root() && unified_group(),
            Need::SwapFiles => swap_files(),
            Need::Zswap => is_root() && unused_zswap(),
            Need::TwoCpus => available_parallelism().is_ok_and(|cpus| cpus.get() > 1),
            Need::Program { name, .. } => on_path(name),
            Need::Other { is_there, .. } => is_there,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Need::Root => write!(f, "root (run the tests as root)"),
            Need::Fuse => write!(f, "FUSE, that is /dev/fuse and fusermount3 (package fuse3)"),
            Need::Loop => write!(f, "loop devices, as root (package util-linux)"),
            Need::Zram => {
                write!(
                    f,
                    "a /sys/block/zram0 that nobody uses, as root (modprobe zram; package kmod)"
                )
            }
            Need::Swap => write!(f, "swap space, as root with CAP_SYS_ADMIN"),
            Need::MemoryGroup => {
                write!(f, "memory cgroups, of version 1 or 2, as root (outside a container)")
            }
            Need::UnifiedGroup => {
                write!(f, "cgroups of version 2, as root (outside a container)")
            }
            Need::SwapFiles => {
                write!(f, "a temporary directory for swap files (TMPDIR on ext4, xfs or the like)")
            }
            Need::Zswap => {
                write!(f, "a zswap in the kernel that is switched off, as root")
            }
            Need::TwoCpus => write!(f, "two CPUs"),
            Need::Program { name, package } => write!(f, "{name} (package {package})"),
            Need::Other { what, .. } => write!(f, "{what}"),
        }
    }
}

/// Whether the machine has everything in `needs`. `test` is the name of the calling test.
///
/// If something is missing, the function returns `false` and writes the line `SKIPPED <test>: needs
/// <what> (package <package>)`. The line goes to the standard error stream, past the test harness,
/// and to the end of the file that `RAMPACK_SKIPS` names, where `cargo xtask test` collects it. Any
/// number of threads and processes may call this at once: the line is one append.
///
/// A test that needs root changes the system, and plain `cargo test` must not do so. So such a need
/// is missing under plain `cargo test`, even for root.
///
/// # Panics
///
/// Under `RAMPACK_STRICT=1`, when something is missing.
pub fn met(test: &str, needs: &[Need]) -> bool {
    let mut missing: Vec<String> =
        needs.iter().filter(|need| !need.is_met()).map(|need| need.to_string()).collect();
    if missing.is_empty() && needs.iter().any(Need::takes_root) && !is_thorough() {
        missing.push(format!("root ({GIVEN})"));
    }
    if missing.is_empty() {
        return true;
    }
    let line = format!("SKIPPED {test}: needs {}\n", missing.join(", "));
    if env::var_os("RAMPACK_STRICT").is_some_and(|value| value == "1") {
        panic!("RAMPACK_STRICT=1 allows no skips: {}", line.trim_end());
    }
    // The harness hides the output of eprint! in a passing test, so the line goes to stderr itself.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(path) = env::var_os("RAMPACK_SKIPS").filter(|path| !path.is_empty()) {
        append(Path::new(&path), &line);
    }
    false
}

/// The way to permit root to tests. Plain `cargo test` does not permit it.
const GIVEN: &str = "run `cargo xtask test`, or set RAMPACK_THOROUGH=1";

/// Whether tests may use root: under `RAMPACK_THOROUGH=1` and in strict mode.
fn is_thorough() -> bool {
    ["RAMPACK_THOROUGH", "RAMPACK_STRICT"]
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| value == "1"))
}

/// Appends one line in one write, so that the lines of concurrent test processes stay whole.
pub(crate) fn append(path: &Path, line: &str) {
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("RAMPACK_SKIPS={}: {error}", path.display());
    }
}

fn is_root() -> bool {
    // "Uid:	real effective saved filesystem"; see proc_pid_status(5).
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1))
        .is_some_and(|effective| effective == "0")
}

/// The number of `CAP_SYS_ADMIN`; see capabilities(7).
const SYS_ADMIN: u32 = 21;

fn has_capability(number: u32) -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> number & 1 == 1)
}

fn free_loop_device() -> bool {
    let found = Command::new("losetup")
        .arg("--find")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

fn unused_zram() -> bool {
    let without_size = fs::read_to_string("/sys/block/zram0/initstate");
    without_size.is_ok_and(|state| state.trim() == "0")
}

fn memory_group() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let has = |top: &Path, name: &str| {
        let text = fs::read_to_string(top.join(name)).unwrap_or_default();
        text.split_ascii_whitespace().any(|word| word == "memory")
    };
    let mut tops = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let (top, kind, options) = (Path::new(words.get(1)?), words.get(2)?, words.get(3)?);
        let first = *kind == "cgroup" && options.split(',').any(|word| word == "memory");
        // In version 2 the controller is on, or the process can switch it on.
        let second = *kind == "cgroup2"
            && has(top, "cgroup.controllers")
            && (has(top, "cgroup.subtree_control")
                || fs::write(top.join("cgroup.subtree_control"), "+memory").is_ok());
        (first || second).then(|| top.to_owned())
    });
    tops.any(|top| may_make_groups(&top))
}

fn unified_group() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        words.get(2) == Some(&"cgroup2") && may_make_groups(Path::new(words[1]))
    })
}

/// Makes a group and removes it again.
fn may_make_groups(top: &Path) -> bool {
    let group = top.join(format!("rampack-need-{}", std::process::id()));
    // Another thread may ask at the same time.
    let is_there = |error: io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    let made = fs::create_dir(&group).map_or_else(is_there, |()| true);
    let _ = fs::remove_dir(&group);
    made
}

/// Whether the temporary directory is on neither a memory nor an overlay file system.
fn swap_files() -> bool {
    let kind = Command::new("stat")
        .args(["--file-system", "--format=%T"])
        .arg(env::temp_dir())
        .stdin(Stdio::null())
        .output();
    let kind = kind.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    kind.is_ok_and(|kind| matches!(kind.as_str(), "ext2/ext3" | "xfs" | "f2fs"))
}

fn unused_zswap() -> bool {
    let enabled = fs::read_to_string("/sys/module/zswap/parameters/enabled");
    enabled.is_ok_and(|value| value.trim() == "N")
}

/// Whether `name` is an executable file in a directory of `PATH`.
pub(crate) fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(name)).any(|file| {
        file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    })
}
