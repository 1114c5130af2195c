//! The resources that the devices of a machine share, and their design.

use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};

use block::BlockDevice;
use control::{ControlError, Errno};
use pagealloc::{Frames, KeptMemory, MemoryProvider};
use zcomp::{CodecError, Compressor, Params, PerCpuStreams, Streams};

use crate::access::Clock;
use crate::backing::Backing;
use crate::blocks::BackingBlocks;
use crate::slots::{BitLock, SlotTable};
use pagelog::{NoLog, PageLog};

/// The compile-time choices of a device. The product has one design, [`Product`]; experiments add
/// others.
pub trait Design: Send + Sync + 'static {
    /// The guard of the slots.
    type Slots: SlotTable + 'static;
    /// The policy by which threads get a stream.
    type Streams: Streams;
}

/// The design of the product: a lock bit in each slot, and a stream for each CPU.
pub struct Product;

impl Design for Product {
    type Slots = BitLock;
    type Streams = PerCpuStreams;
}

/// Opens a codec: [`zcomp::open`], or the replacement of a test.
pub type OpenCodec =
    Box<dyn Fn(&str, &Params) -> Result<Arc<dyn Compressor>, CodecError> + Send + Sync>;

/// The resources that the devices of a machine share.
pub struct Resources {
    /// The provider of memory for tables.
    pub provider: Arc<dyn MemoryProvider>,
    /// The memory of the tables that another process needs to have the same devices; `None` if the
    /// devices end with this process. The frames of `frames` are in such memory, too.
    pub kept: Option<Arc<dyn KeptMemory>>,
    /// The provider of frames for objects.
    pub frames: Arc<dyn Frames>,
    /// The number of CPUs.
    pub cpus: usize,
    /// The number of CPUs with counters of their own: all CPUs, or 1 if all share one set.
    pub counting_cpus: usize,
    /// The codec of a device for which none was chosen.
    pub default_algorithm: &'static str,
    /// Opens a codec.
    pub open_codec: OpenCodec,
    /// The file access of the host system.
    pub files: Arc<dyn HostFiles>,
    /// The clock that dates pages.
    pub clock: Arc<Clock>,
    /// Whether devices keep the time of last use of each page by default.
    pub track_access: bool,
    /// What is left out. A test leaves something out to see that the race checker finds the error.
    #[cfg(any(shuttle, asan))]
    pub without: Without,
}

/// Waits and checks that a test leaves out.
#[cfg(any(shuttle, asan))]
#[derive(Clone, Copy, Default)]
pub struct Without {
    /// Compaction gives back the old place of an object at once, while readers may use it.
    pub readers_of_objects: bool,
    /// Compaction lets a slot name the moved object, whatever it names by now.
    pub newer_stores: bool,
    /// Compaction clears the flags of a slot whose object it moves.
    pub flags: bool,
    /// A block of the backing device is free as soon as no slot names it.
    pub readers_of_blocks: bool,
    /// A thread that changes a part of a page does not wait for other such threads.
    pub turns: bool,
    /// Pages of one fingerprint share an object without a comparison.
    pub comparisons: bool,
    /// A shared object is freed when the first page gives it up.
    pub references: bool,
    /// Compaction gives back the old place of a shared object at once.
    pub readers_of_shared: bool,
    /// Compaction moves a shared object, and its entry names the old place.
    pub entries: bool,
    /// A write that waited while another one made room does not try again.
    pub room_of_others: bool,
    /// The page of a write for which there is no room is freed before there is some.
    pub old_contents: bool,
}

impl Resources {
    /// Resources with the codecs of [`zcomp`], counters for each CPU, and a clock that is not set.
    #[must_use]
    pub fn new(
        provider: Arc<dyn MemoryProvider>,
        frames: Arc<dyn Frames>,
        cpus: usize,
        files: Arc<dyn HostFiles>,
    ) -> Resources {
        Resources {
            provider,
            kept: None,
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

    /// Opens a codec.
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

    /// Opens a backing device.
    ///
    /// # Errors
    /// The errors of [`HostFiles::open_backing`] and [`HostFiles::open_remote`]; `ENOMEM` when
    /// address space is out.
    pub(crate) fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
        remote: Option<&str>,
        is_log: bool,
    ) -> Result<Backing, ControlError> {
        let device = match (seal, remote) {
            (Some(seal), Some(remote)) => self.files.open_remote(path, seal, remote)?,
            _ => self.files.open_backing(path, seal)?,
        };
        match is_log {
            true => self.log_on(device, path).map(Backing::Log),
            false => self.blocks_of(device, path).map(Backing::Pages),
        }
    }

    fn log_on(&self, device: Arc<dyn BlockDevice>, path: &str) -> Result<PageLog, ControlError> {
        let log = PageLog::new(device, path, self.cpus).map_err(|error| match error {
            NoLog::Layout(error) => ControlError::invalid(format!("{path} is {error}")),
            NoLog::NoMemory => {
                ControlError::new(Errno::ENOMEM, format!("no memory for the log on {path}"))
            }
        })?;
        #[cfg(any(shuttle, asan))]
        let log = match self.without.readers_of_blocks {
            true => log.without_readers(),
            false => log,
        };
        Ok(log)
    }

    fn blocks_of(
        &self,
        device: Arc<dyn BlockDevice>,
        path: &str,
    ) -> Result<BackingBlocks, ControlError> {
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

/// The calls of a device to its host system. They run on the thread of the administrator's request.
/// Any number of threads may call them at once.
pub trait HostFiles: Send + Sync {
    /// Opens a block device or a regular file as a backing device, for this user alone. Its size is
    /// a whole number of pages, at least one. With `seal`, which is the name of the device that
    /// writes to it, what is written is encrypted, and checked when it is read.
    ///
    /// # Errors
    /// The error of the system call (`ENOENT`, `EACCES`, `EBUSY` if another user has it), `ENOTBLK`
    /// if it is neither, `EINVAL` if it is shorter than a page. The message names `path`.
    fn open_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError>;

    /// Reads a description of remote stores, as `backing_remote` takes it. Returns it without
    /// secrets. Asks no store.
    ///
    /// # Errors
    /// `EINVAL` with what is wrong and what is allowed; `ENOTSUP` if there are no remote stores.
    fn check_remote(&self, text: &str) -> Result<String, ControlError> {
        let _ = text;
        Err(ControlError::new(Errno::ENOTSUP, "this program has no remote stores"))
    }

    /// As [`HostFiles::open_backing`] with a seal. Cold parts of what is written go to the stores
    /// that `remote` describes.
    ///
    /// # Errors
    /// As [`HostFiles::open_backing`] and [`HostFiles::check_remote`]; `EIO` if a store does not
    /// work, with what it says.
    fn open_remote(
        &self,
        path: &str,
        seal: &str,
        remote: &str,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let _ = (path, seal, remote);
        Err(ControlError::new(Errno::ENOTSUP, "this program has no remote stores"))
    }

    /// The path that the system itself has for the file at `path`: absolute and without links.
    /// `path` as it is where there is none.
    fn resolve(&self, path: &str) -> String {
        path.into()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The error of the system call. The message names `path`.
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError>;
}

/// A host system without files.
pub struct NoHostFiles;

impl HostFiles for NoHostFiles {
    fn open_backing(
        &self,
        path: &str,
        _: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Err(no_files(path))
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(no_files(path))
    }
}

fn no_files(path: &str) -> ControlError {
    ControlError::new(Errno::ENOTSUP, format!("{path} cannot be opened: this engine has no files"))
}
