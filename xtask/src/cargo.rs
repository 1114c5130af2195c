//! The cargo that chores run, and the workspaces of the checkout.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fs_err as fs;

/// Once a command has ended, its output has when nothing came for so long.
const SILENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// A command of the cargo that runs this program, at the top of the checkout.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(program());
    command.current_dir(root);
    command
}

/// The same, ended with all that it started after so many seconds. Its status is 124 then.
pub fn cargo_within(seconds: u64, root: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=10").arg(seconds.to_string()).arg(program()).current_dir(root);
    command
}

fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The workspace of the experiments.
const RESEARCH: &str = "research/Cargo.toml";
/// That of the wheel for Python.
const PYTHON: &str = "python/Cargo.toml";

/// The manifest of the workspace of the crates in a directory, as options of a cargo command.
pub fn workspace_of(group: &str) -> &'static [&'static str] {
    match group {
        "research" => &["--manifest-path", RESEARCH],
        "python" => &["--manifest-path", PYTHON],
        _ => &[],
    }
}

/// Runs a command, and has each line that it prints taken. Returns how it ended, and the processes
/// that it left behind: they hold its output open, which would otherwise never end.
pub fn printed(
    command: &mut Command,
    mut take: impl FnMut(&str) -> Result<()>,
) -> Result<(ExitStatus, Vec<String>)> {
    // One pipe takes both streams, because cargo prints the program's name on one and the program
    // prints its result on the other.
    let (output, input) = io::pipe().context("a pipe")?;
    let pipe = fs::read_link(format!("/proc/self/fd/{}", output.as_raw_fd()))?;
    command.stdin(Stdio::null()).stdout(input.try_clone().context("a pipe")?).stderr(input);
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    // The pipe would stay open in this process.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        // Sending fails when nobody waits for a line any more.
        BufReader::new(output).split(b'\n').try_for_each(|line| sender.send(line))
    });
    let mut ended = false;
    let left = loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => {
                let line = line.with_context(|| format!("the output of {command:?}"))?;
                take(&String::from_utf8_lossy(&line))?;
            }
            Err(RecvTimeoutError::Disconnected) => break Vec::new(),
            Err(RecvTimeoutError::Timeout) if ended => break holders(&pipe),
            Err(RecvTimeoutError::Timeout) => ended = child.try_wait()?.is_some(),
        }
    };
    let status = child.wait().with_context(|| format!("{command:?}"))?;
    Ok((status, left))
}

/// The other processes that have a pipe open: numbers and names.
fn holders(pipe: &Path) -> Vec<String> {
    let files = |directory: PathBuf| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let has = |process: &Path| {
        let mut open = files(process.join("fd"));
        open.any(|file| std::fs::read_link(file.path()).is_ok_and(|it| it == pipe))
    };
    let named = |process: PathBuf| {
        let number: u32 = process.file_name()?.to_str()?.parse().ok()?;
        let other = number != std::process::id() && has(&process);
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        other.then(|| format!("{number} ({})", name.trim()))
    };
    files("/proc".into()).filter_map(|process| named(process.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::printed;

    #[test]
    fn what_a_command_leaves_behind_holds_up_nobody() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & echo $!; exit 3"]);
        let mut lines = Vec::new();
        let (status, left) = printed(&mut command, |line| {
            lines.push(line.to_string());
            Ok(())
        })
        .unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(left, [format!("{} (sleep)", lines[0])]);
        assert!(Command::new("kill").arg(&lines[0]).status().unwrap().success());
    }
}
