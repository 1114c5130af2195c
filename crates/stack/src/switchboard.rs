//! The only list of variants. To add one, implement its seam and name it here.

use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};

use control::{Errno, Fault};
use pagealloc::{
    Cluster, Design, Frames, ListZone, NoMemory, NoMerge, Premerge, RangeRw, Spin, Splice, World,
    Zone, ZoneOptions,
};
use units::PAGE_SIZE;
use zcomp::{
    AnyStreams, CodecError, Compressor, Deflate, Eight42, Lz4, Lz4hc, Lzo, LzoRle, MultiStreams,
    MutexStream, Params, PerCpuStreams, SingleStream, Streams, Zstd,
};
use zram::slots::{BitLock, Cas, Epoch, GlobalRwLock, RwLock, SlotTable, SpinLock};
use zram::{EngineParts, PageStore, Plan, StreamRules};
use zsmalloc::{Pool, PoolOptions};
use zswap::MakeIndex;
use zswap::index::{RbTree, RbTreeSplit, XArray, XArraySplit};

/// The codecs there are, in the order they are listed to the operator, which is the kernel's.
pub const ALGORITHMS: &[&str] = &[
    zcomp::LZO_RLE,
    zcomp::LZO,
    zcomp::LZ4,
    zcomp::LZ4HC,
    zcomp::ZSTD,
    zcomp::DEFLATE,
    zcomp::EIGHT42,
];

/// The codec of a device for which none was chosen.
pub const DEFAULT_ALGORITHM: &str = zcomp::LZ4;

/// Which variant of each seam to use, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variants {
    /// The design of the page allocator.
    pub zone: String,
    /// The scheme that guards slots.
    pub slots: String,
    /// How threads come by a stream.
    pub streams: String,
    /// Where it is counted what happens: in a cache line of each CPU, or in one that all share. The
    /// latter is there to be measured, as what it costs.
    pub counters: String,
    /// The index of a swap area.
    pub index: String,
}

impl Default for Variants {
    fn default() -> Variants {
        Variants {
            zone: ZONE[0].0.into(),
            slots: SLOTS[0].0.into(),
            streams: STREAMS[0].0.into(),
            counters: COUNTERS[0].into(),
            index: INDEX[0].0.into(),
        }
    }
}

/// The first of each row of a table.
macro_rules! names {
    ($table:ident) => {
        &{
            let mut names = [""; $table.len()];
            let mut n = 0;
            while n < $table.len() {
                names[n] = $table[n].0;
                n += 1;
            }
            names
        }
    };
}

/// The designs of the page allocator, the default first.
pub const ZONES: &[&str] = names!(ZONE);

/// The schemes that guard slots, the default first.
pub const SLOT_SCHEMES: &[&str] = names!(SLOTS);

/// The policies of how threads come by a stream, the default first.
pub const STREAM_POLICIES: &[&str] = names!(STREAMS);

/// The indexes of swap areas, the default first.
pub const INDEXES: &[&str] = names!(INDEX);

impl Variants {
    /// Checks that every name is known.
    ///
    /// # Errors
    /// `EINVAL`; the message names the known ones.
    pub fn check(&self) -> Result<(), Fault> {
        known("zone", &self.zone, ZONE.iter().map(|zone| zone.0))?;
        known("slot scheme", &self.slots, SLOTS.iter().map(|slots| slots.0))?;
        known("stream policy", &self.streams, STREAMS.iter().map(|streams| streams.0))?;
        known("kind of counters", &self.counters, COUNTERS.iter().copied())?;
        known("index", &self.index, INDEX.iter().map(|index| index.0))
    }
}

