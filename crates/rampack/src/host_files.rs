//! The files of the system: backing stores for writeback, and dictionaries.

use std::io;
use std::path::Path;
use std::sync::Arc;

use block::BlockDevice;
use control::{ControlError, Errno};
use host::Memfds;
use pagealloc::MemoryProvider;
use seal::Sealed;
use sync::atomic::{AtomicU64, Ordering};
use zram::HostFiles;

/// The longest file that is read as a whole, in bytes. A dictionary has some hundred kilobytes at
/// most; a longer file is a mistake.
const LONGEST: u64 = 1 << 20;
/// Writes to a backing store that can be under way at once, as many as it has rings.
const WRITES: usize = 16;

/// Stands between the name of a device and the number of its key.
const KEY: &str = ".key.";

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
        let device = backing::open(Path::new(path), options)?;
        match seal {
            Some(_) => sealed(device, &host::Mmap, u64::MAX, path),
            None => Ok(device),
        }
    }

    fn check_remote(&self, text: &str) -> Result<String, ControlError> {
        text.parse().map(|options: remote::Options| options.shown())
    }

    fn open_remote(
        &self,
        path: &str,
        _: &str,
        remote: &str,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let device = remote::open(self.open_backing(path, None)?, &remote.parse()?)?;
        sealed(device, &host::Mmap, u64::MAX, path)
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
        Err(error) => Err(unsealed(path, &error)),
    }
}

/// As [`sealed`], with a key and seals that outlive the process in `memory`: the regions
/// `NAME.key.N` and `NAME.seals.N`. It finds those that another process left under `name`. Memory
/// for the seals of `bytes` comes now. `None` if this kernel has no secret memory
/// (memfd_secret(2)): the key would end with the process.
///
/// # Errors
/// As for [`sealed`].
pub fn sealed_kept(
    device: Arc<dyn BlockDevice>,
    memory: &Memfds,
    name: &str,
    bytes: u64,
    path: &str,
) -> Result<Option<Arc<dyn BlockDevice>>, ControlError> {
    let beginning = key_of(name);
    let left = number_left(memory, &beginning).filter(|number| has_seals(memory, name, *number));
    let number = left.unwrap_or_else(|| next_number(memory, &beginning));
    let key = match memory.secret(&format!("{beginning}{number}"), seal::draw) {
        Ok(key) => key,
        Err(error) if error.raw_os_error() == Some(Errno::ENOSYS.0) => return Ok(None),
        Err(error) => return Err(unsealed(path, &error)),
    };
    let seals = format!("{}{number}", seals_of(name));
    let (left, seals) = (bytes_left(memory, &seals), memory.provider(&seals).ahead());
    match Sealed::kept(device, (&seals, left), bytes, WRITES, key) {
        Ok(device) => Ok(Some(Arc::new(device))),
        Err(error) => Err(unsealed(path, &error)),
    }
}

/// The number behind `beginning` in the name of a region that another process left, and nobody has
/// asked for yet.
pub(crate) fn number_left(memory: &Memfds, beginning: &str) -> Option<u64> {
    memory.unused().iter().find_map(|region| region.strip_prefix(beginning)?.parse().ok())
}

/// Whether another process left the seals to key `number` of a device. Without them the key is not
/// used again: nobody knows its last number.
fn has_seals(memory: &Memfds, name: &str, number: u64) -> bool {
    bytes_left(memory, &format!("{}{number}", seals_of(name))).is_some()
}

/// The bytes of a region that another process left.
fn bytes_left(memory: &Memfds, name: &str) -> Option<u64> {
    memory.regions().into_iter().find(|region| region.name == name).map(|region| region.bytes)
}

/// The number of a new region, behind `beginning` in its name.
pub(crate) fn next_number(memory: &Memfds, beginning: &str) -> u64 {
    let regions = memory.regions();
    let numbers = regions.iter().filter_map(|region| region.name.strip_prefix(beginning));
    numbers.filter_map(|number| number.parse::<u64>().ok()).max().map_or(1, |last| last + 1)
}

fn unsealed(path: &str, error: &io::Error) -> ControlError {
    let message = format!("what is written to {path} cannot be encrypted: {error}");
    ControlError::new(Errno::ENOMEM, message)
}

/// Whether a region of this name is a key: only processes that were given its descriptor have it,
/// and the system shows no name for it.
#[must_use]
pub fn is_key(name: &str) -> bool {
    name.contains(KEY)
}

/// The beginning of the name of the region with the key of a device.
#[must_use]
pub fn key_of(name: &str) -> String {
    format!("{name}{KEY}")
}

/// The beginning of the names of the seals of a device.
pub(crate) fn seals_of(name: &str) -> String {
    format!("{name}.seals.")
}

/// Files of a system, with keys and seals that outlive the process. They are regions of the memory:
/// `zram0.key.N` and `zram0.seals.N`, for the Nth backing device.
pub(crate) struct KeptFiles {
    files: Arc<dyn HostFiles>,
    memory: Memfds,
    /// Goes up with each backing device, and is no number of a region there is.
    next: AtomicU64,
}

impl KeptFiles {
    pub fn new(files: Arc<dyn HostFiles>, memory: Memfds) -> KeptFiles {
        let number = |name: &str| name.rsplit_once('.')?.1.parse::<u64>().ok();
        let numbers = memory.regions().into_iter().filter_map(|region| number(&region.name));
        let next = AtomicU64::new(numbers.max().unwrap_or(0) + 1);
        KeptFiles { files, memory, next }
    }

    /// The number of what another process left for the device, or a new one.
    fn number(&self, name: &str) -> u64 {
        let beginning = key_of(name);
        let left = |region: &str| region.strip_prefix(&beginning)?.parse().ok();
        let is_whole = |number: &u64| has_seals(&self.memory, name, *number);
        let unused = self.memory.unused();
        let mut whole = unused.iter().filter_map(|region| left(region)).filter(is_whole);
        whole.next().unwrap_or_else(|| {
            // Relaxed: only the numbers matter.
            self.next.fetch_add(1, Ordering::Relaxed)
        })
    }
}

impl HostFiles for KeptFiles {
    fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let Some(name) = seal else { return self.files.open_backing(path, None) };
        let device = self.files.open_backing(path, None)?;
        let number = self.number(name);
        let key = match self.memory.secret(&format!("{}{number}", key_of(name)), seal::draw) {
            Ok(key) => key,
            // Without such memory the key ends with the process.
            Err(error) if error.raw_os_error() == Some(Errno::ENOSYS.0) => {
                return sealed(device, &host::Mmap, u64::MAX, path);
            }
            Err(error) => return Err(unsealed(path, &error)),
        };
        let seals = format!("{}{number}", seals_of(name));
        let (left, seals) = (bytes_left(&self.memory, &seals), self.memory.provider(&seals));
        match Sealed::kept(device, (&seals, left), u64::MAX, WRITES, key) {
            Ok(device) => Ok(Arc::new(device)),
            Err(error) => Err(unsealed(path, &error)),
        }
    }

    fn resolve(&self, path: &str) -> String {
        self.files.resolve(path)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        self.files.read(path)
    }
}
