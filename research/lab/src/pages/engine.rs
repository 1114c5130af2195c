//! Our engine, in this process.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use block::{BlockDevice, Operation};
use designs::{Disk, Machine, Variants};
use rampack::{DiskOptions, HostFiles, MachineOptions};
use units::{PAGE_SIZE, Page};

use super::target::{Figures, Target};

/// A machine of the product's designs, with the CPUs and the memory of this one.
pub fn machine(files: Arc<dyn HostFiles>, track_access: bool) -> Result<rampack::Machine> {
    let options = MachineOptions {
        cpus: host::cpus(),
        memory: host::total_memory(),
        files,
        swap_memory: Arc::new(host::Mmap),
        track_access,
    };
    rampack::Machine::new(Arc::new(host::Mmap), options).map_err(|fault| anyhow!("{fault}"))
}

/// Our engine with one device.
pub struct Engine(pub Disk);

impl Engine {
    /// Makes a new device of this many pages in a machine of its own.
    pub fn new(
        pages: usize,
        algorithm: &str,
        level: Option<i32>,
        variants: &Variants,
    ) -> Result<Engine> {
        let (size, algorithm) = ((pages * PAGE_SIZE) as u64, algorithm.to_owned());
        let options = DiskOptions { size, algorithm, level, ..Default::default() };
        let make = || Machine::of(variants.clone())?.disk(&options);
        make().map(Engine).map_err(|error| anyhow!("{error}")).context("the engine")
    }
}

impl Target for Engine {
    #[inline]
    fn store(&self, index: u64, page: &Page) -> Result<()> {
        self.0.store(index, page).map_err(|error| anyhow!("storing page {index}: {error}"))
    }

    #[inline]
    fn load(&self, index: u64, page: &mut Page) -> Result<()> {
        self.0.load(index, page).map_err(|error| anyhow!("loading page {index}: {error}"))
    }

    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        if let Ok(page) = from.try_into() {
            return self.store(offset / PAGE_SIZE as u64, page);
        }
        let done = self.0.device().submit(host::cpu(), Operation::Write { offset, from });
        done.map_err(|error| anyhow!("writing at {offset}: {error}"))
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if let Ok(page) = <&mut Page>::try_from(&mut *into) {
            return self.load(offset / PAGE_SIZE as u64, page);
        }
        let done = self.0.device().submit(host::cpu(), Operation::Read { offset, into });
        done.map_err(|error| anyhow!("reading at {offset}: {error}"))
    }

    fn figures(&self) -> Figures {
        let stats = self.0.stats();
        Figures {
            orig: Some(stats.orig_bytes),
            compressed: Some(stats.compressed_bytes),
            pool: Some(stats.pool_bytes),
            metadata: Some(stats.metadata_bytes),
        }
    }

    fn rest(&self) {
        self.0.maintain(u32::MAX);
    }
}
