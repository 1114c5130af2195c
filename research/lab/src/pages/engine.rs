//! Our engine, in this process.

use anyhow::{Context, Result, anyhow};
use control::ControlError;
use designs::{Disk, Machine, Variants};
use rampack::DiskOptions;
use units::{PAGE_SIZE, Page};

use super::target::{Figures, Target};

/// Our engine with one device.
pub struct Engine {
    disk: Disk,
}

impl Engine {
    /// Makes a new device in a machine of its own.
    ///
    /// # Errors
    /// The error of the engine: an unknown variant or algorithm, a level out of range, no memory.
    pub fn new(
        pages: usize,
        algorithm: &str,
        level: Option<i32>,
        variants: Variants,
    ) -> Result<Engine> {
        let size = (pages * PAGE_SIZE) as u64;
        let options =
            DiskOptions { size, algorithm: algorithm.to_owned(), level, ..Default::default() };
        let make = || Ok(Engine { disk: Machine::of(variants)?.disk(&options)? });
        make().map_err(|error: ControlError| anyhow!("{error}")).context("the engine")
    }
}

impl Target for Engine {
    #[inline]
    fn store(&self, index: u64, page: &Page) -> Result<()> {
        self.disk.store(index, page).map_err(|error| anyhow!("storing page {index}: {error}"))
    }

    #[inline]
    fn load(&self, index: u64, page: &mut Page) -> Result<()> {
        self.disk.load(index, page).map_err(|error| anyhow!("loading page {index}: {error}"))
    }

    fn figures(&self) -> Figures {
        let stats = self.disk.stats();
        Figures {
            orig: Some(stats.orig_bytes),
            compressed: Some(stats.compressed_bytes),
            pool: Some(stats.pool_bytes),
            metadata: Some(stats.metadata_bytes),
        }
    }

    fn rest(&self) {
        self.disk.maintain(u32::MAX);
    }
}
