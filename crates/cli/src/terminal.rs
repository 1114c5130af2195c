//! Prints the messages of a daemon on standard output, and names the commands that reach it.

use crate::failure::quoted;
use crate::outlet;
use crate::root::Root;

/// Prints `text`. A closed standard output is no reason to end, and one that nobody reads no reason
/// to wait.
pub(crate) fn print(text: &str) {
    outlet::STDOUT.write(text.as_bytes());
}

/// The command that reaches a daemon at `root`.
pub(crate) fn program(root: &Root) -> String {
    let default = Root::choose(None).is_ok_and(|default| default == *root);
    let chosen = std::env::var_os("RAMPACK_ROOT").is_some_and(|set| set == root.path().as_os_str());
    match default || chosen {
        true => "rampack".to_string(),
        false => format!("rampack --root {}", quoted(root.path())),
    }
}