type MakeZone = fn(&dyn World, ZoneOptions) -> Result<Arc<dyn Frames>, NoMemory>;
type MakeEngine = fn(&BuildContext<'_>) -> Result<Arc<dyn PageStore>, Fault>;

const ZONE: &[(&str, MakeZone)] = &[
    (Zone::NAME, |world, options| Ok(Arc::new(Zone::new(world, options)?))),
    (ListZone::<Spin>::NAME, list_zone::<Spin>),
    (ListZone::<RangeRw>::NAME, list_zone::<RangeRw>),
    (ListZone::<Splice>::NAME, list_zone::<Splice>),
    (ListZone::<Premerge>::NAME, list_zone::<Premerge>),
    (ListZone::<NoMerge>::NAME, list_zone::<NoMerge>),
    (ListZone::<Cluster>::NAME, list_zone::<Cluster>),
];

fn list_zone<D: Design>(
    world: &dyn World,
    options: ZoneOptions,
) -> Result<Arc<dyn Frames>, NoMemory> {
    Ok(Arc::new(ListZone::<D>::new(world, options)?))
}

const SLOTS: &[(&str, MakeEngine)] = &[
    (BitLock::NAME, engine::<BitLock>),
    (GlobalRwLock::NAME, engine::<GlobalRwLock>),
    (Cas::NAME, engine::<Cas>),
    (SpinLock::NAME, engine::<SpinLock>),
    (RwLock::NAME, engine::<RwLock>),
    (Epoch::NAME, engine::<Epoch>),
];

const INDEX: &[(&str, MakeIndex)] = &[
    (XArraySplit::NAME, XArraySplit::make),
    (XArray::NAME, XArray::make),
    (RbTreeSplit::NAME, RbTreeSplit::make),
    (RbTree::NAME, RbTree::make),
];

/// What makes the index called `name`.
pub(crate) fn index(name: &str) -> Result<MakeIndex, Fault> {
    find("index", name, INDEX)
}

/// Makes streams of a codec: on so many CPUs, for a device that was given its size when so many
/// streams were asked for.
type MakeStreams = fn(&Arc<dyn Compressor>, usize, u32) -> Result<AnyStreams, CodecError>;

/// How threads come by a stream.
#[derive(Clone, Copy)]
struct Policy {
    /// Streams that are usual, on so many CPUs.
    usual: fn(usize) -> usize,
    /// The most that may be asked for.
    most: u32,
    make: MakeStreams,
}

const STREAMS: &[(&str, Policy)] = &[
    (
        PerCpuStreams::NAME,
        Policy {
            usual: |cpus| cpus,
            most: u32::MAX,
            make: |codec, cpus, _| PerCpuStreams::new(&**codec, cpus).map(AnyStreams::Cpus),
        },
    ),
    (
        SingleStream::NAME,
        Policy {
            usual: |_| 1,
            most: u32::MAX,
            // As Linux 3.15 chose.
            make: |codec, _, asked_for| match asked_for {
                0..=1 => SingleStream::new(&**codec).map(AnyStreams::Single),
                _ => several(codec),
            },
        },
    ),
    (
        MultiStreams::NAME,
        Policy { usual: |_| 1, most: u32::MAX, make: |codec, _, _| several(codec) },
    ),
    (
        MutexStream::NAME,
        Policy {
            usual: |_| 1,
            most: 1,
            make: |codec, _, _| MutexStream::new(&**codec).map(AnyStreams::Mutex),
        },
    ),
];

fn several(codec: &Arc<dyn Compressor>) -> Result<AnyStreams, CodecError> {
    Ok(AnyStreams::Multi(Box::new(MultiStreams::new(codec, 1)?)))
}

/// How many streams may be asked for under a policy.
pub(crate) fn stream_rules(streams: &str, cpus: usize) -> StreamRules {
    // Names were checked when the machine was made.
    let policy = find("stream policy", streams, STREAMS).unwrap_or(STREAMS[0].1);
    StreamRules { usual: (policy.usual)(cpus.max(1)) as u32, most: policy.most }
}

/// The kinds of counters, the default first.
const COUNTERS: &[&str] = &["percpu", "shared"];

/// CPUs that count for themselves.
pub(crate) fn counting_cpus(counters: &str, cpus: usize) -> usize {
    if counters == COUNTERS[0] { cpus } else { 1 }
}

/// Opens the codec called `name`.
///
/// # Errors
/// `EINVAL` for an unknown name (the message lists the known ones) or a parameter it refuses.
pub fn codec(name: &str, params: &Params) -> Result<Arc<dyn Compressor>, Fault> {
    known("algorithm", name, ALGORITHMS.iter().copied())?;
    let opened: Result<Arc<dyn Compressor>, CodecError> = match name {
        zcomp::LZO_RLE => LzoRle::new(params).map(|codec| Arc::new(codec) as _),
        zcomp::LZO => Lzo::new(params).map(|codec| Arc::new(codec) as _),
        zcomp::LZ4 => Lz4::new(params).map(|codec| Arc::new(codec) as _),
        zcomp::LZ4HC => Lz4hc::new(params).map(|codec| Arc::new(codec) as _),
        zcomp::ZSTD => Zstd::new(params).map(|codec| Arc::new(codec) as _),
        zcomp::DEFLATE => Deflate::new(params).map(|codec| Arc::new(codec) as _),
        _ => Eight42::new(params).map(|codec| Arc::new(codec) as _),
    };
    opened.map_err(|error| Fault::invalid(format!("{error}")))
}

/// Makes the zone called `name`.
pub(crate) fn zone(
    name: &str,
    world: &dyn World,
    options: ZoneOptions,
) -> Result<Arc<dyn Frames>, Fault> {
    let make = find("zone", name, ZONE)?;
    make(world, options).map_err(no_memory)
}

/// What an engine is built from and on.
pub(crate) struct BuildContext<'a> {
    pub(crate) world: &'a dyn World,
    pub(crate) frames: &'a Arc<dyn Frames>,
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) cpus: usize,
    pub(crate) streams: &'a str,
}

