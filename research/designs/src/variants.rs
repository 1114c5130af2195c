//! The list of designs, by name. To add a design, implement its seam and name it here.

use std::marker::PhantomData;
use std::sync::Arc;

use control::{ControlError, Errno};
use pagealloc::{Frames, MemoryProvider, NoMemory, Zone, ZoneOptions};
use zcomp::{PerCpuStreams, Streams};
use zram::slots::{BitLock, SlotTable};
use zram::{Design, Disk, Product, Resources};
use zswap::index::{self, Flat, Index, MakeIndex};
use zswap::{Parts, Zswap};

use crate::AnyDisk;
use crate::indexes::{RbTree, RbTreeSplit, XArray, XArraySplit};
use crate::slots::{Cas, Epoch, GlobalRwLock, RwLock, SpinLock};
use crate::streams::{MultiStreams, MutexStream, SingleStreams};
use crate::zones::{Cluster, ListZone, NoMerge, Premerge, RangeRw, Spin, Splice};

/// The design of each seam, by name. The defaults are the product's designs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variants {
    /// The design of the page allocator: one of [`ZONES`].
    pub zone: String,
    /// The scheme that guards slots: one of [`SLOT_SCHEMES`].
    pub slots: String,
    /// The policy by which a thread gets a stream: one of [`STREAM_POLICIES`].
    pub streams: String,
    /// The place of the event counters: a cache line of each CPU, or one that all CPUs share. The
    /// shared line exists to measure its cost.
    pub counters: String,
    /// The index of a swap area: one of [`INDEXES`].
    pub index: String,
    /// What the memory of frames and tables is: one of [`MEMORIES`].
    pub memory: String,
}

