//! Disks with any slot table, and other parts in place of the product's.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use block::BlockDevice;
use control::ControlError;
use designs::AnyDisk;
use pagealloc::{Frames, Zone, ZoneOptions};
use zcomp::{Compressor, PerCpuStreams};
use zram::slots::SlotTable;
use zram::{Clock, Design, Disk, HostFiles, Resources};

/// The number of CPUs. It is below the number of threads, so that some share a CPU.
pub const CPUS: usize = 2;
/// The memory of the machine in frames. It is small, so that a check of the structures is quick.
pub const FRAMES: u32 = 128;

/// Wraps a codec.
pub type OverCodec = Box<dyn Fn(Arc<dyn Compressor>) -> Arc<dyn Compressor> + Send + Sync>;

/// The parts of a disk.
pub struct Bench {
    /// The device for writeback.
    pub device_below: Arc<dyn BlockDevice>,
    pub over_codec: OverCodec,
}

/// The product's design with another slot table.
struct With<T>(PhantomData<T>);

impl<T: SlotTable + 'static> Design for With<T> {
    type Slots = T;
    type Streams = PerCpuStreams;
}

impl Bench {
    /// Makes the product's parts.
    pub fn new(device_below: Arc<dyn BlockDevice>) -> Bench {
        Bench { device_below, over_codec: Box::new(|codec| codec) }
    }

    /// Makes a disk without a size, its memory, and the clock that dates its pages.
    pub fn disk<T: SlotTable + 'static>(self) -> (Arc<dyn AnyDisk>, Arc<dyn Frames>, Arc<Clock>) {
        let zone = ZoneOptions::new(CPUS, FRAMES);
        let frames: Arc<dyn Frames> = Arc::new(Zone::new(&host::Mmap, zone).expect("addresses"));
        let files = Arc::new(FaultyDevice(self.device_below));
        let over_codec = self.over_codec;
        let resources = Resources {
            default_algorithm: zcomp::LZO,
            open_codec: Box::new(move |name, params| zcomp::open(name, params).map(&over_codec)),
            ..Resources::new(Arc::new(host::Mmap), frames.clone(), CPUS, files)
        };
        let clock = resources.clock.clone();
        (Disk::<With<T>>::new(0, Arc::new(resources)), frames, clock)
    }
}

/// A host with one file of any name.
pub struct FaultyDevice(pub Arc<dyn BlockDevice>);

impl HostFiles for FaultyDevice {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}
