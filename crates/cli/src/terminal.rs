//! Prints the messages of a daemon on standard output, and names the commands that reach it.

use std::io::Write;

use crate::root::Root;

/// Prints `text`. A closed standard output is no reason to end.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// The command that reaches a daemon at `root`.
pub(crate) fn program(root: &Root) -> String {
    let default = Root::choose(None).is_ok_and(|default| default == *root);
    let chosen = std::env::var_os("RAMPACK_ROOT").is_some_and(|set| set == root.path().as_os_str());
    match default || chosen {
        true => "rampack".to_string(),
        false => format!("rampack --root {}", root.path().display()),
    }
}
