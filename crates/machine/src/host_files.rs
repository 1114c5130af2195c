//! The files of the system: backing stores for writeback, and dictionaries.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use block::BlockDevice;
use control::ControlError;
#[cfg(not(feature = "remote"))]
use control::Errno;
use host::Memfds;
use store::{Layout, Memory, NotOpened, Spec, Store};
use sync::atomic::{AtomicU64, Ordering};
use zram::HostFiles;

use crate::left::patiently;

/// The longest file that is read as a whole, in bytes. A dictionary has some hundred kilobytes at
/// most; a longer file is a mistake.
const LONGEST: u64 = 1 << 20;

/// A path as text, which [`path_of`] turns back whatever bytes it has.
#[must_use]
pub fn text_of(path: &Path) -> String {
    control::text_of(path.as_os_str().as_bytes())
}

/// The path that a text of [`text_of`] stands for.
#[must_use]
pub fn path_of(text: &str) -> PathBuf {
    OsString::from_vec(control::bytes_of(text)).into()
}

/// Opens files and block devices of this system by their paths.
pub struct HostSystem;

impl HostFiles for HostSystem {
    fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        // Threads that serve may make no ring.
        let options = backing::Options { ready: true, ..backing::Options::default() };
        let device = backing::open(&path_of(path), options)?;
        Ok(Store::open(Spec { is_sealed: seal.is_some(), ..all_of(device, path) })?.device)
    }

    #[cfg(not(feature = "remote"))]
    fn check_remote(&self, _: &str) -> Result<String, ControlError> {
        let message = "this program was built without remote stores; build it with `--features \
                       remote`";
        Err(ControlError::new(Errno::ENOTSUP, message))
    }

    #[cfg(feature = "remote")]
    fn check_remote(&self, text: &str) -> Result<String, ControlError> {
        text.parse().map(|options: remote::Options| options.shown())
    }

    #[cfg(feature = "remote")]
    fn open_remote(
        &self,
        path: &str,
        _: &str,
        remote: &str,
    ) -> Result<(Arc<dyn BlockDevice>, block::AskRemote), ControlError> {
        let (device, ask) = remote::open(self.open_backing(path, None)?, &remote.parse()?)?;
        let spec = Spec { is_sealed: true, ..all_of(device, path) };
        Ok((Store::open(spec)?.device, ask))
    }

    fn resolve(&self, path: &str) -> String {
        path_of(path).canonicalize().map_or(path.into(), |found| text_of(&found))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        backing::read(&path_of(path), LONGEST)
    }
}

/// Files of a system, with keys and seals that outlive the process.
pub(crate) struct KeptFiles {
    files: Arc<dyn HostFiles>,
    memory: Memfds,
    /// Goes up with each backing device, and is no number of a region there is or was.
    next: AtomicU64,
    /// Until then a file that another process has locked is tried again.
    until: Instant,
}

impl KeptFiles {
    pub fn new(files: Arc<dyn HostFiles>, memory: Memfds, until: Instant) -> KeptFiles {
        let number = |name: &str| name.rsplit_once('.')?.1.parse::<u64>().ok();
        let numbers = memory.regions().into_iter().filter_map(|region| number(&region.name));
        let next = AtomicU64::new(numbers.max().unwrap_or(0) + 1);
        KeptFiles { files, memory, next, until }
    }

    /// Puts the layer of a key and of seals that outlive the process above `device`, if the disk
    /// `seal` wants it.
    fn seal(
        &self,
        device: Arc<dyn BlockDevice>,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let Some(name) = seal else { return Ok(device) };
        // Relaxed: only the numbers matter.
        let least = self.next.fetch_add(1, Ordering::Relaxed);
        let kept = Memory::Kept { memory: &self.memory, name, is_ahead: false, least };
        let spec = |memory| Spec { memory, is_sealed: true, ..all_of(device.clone(), path) };
        match Store::open(spec(kept)) {
            // Without such memory the key ends with the process.
            Err(NotOpened::NoKey) => Ok(Store::open(spec(Memory::OfProcess(&host::Mmap)))?.device),
            opened => Ok(opened?.device),
        }
    }
}

/// All of a device of `path`, as it is.
fn all_of<'a>(device: Arc<dyn BlockDevice>, path: &str) -> Spec<'a> {
    Spec::new(device, path, Layout::Blocks(u64::MAX))
}

impl HostFiles for KeptFiles {
    fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let device = patiently(self.until, || self.files.open_backing(path, None))?;
        self.seal(device, path, seal)
    }

    fn absent_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        self.seal(self.files.absent_backing(path, None)?, path, seal)
    }

    fn resolve(&self, path: &str) -> String {
        self.files.resolve(path)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        self.files.read(path)
    }
}
