//! Times of the held and private sections: the slot tables, readers, counters and the pool by
//! themselves, on one thread.
//!
//! # Why unsafe
//! The pool is used without the engine, which knows the live objects.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use designs::slots::{Cas, Epoch, GlobalRwLock, RwLock, SpinLock};
use pagealloc::{Zone, ZoneOptions};
use serde::Serialize;
use sync::{PerCpuCounters, ReaderEpochs};
use units::{Cpu, PAGE_SIZE};
use zcomp::{Compressor, Lz4, Params};
use zram::Slot;
use zram::slots::{BitLock, SlotTable};
use zsmalloc::{Handle, Pool, PoolOptions, Room};

use super::primitives::each;
use super::schemes::LINE;
use crate::page::pages;

const GOES: u32 = 4000;
/// Number of slots used in turn: as many as under `eight`.
const FEW: usize = 8;
/// Bytes of an object in the pool's timing. Copying it takes almost no time.
const OBJECT: usize = 64;
const OBJECTS: usize = 256;

/// The times of a slot table by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The scheme.
    pub scheme: &'static str,
    /// Bytes of a slot.
    pub bytes: usize,
    /// Nanoseconds of a load that only looks.
    pub load_ns: f64,
    /// Nanoseconds of an update.
    pub update_ns: f64,
}

/// The measured times, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Sections {
    /// The slot tables.
    pub tables: Vec<Table>,
    /// Work before and after each operation: the CPU, a reader, a counter.
    pub outside_ns: f64,
    /// Storing a small object in the pool.
    pub pool_store_ns: f64,
    /// Freeing a small object.
    pub pool_free_ns: f64,
}

impl Sections {
    /// Measures on this thread, which should be pinned.
    pub fn measure() -> Result<Sections> {
        let (readers, counters) = (ReaderEpochs::new(2), PerCpuCounters::<2>::new(2));
        let outside = each(GOES, |_| {
            let cpu = host::cpu();
            let _reader = readers.enter(cpu);
            counters.add(cpu, 0, 1);
        });
        let pool = Bench::new()?;
        let (store, free) = pool.times()?;
        let tables = vec![
            table::<GlobalRwLock>()?,
            table::<Cas>()?,
            table::<SpinLock>()?,
            table::<RwLock>()?,
            table::<BitLock>()?,
            table::<Epoch>()?,
        ];
        let (outside_ns, pool_store_ns, pool_free_ns) = (outside, store, free);
        Ok(Sections { tables, outside_ns, pool_store_ns, pool_free_ns })
    }

    /// Nanoseconds that an update holds a slot: its time without its atomic instructions.
    pub fn update_held(&self, scheme: &str, local: f64) -> f64 {
        let table = self.tables.iter().find(|table| table.scheme == scheme);
        table.map_or(0.0, |table| (table.update_ns - 2.0 * local).max(1.0))
    }
}

fn no_memory(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

fn table<T: SlotTable>() -> Result<Table> {
    let table = T::new(&host::Mmap, FEW, 2).map_err(no_memory)?;
    let cpu = Cpu(0);
    let slot = Slot::same_filled(0).unwrap_or_default();
    let update = |go: u32| {
        let _ = table.update(go as usize % FEW, |_| Some(slot));
    };
    let update_ns = each(GOES, update);
    let load_ns = each(GOES, |go| {
        std::hint::black_box(table.load(cpu, go as usize % FEW, Slot::word));
    });
    Ok(Table { scheme: T::NAME, bytes: T::BYTES, load_ns, update_ns })
}

/// A pool by itself.
pub struct Bench {
    pool: Pool,
}

impl Bench {
    /// An empty pool.
    pub fn new() -> Result<Bench> {
        let zone = Zone::new(&host::Mmap, ZoneOptions::new(2, 1 << 14)).map_err(no_memory)?;
        let options = PoolOptions { frames: Arc::new(zone), limit_frames: 0 };
        Ok(Bench { pool: Pool::new(&host::Mmap, options).map_err(no_memory)? })
    }

    #[inline]
    fn store(&self, cpu: Cpu, object: &[u8]) -> Result<Handle> {
        self.pool.store(cpu, Room::Open, object, None).map_err(no_memory)
    }

    #[inline]
    fn free(&self, cpu: Cpu, handle: Handle) {
        // SAFETY: `times` frees each object that it stored once, and reads none.
        unsafe { self.pool.free(cpu, handle) }
    }

    fn times(&self) -> Result<(f64, f64)> {
        let (cpu, object) = (Cpu(0), [7; OBJECT]);
        let kept = self.store(cpu, &object)?;
        let mut handles = Vec::with_capacity(OBJECTS);
        let (mut stores, mut frees) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let begun = std::time::Instant::now();
            for _ in 0..OBJECTS {
                handles.push(self.store(cpu, &object)?);
            }
            stores.push(begun.elapsed().as_nanos() as f64 / OBJECTS as f64);
            let begun = std::time::Instant::now();
            for handle in handles.drain(..) {
                self.free(cpu, handle);
            }
            frees.push(begun.elapsed().as_nanos() as f64 / OBJECTS as f64);
        }
        self.free(cpu, kept);
        Ok((crate::statistics::median(stores), crate::statistics::median(frees)))
    }

    /// For each page of `corpus`: its size class after lz4, its compressed length, and the lines of
    /// the object.
    pub fn objects(&self, corpus: &[u8]) -> Result<Vec<(usize, usize, u32)>> {
        let codec = Lz4::new(&Params::default())?;
        let mut context = codec.context()?;
        let mut room = vec![0; 2 * PAGE_SIZE];
        let object = |page: &units::Page| {
            let length = match context.compress(page, &mut room) {
                Some(length) if length <= self.pool.raw_threshold() => length,
                _ => PAGE_SIZE,
            };
            (self.pool.size_class(length), length, length.div_ceil(LINE) as u32)
        };
        Ok(pages(corpus).map(object).collect())
    }
}
