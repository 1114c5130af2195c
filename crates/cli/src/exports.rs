//! Devices as NBD exports.

use std::sync::Arc;

use rampack::block::BlockDevice;
use rampack::nbd::{ExportInfo, Exports, OpenError};
use rampack::units::human;

use crate::machine::Machine;

/// Every device of a machine, by its name. A connected client is a user of its device: the device
/// cannot be reset or removed meanwhile.
pub struct DiskExports {
    machine: Arc<Machine>,
}

impl DiskExports {
    /// The devices of `machine`, as they come and go.
    #[must_use]
    pub fn new(machine: Arc<Machine>) -> DiskExports {
        DiskExports { machine }
    }
}

impl Exports for DiskExports {
    fn list(&self) -> Vec<ExportInfo> {
        let info = |disk: &Arc<rampack::zram::Disk>| {
            let description = match disk.bytes() {
                0 => "compressed RAM disk without a size".to_string(),
                bytes => format!("compressed RAM disk of {}", human(bytes)),
            };
            ExportInfo { name: disk.name(), description }
        };
        self.machine.disks().iter().map(info).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let disks = self.machine.disks();
        let disk = disks.iter().find(|disk| disk.name() == name).ok_or(OpenError::Unknown)?;
        let user = disk.open();
        // Checked after the open: a device with a user cannot lose its size.
        if user.bytes() == 0 {
            let message = format!("{name} has no size yet: rampack set {name} disksize SIZE");
            return Err(OpenError::Refused(message));
        }
        Ok(Arc::new(user))
    }
}
