//! `first`: PID 1 of the guest while the command runs. Its memory is locked: a machine whose PID 1
//! lost a page to a bad swap device ends in a kernel panic.
//!
//! ```text
//! first COMMAND [ARGUMENT…]
//! ```
//!
//! It runs the command, which the kernel may end last when memory is out, prints its status, and
//! switches the machine off.

use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use guestkit::process::stay;

/// The status of a command that could not be started.
const NOT_RUN: i32 = 127;
/// The time in which the console takes the last line.
const SHOW: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: first COMMAND [ARGUMENT…]");
        return ExitCode::from(2);
    };
    // Outside of the guest it works without.
    let _ = stay();
    let mut command = Command::new(program);
    let status = run(command.args(words)).unwrap_or_else(|error| {
        eprintln!("first: {error}");
        NOT_RUN
    });
    let up = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = up.split(' ').next().unwrap_or_default();
    println!("\n=== GUEST-RC {status} up {seconds} s");
    thread::sleep(SHOW);
    let error = Command::new("poweroff").arg("-f").exec();
    eprintln!("first: poweroff: {error}");
    ExitCode::FAILURE
}

/// Runs the command. Orphans that end meanwhile are left to the kernel's end.
fn run(command: &mut Command) -> io::Result<i32> {
    let mut child = command.spawn()?;
    let protected = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "-900");
    if let Err(error) = protected {
        eprintln!("first: the command is not protected: {error}");
    }
    let ended = child.wait()?;
    Ok(ended.code().or_else(|| ended.signal().map(|signal| 128 + signal)).unwrap_or(NOT_RUN))
}
