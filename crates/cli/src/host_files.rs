//! The system round the daemon's devices: files to write pages back to, and dictionaries.

use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;
use control::Fault;
use zram::HostFiles;

/// The longest file that is read as a whole, in bytes. Dictionaries have some hundred kilobytes at
/// most: what is longer is a mistake.
const LONGEST: u64 = 1 << 20;

/// The system this process runs on.
pub struct System;

impl HostFiles for System {
    fn open_backing(&self, path: &str) -> Result<Arc<dyn BlockDevice>, Fault> {
        backing::open(Path::new(path), backing::Options::default())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Fault> {
        backing::read(Path::new(path), LONGEST)
    }
}