/// Builds an engine with the slot scheme called `slots`.
pub(crate) fn build(slots: &str, site: &BuildContext<'_>) -> Result<Arc<dyn PageStore>, Fault> {
    find("slot scheme", slots, SLOTS)?(site)
}

/// What makes the streams of an engine's codecs.
pub(crate) fn make_streams(
    streams: &str,
    cpus: usize,
    asked_for: u32,
) -> Result<zcomp::MakeStreams<AnyStreams>, Fault> {
    let make = find("stream policy", streams, STREAMS)?.make;
    Ok(Box::new(move |codec, limit| {
        let streams = make(codec, cpus, asked_for)?;
        streams.limit(limit).map_err(|error| CodecError(format!("{error}")))?;
        Ok(streams)
    }))
}

fn engine<T: SlotTable + 'static>(site: &BuildContext<'_>) -> Result<Arc<dyn PageStore>, Fault> {
    let plan = site.plan;
    let cpus = site.cpus;
    let make_streams = make_streams(site.streams, cpus, plan.streams)?;
    let pool = PoolOptions {
        frames: site.frames.clone(),
        readers: plan.readers.clone(),
        limit_frames: plan.limit_frames,
    };
    let pool = Pool::new(site.world, pool).map_err(no_memory)?;
    // Where addresses are short, the device must do without room to grow.
    let slots = T::new(site.world, plan.room, cpus);
    let slots = slots.or_else(|_| T::new(site.world, plan.pages, cpus));
    let slots = slots.map_err(|_| {
        let bytes = plan.pages as u128 * PAGE_SIZE as u128;
        let message = format!("there are no addresses for the slots of a disk of {bytes} bytes");
        Fault::new(Errno::ENOMEM, message)
    })?;
    plan.assemble(site.world, EngineParts { slots, pool, make_streams })
}

pub(crate) fn no_memory(error: NoMemory) -> Fault {
    Fault::new(Errno::ENOMEM, format!("{error}"))
}

fn find<T: Copy>(what: &str, name: &str, table: &[(&str, T)]) -> Result<T, Fault> {
    known(what, name, table.iter().map(|row| row.0))?;
    table
        .iter()
        .find(|row| row.0 == name)
        .map(|row| row.1)
        .ok_or_else(|| Fault::invalid(format!("no {what} {name:?}")))
}

fn known<'a>(
    what: &str,
    name: &str,
    mut names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Fault> {
    if names.clone().any(|known| known == name) {
        return Ok(());
    }
    let list: Vec<&str> = names.by_ref().collect();
    Err(Fault::invalid(format!("no {what} {name:?}; there are: {}", list.join(" "))))
}
