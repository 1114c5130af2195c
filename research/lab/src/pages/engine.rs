//! Our engine, in this process.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use block::{BlockDevice, Operation};
use designs::{Machine, Variants};
use machine::MachineOptions;
use pagealloc::Frames;
use units::{PAGE_SIZE, Page};
use zram::{Disk, HostFiles};

use super::target::{Figures, Target};

/// A machine of the product's designs, with the CPUs and the memory of this one.
pub fn machine(files: Arc<dyn HostFiles>, track_access: bool) -> Result<machine::Machine> {
    let options = MachineOptions {
        cpus: host::cpus(),
        memory: host::total_memory(),
        files,
        swap_memory: Arc::new(host::Mmap),
        track_access,
    };
    Ok(machine::Machine::new(Arc::new(host::Mmap), options)?)
}

/// Our engine with one device.
pub struct Engine {
    pub disk: Arc<Disk>,
    frames: Arc<dyn Frames>,
}

impl Engine {
    /// Makes a new device of this many pages in a machine of its own.
    pub fn new(pages: usize, algorithm: &str, variants: &Variants) -> Result<Engine> {
        let machine = Machine::of(variants.clone())?;
        let disk = machine.add();
        disk.set_algorithm(algorithm)?;
        disk.set_disksize((pages * PAGE_SIZE) as u64)?;
        Ok(Engine { disk, frames: machine.frames().clone() })
    }
}

impl Target for Engine {
    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let done = match from.try_into() {
            Ok(page) => self.disk.store_page(host::cpu(), offset / PAGE_SIZE as u64, page),
            Err(_) => self.disk.submit(host::cpu(), Operation::Write { offset, from }),
        };
        done.map_err(|error| anyhow!("writing at {offset}: {error}"))
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let done = match <&mut Page>::try_from(&mut *into) {
            Ok(page) => self.disk.load_page(host::cpu(), offset / PAGE_SIZE as u64, page),
            Err(_) => self.disk.submit(host::cpu(), Operation::Read { offset, into }),
        };
        done.map_err(|error| anyhow!("reading at {offset}: {error}"))
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
        self.frames.maintain(u32::MAX);
    }
}
