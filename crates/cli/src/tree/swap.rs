//! The part of the tree about the cache in front of swap devices: where Linux has its zswap.

use std::sync::Arc;

use rampack::control::tree::{Directory, Fixed, Node, Rows};
use rampack::control::{Bound, Fault, Object, Row, RowInfo};
use rampack::zswap::{DEBUG, PARAMETERS, TENANT_ROWS, Zswap};

use crate::devices::Devices;
use crate::machine::Machine;

/// `module/zswap`.
pub(super) fn module(devices: &Arc<Devices>) -> Fixed {
    Fixed::new().dir("parameters", Rows::new(cache(devices, PARAMETERS), |_| true))
}

/// `kernel/debug/zswap`.
pub(super) fn debug(devices: &Arc<Devices>) -> Rows {
    Rows::new(cache(devices, DEBUG), |_| true)
}

/// `fs/cgroup`.
pub(super) fn tenants(devices: &Arc<Devices>) -> Tenants {
    Tenants { machine: devices.machine().clone() }
}

fn cache(devices: &Arc<Devices>, rows: &'static [Row<Zswap>]) -> Arc<dyn Object> {
    Arc::new(Cache { machine: devices.machine().clone(), rows })
}

/// The cache of a machine, which is made when somebody asks for a value: what will be set before
/// the first swap device is there holds for it.
struct Cache {
    machine: Arc<Machine>,
    rows: &'static [Row<Zswap>],
}

impl Cache {
    fn bound(&self) -> Result<Bound<Zswap>, Fault> {
        Ok(Bound::new(self.machine.swap()?, self.rows))
    }
}

impl Object for Cache {
    fn rows(&self) -> Vec<RowInfo> {
        let info = |row: &Row<Zswap>| RowInfo {
            name: row.name,
            access: row.access,
            unit: row.unit,
            help: row.help,
        };
        self.rows.iter().map(info).collect()
    }

    fn show(&self, name: &str) -> Result<String, Fault> {
        self.bound()?.show(name)
    }

    fn store(&self, name: &str, value: &str) -> Result<(), Fault> {
        self.bound()?.store(name, value)
    }
}

/// A directory for each tenant of the cache, once there is one.
pub(super) struct Tenants {
    machine: Arc<Machine>,
}

impl Directory for Tenants {
    fn names(&self) -> Vec<String> {
        let tenants = self.machine.swap_if_made().map(|zswap| zswap.tenants());
        tenants.unwrap_or_default().iter().map(|tenant| tenant.name().to_string()).collect()
    }

    fn get(&self, name: &str) -> Option<Node> {
        let tenants = self.machine.swap_if_made()?.tenants();
        let tenant = tenants.into_iter().find(|tenant| tenant.name() == name)?;
        let rows = Bound::new(Arc::new(tenant), TENANT_ROWS);
        Some(Node::Directory(Arc::new(Rows::new(Arc::new(rows), |_| true))))
    }
}
