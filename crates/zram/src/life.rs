//! How a device comes by an engine.

use alloc::{format, sync::Arc, vec::Vec};

use block::BlockDevice;
use control::{Errno, Fault};
use sync::Pins;
use zcomp::Params;

use crate::counts::Counts;
use crate::engine::{Engine, EngineParts, PageStore};
use crate::slots::SlotTable;
use zcomp::Streams;

/// What an engine is to be. The rest of it (slot scheme, streams, zone) is the workshop's choice.
pub struct Plan<'a> {
    /// Pages it must hold.
    pub pages: usize,
    /// The codec of new objects, by name.
    pub algorithm: &'a str,
    /// Parameters of that codec.
    pub params: &'a Params,
    /// The most frames its pool may have; 0 for any number.
    pub limit_frames: u64,
    /// The pins its readers will hold.
    pub pins: Arc<Pins>,
    pub(crate) counts: Arc<Counts>,
}

impl Plan<'_> {
    /// Joins what a workshop made to an engine that counts for the device.
    pub fn assemble<T: SlotTable + 'static, S: Streams + 'static>(
        &self,
        parts: EngineParts<T, S>,
    ) -> Arc<dyn PageStore> {
        Arc::new(Engine::with_counts(parts, self.counts.clone()))
    }
}

/// What a device asks of the system it runs on, on the thread of the administrator who asked for
/// it. May be called by any number of threads at once.
pub trait Outside: Send + Sync {
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
pub struct Nowhere;

impl Outside for Nowhere {
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

/// Where engines are built: the only place that knows variants by name. May be called by any
/// number of threads at once.
pub trait Workshop: Send + Sync {
    /// The names of the codecs there are, in the order they are listed to the operator.
    fn algorithms(&self) -> Vec<&'static str>;

    /// The codec a device has when nobody chose one.
    fn default_algorithm(&self) -> &'static str;

    /// The system round it.
    fn outside(&self) -> &dyn Outside;

    /// Lanes there are.
    fn lanes(&self) -> usize;

    /// Builds an engine.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out, `EINVAL` for a parameter the codec refuses.
    fn build(&self, plan: &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault>;
}
