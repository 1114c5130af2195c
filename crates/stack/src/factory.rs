//! Where the devices of a machine have their engines built.

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use block::BlockDevice;
use control::{Errno, Fault};
use pagealloc::{Frames, World};
use units::PAGE_SIZE;
use zcomp::{Chosen, Compressor, Params};
use zram::{Backing, HostFiles, PageStore, Plan, StreamRules};

use zswap::Zswap;

use crate::machine::zone_options;
use crate::switchboard::{self, ALGORITHMS, BuildContext, DEFAULT_ALGORITHM, Variants};

/// A machine's factory: its world, its zone, its variants.
pub(crate) struct Factory {
    pub(crate) world: Arc<dyn World>,
    pub(crate) frames: Arc<dyn Frames>,
    pub(crate) cpus: usize,
    pub(crate) variants: Variants,
    pub(crate) files: Arc<dyn HostFiles>,
}

/// For how many times the machine's memory there are entries of swapped pages: pages that are one
/// pattern, or shrink much, take next to none of it.
const ENTRIES_PER_PAGE: u64 = 16;

impl Factory {
    /// Makes a cache in front of swap areas, with a zone of its own, on a machine of so many pages
    /// of memory.
    pub(crate) fn swap(&self, world: &Arc<dyn World>, total_pages: u64) -> Result<Zswap, Fault> {
        let zone = zone_options(self.cpus, total_pages.saturating_mul(PAGE_SIZE as u64));
        let frames = switchboard::zone(&self.variants.zone, &**world, zone)?;
        let find_codec = |name: &str| {
            let params = Params::default();
            let compressor =
                switchboard::codec(name, &params).map_err(|fault| match fault.errno {
                    // As Linux answers for a name it does not know.
                    Errno::EINVAL => Fault::new(Errno::ENOENT, fault.message),
                    _ => fault,
                })?;
            Ok(Chosen { compressor, params })
        };
        let cpus = self.cpus;
        let streams = switchboard::stream_rules(&self.variants.streams, cpus).usual;
        let entries = total_pages.saturating_mul(ENTRIES_PER_PAGE).min(1 << 30) as u32;
        let parts = zswap::Parts {
            frames,
            cpus,
            counting_cpus: switchboard::counting_cpus(&self.variants.counters, cpus),
            make_index: switchboard::index(&self.variants.index)?,
            make_streams: switchboard::make_streams(&self.variants.streams, cpus, streams)?,
            codec: find_codec(DEFAULT_ALGORITHM)?,
            find_codec: Box::new(find_codec),
            total_pages,
            entries,
        };
        Zswap::new(world.clone(), parts)
    }
}

impl zram::Factory for Factory {
    fn algorithms(&self) -> Vec<&'static str> {
        ALGORITHMS.to_vec()
    }

    fn default_algorithm(&self) -> &'static str {
        DEFAULT_ALGORITHM
    }

    fn files(&self) -> &dyn HostFiles {
        &*self.files
    }

    fn codec(&self, name: &str, params: &Params) -> Result<Arc<dyn Compressor>, Fault> {
        switchboard::codec(name, params)
    }

    fn backing(&self, device: Arc<dyn BlockDevice>, path: &str) -> Result<Arc<Backing>, Fault> {
        let backing = Backing::new(&*self.world, device, path, self.cpus);
        backing.map(Arc::new).map_err(switchboard::no_memory)
    }

    fn cpus(&self) -> usize {
        self.cpus
    }

    fn counting_cpus(&self) -> usize {
        switchboard::counting_cpus(&self.variants.counters, self.cpus)
    }

    fn stream_rules(&self) -> StreamRules {
        switchboard::stream_rules(&self.variants.streams, self.cpus)
    }

    fn build(&self, plan: &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault> {
        let site = BuildContext {
            world: &*self.world,
            frames: &self.frames,
            plan,
            cpus: self.cpus,
            streams: &self.variants.streams,
        };
        switchboard::build(&self.variants.slots, &site)
    }
}
