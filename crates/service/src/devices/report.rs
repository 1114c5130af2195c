//! What is told of devices: their attributes, and the reports of `rampack status`.

use std::sync::Arc;

use control::{Access, AttributeInfo, ControlError, Object};
use host::swaps;
use zram::Disk;

use super::Devices;
use super::swapped::is_swap;
use crate::mounts::{SWAP, places_of};
use crate::protocol::{Attribute, Description, DeviceReport};

impl Devices {
    /// Reads the named attributes, or all readable ones when none is named.
    ///
    /// # Errors
    /// `ENODEV`, or the error of an attribute.
    pub fn get(&self, name: &str, attributes: &[String]) -> Result<Vec<Attribute>, ControlError> {
        let rows = zram::attributes(self.disk(name)?);
        let read = |name: &str| Ok(Attribute::new(name, &rows.show(name)?));
        if !attributes.is_empty() {
            return attributes.iter().map(|name| read(name)).collect();
        }
        // An attribute that only its owner may read is long: it is read only by name.
        let told = |row: &AttributeInfo| row.access.readable() && row.access != Access::ReadOwner;
        let readable = rows.attributes().into_iter().filter(told);
        readable.map(|row| read(row.name)).collect()
    }

    /// The attributes that a device has.
    ///
    /// # Errors
    /// `ENODEV`.
    pub fn describe(&self, name: &str) -> Result<Vec<Description>, ControlError> {
        let rows = zram::attributes(self.disk(name)?).attributes();
        Ok(rows.into_iter().map(described).collect())
    }

    /// The reports of all devices, also of those that could not be taken over.
    #[must_use]
    pub fn reports(&self) -> Vec<DeviceReport> {
        let refused = self.machine.refused().into_iter().map(|it| DeviceReport {
            name: format!("zram{}", it.saved.id),
            refused: Some(it.why.message),
            ..self.reached(it.saved.id)
        });
        self.machine.disks().iter().map(|disk| self.report(disk)).chain(refused).collect()
    }

    /// The report of a device.
    #[must_use]
    pub fn report(&self, disk: &Arc<Disk>) -> DeviceReport {
        let name = disk.name();
        let mut report = DeviceReport {
            attributes: self
                .get(&name, &[])
                .unwrap_or_default()
                .into_iter()
                .map(|attribute| (attribute.name, attribute.value))
                .collect(),
            nbd_clients: self.clients(disk),
            clone_of: disk.clone_of().map(|origin| origin.name()),
            ..self.reached(disk.id())
        };
        if disk.bytes() != 0 {
            report.nbd = self.nbd().iter().map(|address| export_uri(address, &name)).collect();
            report.vhost_user = self.vhosts.socket(disk.id()).as_deref().map(machine::text_of);
        }
        report.name = name;
        report
    }

    /// The places where programs find device `id`, and where its block device is mounted.
    fn reached(&self, id: u32) -> DeviceReport {
        let mut report = DeviceReport::default();
        if let Some(way) = self.way(id) {
            report.block_device = way.block_device().map(machine::text_of);
            report.link = Some(machine::text_of(way.link()));
            report.file = way.file().map(|attached| machine::text_of(&attached.file));
        }
        // Done without the lock: it reads /proc.
        let device = report.block_device.as_deref().map(machine::path_of);
        report.mountpoints = device.as_deref().map(places_of).unwrap_or_default();
        let name = format!("zram{id}");
        let swap = device.filter(|device| is_swap(&swaps::all(), &name, device));
        if swap.is_some() && !report.mountpoints.iter().any(|place| place == SWAP) {
            report.mountpoints.push(SWAP.into());
        }
        report
    }
}

/// What is told of an attribute.
pub(crate) fn described(row: AttributeInfo) -> Description {
    let AttributeInfo { name, access, unit, help, .. } = row;
    Description { name: name.into(), mode: access.mode(), unit: unit.into(), help: help.into() }
}

/// The URI of an export at an NBD address.
#[must_use]
pub fn export_uri(address: &str, name: &str) -> String {
    // The name of a device needs no escapes.
    let (base, query) = address.split_at(address.find('?').unwrap_or(address.len()));
    format!("{}/{name}{query}", base.strip_suffix('/').unwrap_or(base))
}
