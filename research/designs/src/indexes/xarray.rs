//! The memory of radix trees: nodes in lazily backed tables.
//!
//! # Why unsafe
//! The engine frees the entries that an index returns, and the index returns the words of its
//! trees.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU32, AtomicU64};
use units::Cpu;
use zswap::Word;

use super::cells::{BITS, Cells, SLOTS};
use super::node_pool::KEPT;
use super::radix::{MAX_LEVELS, Radix, levels};
use super::trees::Forest;

/// Three tables: the slots, the lives, which readers only read, and the counts, which change with
/// each entry.
struct Tables {
    slots: LazyTable<[AtomicU64; SLOTS]>,
    lives: LazyTable<AtomicU32>,
    counts: LazyTable<AtomicU32>,
}

impl Tables {
    fn new(provider: &dyn MemoryProvider, highest: u32) -> Result<Tables, NoMemory> {
        let count = highest as usize + 1;
        Ok(Tables {
            slots: LazyTable::new(provider, count)?,
            lives: LazyTable::new(provider, count)?,
            counts: LazyTable::new(provider, count)?,
        })
    }
}

impl Cells for Tables {
    #[inline]
    fn slot(&self, node: u32, slot: usize) -> &AtomicU64 {
        &self.slots.get(node as usize)[slot]
    }
    #[inline]
    fn life(&self, node: u32) -> &AtomicU32 {
        self.lives.get(node as usize)
    }
    #[inline]
    fn count(&self, node: u32) -> &AtomicU32 {
        self.counts.get(node as usize)
    }
    fn highest(&self) -> u32 {
        let ready = self.slots.ready().min(self.lives.ready()).min(self.counts.ready());
        ready.saturating_sub(1) as u32
    }
}

/// Radix trees whose lookups take no lock.
pub struct RadixTrees(Radix<Tables>);

/// The most nodes that may exist: on each level one for each entry, or as many as the level has
/// room for; plus the nodes that CPUs keep.
fn most_nodes(trees: usize, pages: u64, entries: u32, cpus: usize) -> u64 {
    let of_level = |level: usize| {
        let of_tree = pages.div_ceil(1 << ((level as u32 + 1) * BITS).min(63)).max(1);
        of_tree.saturating_mul(trees as u64).min(u64::from(entries))
    };
    let in_trees: u64 = (0..levels(pages)).map(of_level).sum();
    in_trees + (cpus.max(1) * (KEPT + MAX_LEVELS)) as u64
}

// SAFETY: a word is in one slot of a leaf, which is changed under the lock of the tree. A lookup
// without the lock starts again when it meets a node of another life.
unsafe impl Forest for RadixTrees {
    const NAME: &'static str = "xarray";
    const SPLIT_NAME: &'static str = "xarray-split";
    /// The root is in the cache line without the lock.
    const ROOT: usize = 8;
    const LOCK_FREE: bool = true;

    fn new(
        provider: &dyn MemoryProvider,
        trees: usize,
        pages: u64,
        entries: u32,
        cpus: usize,
    ) -> Result<RadixTrees, NoMemory> {
        let most = most_nodes(trees, pages, entries, cpus);
        let most = u32::try_from(most).map_err(|_| NoMemory { bytes: usize::MAX })?;
        Ok(RadixTrees(Radix::new(Tables::new(provider, most)?, pages, cpus)))
    }

    #[inline]
    fn get(&self, root: &AtomicU64, offset: u64) -> Option<Word> {
        self.0.get(root, offset)
    }

    fn insert(
        &self,
        cpu: Cpu,
        root: &AtomicU64,
        offset: u64,
        word: Word,
    ) -> Result<Option<Word>, NoMemory> {
        self.0.insert(cpu, root, offset, word)
    }

    fn remove(&self, cpu: Cpu, root: &AtomicU64, offset: u64, only: Option<Word>) -> Option<Word> {
        self.0.remove(cpu, root, offset, only)
    }

    fn next(&self, root: &AtomicU64, from: u64) -> Option<(u64, Word)> {
        self.0.next(root, from)
    }

    fn provide(&self, _: u32, more: u32) -> bool {
        let Tables { slots, lives, counts } = self.0.cells();
        // Node numbers begin at 1.
        let count = self.0.used() as usize + 1 + more as usize;
        slots.provide(count) && lives.provide(count) && counts.provide(count)
    }

    fn bytes(&self, _: u64) -> u64 {
        self.0.bytes()
    }

    fn validate(&self, root: &AtomicU64) -> (u64, u64) {
        self.0.validate(root)
    }

    fn validate_all(&self, _: u64, nodes: u64) {
        self.0.validate_all(nodes);
    }
}
