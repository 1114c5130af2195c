//! Disks with the parts of any design. The product's own are here; research/ runs the same tests
//! with others.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::sync::Arc;

use block::BlockDevice;
use control::ControlError;
use pagealloc::{Frames, MemoryProvider, NoMemory, Zone, ZoneOptions};
use zcomp::{Compressor, Policy};
use zram::slots::{BitLock, MakeSlots, SlotTable};
use zram::{Clock, Disk, HostFiles, Resources};

/// The number of CPUs. It is below the number of threads, so that some share a CPU.
pub const CPUS: usize = 2;
/// The memory of the machine in frames. It is small, so that a check of the structures is quick.
pub const FRAMES: u32 = 128;

/// Wraps a codec.
pub type OverCodec = Box<dyn Fn(Arc<dyn Compressor>) -> Arc<dyn Compressor> + Send + Sync>;

/// A slot scheme, by name.
pub type Slots = (&'static str, fn() -> Option<MakeSlots>);
/// A policy of streams, by name.
pub type Streams = (&'static str, Policy);
/// A page allocator, by name.
pub type Allocator =
    (&'static str, fn(&dyn MemoryProvider, ZoneOptions) -> Result<Arc<dyn Frames>, NoMemory>);

/// The slot schemes of the product.
pub const SLOTS: &[Slots] = &[(BitLock::NAME, || None)];

/// The design of each part of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    pub slots: Slots,
    pub streams: Streams,
    pub allocator: Allocator,
}

impl Design {
    /// The product's.
    pub const PRODUCT: Design = Design {
        slots: SLOTS[0],
        streams: ("percpu", Policy::PER_CPU),
        allocator: (Zone::<()>::NAME, |provider, options| {
            Ok(Arc::new(Zone::new(provider, options)?))
        }),
    };
}

/// The parts of a disk.
pub struct Bench {
    pub design: Design,
    pub cpus: usize,
    /// The memory of the machine in frames.
    pub frames: u32,
    /// The device for writeback.
    pub device_below: Arc<dyn BlockDevice>,
    pub over_codec: OverCodec,
}

/// A disk without a size, its memory, and the clock that dates its pages.
pub struct Made {
    pub disk: Arc<Disk>,
    pub frames: Arc<dyn Frames>,
    pub clock: Arc<Clock>,
}

impl Bench {
    /// The product's parts.
    pub fn new(device_below: Arc<dyn BlockDevice>) -> Bench {
        Bench {
            design: Design::PRODUCT,
            cpus: CPUS,
            frames: FRAMES,
            device_below,
            over_codec: Box::new(|codec| codec),
        }
    }

    pub fn make(self) -> Made {
        let Bench { design, cpus, over_codec, .. } = self;
        let zone = ZoneOptions {
            collapse: true,
            init_on_free: true,
            ..ZoneOptions::new(cpus, self.frames)
        };
        let frames = (design.allocator.1)(&host::Mmap, zone).expect("there are addresses");
        let files = Arc::new(FaultyDevice(self.device_below));
        let resources = Resources {
            open_codec: Box::new(move |name, params| zcomp::open(name, params).map(&over_codec)),
            track_access: true,
            slots: (design.slots.1)(),
            streams: design.streams.1,
            ..Resources::new(Arc::new(host::Mmap), frames.clone(), cpus, files)
        };
        let clock = resources.clock.clone();
        Made { disk: Disk::new(0, Arc::new(resources)), frames, clock }
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
