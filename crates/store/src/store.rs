//! The layers of a device, put together.

use std::sync::Arc;

use block::BlockDevice;
use block::layer::Part;
use control::{ControlError, Errno};
use host::Memfds;
use objects::Findings;
use pagealloc::MemoryProvider;
use pagelog::LogDevice;

use crate::first_page::FirstPage;
use crate::log::{self, BEFORE_LOG};
use crate::names::{left, next, places_of, words_of};
use crate::sealed::{sealed, sealed_kept};

/// How pages lie on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Each has a block of its own: the first so many bytes of the device are used.
    Blocks(u64),
    /// The same for swap space, whose first page is never sealed: it is the label of the device.
    SwapSpace(u64),
    /// So many pages are in a log, behind the first MiB of the device.
    Log(u64),
}

/// Where layers have what they know.
#[derive(Clone, Copy)]
pub enum Memory<'a> {
    /// In memory of this provider, which ends with the process.
    OfProcess(&'a dyn MemoryProvider),
    /// In regions that outlive the process, which begin with the name of a device.
    Kept {
        /// The regions.
        memory: &'a Memfds,
        /// The name.
        name: &'a str,
        /// All memory comes at once, and not when a page is written.
        is_ahead: bool,
        /// A new key has this number at least: a service manager may still have one of the name.
        least: u64,
    },
}

/// What there is to be above a device.
pub struct Spec<'a> {
    /// The device. Of what another process left, it must be gone, and so must its writes.
    pub device: Arc<dyn BlockDevice>,
    /// Its path, for messages.
    pub path: String,
    /// How pages lie on it.
    pub layout: Layout,
    /// Each block is encrypted, and checked when it is read. 24 bytes of memory for each.
    pub is_sealed: bool,
    /// Another process sealed what is on it: no key is made in the place of one that is not left.
    pub was_sealed: bool,
    /// Where the layers have what they know.
    pub memory: Memory<'a>,
    /// Of a log that another process left: the bytes that the device had. `None` makes a new log.
    /// What was sealed under the name is found by itself.
    pub left: Option<u64>,
}

/// Why there is no store. Nothing has changed, and another process can try the same.
#[derive(Debug)]
pub enum NotOpened {
    /// It is to be sealed and to outlive the process, and this kernel has no secret memory
    /// (memfd_secret(2)) for the key; or it was sealed, and the key or its seals are not left.
    NoKey,
    /// Anything else.
    Error(ControlError),
}

impl From<ControlError> for NotOpened {
    fn from(error: ControlError) -> NotOpened {
        NotOpened::Error(error)
    }
}

impl From<NotOpened> for ControlError {
    fn from(error: NotOpened) -> ControlError {
        match error {
            NotOpened::NoKey => {
                let message = "this kernel has no memory for a key that outlives the process";
                ControlError::new(Errno::ENOTSUP, message)
            }
            NotOpened::Error(error) => error,
        }
    }
}

/// A device with its layers.
pub struct Store {
    /// The uppermost layer.
    pub device: Arc<dyn BlockDevice>,
    /// The log, if pages are in one.
    pub log: Option<Arc<LogDevice>>,
    /// What cannot be of a log that another process left; empty after a death at any instant.
    pub findings: Findings,
}

