//! The list of designs, by name. To add a design, implement its seam and name it here.

use std::sync::Arc;

use control::{ControlError, Errno};
use pagealloc::{Frames, MemoryProvider, NoMemory, Zone, ZoneOptions};
use zcomp::{PerCpuStreams, Policy, Streams};
use zram::slots::{AnySlots, BitLock, MakeSlots, SlotTable};
use zswap::index::{self, Flat, Index, MakeIndex};
use zswap::{Parts, Zswap};

use crate::indexes::{RbTree, RbTreeSplit, XArray, XArraySplit};
use crate::slots::{Cas, Epoch, GlobalRwLock, RwLock, SpinLock};
use crate::streams::{MultiStreams, MutexStream, SingleStream};
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
    /// The index of a swap area: one of [`INDEXES`].
    pub index: String,
    /// What the memory of frames and tables is: one of [`MEMORIES`].
    pub memory: String,
    /// The product's own slot table, streams and index are called through a pointer, as the others
    /// are: so all that are compared pay the same.
    pub alike: bool,
}

impl Default for Variants {
    fn default() -> Variants {
        Variants {
            zone: ZONES[0].into(),
            slots: SLOT_SCHEMES[0].into(),
            streams: STREAM_POLICIES[0].into(),
            index: INDEXES[0].into(),
            memory: MEMORIES[0].into(),
            alike: false,
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
pub const ZONES: &[&str] = names!(ALLOCATORS);

/// The schemes that guard slots, the product's first.
pub const SLOT_SCHEMES: &[&str] = names!(SLOT_TABLES);

/// The policies by which a thread gets a stream, the product's first.
pub const STREAM_POLICIES: &[&str] = names!(POLICIES);

/// The indexes of swap areas, the product's first.
pub const INDEXES: &[&str] = names!(INDEX_KINDS);

/// The kinds of memory, the product's first: anonymous memory, and files that outlive the process,
/// which may be swapped out or not.
pub const MEMORIES: &[&str] = &["anonymous", "memfd", "noswap"];

impl Variants {
    /// A provider of the kind of memory.
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
            "anonymous" => Ok(Arc::new(host::Mmap)),
            name => Err(unknown("kind of memory", name, MEMORIES)),
        }
    }

    /// The slot table; `None` for the product's.
    pub(crate) fn slot_table(&self) -> Result<Option<MakeSlots>, ControlError> {
        let table = find("slot scheme", &self.slots, SLOT_TABLES)?();
        Ok(table.or_else(|| self.alike.then(AnySlots::make::<BitLock>)))
    }

    /// The policy of streams.
    pub(crate) fn stream_policy(&self) -> Result<Policy, ControlError> {
        match find("stream policy", &self.streams, POLICIES)? {
            _ if self.alike && self.streams == PerCpuStreams::NAME => {
                Ok(Policy::of::<PerCpuStreams>())
            }
            policy => Ok(policy),
        }
    }

    /// A cache whose areas have the index.
    pub(crate) fn swap(
        &self,
        provider: Arc<dyn MemoryProvider>,
        parts: Parts,
    ) -> Result<Arc<Zswap>, ControlError> {
        let make = find("index", &self.index, INDEX_KINDS)?;
        let zswap = match make.or(self.alike.then_some(index::make::<Flat>)) {
            None => Zswap::new(provider, parts),
            Some(make) => Zswap::with_index(provider, parts, make),
        };
        Ok(Arc::new(zswap?))
    }
}

type MakeZone = fn(&dyn MemoryProvider, ZoneOptions) -> Result<Arc<dyn Frames>, NoMemory>;

/// The page allocators, the product's first.
pub const ALLOCATORS: &[(&str, MakeZone)] = &[
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

type MakeTable = fn() -> Option<MakeSlots>;

/// The slot tables, the product's first: devices have that one if they are told of none.
pub const SLOT_TABLES: &[(&str, MakeTable)] = &[
    (BitLock::NAME, || None),
    (GlobalRwLock::NAME, || Some(AnySlots::make::<GlobalRwLock>())),
    (Cas::NAME, || Some(AnySlots::make::<Cas>())),
    (SpinLock::NAME, || Some(AnySlots::make::<SpinLock>())),
    (RwLock::NAME, || Some(AnySlots::make::<RwLock>())),
    (Epoch::NAME, || Some(AnySlots::make::<Epoch>())),
];

/// The policies of streams, the product's first.
pub const POLICIES: &[(&str, Policy)] = &[
    (PerCpuStreams::NAME, Policy::PER_CPU),
    (SingleStream::NAME, Policy::of::<SingleStream>()),
    (MultiStreams::NAME, Policy::of::<MultiStreams>()),
    (MutexStream::NAME, Policy::of::<MutexStream>()),
];

/// The indexes of swap areas, the product's first: caches have that one if they are told of none.
pub const INDEX_KINDS: &[(&str, Option<MakeIndex>)] = &[
    (Flat::NAME, None),
    (XArraySplit::NAME, Some(index::make::<XArraySplit>)),
    (XArray::NAME, Some(index::make::<XArray>)),
    (RbTreeSplit::NAME, Some(index::make::<RbTreeSplit>)),
    (RbTree::NAME, Some(index::make::<RbTree>)),
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
    let make = find("index", name, INDEX_KINDS)?.unwrap_or(index::make::<Flat>);
    make(provider, pages, entries, cpus).map_err(no_memory)
}

/// Makes the zone called `name`.
pub(crate) fn make_zone(
    name: &str,
    provider: &dyn MemoryProvider,
    options: ZoneOptions,
) -> Result<Arc<dyn Frames>, ControlError> {
    find("zone", name, ALLOCATORS)?(provider, options).map_err(no_memory)
}

pub(crate) fn no_memory(error: NoMemory) -> ControlError {
    ControlError::new(Errno::ENOMEM, error.to_string())
}

fn find<T: Copy>(what: &str, name: &str, table: &[(&str, T)]) -> Result<T, ControlError> {
    let row = table.iter().find(|row| row.0 == name);
    let names: Vec<&str> = table.iter().map(|row| row.0).collect();
    row.map(|row| row.1).ok_or_else(|| unknown(what, name, &names))
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
        let Err(error) = variants.slot_table() else { panic!("no hope") };
        assert!(error.to_string().contains("bit-spinlock"), "{error}");
        let Err(error) = make_index("list", &host::Mmap, (1, 1, 1)) else { panic!("no list") };
        assert!(error.to_string().contains("there are: flat xarray-split"), "{error}");
    }
}
