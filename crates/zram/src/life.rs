//! How a device comes by an engine.

use alloc::{sync::Arc, vec::Vec};

use control::Fault;
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

/// Where engines are built: the only place that knows variants by name. May be called by any
/// number of threads at once.
pub trait Workshop: Send + Sync {
    /// The names of the codecs there are, in the order they are listed to the operator.
    fn algorithms(&self) -> Vec<&'static str>;

    /// The codec a device has when nobody chose one.
    fn default_algorithm(&self) -> &'static str;

    /// Lanes there are.
    fn lanes(&self) -> usize;

    /// Builds an engine.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out, `EINVAL` for a parameter the codec refuses.
    fn build(&self, plan: &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault>;
}
