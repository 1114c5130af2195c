//! A device in the tree: its own attributes, and those of the block layer.

use std::sync::Arc;

use control::tree::{Attributes, Node, gone};
use control::{Absolute, AttributeInfo, Bound, ControlError, Object};
use zram::Disk;

use super::block::{ATTRIBUTES, BlockDirectory, BlockView};
use crate::devices::Devices;

/// Attributes of a device that are in debugfs instead of sysfs.
const DEBUG: [&str; 1] = ["block_state"];

/// The attributes of a device: its own, and those that the block layer has for every disk.
#[must_use]
pub fn object(devices: &Arc<Devices>, disk: &Arc<Disk>) -> Arc<dyn Object> {
    let (devices, disk) = (devices.clone(), disk.clone());
    let view = Arc::new(BlockView { devices: devices.clone(), disk: disk.clone() });
    let system = Bound::new(view, ATTRIBUTES);
    Arc::new(DeviceObject { own: zram::attributes(disk.clone()), system, devices, disk })
}

/// Is `name` an attribute of debugfs?
fn is_debug(name: &str) -> bool {
    DEBUG.contains(&name)
}

fn identity(disk: &Arc<Disk>) -> u64 {
    Arc::as_ptr(disk).addr() as u64
}

/// `block/zramN`.
pub(super) fn block_directory(devices: &Arc<Devices>, disk: &Arc<Disk>) -> Node {
    let rows =
        Attributes::new(object(devices, disk), |name| !is_debug(name)).identified(identity(disk));
    Node::Directory(Arc::new(BlockDirectory { rows }))
}

/// `kernel/debug/zram/zramN`.
pub(super) fn debug_directory(devices: &Arc<Devices>, disk: &Arc<Disk>) -> Node {
    let rows = Attributes::new(object(devices, disk), is_debug).identified(identity(disk));
    Node::Directory(Arc::new(rows))
}

/// The attributes of a device. A store goes through [`Devices`], so that the frontends follow. A
/// removed device has no attributes.
struct DeviceObject {
    own: Bound<Disk>,
    system: Bound<BlockView>,
    devices: Arc<Devices>,
    disk: Arc<Disk>,
}

impl DeviceObject {
    fn is_own(&self, name: &str) -> bool {
        self.own.attributes().iter().any(|row| row.name == name)
    }
}

impl Object for DeviceObject {
    fn attributes(&self) -> Vec<AttributeInfo> {
        if !self.devices.is_present(&self.disk) {
            return Vec::new();
        }
        let mut rows = self.own.attributes();
        rows.extend(self.system.attributes());
        rows
    }

    fn show(&self, name: &str) -> Result<String, ControlError> {
        if !self.devices.is_present(&self.disk) {
            return Err(gone(&self.disk.name()));
        }
        // An unknown name goes to the device's own rows, which return the error.
        match self.system.attributes().iter().any(|row| row.name == name) && !self.is_own(name) {
            true => self.system.show(name),
            false => self.own.show(name),
        }
    }

    fn store(&self, name: &str, value: &str) -> Result<(), ControlError> {
        match self.system.attributes().iter().any(|row| row.name == name) && !self.is_own(name) {
            true => {
                self.devices.check_present(&self.disk).and_then(|()| self.system.store(name, value))
            }
            false => self.devices.set_on(&self.disk, name, value),
        }
    }

    fn with_absolute_paths(
        &self,
        name: &str,
        value: &str,
        absolute: &mut Absolute<'_>,
    ) -> Result<String, ControlError> {
        zram::with_absolute_paths(name, value, absolute)
    }
}
