//! Devices in a log, below caches of swap areas.

use std::sync::Arc;

use block::BlockDevice;
use control::{ControlError, Errno};
use objects::Findings;
use pagealloc::MemoryProvider;
use pagelog::{LogDevice, MOST_PAGES, NoDevice, NoLog, NotLeft, PageLog};
use units::{PAGE_SIZE, human};
use zcomp::Params;

/// Bytes before the log: the beginning of the device keeps what it says of itself.
pub(crate) const BEFORE_LOG: u64 = 1 << 20;
/// The codec of pages that do not come compressed.
const LOG_CODEC: &str = zcomp::ZSTD;

/// A device of `pages` pages in a log on `below`, which is behind the first MiB of `path`.
pub(crate) fn make(
    below: Arc<dyn BlockDevice>,
    provider: &dyn MemoryProvider,
    pages: u64,
    path: &str,
) -> Result<LogDevice, ControlError> {
    let cpus = host::cpus();
    let log = PageLog::new(below, path, cpus).map_err(|error| match error {
        NoLog::Layout(error) => {
            let before = human(BEFORE_LOG);
            ControlError::invalid(format!("{path} has, behind its first {before}, {error}"))
        }
        NoLog::NoMemory => no_memory(format!("no memory for the log on {path}")),
    })?;
    let codec = zcomp::open(LOG_CODEC, &Params::default());
    let codec = codec.map_err(|error| no_memory(format!("{error}")))?;
    LogDevice::new(log, provider, pages, &*codec, cpus).map_err(|error| match error {
        NoDevice::NoMemory(error) => no_memory(format!("{error}")),
        NoDevice::Codec(error) => no_memory(format!("{error}")),
        NoDevice::Pages(pages) => {
            let most = human(MOST_PAGES * PAGE_SIZE as u64);
            ControlError::invalid(format!(
                "a log has room for {most} of pages, not for {pages} pages"
            ))
        }
    })
}

/// Lets the device outlive the process, in the memory of `words`.
pub(crate) fn keep(device: &LogDevice, words: &dyn MemoryProvider) -> Result<(), ControlError> {
    device.keep(words).map_err(|error| no_memory(format!("{error}")))
}

/// Goes on with what another process left in the memory of `words`. Returns what cannot be.
pub(crate) fn recover(
    device: &LogDevice,
    words: &dyn MemoryProvider,
    path: &str,
) -> Result<Findings, ControlError> {
    let mut findings = Findings::default();
    let recovered = device.recover(words, |finding| findings.add(format!("{path}: {finding}")));
    recovered.map_err(|error| match error {
        NotLeft::NoMemory => no_memory(format!("{path}: {error}")),
        NotLeft::Nothing | NotLeft::Size { .. } => {
            ControlError::invalid(format!("{path}: {error} (K24)"))
        }
    })?;
    Ok(findings)
}

fn no_memory(what: String) -> ControlError {
    ControlError::new(Errno::ENOMEM, what)
}
