//! What a killed daemon left, as far as it is not taken over.

use std::path::PathBuf;

use rampack::fuse::leftovers;

use crate::layouts;
use crate::root::RootLock;
use crate::swap;

/// Clears what a killed daemon left, except the mount of the files, which is taken over, with all
/// that leads there. Returns messages for the user.
pub(super) fn clear_tree(claim: &RootLock) -> Vec<String> {
    let report = leftovers::clear_tree(claim.root().path());
    let who = claim.killed_before_us().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    let said = match layouts::is_upgrade() {
        true => taken_over(),
        false => format!("a daemon{who} was killed here before; its devices are served on"),
    };
    let failed = report.remaining.iter().map(|what| format!("could not be cleared: {what}"));
    [said].into_iter().chain(failed).collect()
}

/// Clears what a killed daemon left in a root that this process has claimed, except the sockets
/// `held`. Returns messages for the user.
pub(super) fn clear_leftovers(claim: &RootLock, held: &[PathBuf]) -> Vec<String> {
    let mut notes = Vec::new();
    if !claim.has_leftovers() {
        return notes;
    }
    let root = claim.root();
    let mut cleared = Vec::new();
    let (off, remaining) = swap::leftovers::swap_off(root);
    cleared.extend(off);
    notes.extend(remaining);
    if leftovers::exist(root.path()) {
        let report = leftovers::clear(root.path());
        cleared.extend(report.cleared);
        notes.extend(report.remaining.iter().map(|what| format!("could not be cleared: {what}")));
    }
    cleared.extend(claim.made().clear(held));
    if layouts::is_upgrade() {
        notes.insert(0, taken_over());
    } else if !cleared.is_empty() || claim.killed_before_us().is_some() {
        let who = match claim.killed_before_us() {
            Some(pid) => format!("a daemon (pid {pid}) was killed here before"),
            None => "a daemon did not end properly here before".to_string(),
        };
        let what = match cleared.is_empty() {
            true => "it left nothing to clear".to_string(),
            false => format!("cleared what it left: {}", cleared.join("; ")),
        };
        notes.insert(0, format!("{who}; {what}"));
    }
    notes
}

fn taken_over() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("rampack {version} has taken over the devices of the program before")
}
