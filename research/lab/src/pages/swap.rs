//! Our cache for swap devices, in this process, without a backing device.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use block::{BlockDevice, Operation};
use control::ControlError;
use designs::{AnySwap, Machine, Variants};
use units::{PAGE_SIZE, Page};
use zswap::{AreaOptions, SwapType};

use super::target::{Figures, Target};

/// Our cache with one swap area.
pub struct Swap {
    zswap: Arc<dyn AnySwap>,
    device: Arc<dyn BlockDevice>,
}

impl Swap {
    /// Makes a new area in a machine of its own; `index` names its index.
    ///
    /// # Errors
    /// The error of the cache: an unknown index or algorithm, a level out of range, no memory.
    pub fn new(pages: usize, algorithm: &str, level: Option<i32>, index: &str) -> Result<Swap> {
        if level.is_some() {
            bail!("--level: codecs of swap have their default levels");
        }
        let make = || -> Result<Swap, ControlError> {
            let variants = Variants { index: index.to_owned(), ..Variants::default() };
            let zswap = Machine::of(variants)?.swap()?;
            zswap.set_compressor(algorithm)?;
            zswap.set_max_pool_percent(100)?;
            let (swap, memcg) = (SwapType::new(0)?, zswap.memcg("default")?);
            zswap.swapon(swap, pages as u64, AreaOptions { device: None, memcg })?;
            let device = zswap.clone().device(swap);
            Ok(Swap { zswap, device })
        };
        make().map_err(|error| anyhow!("{error}")).context("the cache of swap pages")
    }
}

impl Target for Swap {
    #[inline]
    fn store(&self, index: u64, page: &Page) -> Result<()> {
        let write = Operation::Write { offset: index * PAGE_SIZE as u64, from: page };
        let stored = self.device.submit(host::cpu(), write);
        stored.map_err(|error| anyhow!("storing page {index}: {error}"))
    }

    #[inline]
    fn load(&self, index: u64, page: &mut Page) -> Result<()> {
        let read = Operation::Read { offset: index * PAGE_SIZE as u64, into: page };
        let loaded = self.device.submit(host::cpu(), read);
        loaded.map_err(|error| anyhow!("loading page {index}: {error}"))
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
