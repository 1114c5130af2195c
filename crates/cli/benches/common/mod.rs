//! A daemon with a disk, which is a file.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A daemon that is asked to end, and waited for.
pub struct Daemon(pub Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let id = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.0.wait();
    }
}

/// The program, for the daemon of this root.
pub fn program(root: &Path) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_rampack"));
    program.arg("--root").arg(root).stdin(Stdio::null()).stdout(Stdio::null());
    program
}

/// Starts a daemon with a disk of this size, and gives the file that is the disk; `None` where the
/// system has no FUSE.
pub fn serve(root: &Path, size: &str) -> Option<(Daemon, PathBuf)> {
    if !Path::new("/dev/fuse").exists() {
        println!("no /dev/fuse, and so no file to measure with");
        return None;
    }
    let serve = ["serve", "--transport", "fuse", "--size", size];
    let daemon = Daemon(program(root).args(serve).spawn().expect("the program"));
    let path = root.join("files/zram0");
    wait_for(&path);
    Some((daemon, path))
}

/// Waits for a file of a daemon.
pub fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "there is no {}", path.display());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether it measures: `cargo test` only sees that it runs.
pub fn measures() -> bool {
    std::env::args().any(|word| word == "--bench")
}
