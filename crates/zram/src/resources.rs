//! What the devices of a machine share, and which design they are of.

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};

use block::BlockDevice;
use control::{ControlError, Errno};
use pagealloc::{Frames, MemoryProvider};
use zcomp::{CodecError, Compressor, Params, PerCpuStreams, Streams};

use crate::access::Clock;
use crate::blocks::BackingBlocks;
use crate::slots::{BitLock, SlotTable};

/// What a device is compiled with. The product has one design, [`Product`]; experiments bring
/// others.
pub trait Design: Send + Sync + 'static {
    /// How slots are guarded.
    type Slots: SlotTable + 'static;
    /// How threads come by a stream.
    type Streams: Streams;
}

/// The design of the product: a lock bit in each slot, and a stream for each CPU.
pub struct Product;

impl Design for Product {
    type Slots = BitLock;
    type Streams = PerCpuStreams;
}

/// Makes a codec ready: [`zcomp::open`], or what a test puts in its place.
pub type OpenCodec =
    Box<dyn Fn(&str, &Params) -> Result<Arc<dyn Compressor>, CodecError> + Send + Sync>;

/// What the devices of a machine share.
pub struct Resources {
    /// Where tables have their memory from.
    pub provider: Arc<dyn MemoryProvider>,
    /// Where objects have their frames from.
    pub frames: Arc<dyn Frames>,
    /// CPUs there are.
    pub cpus: usize,
    /// CPUs that count for themselves: all of them, or one that all share.
    pub counting_cpus: usize,
    /// The codec of a device for which none was chosen.
    pub default_algorithm: &'static str,
    /// How a codec comes to be.
    pub open_codec: OpenCodec,
    /// The system round it.
    pub files: Arc<dyn HostFiles>,
    /// What pages are dated by.
    pub clock: Arc<Clock>,
    /// Whether devices keep the time of last use for each page, when nobody chooses otherwise.
    pub track_access: bool,
    /// Which waits are left out: with a checker of races a test sees so that it finds what is
    /// missing.
    #[cfg(any(shuttle, asan))]
    pub without: Without,
}

/// Waits that a test leaves out.
#[cfg(any(shuttle, asan))]
#[derive(Clone, Copy, Default)]
pub struct Without {
    /// Compaction waits for no reader.
    pub readers_of_objects: bool,
    /// A block of the backing device is free as soon as no slot names it.
    pub readers_of_blocks: bool,
    /// Whoever changes a part of a page does not wait for others who do.
    pub turns: bool,
}

impl Resources {
    /// The codecs of [`zcomp`], counters for each CPU, and a clock that nobody has set.
    #[must_use]
    pub fn new(
        provider: Arc<dyn MemoryProvider>,
        frames: Arc<dyn Frames>,
        cpus: usize,
        files: Arc<dyn HostFiles>,
    ) -> Resources {
        Resources {
            provider,
            frames,
            cpus,
            counting_cpus: cpus,
            default_algorithm: zcomp::DEFAULT_ALGORITHM,
            open_codec: Box::new(zcomp::open),
            files,
            clock: Arc::default(),
            track_access: false,
            #[cfg(any(shuttle, asan))]
            without: Without::default(),
        }
    }

    /// Makes a codec ready.
    ///
    /// # Errors
    /// `EINVAL` for an unknown name or a parameter the codec refuses.
    pub(crate) fn codec(
        &self,
        name: &str,
        params: &Params,
    ) -> Result<Arc<dyn Compressor>, ControlError> {
        (self.open_codec)(name, params).map_err(|error| ControlError::invalid(format!("{error}")))
    }

    /// Opens a device to write pages back to.
    ///
    /// # Errors
    /// What [`HostFiles::open_backing`] refuses; `ENOMEM` when there are no addresses.
    pub(crate) fn open_backing(&self, path: &str) -> Result<BackingBlocks, ControlError> {
        let device = self.files.open_backing(path)?;
        let backing = BackingBlocks::new(&*self.provider, device, path, self.cpus);
        let backing =
            backing.map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
        #[cfg(any(shuttle, asan))]
        let backing = match self.without.readers_of_blocks {
            true => backing.without_readers(),
            false => backing,
        };
        Ok(backing)
    }
}

/// What a device asks of the system it runs on, on the thread of the administrator who asked for
/// it. May be called by any number of threads at once.
pub trait HostFiles: Send + Sync {
    /// Opens a block device or an ordinary file to write pages back to, for this user alone. Its
    /// size is a whole number of pages, at least one.
    ///
    /// # Errors
    /// What the system says (`ENOENT`, `EACCES`, `EBUSY` if somebody else has it), `ENOTBLK` if it
    /// is neither, `EINVAL` if it is shorter than a page; with a sentence that names `path`.
    fn open_backing(&self, path: &str) -> Result<Arc<dyn BlockDevice>, ControlError>;

    /// The contents of a file.
    ///
    /// # Errors
    /// What the system says, with a sentence that names `path`.
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError>;
}

/// No system at all: there are no files.
pub struct NoHostFiles;

impl HostFiles for NoHostFiles {
    fn open_backing(&self, path: &str) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Err(no_files(path))
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(no_files(path))
    }
}

fn no_files(path: &str) -> ControlError {
    ControlError::new(Errno::ENOTSUP, format!("{path} cannot be opened: this engine has no files"))
}
