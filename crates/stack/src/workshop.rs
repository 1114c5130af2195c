//! Where the devices of a machine have their engines built.

use alloc::{sync::Arc, vec::Vec};

use block::BlockDevice;
use control::Fault;
use pagealloc::{Frames, World};
use zcomp::{Compressor, Params};
use zram::{Backing, Outside, PageStore, Plan, StreamRules};

use crate::switchboard::{self, ALGORITHMS, DEFAULT_ALGORITHM, Site, Variants};

/// A machine's workshop: its world, its zone, its variants.
pub(crate) struct Workshop {
    pub(crate) world: Arc<dyn World>,
    pub(crate) frames: Arc<dyn Frames>,
    pub(crate) lanes: usize,
    pub(crate) variants: Variants,
    pub(crate) outside: Arc<dyn Outside>,
}

impl zram::Workshop for Workshop {
    fn algorithms(&self) -> Vec<&'static str> {
        ALGORITHMS.to_vec()
    }

    fn default_algorithm(&self) -> &'static str {
        DEFAULT_ALGORITHM
    }

    fn outside(&self) -> &dyn Outside {
        &*self.outside
    }

    fn codec(&self, name: &str, params: &Params) -> Result<Arc<dyn Compressor>, Fault> {
        switchboard::codec(name, params)
    }

    fn backing(&self, device: Arc<dyn BlockDevice>, path: &str) -> Result<Arc<Backing>, Fault> {
        let backing = Backing::new(&*self.world, device, path, self.lanes);
        backing.map(Arc::new).map_err(switchboard::no_memory)
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn counting_lanes(&self) -> usize {
        switchboard::counting_lanes(&self.variants.counters, self.lanes)
    }

    fn stream_rules(&self) -> StreamRules {
        switchboard::stream_rules(&self.variants.streams, self.lanes)
    }

    fn build(&self, plan: &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault> {
        let site = Site {
            world: &*self.world,
            frames: &self.frames,
            plan,
            lanes: self.lanes,
            streams: &self.variants.streams,
        };
        switchboard::build(&self.variants.slots, &site)
    }
}
