//! Foreign programs in tests.

use std::process::{Command, ExitStatus, Stdio};

/// What a program left behind; bytes that are not UTF-8 are replaced.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error stream.
    pub stderr: String,
}

/// Runs `command` with no standard input and returns what it left, however it ended.
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

/// Runs `command` with no standard input and expects success.
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
