//! What a killed daemon left and is not taken over.

use std::path::PathBuf;

use fuse::leftovers;

use crate::layouts;
use crate::root::RootLock;
use crate::swap;

/// What is taken over of a daemon before.
#[derive(Clone, Copy)]
pub(super) struct Spared<'a> {
    /// The sockets.
    pub sockets: &'a [PathBuf],
    /// The mount of the files, and all that leads there.
    pub files: bool,
    /// The numbers of the swap devices that have files.
    pub swaps: &'a [usize],
    /// The N of each `/dev/ublkbN`.
    pub ublks: &'a [u32],
}

/// Clears what a killed daemon left in a root that this process has claimed, except what is `kept`.
/// Returns messages for the user.
pub(super) fn clear_leftovers(claim: &RootLock, kept: Spared<'_>) -> Vec<String> {
    let Spared { sockets: held, files, swaps, ublks } = kept;
    let taken = files || !swaps.is_empty();
    let mut notes = Vec::new();
    if !claim.has_leftovers() {
        return notes;
    }
    let root = claim.root();
    let mut cleared = Vec::new();
    let maker = Some(claim.made().maker());
    let (off, remaining) =
        swap::leftovers::swap_off(root, maker, swaps, |number| ublks.contains(&number));
    cleared.extend(off);
    notes.extend(remaining);
    if leftovers::exist(root.path()) {
        let names: Vec<String> = swaps.iter().map(|number| swap::name(*number)).collect();
        let report = leftovers::clear_but(root.path(), files, &names);
        cleared.extend(report.cleared);
        notes.extend(report.remaining.iter().map(|what| format!("could not be cleared: {what}")));
    }
    if !taken {
        cleared.extend(claim.made().clear(held));
    }
    if layouts::is_upgrade() {
        let version = env!("CARGO_PKG_VERSION");
        let said = format!("rampack {version} has taken over the devices of the program before");
        notes.insert(0, said);
    } else if taken || !cleared.is_empty() || claim.killed_before_us().is_some() {
        let who = match claim.killed_before_us() {
            Some(pid) => format!("a daemon (pid {pid}) was killed here before"),
            None => "a daemon did not end properly here before".to_string(),
        };
        let what = match (taken, cleared.is_empty()) {
            (true, true) => "its devices are served on".to_string(),
            (true, false) => {
                format!(
                    "its devices are served on; cleared what else it left: {}",
                    cleared.join("; ")
                )
            }
            (false, true) => "it left nothing to clear".to_string(),
            (false, false) => format!("cleared what it left: {}", cleared.join("; ")),
        };
        notes.insert(0, format!("{who}; {what}"));
    }
    notes
}