impl Store {
    /// Puts the layers above the device. For a log, all memory comes now: 8 bytes a page, 12 MiB
    /// for segments, and 28 bytes a segment. Pages that do not come compressed are compressed with
    /// zstd.
    ///
    /// # Errors
    /// `EINVAL` for a device of less than 4 MiB below a log, if there is nothing of a log that is
    /// said to be left, or its device has become smaller; `ENOMEM` when there is no memory, or the
    /// memory of a key cannot be locked (`ulimit -l`).
    pub fn open(spec: Spec<'_>) -> Result<Store, NotOpened> {
        let device = spec.device.clone();
        let pages = match spec.layout {
            Layout::Blocks(bytes) => return Ok(Store::of_blocks(spec.seal(device, bytes)?)),
            Layout::SwapSpace(bytes) => {
                let sealed = spec.seal(device.clone(), bytes)?;
                return Ok(Store::of_blocks(match spec.is_sealed {
                    true => Arc::new(FirstPage::new(sealed, device)),
                    false => sealed,
                }));
            }
            Layout::Log(pages) => pages,
        };
        let part = Arc::new(spec.part()?);
        let bytes = part.geometry().bytes;
        let Memory::Kept { memory, name, is_ahead, .. } = spec.memory else {
            let log = log::make(spec.seal(part, bytes)?, spec.provider(), pages, &spec.path)?;
            return Ok(Store::of_log(log, Findings::default()));
        };
        let number = match spec.left {
            None => next(memory, &words_of(name)),
            Some(_) => left(memory, &words_of(name)).next().ok_or_else(|| {
                let path = &spec.path;
                let why = format!("nothing was kept of the log of {name} on {path} (K24)");
                ControlError::invalid(why)
            })?,
        };
        let below = spec.seal(part, bytes)?;
        let [places, words] = [places_of(name), words_of(name)].map(|beginning| {
            let provider = memory.provider(&format!("{beginning}{number}"));
            if is_ahead { provider.ahead() } else { provider }
        });
        let log = log::make(below, &places, pages, &spec.path)?;
        let findings = match spec.left {
            None => log::keep(&log, &words).map(|()| Findings::default())?,
            Some(_) => log::recover(&log, &words, &spec.path)?,
        };
        Ok(Store::of_log(log, findings))
    }

    fn of_blocks(device: Arc<dyn BlockDevice>) -> Store {
        Store { device, log: None, findings: Findings::default() }
    }

    fn of_log(log: LogDevice, findings: Findings) -> Store {
        let log = Arc::new(log);
        Store { device: log.clone(), log: Some(log), findings }
    }
}

impl<'a> Spec<'a> {
    /// A device of `path` as it is, whose layers end with the process.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, path: impl Into<String>, layout: Layout) -> Spec<'a> {
        let (path, memory) = (path.into(), Memory::OfProcess(&host::Mmap));
        Spec { device, path, layout, is_sealed: false, was_sealed: false, memory, left: None }
    }

    /// The same, in regions that outlive the process, whose names begin with that of a device. All
    /// memory comes now.
    #[must_use]
    pub fn kept(self, memory: &'a Memfds, name: &'a str) -> Spec<'a> {
        Spec { memory: Memory::Kept { memory, name, is_ahead: true, least: 1 }, ..self }
    }

    fn provider(&self) -> &'a dyn MemoryProvider {
        match self.memory {
            Memory::OfProcess(provider) => provider,
            Memory::Kept { .. } => &host::Mmap,
        }
    }

    /// Puts the seal above `below`, if there is to be one.
    fn seal(
        &self,
        below: Arc<dyn BlockDevice>,
        bytes: u64,
    ) -> Result<Arc<dyn BlockDevice>, NotOpened> {
        match self.memory {
            _ if !self.is_sealed => Ok(below),
            Memory::OfProcess(provider) => Ok(sealed(below, provider, bytes, &self.path)?),
            Memory::Kept { memory, name, is_ahead, least } => {
                let least = (!self.was_sealed).then_some(least);
                let kept = (memory, name, is_ahead, least);
                let sealed = sealed_kept(below, kept, bytes, &self.path)?;
                sealed.ok_or(NotOpened::NoKey)
            }
        }
    }

    /// The part of the device in which a log is, if it is as large as it was.
    fn part(&self) -> Result<Part<Arc<dyn BlockDevice>>, ControlError> {
        let part = Part::behind(self.device.clone(), BEFORE_LOG);
        let Some(bytes) = self.left else { return Ok(part) };
        let (now, path) = (self.device.geometry().bytes, &self.path);
        if now < bytes {
            let message =
                format!("{path} had {bytes} bytes when its log was made, and has {now} (K24)");
            return Err(ControlError::invalid(message));
        }
        Ok(part.at_most(bytes.saturating_sub(BEFORE_LOG)))
    }
}
