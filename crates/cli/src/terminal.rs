//! Prints results and the messages of a daemon, and names the commands that reach it.

use std::io::{self, Write};

use control::ControlError;
use host::effective_user;
use service::doctor::is_by_sudo;
use service::failure::{failed, quoted, say, sentence, shown};
use service::outlet;
use service::root::Root;

/// Prints the result of a command.
///
/// # Errors
/// The error of standard output: the result is lost then. That its reader has read enough, as in
/// `rampack status | head -1`, is none.
pub(crate) fn answer(text: impl AsRef<[u8]>) -> Result<(), ControlError> {
    let mut stdout = io::stdout().lock();
    taken(stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()))
}

/// Prints what clap has to say of a command line, and returns the exit code.
pub(crate) fn tell(error: &clap::Error) -> u8 {
    match taken(error.print().and_then(|()| io::stdout().flush())) {
        Err(lost) if !error.use_stderr() => {
            say(&format!("rampack: {}\n", sentence(&lost)));
            1
        }
        // 0 or 2.
        _ => error.exit_code() as u8,
    }
}

fn taken(printed: io::Result<()>) -> Result<(), ControlError> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(|error| failed("cannot print", &error)),
    }
}

/// Prints `text` of a daemon. A closed standard output is no reason to end, and one that nobody
/// reads no reason to wait.
pub(crate) fn print(text: &str) {
    outlet::STDOUT.write(shown(text).as_bytes());
}

/// A line for each of these, and an empty line.
pub(crate) fn lines(told: &[(&str, String)]) -> String {
    let line = |(what, value): &(&str, String)| format!("  {what:<13} {value}\n");
    told.iter().map(line).collect::<String>() + "\n"
}

/// What stands before a command that needs root: nothing if the user is root.
pub(crate) fn as_root() -> &'static str {
    if effective_user() != 0 || is_by_sudo() { "sudo " } else { "" }
}

/// What stands before a command that needs the rights of this program.
pub(crate) fn as_here() -> &'static str {
    if is_by_sudo() { "sudo " } else { "" }
}

/// The command that reaches a daemon at `root`, which this program runs or reached.
pub(crate) fn program(root: &Root) -> String {
    let default = Root::choose(None).is_ok_and(|default| default == *root);
    let chosen = std::env::var_os("RAMPACK_ROOT").is_some_and(|set| set == root.path().as_os_str());
    // sudo(8) drops the variable.
    let sudo = as_here();
    match default || chosen && sudo.is_empty() {
        true => format!("{sudo}rampack"),
        false => format!("{sudo}rampack --root {}", quoted(root.path())),
    }
}
