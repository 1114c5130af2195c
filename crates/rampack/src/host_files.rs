//! The files of the system: backing stores for writeback, and dictionaries.

use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;
use control::ControlError;
use zram::HostFiles;

/// The longest file that is read as a whole, in bytes. A dictionary has some hundred kilobytes at
/// most; a longer file is a mistake.
const LONGEST: u64 = 1 << 20;

/// Opens files and block devices of this system by their paths.
pub struct HostSystem;

impl HostFiles for HostSystem {
    fn open_backing(&self, path: &str) -> Result<Arc<dyn BlockDevice>, ControlError> {
        backing::open(Path::new(path), backing::Options::default())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        backing::read(Path::new(path), LONGEST)
    }
}
