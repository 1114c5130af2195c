//! Devices in a log, below caches of swap areas.

use std::sync::Arc;

use block::BlockDevice;
use block::layer::Part;
use control::{ControlError, Errno};
use host::{Memfds, NamedMemory};
use pagealloc::MemoryProvider;
use pagelog::{LogDevice, NoDevice, NoLog, NotLeft, PageLog};
use units::human;
use zcomp::Params;

use crate::host_files::{next_number, number_left, sealed_kept};

/// Bytes before the log: the beginning of the device keeps what it says of itself.
const BEFORE_LOG: u64 = 1 << 20;
/// The codec of pages in the log of a cache of swap areas.
const LOG_CODEC: &str = zcomp::ZSTD;
/// Findings that are told; more are counted.
const TOLD: usize = 100;

/// A device in a log that another process left.
pub struct LeftLog {
    /// The device.
    pub device: Arc<LogDevice>,
    /// What cannot be: the first hundred findings. Empty after a death at any instant.
    pub findings: Vec<String>,
    /// How many findings there were.
    pub all_findings: u64,
}

/// A device of `pages` pages in a log on the device of `path`, behind its first MiB: see
/// [`pagelog::LogDevice`]. `seal` puts a layer between them. The pages are compressed with zstd.
/// All memory comes now: 8 bytes a page from `provider`, 12 MiB for segments, and 28 bytes a
/// segment.
///
/// # Errors
/// `EINVAL` for a device of less than 4 MiB; `ENOMEM`; the error of `seal`.
pub fn logged(
    device: Arc<dyn BlockDevice>,
    provider: &dyn MemoryProvider,
    pages: u64,
    path: &str,
    seal: impl FnOnce(Arc<dyn BlockDevice>, u64) -> Result<Arc<dyn BlockDevice>, ControlError>,
) -> Result<Arc<LogDevice>, ControlError> {
    let behind = Part::behind(device, BEFORE_LOG);
    let bytes = behind.geometry().bytes;
    let log = seal(Arc::new(behind), bytes)?;
    make(log, provider, pages, path).map(Arc::new)
}

/// As [`logged`], with a table and an account that outlive the process in `memory`: the regions
/// `NAME.places.N` and `NAME.log.N`. If `is_sealed`, the key and the seals outlive it too, as of
/// [`sealed_kept`](crate::sealed_kept); `None` if this kernel has no secret memory for that.
///
/// # Errors
/// As of [`logged`].
pub fn logged_kept(
    device: Arc<dyn BlockDevice>,
    memory: &Memfds,
    name: &str,
    pages: u64,
    of: (&str, bool),
) -> Result<Option<Arc<LogDevice>>, ControlError> {
    let number = next_number(memory, &words_of(name));
    let part = Part::behind(device, BEFORE_LOG);
    let Some((device, words)) = kept(part, (memory, name, number), pages, of)? else {
        return Ok(None);
    };
    device.keep(&words).map_err(|error| no_memory(format!("{error}")))?;
    Ok(Some(Arc::new(device)))
}

/// Goes on with the log that another process made by [`logged_kept`] and left in `memory`. That
/// process must be gone, and so must its writes to the device, which had `bytes` bytes then. If
/// this one fails or dies, another can do the same.
///
/// # Errors
/// As of [`logged`]. `EINVAL` if there is nothing of a log, or the device has become smaller.
pub fn logged_left(
    device: Arc<dyn BlockDevice>,
    memory: &Memfds,
    name: &str,
    (pages, bytes): (u64, u64),
    of: (&str, bool),
) -> Result<Option<LeftLog>, ControlError> {
    let number = number_of_log(memory, name, of.0)?;
    let part = as_it_was(device, bytes, of.0)?;
    match kept(part, (memory, name, number), pages, of)? {
        Some((device, words)) => recover(device, &words, of.0).map(Some),
        None => Ok(None),
    }
}

