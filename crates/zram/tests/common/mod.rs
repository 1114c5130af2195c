//! A disk whose engine lets a test in at a certain moment of a request.

mod delegate;

use std::sync::{Arc, Mutex};

use block::{BlockDevice, IoError, Plain, Visit};
use control::Fault;
use pagealloc::{Frames, Zone, ZoneOptions};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{Compressor, Lz4, OneStream, Params, PerCpuStreams};
use zram::slots::{BitLock, SlotTable};
use zram::{
    Backed, Backing, Chosen, Disk, DiskOptions, EngineParts, Export, Factory, HostFiles, Loaded,
    PageStore, Plan, Recompressed, Recompression, Slot,
};
use zsmalloc::{Pool, PoolOptions};

const CPUS: usize = 2;

/// What the test does at a moment, once.
pub type Action = Box<dyn FnOnce() + Send>;

/// What is to be done, and when.
#[derive(Default)]
pub struct SyncPoints {
    /// After the page was looked at by a reader, and found on the backing device.
    pub found_elsewhere: Mutex<Option<Action>>,
    /// Before a marked page is copied out to be written back.
    pub exporting: Mutex<Option<Action>>,
    /// After the contents were read that a part is changed of.
    pub editing: Mutex<Option<Action>>,
    /// Before a page is stored.
    pub storing: Mutex<Option<Action>>,
}

fn now(action: &Mutex<Option<Action>>) {
    let action = action.lock().unwrap().take();
    if let Some(action) = action {
        action();
    }
}

/// A disk with a backing device of `blocks` blocks.
pub fn disk(sync_points: &Arc<SyncPoints>, blocks: usize) -> Arc<Disk> {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(CPUS, 1 << 14)).unwrap();
    let files = Shelf(Arc::new(Plain::new(blocks * PAGE_SIZE)));
    let factory = Bench { frames: Arc::new(zone), files, sync_points: sync_points.clone() };
    let (factory, clock) = (Arc::new(factory), Arc::default());
    let disk = Disk::new(DiskOptions { id: 0, factory, clock, track_access: false });
    disk.set_backing("/shelf").unwrap();
    disk.set_disksize(64 * PAGE_SIZE as u64).unwrap();
    disk
}

struct Shelf(Arc<Plain>);

impl HostFiles for Shelf {
    fn open_backing(&self, _: &str) -> Result<Arc<dyn BlockDevice>, Fault> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, Fault> {
        Err(Fault::invalid(path))
    }
}

struct Bench {
    frames: Arc<dyn Frames>,
    files: Shelf,
    sync_points: Arc<SyncPoints>,
}

impl Factory for Bench {
    fn algorithms(&self) -> Vec<&'static str> {
        vec![zcomp::LZ4]
    }
    fn default_algorithm(&self) -> &'static str {
        zcomp::LZ4
    }
    fn codec(&self, _: &str, params: &Params) -> Result<Arc<dyn Compressor>, Fault> {
        Ok(Arc::new(Lz4::new(params).unwrap()))
    }
    fn backing(&self, device: Arc<dyn BlockDevice>, path: &str) -> Result<Arc<Backing>, Fault> {
        Ok(Arc::new(Backing::new(&host::Mmap, device, path, CPUS).unwrap()))
    }
    fn files(&self) -> &dyn HostFiles {
        &self.files
    }
    fn cpus(&self) -> usize {
        CPUS
    }
    fn build(&self, plan: &Plan<'_>) -> Result<Arc<dyn PageStore>, Fault> {
        let (frames, readers) = (self.frames.clone(), plan.readers.clone());
        let pool = PoolOptions { frames, readers, limit_frames: plan.limit_frames };
        let parts = EngineParts {
            slots: BitLock::new(&host::Mmap, plan.room, CPUS).unwrap(),
            pool: Pool::new(&host::Mmap, pool).unwrap(),
            make_streams: Box::new(|codec, _| PerCpuStreams::new(&**codec, CPUS)),
        };
        let engine = plan.assemble(&host::Mmap, parts)?;
        Ok(Arc::new(Hooked { engine, sync_points: self.sync_points.clone() }))
    }
}

struct Hooked {
    engine: Arc<dyn PageStore>,
    sync_points: Arc<SyncPoints>,
}

impl PageStore for Hooked {
    fn store(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &Page,
    ) -> Result<(), IoError> {
        now(&self.sync_points.storing);
        self.engine.store(reader, cpu, index, page)
    }
    fn load(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        page: &mut Page,
    ) -> Result<Loaded, IoError> {
        let loaded = self.engine.load(reader, cpu, index, page);
        if let Ok(Loaded::Backed(_)) = loaded {
            now(&self.sync_points.found_elsewhere);
        }
        loaded
    }
    fn modify(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        known: Option<(Backed, &Page)>,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<Loaded, IoError> {
        let mut edit_later = |page: &mut Page| {
            now(&self.sync_points.editing);
            edit(page);
        };
        let loaded = self.engine.modify(reader, cpu, index, known, &mut edit_later);
        if let Ok(Loaded::Backed(_)) = loaded {
            now(&self.sync_points.found_elsewhere);
        }
        loaded
    }
    fn export(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        to: Export<'_>,
    ) -> Result<Option<Backed>, IoError> {
        now(&self.sync_points.exporting);
        self.engine.export(reader, cpu, index, to)
    }
    fn recompress(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        index: usize,
        how: Recompression,
    ) -> Result<Recompressed, IoError> {
        self.engine.recompress(reader, cpu, index, how)
    }
    fn backing(&self) -> Option<&Arc<Backing>> {
        self.engine.backing()
    }

    delegate::to_engine!();
}
