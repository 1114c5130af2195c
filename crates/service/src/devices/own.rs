//! No disk of a daemon is the backing of another one of the same daemon: a killed daemon would wait
//! for itself, and could not end. Nor has a disk the program that is to serve it.

use std::path::Path;

use control::ControlError;
use fuse::CutOff;
use host::makedev;

use super::Devices;
use crate::swap::beneath;

impl Devices {
    /// Refuses a `value` of the attribute `name` that would have a device of this daemon, or
    /// something on one, as a backing device.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(super) fn refuse_own(&self, name: &str, value: &str) -> Result<(), ControlError> {
        let path = value.strip_suffix('\n').unwrap_or(value);
        if name != "backing_dev" || !beneath::stands_on(Path::new(path), &self.device_numbers()) {
            return Ok(());
        }
        let message = format!(
            "{path} cannot be written back to: it is a device of this daemon or on one, and such a \
             daemon could not end; name a file or a device that another program serves"
        );
        Err(ControlError::invalid(message))
    }

    /// Refuses the program at `path` as the next one if it is on a device of this daemon: nobody
    /// serves that while the program starts.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(crate) fn refuse_program(&self, path: &Path) -> Result<(), ControlError> {
        if !beneath::stands_on(path, &self.device_numbers()) {
            return Ok(());
        }
        let message = format!(
            "{} is on a device of this daemon, which nobody serves while the program starts; copy \
             it to another file system",
            path.display()
        );
        Err(ControlError::invalid(message))
    }

    /// The device numbers of the block devices, and of the file system with their files.
    fn device_numbers(&self) -> Vec<u64> {
        let files = self.cut_off.lock().as_ref().and_then(CutOff::device);
        let nodes = self.machine.disks().into_iter().filter_map(|disk| self.node(&disk));
        nodes.map(|node| makedev(node.major, node.minor)).chain(files).collect()
    }
}
