//! The part of the tree about the cache in front of swap devices, at the paths of Linux's zswap.

use std::sync::Arc;

use control::tree::{Attributes, Directory, Fixed, Node};
use control::{Attribute, AttributeInfo, Bound, ControlError, Object};
use zswap::{DEBUG, MEMCG_ATTRIBUTES, PARAMETERS, Zswap};

use crate::devices::Devices;
use crate::engine::Machine;
use crate::swap::cache;

/// `module/zswap`.
pub(super) fn module(devices: &Arc<Devices>) -> Fixed {
    Fixed::new().dir("parameters", Attributes::new(cache(devices, PARAMETERS), |_| true))
}

/// `kernel/debug/zswap`.
pub(super) fn debug(devices: &Arc<Devices>) -> Attributes {
    Attributes::new(cache(devices, DEBUG), |_| true)
}

/// `fs/cgroup`.
pub(super) fn memcgs(devices: &Arc<Devices>) -> Memcgs {
    Memcgs { machine: devices.machine().clone() }
}

fn cache(devices: &Arc<Devices>, rows: &'static [Attribute<Zswap>]) -> Arc<dyn Object> {
    Arc::new(CacheFiles { devices: devices.clone(), rows })
}

/// The swap cache of a machine. The first value that is set makes it, so values set before the
/// first swap device apply to that device. A look makes nothing: anybody may look.
struct CacheFiles {
    devices: Arc<Devices>,
    rows: &'static [Attribute<Zswap>],
}

impl Object for CacheFiles {
    fn attributes(&self) -> Vec<AttributeInfo> {
        self.rows.iter().map(Attribute::info).collect()
    }

    fn show(&self, name: &str) -> Result<String, ControlError> {
        Bound::new(self.devices.machine().swap_to_look_at()?, self.rows).show(name)
    }

    fn store(&self, name: &str, value: &str) -> Result<(), ControlError> {
        let rows = Bound::new(self.devices.machine().swap()?, self.rows);
        cache::store(&rows, name, value)?;
        // The next daemon sets it again.
        self.devices.save()
    }
}

/// A directory with one directory for each memcg of the cache; empty while there is no cache.
pub(super) struct Memcgs {
    machine: Arc<Machine>,
}

impl Directory for Memcgs {
    fn names(&self) -> Vec<String> {
        let memcgs = self.machine.swap_if_made().map(|zswap| zswap.memcgs());
        memcgs.unwrap_or_default().iter().map(|memcg| memcg.name().to_string()).collect()
    }

    fn get(&self, name: &str) -> Option<Node> {
        let memcgs = self.machine.swap_if_made()?.memcgs();
        let memcg = memcgs.into_iter().find(|memcg| memcg.name() == name)?;
        let rows = Bound::new(Arc::new(memcg), MEMCG_ATTRIBUTES);
        Some(Node::Directory(Arc::new(Attributes::new(Arc::new(rows), |_| true))))
    }
}
