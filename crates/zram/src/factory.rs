//! How a device comes by an engine.

use alloc::{format, sync::Arc, vec::Vec};

use block::BlockDevice;
use control::{Errno, Fault};
use pagealloc::{NoMemory, World};
use sync::ReaderEpochs;
use zcomp::{Chosen, Compressor, Params, Streams};

use crate::access::{Accesses, Clock};
use crate::blocks::Backing;
use crate::counts::Counts;
use crate::engine::{Engine, EngineParts, Shared};
use crate::slots::SlotTable;
use crate::store::PageStore;

/// What an engine is to be. The rest of it (slot scheme, streams, zone) is the factory's choice.
pub struct Plan<'a> {
    /// Pages it must hold.
    pub pages: usize,
    /// Pages it should have addresses for, so that the device can grow.
    pub room: usize,
    /// The codec of each priority.
    pub codecs: &'a [Option<Chosen>],
    /// The most frames its pool may have; 0 for any number.
    pub limit_frames: u64,
    /// Streams of each codec that may be used at once, at first.
    pub streams: u32,
    /// Who reads it.
    pub readers: Arc<ReaderEpochs>,
    /// The clock its pages are dated by; none if nobody wants to know.
    pub clock: Option<Arc<Clock>>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) backing: Option<Arc<Backing>>,
}

impl Plan<'_> {
    /// Joins what a factory made to an engine that counts for the device.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    pub fn assemble<T: SlotTable + 'static, S: Streams + 'static>(
        &self,
        world: &dyn World,
        parts: EngineParts<T, S>,
    ) -> Result<Arc<dyn PageStore>, Fault> {
        let room = parts.slots.count();
        let accesses = match &self.clock {
            Some(clock) => Some(Accesses::new(world, clock.clone(), room).map_err(no_memory)?),
            None => None,
        };
        let shared = Shared {
            counts: self.counts.clone(),
            accesses,
            backing: self.backing.clone(),
            streams: self.streams as usize,
        };
        let engine = Engine::new(parts, shared, self.readers.clone());
        for (priority, codec) in self.codecs.iter().enumerate() {
            if let Some(codec) = codec {
                engine.install(priority as u8, codec.clone(), 0)?;
            }
        }
        Ok(Arc::new(engine))
    }
}

fn no_memory(error: NoMemory) -> Fault {
    Fault::new(Errno::ENOMEM, format!("{error}"))
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
    fn open_backing(&self, path: &str) -> Result<Arc<dyn BlockDevice>, Fault>;

    /// The contents of a file.
    ///
    /// # Errors
    /// What the system says, with a sentence that names `path`.
    fn read(&self, path: &str) -> Result<Vec<u8>, Fault>;
}

/// No system at all: there are no files.
pub struct NoHostFiles;

impl HostFiles for NoHostFiles {
    fn open_backing(&self, path: &str) -> Result<Arc<dyn BlockDevice>, Fault> {
        Err(no_files(path))
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, Fault> {
        Err(no_files(path))
    }
}

fn no_files(path: &str) -> Fault {
    Fault::new(Errno::ENOTSUP, format!("{path} cannot be opened: this engine has no files"))
}

/// How many streams an administrator may ask for (max_comp_streams).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamRules {
    /// How many there are by default.
    pub usual: u32,
    /// The most that may be asked for. An engine that is there may refuse fewer.
    pub most: u32,
}

/// Where engines are built: the only place that knows variants by name. May be called by any
/// number of threads at once.
pub trait Factory: Send + Sync {
    /// The names of the codecs there are, in the order they are listed to the operator.
    fn algorithms(&self) -> Vec<&'static str>;

    /// The codec a device has when nobody chose one.
    fn default_algorithm(&self) -> &'static str;

    /// Makes a codec ready.
    ///
    /// # Errors
    /// `EINVAL` for an unknown name or a parameter the codec refuses.
    fn codec(&self, name: &str, params: &Params) -> Result<Arc<dyn Compressor>, Fault>;

    /// Makes the table of a backing device's blocks.
    ///
    /// # Errors
    /// `ENOMEM` when there are no addresses.
    fn backing(&self, device: Arc<dyn BlockDevice>, path: &str) -> Result<Arc<Backing>, Fault>;

    /// The system round it.
    fn files(&self) -> &dyn HostFiles;

    /// CPUs there are.
    fn cpus(&self) -> usize;

    /// CPUs that count for themselves: all of them, or one that all share.
    fn counting_cpus(&self) -> usize {
        self.cpus()
    }

    /// How many streams may be asked for; unless it says otherwise any number, and there is one
    /// for each CPU.
    fn stream_rules(&self) -> StreamRules {
        StreamRules { usual: self.cpus().max(1) as u32, most: u32::MAX }
    }

    /// Builds an engine.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    fn build(&self, plan: &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault>;
}