/// A device, and the memory of its log.
type Made = (LogDevice, NamedMemory);

/// The part of a device that had so many bytes in which the log is, if it has them still.
fn as_it_was(
    device: Arc<dyn BlockDevice>,
    bytes: u64,
    path: &str,
) -> Result<Part<Arc<dyn BlockDevice>>, ControlError> {
    let now = device.geometry().bytes;
    if now < bytes {
        let message =
            format!("{path} had {bytes} bytes when its log was made, and has {now} (K24)");
        return Err(ControlError::invalid(message));
    }
    Ok(Part::behind(device, BEFORE_LOG).at_most(bytes.saturating_sub(BEFORE_LOG)))
}

fn kept(
    part: Part<Arc<dyn BlockDevice>>,
    (memory, name, number): (&Memfds, &str, u64),
    pages: u64,
    (path, is_sealed): (&str, bool),
) -> Result<Option<Made>, ControlError> {
    let bytes = part.geometry().bytes;
    let part: Arc<dyn BlockDevice> = Arc::new(part);
    let log = match is_sealed {
        true => sealed_kept(part, memory, name, bytes, path)?,
        false => Some(part),
    };
    let Some(log) = log else { return Ok(None) };
    let ahead = |region: String| memory.provider(&region).ahead();
    let words = ahead(format!("{}{number}", words_of(name)));
    let device = make(log, &ahead(format!("{}{number}", places_of(name))), pages, path)?;
    Ok(Some((device, words)))
}

fn number_of_log(memory: &Memfds, name: &str, path: &str) -> Result<u64, ControlError> {
    number_left(memory, &words_of(name)).ok_or_else(|| {
        ControlError::invalid(format!("nothing was kept of the log of {name} on {path} (K24)"))
    })
}

/// What another process left of a log, for a look: `memory` has copies, and `log` is the device
/// with the layer of its seals.
///
/// # Errors
/// As of [`logged_kept`].
pub(crate) fn logged_seen(
    device: Arc<dyn BlockDevice>,
    memory: &Memfds,
    name: &str,
    (pages, bytes): (u64, u64),
    path: &str,
) -> Result<LeftLog, ControlError> {
    let number = number_of_log(memory, name, path)?;
    let log = Arc::new(as_it_was(device, bytes, path)?);
    let places = memory.provider(&format!("{}{number}", places_of(name)));
    let device = make(log, &places, pages, path)?;
    recover(device, &memory.provider(&format!("{}{number}", words_of(name))), path)
}

fn make(
    log: Arc<dyn BlockDevice>,
    provider: &dyn MemoryProvider,
    pages: u64,
    path: &str,
) -> Result<LogDevice, ControlError> {
    let cpus = host::cpus();
    let log = PageLog::new(log, path, cpus).map_err(|error| match error {
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
    })
}

fn recover(
    device: LogDevice,
    words: &dyn MemoryProvider,
    path: &str,
) -> Result<LeftLog, ControlError> {
    let (mut findings, mut all_findings) = (Vec::new(), 0);
    let recovered = device.recover(words, |finding| {
        all_findings += 1;
        if findings.len() < TOLD {
            findings.push(format!("{path}: {finding}"));
        }
    });
    recovered.map_err(|error| match error {
        NotLeft::NoMemory => no_memory(format!("{path}: {error}")),
        NotLeft::Nothing | NotLeft::Size { .. } => {
            ControlError::invalid(format!("{path}: {error} (K24)"))
        }
    })?;
    Ok(LeftLog { device: Arc::new(device), findings, all_findings })
}

fn no_memory(what: String) -> ControlError {
    ControlError::new(Errno::ENOMEM, what)
}

/// The beginning of the name of the region with what is known of the segments of a log.
fn words_of(name: &str) -> String {
    format!("{name}.log.")
}

/// The beginning of the name of the region with the places of pages in a log.
fn places_of(name: &str) -> String {
    format!("{name}.places.")
}
