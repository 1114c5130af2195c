//! Our cache for swap devices, in this process, without a backing device.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use block::{BlockDevice, Operation};
use designs::{Machine, Variants};
use units::PAGE_SIZE;
use zswap::{AreaOptions, Memcg, SwapDevice, SwapType, Zswap};

use super::target::{Figures, Target};

/// Our cache with one swap area.
pub struct Swap {
    pub zswap: Arc<Zswap>,
    pub swap: SwapType,
    /// The group whose pages are in it.
    pub memcg: Memcg,
    device: Arc<dyn BlockDevice>,
}

impl Swap {
    /// Makes a new area in a machine of its own; `variants` names its index.
    pub fn new(pages: usize, algorithm: &str, variants: Variants) -> Result<Swap> {
        let zswap = Machine::of(variants)?.swap()?;
        zswap.set_compressor(algorithm)?;
        zswap.set_max_pool_percent(100)?;
        let (swap, memcg) = (SwapType::new(0)?, zswap.memcg("default")?);
        zswap.swapon(swap, pages as u64, AreaOptions { device: None, memcg: memcg.clone() })?;
        let device = Arc::new(SwapDevice::new(zswap.clone(), swap));
        Ok(Swap { zswap, swap, memcg, device })
    }
}

impl Target for Swap {
    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let done = self.device.submit(host::cpu(), Operation::Write { offset, from });
        done.map_err(|error| anyhow!("writing at {offset}: {error}"))
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let done = self.device.submit(host::cpu(), Operation::Read { offset, into });
        done.map_err(|error| anyhow!("reading at {offset}: {error}"))
    }

    fn figures(&self) -> Figures {
        let stats = self.zswap.stats();
        Figures {
            orig: Some(stats.stored_pages * PAGE_SIZE as u64),
            compressed: Some(stats.compressed_bytes),
            pool: Some(stats.pool_bytes),
            metadata: Some(stats.overhead_bytes),
        }
    }
}
