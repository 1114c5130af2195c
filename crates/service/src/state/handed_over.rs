//! What the service manager handed over.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use control::ControlError;
use host::Memfds;
use kept::{Mount, Region, Store};

use super::connections::CONNECTIONS;
use super::swaps::{SavedArea, descriptor, frees};

/// How long the service manager may take to store a descriptor.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Descriptors with their names.
pub type Named = Vec<(String, OwnedFd)>;

/// A descriptor that outlives the daemon, besides regions. A file that is swapped to has several.
pub(super) struct Other {
    pub(super) fds: Vec<OwnedFd>,
    /// The service manager has them.
    pub(super) is_kept: bool,
    /// The daemon before left them, and they were not taken yet.
    pub(super) is_left: bool,
}

impl Other {
    /// Copies of the descriptors, which count as taken from now on.
    pub(super) fn take(&mut self) -> io::Result<Vec<OwnedFd>> {
        self.is_left = false;
        self.fds.iter().map(OwnedFd::try_clone).collect()
    }
}

/// Takes what connects a daemon with others out of `handed_over`: connections, the mount of the
/// files if it is among `mounts`, and what `areas` have. A connection that was handed over twice
/// is of a change that was under way: then both are the same.
pub(super) fn others(
    handed_over: &mut Named,
    mounts: &[Mount],
    areas: &[SavedArea],
) -> BTreeMap<String, Other> {
    let mut take = |name: &str, most: usize| {
        let named = handed_over.extract_if(.., |(it, _)| it == name).take(most);
        let fds: Vec<OwnedFd> = named.map(|(_, fd)| fd).collect();
        let other = Other { fds, is_kept: true, is_left: true };
        (!other.fds.is_empty()).then(|| (name.to_owned(), other))
    };
    let files = areas.iter().filter(|area| area.ublk.is_none());
    let files = files.map(|area| (descriptor(area.number), usize::MAX));
    let heard = areas.iter().map(|area| (frees(area.number), usize::MAX));
    let is_named = |name: &str| mounts.iter().any(|mount| mount.descriptor == name);
    let connections = CONNECTIONS.iter().filter(|it| !it.is_mount() || is_named(it.name()));
    let connections = connections.map(|it| (it.name().to_owned(), 1));
    connections.chain(files).chain(heard).filter_map(|(name, most)| take(&name, most)).collect()
}

/// Takes the regions of a table. What misses one that was not handed over is refused by its name
/// later, alone. Descriptors that the table does not name are of a change that was under way. Of
/// several of a name, which only an older program left, the last one is meant.
pub(super) fn adopt(
    memory: &Memfds,
    mut handed_over: Named,
    regions: &[Region],
    store: &Store,
) -> Result<(), ControlError> {
    for region in regions {
        let found = handed_over.iter().rposition(|(name, _)| *name == region.descriptor);
        let Some(at) = found else { continue };
        let (_, fd) = handed_over.remove(at);
        let adopted = memory.adopt(&region.name, fd, region.bytes);
        adopted.map_err(|error| ControlError::invalid(error.to_string()))?;
    }
    // All of a name are given up together.
    handed_over.retain(|(name, _)| regions.iter().all(|it| it.descriptor != *name));
    for (name, _) in handed_over {
        // Once it is closed nobody waits for an answer to it.
        if let Err(error) = store.forget(&name).and_then(|()| store.settle(PATIENCE)) {
            tracing::warn!("the service manager keeps {name} in vain: {error}");
        }
    }
    Ok(())
}
