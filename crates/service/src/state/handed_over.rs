//! What the service manager handed over.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use kept::{Mount, Region, Store};
use rampack::control::ControlError;
use rampack::host::Memfds;

use super::connections::{CONNECTIONS, Connection, FILES};
use super::swaps::LeftSwap;

/// How long the service manager may take to store a descriptor.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Descriptors with their names.
pub type Named = Vec<(String, OwnedFd)>;

/// What was handed over and was not taken yet.
#[derive(Default)]
pub(super) struct HandedOver {
    pub(super) mount: Option<(OwnedFd, Vec<(String, u64)>)>,
    pub(super) swap: Option<LeftSwap>,
    pub(super) connections: BTreeMap<Connection, OwnedFd>,
}

impl HandedOver {
    /// Takes what is no region out of `others`. A descriptor that was handed over twice is of a
    /// change that was under way: then both are the same.
    pub(super) fn take(others: &mut Named, mounts: &[Mount], swap: LeftSwap) -> HandedOver {
        let mut take = |name: &str| {
            let at = others.iter().position(|other| other.0 == name)?;
            Some(others.swap_remove(at).1)
        };
        let numbers = |mount: &Mount| mount.files.clone().into_iter().collect();
        let mount = mounts.iter().find(|mount| mount.name == FILES.1);
        let mount = mount.and_then(|mount| Some((take(&mount.descriptor)?, numbers(mount))));
        let connections = CONNECTIONS.iter().filter_map(|it| Some((*it, take(it.name())?)));
        HandedOver { mount, swap: Some(swap), connections: connections.collect() }
    }
}

/// Takes the regions of a table. What misses one that was not handed over is refused by its name
/// later, alone. Descriptors that the table does not name are of a change that was under way.
pub(super) fn adopt(
    memory: &Memfds,
    mut handed_over: Named,
    regions: &[Region],
    store: &Store,
) -> Result<(), ControlError> {
    for region in regions {
        let found = handed_over.iter().position(|(name, _)| *name == region.descriptor);
        let Some(at) = found else { continue };
        let (_, fd) = handed_over.swap_remove(at);
        let adopted = memory.adopt(&region.name, fd, region.bytes);
        adopted.map_err(|error| ControlError::invalid(error.to_string()))?;
    }
    for (name, _) in handed_over {
        // Once it is closed nobody waits for an answer to it.
        if let Err(error) = store.forget(&name).and_then(|()| store.settle(PATIENCE)) {
            tracing::warn!("the service manager keeps {name} in vain: {error}");
        }
    }
    Ok(())
}
