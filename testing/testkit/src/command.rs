//! Foreign programs in tests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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

/// Puts a copy of the file `from` at `to`, to be run. Another process makes it: a file that this
/// one has open to write would be open in the children that other tests start meanwhile, and could
/// not be run (ETXTBSY).
///
/// # Panics
///
/// When it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    run(Command::new("cp").arg("-p").arg(from.as_ref()).arg(to.as_ref()));
}

/// Makes a script at `path`, to be run by everybody, as [`copy_program`] does.
///
/// # Panics
///
/// When it cannot be written.
pub fn script(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    let draft = path.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::set_permissions(&draft, Permissions::from_mode(0o755)).unwrap();
    copy_program(&draft, path);
    fs::remove_file(draft).unwrap();
}

/// Attaches a loop device to `file` by losetup(8), with more `options`, and returns its path. The
/// device that losetup has found may be gone before it opens it: a daemon of another test removes
/// those that it added. Another one is found then.
///
/// # Panics
///
/// When it fails again and again.
pub fn attach_loop(options: &[&str], file: impl AsRef<Path>) -> PathBuf {
    let attach = || {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(options).arg(file.as_ref());
        try_run(&mut command)
    };
    let mut attached = attach();
    for _ in 0..10 {
        if !attached.stderr.contains("No such ") {
            break;
        }
        attached = attach();
    }
    assert!(attached.status.success(), "losetup: {}", attached.stderr);
    attached.stdout.trim().into()
}