impl Default for Variants {
    fn default() -> Variants {
        Variants {
            zone: ZONES[0].into(),
            slots: SLOT_SCHEMES[0].into(),
            streams: STREAM_POLICIES[0].into(),
            counters: COUNTERS[0].into(),
            index: INDEXES[0].into(),
            memory: MEMORIES[0].into(),
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

/// The designs of the page allocator, the product's first.
pub const ZONES: &[&str] = names!(ZONE);

/// The schemes that guard slots, the product's first.
pub const SLOT_SCHEMES: &[&str] = names!(SLOTS);

/// The policies by which a thread gets a stream, the product's first.
pub const STREAM_POLICIES: &[&str] =
    &[PerCpuStreams::NAME, SingleStreams::NAME, MultiStreams::NAME, MutexStream::NAME];

/// The indexes of swap areas, the product's first.
pub const INDEXES: &[&str] = names!(INDEX);

/// The kinds of counters, the product's first.
pub const COUNTERS: &[&str] = &["percpu", "shared"];

/// The kinds of memory, the product's first: anonymous memory, and files that outlive the process,
/// which may be swapped out or not.
pub const MEMORIES: &[&str] = &["anonymous", "memfd", "noswap"];

impl Variants {
    /// Checks that every name is known.
    ///
    /// # Errors
    /// `EINVAL`; the message names the known ones.
    pub fn check(&self) -> Result<(), ControlError> {
        known("zone", &self.zone, ZONES)?;
        known("slot scheme", &self.slots, SLOT_SCHEMES)?;
        known("stream policy", &self.streams, STREAM_POLICIES)?;
        known("kind of counters", &self.counters, COUNTERS)?;
        known("index", &self.index, INDEXES)?;
        known("kind of memory", &self.memory, MEMORIES)
    }

    /// A provider of the kind of memory.
    ///
    /// # Errors
    /// The error of the system: `EPERM` for memory that is not swapped, without `CAP_SYS_ADMIN`.
    pub(crate) fn provider(&self) -> Result<Arc<dyn MemoryProvider>, ControlError> {
        let named = |memory: host::Memfds| Arc::new(memory.provider("engine"));
        match &*self.memory {
            "memfd" => Ok(named(host::Memfds::new())),
            "noswap" => {
                let made = host::Memfds::unswappable().map_err(|error| {
                    let errno = error.raw_os_error().map_or(Errno::EIO, Errno);
                    ControlError::new(errno, format!("memory that is not swapped: {error}"))
                })?;
                Ok(named(made))
            }
            _ => Ok(Arc::new(host::Mmap)),
        }
    }

    /// The number of CPUs that have their own counters.
    pub(crate) fn counting_cpus(&self, cpus: usize) -> usize {
        if self.counters == COUNTERS[0] { cpus } else { 1 }
    }
}

type MakeZone = fn(&dyn MemoryProvider, ZoneOptions) -> Result<Arc<dyn Frames>, NoMemory>;
type MakeDisk = fn(&str, u32, Arc<Resources>) -> Arc<dyn AnyDisk>;

const ZONE: &[(&str, MakeZone)] = &[
    (Zone::NAME, |provider, options| Ok(Arc::new(Zone::new(provider, options)?))),
    (ListZone::<Spin>::NAME, list_zone::<Spin>),
    (ListZone::<RangeRw>::NAME, list_zone::<RangeRw>),
    (ListZone::<Splice>::NAME, list_zone::<Splice>),
    (ListZone::<Premerge>::NAME, list_zone::<Premerge>),
    (ListZone::<NoMerge>::NAME, list_zone::<NoMerge>),
    (ListZone::<Cluster>::NAME, list_zone::<Cluster>),
];

fn list_zone<D: crate::zones::Design>(
    provider: &dyn MemoryProvider,
    options: ZoneOptions,
) -> Result<Arc<dyn Frames>, NoMemory> {
    Ok(Arc::new(ListZone::<D>::new(provider, options)?))
}

const SLOTS: &[(&str, MakeDisk)] = &[
    (BitLock::NAME, |streams, id, resources| match streams {
        // The product itself.
        PerCpuStreams::NAME => Disk::<Product>::new(id, resources),
        streams => disk::<BitLock>(streams, id, resources),
    }),
    (GlobalRwLock::NAME, disk::<GlobalRwLock>),
    (Cas::NAME, disk::<Cas>),
    (SpinLock::NAME, disk::<SpinLock>),
    (RwLock::NAME, disk::<RwLock>),
    (Epoch::NAME, disk::<Epoch>),
];

/// A design made of two others.
struct Of<T, S>(PhantomData<(T, S)>);

impl<T: SlotTable + 'static, S: Streams> Design for Of<T, S> {
    type Slots = T;
    type Streams = S;
}

fn disk<T: SlotTable + 'static>(
    streams: &str,
    id: u32,
    resources: Arc<Resources>,
) -> Arc<dyn AnyDisk> {
    match streams {
        SingleStreams::NAME => Disk::<Of<T, SingleStreams>>::new(id, resources),
        MultiStreams::NAME => Disk::<Of<T, MultiStreams>>::new(id, resources),
        MutexStream::NAME => Disk::<Of<T, MutexStream>>::new(id, resources),
        _ => Disk::<Of<T, PerCpuStreams>>::new(id, resources),
    }
}

const INDEX: &[(&str, MakeIndex)] = &[
    (Flat::NAME, index::make::<Flat>),
    (XArraySplit::NAME, index::make::<XArraySplit>),
    (XArray::NAME, index::make::<XArray>),
    (RbTreeSplit::NAME, index::make::<RbTreeSplit>),
    (RbTree::NAME, index::make::<RbTree>),
];

/// Makes the index called `name`: see [`Index::make`].
///
/// # Errors
/// `EINVAL` for an unknown name, `ENOMEM`.
pub fn make_index(
    name: &str,
    provider: &dyn MemoryProvider,
    (pages, entries, cpus): (u64, u32, usize),
) -> Result<Box<dyn Index>, ControlError> {
    find("index", name, INDEX)?(provider, pages, entries, cpus).map_err(no_memory)
}

/// Makes the zone called `name`.
pub(crate) fn make_zone(
    name: &str,
    provider: &dyn MemoryProvider,
    options: ZoneOptions,
) -> Result<Arc<dyn Frames>, ControlError> {
    find("zone", name, ZONE)?(provider, options).map_err(no_memory)
}

/// Makes a disk with the slot scheme and the policy of streams of these names.
pub(crate) fn make_disk(
    variants: &Variants,
    id: u32,
    resources: Arc<Resources>,
) -> Result<Arc<dyn AnyDisk>, ControlError> {
    let make = find("slot scheme", &variants.slots, SLOTS)?;
    Ok(make(&variants.streams, id, resources))
}

/// Makes a cache whose areas have the index called `name`.
pub(crate) fn make_swap(
    name: &str,
    provider: Arc<dyn MemoryProvider>,
    parts: Parts,
) -> Result<Arc<Zswap>, ControlError> {
    let zswap = match name {
        // The product itself.
        Flat::NAME => Zswap::new(provider, parts),
        name => Zswap::with_index(provider, parts, find("index", name, INDEX)?),
    };
    Ok(Arc::new(zswap?))
}

pub(crate) fn no_memory(error: NoMemory) -> ControlError {
    ControlError::new(Errno::ENOMEM, error.to_string())
}

fn find<T: Copy>(what: &str, name: &str, table: &[(&str, T)]) -> Result<T, ControlError> {
    let row = table.iter().find(|row| row.0 == name);
    let names: Vec<&str> = table.iter().map(|row| row.0).collect();
    row.map(|row| row.1).ok_or_else(|| unknown(what, name, &names))
}

fn known(what: &str, name: &str, names: &[&str]) -> Result<(), ControlError> {
    if names.contains(&name) { Ok(()) } else { Err(unknown(what, name, names)) }
}

fn unknown(what: &str, name: &str, names: &[&str]) -> ControlError {
    ControlError::invalid(format!("no {what} {name:?}; there are: {}", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_told_the_known_ones() {
        let variants = Variants { slots: "hope".into(), ..Variants::default() };
        let error = variants.check().unwrap_err();
        assert!(error.to_string().contains("bit-spinlock"), "{error}");
        Variants::default().check().unwrap();
        let Err(error) = make_index("list", &host::Mmap, (1, 1, 1)) else { panic!("no list") };
        assert!(error.to_string().contains("there are: flat xarray-split"), "{error}");
    }
}
