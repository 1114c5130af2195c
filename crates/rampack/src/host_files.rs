//! The system round the devices of this process: files to write pages back to, and dictionaries.

use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;
use control::ControlError;
use zram::HostFiles;

/// The longest file that is read as a whole, in bytes. Dictionaries have some hundred kilobytes at
/// most: what is longer is a mistake.
const LONGEST: u64 = 1 << 20;

/// The system that this process runs on: files and block devices by their paths.
pub struct HostSystem;

impl HostFiles for HostSystem {
    fn open_backing(&self, path: &str) -> Result<Arc<dyn BlockDevice>, ControlError> {
        backing::open(Path::new(path), backing::Options::default())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        backing::read(Path::new(path), LONGEST)
    }
}
