//! The memory that another process left: whatever is not recovered of it stays for a third one.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{KeptRegion, Memfds};
use pagealloc::{KeptMemory, MemoryProvider, NoMemory};

/// How long, and how often, files that another process has locked are tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Memory in files by name, which may be provided ahead.
pub(crate) struct InFiles {
    pub memory: Memfds,
    pub is_ahead: bool,
}

impl KeptMemory for InFiles {
    fn provider(&self, name: &str) -> Arc<dyn MemoryProvider> {
        let named = self.memory.provider(name);
        if self.is_ahead { Arc::new(named.ahead()) } else { Arc::new(named) }
    }

    fn has(&self, name: &str) -> bool {
        self.memory.regions().iter().any(|region| region.name == name)
    }
}

/// A region that another process left.
///
/// # Errors
/// `EINVAL` if it is not there.
pub(crate) fn region(memory: &Memfds, name: &str) -> Result<KeptRegion, ControlError> {
    let found = memory.regions().into_iter().find(|region| region.name == name);
    found.ok_or_else(|| ControlError::invalid(format!("there is no region {name:?}")))
}

/// A recovery is done. Regions with such names that nobody asked for are given up.
pub(crate) fn settle(memory: &Memfds, gives_up: impl Fn(&str) -> bool) {
    memory.settle();
    forget(memory, gives_up);
}

/// Gives up the regions with such names that nobody asked for.
pub(crate) fn forget(memory: &Memfds, which: impl Fn(&str) -> bool) {
    for region in memory.regions().into_iter().filter(|region| which(&region.name)) {
        memory.forget(&region.name);
    }
}

/// Tries again what is refused as busy, `until` then: the kernel closes the files of a dead process
/// that used io_uring a moment after the process is gone, and unlocks them then.
pub(crate) fn patiently<T>(
    until: Instant,
    mut action: impl FnMut() -> Result<T, ControlError>,
) -> Result<T, ControlError> {
    loop {
        match action() {
            Err(error) if error.errno == Errno::EBUSY && Instant::now() < until => {
                thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Whether a region is one of the cache in front of swap areas.
pub(crate) fn is_of_swap(name: &str) -> bool {
    name.starts_with("swap")
}

pub(crate) fn no_memory(error: NoMemory) -> ControlError {
    ControlError::new(Errno::ENOMEM, error.to_string())
}
