//! Foreign programs in tests.

use std::process::{Command, ExitStatus, Stdio};

/// The result of a program. Bytes that are not UTF-8 are replaced.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// The text on standard output.
    pub stdout: String,
    /// The text on the standard error stream.
    pub stderr: String,
}

/// Runs `command` without standard input and returns its result, even if it failed.
///
/// # Panics
///
/// When the program cannot be started.
pub fn try_run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: cannot be started: {error}"));
    Output {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs `command` without standard input and expects success.
///
/// # Panics
///
/// When the program cannot be started or fails; the message has the command and its output.
pub fn run(command: &mut Command) -> Output {
    let output = try_run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        output.stdout,
        output.stderr,
    );
    output
}
