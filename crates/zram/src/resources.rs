//! The resources that the devices of a machine share.

use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};

use block::{Absent, AskRemote, BlockDevice};
use control::{ControlError, Errno};
use pagealloc::{Frames, KeptMemory, MemoryProvider, NoMemory};
use units::Cpu;
use zcomp::{CodecError, Compressor, Params, Policy};

use crate::engine::Clock;
#[cfg(feature = "designs")]
use crate::slots::MakeSlots;
use crate::slots::{BitLock, SlotTable, Slots};
use pagelog::{Backing, BackingBlocks, NoLog, PageLog};

/// Opens a codec: [`zcomp::open`], or the replacement of a test.
pub type OpenCodec =
    Box<dyn Fn(&str, &Params) -> Result<Arc<dyn Compressor>, CodecError> + Send + Sync>;

/// The CPU of a thread that goes through all pages; any CPU will do.
pub(crate) const CPU: Cpu = Cpu(0);

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
    /// Makes slot tables of another kind than the product's, for experiments and tests.
    #[cfg(feature = "designs")]
    pub slots: Option<MakeSlots>,
    /// The policy by which threads get a stream.
    pub streams: Policy,
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
            #[cfg(feature = "designs")]
            slots: None,
            streams: Policy::PER_CPU,
        }
    }

    /// Makes the slot table of a device.
    ///
    /// # Errors
    /// Those of [`SlotTable::new`].
    pub(crate) fn slots_of(
        &self,
        provider: &dyn MemoryProvider,
        count: usize,
    ) -> Result<Slots, NoMemory> {
        #[cfg(feature = "designs")]
        if let Some(make) = &self.slots {
            return make(provider, count, self.cpus).map(Slots::Other);
        }
        BitLock::new(provider, count, self.cpus).map(Slots::own)
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

    /// Opens a backing device. Also returns what tells how much it has at remote stores.
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
    ) -> Result<(Arc<dyn Backing>, Option<AskRemote>), ControlError> {
        let (device, ask) = match (seal, remote) {
            (Some(seal), Some(remote)) => {
                let (device, ask) = self.files.open_remote(path, seal, remote)?;
                (device, Some(ask))
            }
            _ => (self.files.open_backing(path, seal)?, None),
        };
        Ok((self.backing_on(device, path, is_log)?, ask))
    }

    /// What `device`, which was opened as `path`, holds.
    ///
    /// # Errors
    /// `EINVAL` if it is too small for a log; `ENOMEM` when address space is out.
    pub(crate) fn backing_on(
        &self,
        device: Arc<dyn BlockDevice>,
        path: &str,
        is_log: bool,
    ) -> Result<Arc<dyn Backing>, ControlError> {
        Ok(match is_log {
            true => Arc::new(self.log_on(device, path)?),
            false => Arc::new(self.blocks_of(device, path)?),
        })
    }

    fn log_on(&self, device: Arc<dyn BlockDevice>, path: &str) -> Result<PageLog, ControlError> {
        PageLog::new(device, path, self.cpus).map_err(|error| match error {
            NoLog::Layout(error) => ControlError::invalid(format!("{path} is {error}")),
            NoLog::NoMemory => {
                ControlError::new(Errno::ENOMEM, format!("no memory for the log on {path}"))
            }
        })
    }

    fn blocks_of(
        &self,
        device: Arc<dyn BlockDevice>,
        path: &str,
    ) -> Result<BackingBlocks, ControlError> {
        let backing = BackingBlocks::new(&*self.provider, device, path, self.cpus);
        backing.map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))
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

    /// Stands for the backing device at `path`, which [`HostFiles::open_backing`] cannot open now:
    /// what is asked of it fails. With `seal`, what opens the sealed pages stays.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory for that.
    fn absent_backing(
        &self,
        path: &str,
        seal: Option<&str>,
    ) -> Result<Arc<dyn BlockDevice>, ControlError> {
        let _ = (path, seal);
        Ok(Arc::new(Absent::new(Absent::MOST)))
    }

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
    /// that `remote` describes. Also returns what tells how much is there.
    ///
    /// # Errors
    /// As [`HostFiles::open_backing`] and [`HostFiles::check_remote`]; `EIO` if a store does not
    /// work, with what it says.
    fn open_remote(
        &self,
        path: &str,
        seal: &str,
        remote: &str,
    ) -> Result<(Arc<dyn BlockDevice>, AskRemote), ControlError> {
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
