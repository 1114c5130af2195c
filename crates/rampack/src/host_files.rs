//! The files of the system: backing stores for writeback, and dictionaries.

use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;
use control::{ControlError, Errno};
use pagealloc::MemoryProvider;
use seal::Sealed;
use zram::HostFiles;

/// The longest file that is read as a whole, in bytes. A dictionary has some hundred kilobytes at
/// most; a longer file is a mistake.
const LONGEST: u64 = 1 << 20;
/// Writes to a backing store that can be under way at once, as many as it has rings.
const WRITES: usize = 16;

/// Opens files and block devices of this system by their paths.
pub struct HostSystem;

impl HostFiles for HostSystem {
    fn open_backing(&self, path: &str, seal: bool) -> Result<Arc<dyn BlockDevice>, ControlError> {
        // Threads that serve may make no ring.
        let options = backing::Options { ready: true, ..backing::Options::default() };
        let device = backing::open(Path::new(path), options)?;
        if seal { sealed(device, &host::Mmap, u64::MAX, path) } else { Ok(device) }
    }

    fn resolve(&self, path: &str) -> String {
        let found = Path::new(path).canonicalize().ok();
        found.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or(path.into())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        backing::read(Path::new(path), LONGEST)
    }
}

/// Puts a layer above the device of `path` that encrypts and authenticates each page
/// ([`seal::Sealed`]). What is on the device cannot be read through it, and only its first `bytes`
/// are used. The layer takes 24 bytes of memory for each page, when the page is written or, if
/// `provider` provides memory ahead, now.
///
/// # Errors
/// `ENOMEM` when there is no memory, or the memory of the key cannot be locked (`ulimit -l`).
pub fn sealed(
    device: Arc<dyn BlockDevice>,
    provider: &dyn MemoryProvider,
    bytes: u64,
    path: &str,
) -> Result<Arc<dyn BlockDevice>, ControlError> {
    match Sealed::new(device, provider, bytes, WRITES) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => {
            let message = format!("what is written to {path} cannot be encrypted: {error}");
            Err(ControlError::new(Errno::ENOMEM, message))
        }
    }
}
