//! Disks with any slot table, and with flaws put in the place of parts of them.
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
use zram::{Design, Disk, HostFiles, Resources, Without};

/// CPUs there are: fewer than threads, so that some share one.
pub const CPUS: usize = 2;
/// The memory of the machine: little, so that its structures are looked through at once.
pub const FRAMES: u32 = 128;

/// Puts something over a codec.
pub type OverCodec = Box<dyn Fn(Arc<dyn Compressor>) -> Arc<dyn Compressor> + Send + Sync>;

/// What a disk is made on.
pub struct Bench {
    /// What pages are written back to.
    pub device_below: Arc<dyn BlockDevice>,
    /// Waits that are left out.
    pub without: Without,
    pub over_codec: OverCodec,
}

/// The product's design but for the slot table.
struct With<T>(PhantomData<T>);

impl<T: SlotTable + 'static> Design for With<T> {
    type Slots = T;
    type Streams = PerCpuStreams;
}

impl Bench {
    /// With nothing wrong.
    pub fn new(device_below: Arc<dyn BlockDevice>) -> Bench {
        Bench { device_below, without: Without::default(), over_codec: Box::new(|codec| codec) }
    }

    /// A disk without a size, and the memory it takes.
    pub fn disk<T: SlotTable + 'static>(self) -> (Arc<dyn AnyDisk>, Arc<dyn Frames>) {
        let zone = ZoneOptions::new(CPUS, FRAMES);
        let frames: Arc<dyn Frames> = Arc::new(Zone::new(&host::Mmap, zone).expect("addresses"));
        let files = Arc::new(FaultyDevice(self.device_below));
        let over_codec = self.over_codec;
        let resources = Resources {
            default_algorithm: zcomp::LZO,
            open_codec: Box::new(move |name, params| zcomp::open(name, params).map(&over_codec)),
            without: self.without,
            ..Resources::new(Arc::new(host::Mmap), frames.clone(), CPUS, files)
        };
        (Disk::<With<T>>::new(0, Arc::new(resources)), frames)
    }
}

/// A system with one file, whatever its name.
pub struct FaultyDevice(pub Arc<dyn BlockDevice>);

impl HostFiles for FaultyDevice {
    fn open_backing(&self, _: &str) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}
