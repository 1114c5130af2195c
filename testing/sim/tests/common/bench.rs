//! Disks with any slot table, and with flaws put under or over their engine.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::sync::Arc;

use block::BlockDevice;
use control::Fault;
use pagealloc::{Frames, Zone, ZoneOptions};
use stack::HostFiles;
use sync::ReaderEpochs;
use zcomp::{Compressor, Params, PerCpuStreams};
use zram::slots::SlotTable;
use zram::{Backing, Disk, DiskOptions, EngineParts, Factory, PageStore, Plan};
use zsmalloc::{Pool, PoolOptions};

/// CPUs there are: fewer than threads, so that some share one.
pub const CPUS: usize = 2;
/// The memory of the machine: little, so that its structures are looked through at once.
pub const FRAMES: u32 = 128;

/// Puts something over an engine.
pub type OverEngine = Box<dyn Fn(Arc<dyn PageStore>) -> Arc<dyn PageStore> + Send + Sync>;
/// Puts something over a codec.
pub type OverCodec = Box<dyn Fn(Arc<dyn Compressor>) -> Arc<dyn Compressor> + Send + Sync>;

/// What a disk is made on.
pub struct Bench {
    /// What pages are written back to.
    pub shelf: Arc<dyn BlockDevice>,
    /// Does compaction wait for the readers?
    pub pool_waits: bool,
    pub over_engine: OverEngine,
    pub over_codec: OverCodec,
}

impl Bench {
    /// With nothing wrong.
    pub fn new(shelf: Arc<dyn BlockDevice>) -> Bench {
        let (over_engine, over_codec) = (Box::new(|engine| engine), Box::new(|codec| codec));
        Bench { shelf, pool_waits: true, over_engine, over_codec }
    }

    /// A disk without a size, and the memory it takes.
    pub fn disk<T: SlotTable + 'static>(self) -> (Arc<Disk>, Arc<dyn Frames>) {
        let zone = ZoneOptions::new(CPUS, FRAMES);
        let frames: Arc<dyn Frames> = Arc::new(Zone::new(&host::Mmap, zone).expect("addresses"));
        let build = build::<T>;
        let shelf = Shelf(self.shelf.clone());
        let shop = Arc::new(Shop { bench: self, frames: frames.clone(), shelf, build });
        let clock = Arc::default();
        let disk = Disk::new(DiskOptions { id: 0, factory: shop, clock, track_access: false });
        (disk, frames)
    }
}

/// A system with one file, whatever its name.
pub struct Shelf(pub Arc<dyn BlockDevice>);

impl HostFiles for Shelf {
    fn open_backing(&self, _: &str) -> Result<Arc<dyn BlockDevice>, Fault> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, Fault> {
        Err(Fault::invalid(path))
    }
}

struct Shop {
    bench: Bench,
    frames: Arc<dyn Frames>,
    shelf: Shelf,
    build: fn(&Shop, &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault>,
}

impl Factory for Shop {
    fn algorithms(&self) -> Vec<&'static str> {
        stack::ALGORITHMS.to_vec()
    }
    fn default_algorithm(&self) -> &'static str {
        zcomp::LZO
    }
    fn codec(&self, name: &str, params: &Params) -> Result<Arc<dyn Compressor>, Fault> {
        stack::switchboard::codec(name, params).map(&self.bench.over_codec)
    }
    fn backing(&self, device: Arc<dyn BlockDevice>, path: &str) -> Result<Arc<Backing>, Fault> {
        Ok(Arc::new(Backing::new(&host::Mmap, device, path, CPUS).expect("addresses")))
    }
    fn files(&self) -> &dyn HostFiles {
        &self.shelf
    }
    fn cpus(&self) -> usize {
        CPUS
    }
    fn build(&self, plan: &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault> {
        (self.build)(self, plan)
    }
}

fn build<T: SlotTable + 'static>(
    shop: &Shop,
    plan: &Plan<'_>,
) -> Result<Arc<dyn PageStore>, Fault> {
    let nobodys = || Arc::new(ReaderEpochs::new(CPUS));
    let readers = if shop.bench.pool_waits { plan.readers.clone() } else { nobodys() };
    let pool =
        PoolOptions { frames: shop.frames.clone(), readers, limit_frames: plan.limit_frames };
    let parts = EngineParts {
        slots: T::new(&host::Mmap, plan.room, CPUS).expect("addresses"),
        pool: Pool::new(&host::Mmap, pool).expect("addresses"),
        make_streams: Box::new(|codec, _| PerCpuStreams::new(&**codec, CPUS)),
    };
    Ok((shop.bench.over_engine)(plan.assemble(&host::Mmap, parts)?))
}
