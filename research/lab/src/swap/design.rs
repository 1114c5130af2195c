//! Our cache with a chosen index: `rampack-lab serve --index` in a process of its own.

use anyhow::{Context, Result, bail};

use super::area::{On, SwapFile};
use super::zswap::percent;
use super::{Area, Shop, Told};
use crate::proc_files::Counters;
use crate::served::Up;

/// Swap space on a device that this program serves.
pub struct Design {
    // Dropped in this order.
    on: On,
    up: Up,
    _backing: SwapFile,
}

impl Design {
    /// Makes the swap. The variant is an index, and optionally `+` and a codec.
    pub fn new(shop: &Shop, variant: Option<&str>) -> Result<Design> {
        let Some(variant) = variant else {
            bail!("which index? {}", designs::INDEXES.join(", "));
        };
        let (index, codec) = variant.split_once('+').unwrap_or((variant, ""));
        let backing = SwapFile::new(shop)?;
        let (bytes, path) = (shop.bytes.to_string(), backing.path().to_string_lossy());
        let mut arguments = vec!["--size", &bytes, "--index", index, "--backing", &path];
        if !codec.is_empty() {
            arguments.extend(["--algorithm", codec]);
        }
        let percent = shop.max_pool.map(|bytes| percent(bytes, host::total_memory()).to_string());
        if let Some(percent) = &percent {
            arguments.extend(["--max-pool-percent", percent]);
        }
        let up = Up::start(&arguments)?;
        let on = On::new(up.device(), shop.first).context("swap on our device")?;
        Ok(Design { on, up, _backing: backing })
    }
}

impl Area for Design {
    fn sample(&mut self) -> Result<()> {
        self.up.check()
    }

    fn told(&mut self, _: &Counters) -> Result<Told> {
        // The part that went to the disk is unknown.
        Ok(Told::default())
    }

    fn end(mut self: Box<Self>) -> Result<()> {
        self.on.off()
    }
}
