//! Radix trees whose nodes are read without a lock, after Linux's xarray.
//!
//! A node has a slot for each value of some bits of an offset. The slot names the node below; in
//! the lowest nodes it names the entry. All nodes of an index are in one table and are reused. A
//! node leaves its tree as soon as its last slot is emptied.
//!
//! # How a lookup detects a reused node
//! A node has a number and a life, which ends when the node leaves its tree. The link to the node
//! holds both. So one link value only ever stands in one place of one tree, wherever its node is
//! used later. A reader loads the link, loads the slot, and then checks that the node is still in
//! that life. If so, the slot was read while the node had its place, and its word was in the tree
//! at that moment. If not, the reader starts again. Readers write nothing and wait for no thread: a
//! reader starts again only because another thread made progress.
//!
//! Every slot is written with Release, also in new nodes. So a reader that sees a value of a later
//! life also sees that the earlier life has ended. Lives are 32 bits. A reader is wrong only if a
//! node ends its life exactly 2^32 times while the reader looks at one slot.

use pagealloc::NoMemory;
use sync::atomic::{AtomicU64, Ordering, spin_hint};
use units::Cpu;

use super::Word;
use super::cells::{BITS, Cells, SLOTS};
use super::node_pool::NodePool;

/// The most levels of a tree: enough for offsets of `zswap::MAX_OFFSETS` with 6 bits, and for the
/// small models of checkers.
pub const MAX_LEVELS: usize = if cfg!(shuttle) { 18 } else { 6 };

/// The link to a node: its number and its life.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Link {
    node: u32,
    life: u32,
}

impl Link {
    const fn raw(self) -> u64 {
        (self.life as u64) << 32 | self.node as u64
    }

    /// No node has number 0.
    #[inline]
    const fn from_raw(raw: u64) -> Option<Link> {
        match raw as u32 {
            0 => None,
            node => Some(Link { node, life: (raw >> 32) as u32 }),
        }
    }
}

/// Radix trees in one memory. A thread that changes a tree holds its lock.
pub struct Radix<C> {
    cells: C,
    node_pool: NodePool,
    levels: usize,
}

/// The slot of `offset` in a node of level `level`; level 0 is the lowest.
#[inline]
const fn slot_of(offset: u64, level: usize) -> usize {
    (offset >> (level as u32 * BITS)) as usize & (SLOTS - 1)
}

/// The number of levels of a tree of `pages` pages.
pub fn levels(pages: u64) -> usize {
    let covers = |levels: &usize| pages <= 1u64.checked_shl(*levels as u32 * BITS).unwrap_or(0);
    (1..MAX_LEVELS).find(covers).unwrap_or(MAX_LEVELS)
}

impl<C: Cells> Radix<C> {
    /// Makes trees of `pages` pages each in `cells`, for `cpus` CPUs.
    pub fn new(cells: C, pages: u64, cpus: usize) -> Radix<C> {
        Radix { cells, node_pool: NodePool::new(cpus), levels: levels(pages) }
    }

    /// The word at `offset`. Needs no lock.
    #[inline]
    pub fn get(&self, root: &AtomicU64, offset: u64) -> Option<Word> {
        'again: loop {
            // Acquire pairs with the Release in `insert`: the nodes below have been filled.
            let mut raw = root.load(Ordering::Acquire);
            for level in (0..self.levels).rev() {
                let link = Link::from_raw(raw)?;
                // Acquire pairs with the Release of the thread that filled the slot. It also keeps
                // the load of the life after this load.
                raw = self.cells.slot(link.node, slot_of(offset, level)).load(Ordering::Acquire);
                // Acquire pairs with the Release in `end`: a reader that starts again does not find
                // the same node in the same place.
                if self.cells.life(link.node).load(Ordering::Acquire) != link.life {
                    spin_hint();
                    continue 'again;
                }
            }
            return Word::from_raw(raw);
        }
    }

    /// Puts `word` at `offset`; returns the old word.
    ///
    /// # Errors
    /// [`NoMemory`] if there are no more nodes; nothing has changed then.
    pub fn insert(
        &self,
        cpu: Cpu,
        root: &AtomicU64,
        offset: u64,
        word: Word,
    ) -> Result<Option<Word>, NoMemory> {
        let (mut place, mut owner, mut level) = (root, None, self.levels);
        while level > 0
            && let Some(link) = Link::from_raw(place.load(Ordering::Relaxed))
        {
            level -= 1;
            owner = Some(link.node);
            place = self.cells.slot(link.node, slot_of(offset, level));
        }
        // Nodes of levels below `level` are missing. They are filled from the lowest up, and one
        // store makes all of them visible.
        let mut fresh = [0; MAX_LEVELS];
        let fresh = &mut fresh[..level];
        self.node_pool.take(&self.cells, cpu, fresh)?;
        let mut below = word.get();
        for (level, node) in fresh.iter().enumerate() {
            // Release pairs with the Acquire in `get` of a reader that still has an earlier life.
            self.cells.slot(*node, slot_of(offset, level)).store(below, Ordering::Release);
            self.cells.count(*node).store(1, Ordering::Relaxed);
            let life = self.cells.life(*node).load(Ordering::Relaxed);
            below = Link { node: *node, life }.raw();
        }
        let displaced = place.load(Ordering::Relaxed);
        // Release pairs with the Acquire in `get`.
        place.store(below, Ordering::Release);
        match owner {
            Some(owner) if displaced == 0 => {
                let count = self.cells.count(owner);
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            _ => {}
        }
        // A displaced word is an entry: a missing node leaves zero.
        Ok(Word::from_raw(displaced))
    }

    /// Takes out the word at `offset`; if `only` is given, takes out only that word.
    pub fn remove(
        &self,
        cpu: Cpu,
        root: &AtomicU64,
        offset: u64,
        only: Option<Word>,
    ) -> Option<Word> {
        let mut path = [0; MAX_LEVELS];
        let mut place = root;
        for level in (0..self.levels).rev() {
            let link = Link::from_raw(place.load(Ordering::Relaxed))?;
            path[level] = link.node;
            place = self.cells.slot(link.node, slot_of(offset, level));
        }
        let word = Word::from_raw(place.load(Ordering::Relaxed))?;
        if only.is_some_and(|only| only != word) {
            return None;
        }
        // Release pairs with the Acquire in `get`.
        place.store(0, Ordering::Release);
        for level in 0..self.levels {
            let count = self.cells.count(path[level]);
            let left = count.load(Ordering::Relaxed) - 1;
            count.store(left, Ordering::Relaxed);
            if left > 0 {
                break;
            }
            let above = match path[..self.levels].get(level + 1) {
                Some(above) => self.cells.slot(*above, slot_of(offset, level + 1)),
                None => root,
            };
            self.end(cpu, above, path[level]);
        }
        Some(word)
    }

    /// Takes an empty node out of `place` and makes it free for reuse.
    fn end(&self, cpu: Cpu, place: &AtomicU64, node: u32) {
        // Release pairs with the Acquire in `get`.
        place.store(0, Ordering::Release);
        let life = self.cells.life(node);
        // Release pairs with the Acquire in `get`: a reader that sees the end of the life finds the
        // place above empty, or with another node.
        life.store(life.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        self.node_pool.give(&self.cells, cpu, node);
    }

    /// The first entry of a tree from `from` on.
    pub fn next(&self, root: &AtomicU64, from: u64) -> Option<(u64, Word)> {
        self.next_below(root, self.levels, 0, from)
    }

    /// The first entry from `from` on below `place`, a subtree of `levels` levels that begins at
    /// `base`.
    fn next_below(
        &self,
        place: &AtomicU64,
        levels: usize,
        base: u64,
        from: u64,
    ) -> Option<(u64, Word)> {
        let raw = place.load(Ordering::Relaxed);
        if levels == 0 {
            return Word::from_raw(raw).map(|word| (base, word));
        }
        let link = Link::from_raw(raw)?;
        let shift = (levels as u32 - 1) * BITS;
        let first = from.saturating_sub(base) >> shift;
        (first..SLOTS as u64).find_map(|slot| {
            let place = self.cells.slot(link.node, slot as usize);
            self.next_below(place, levels - 1, base + (slot << shift), from)
        })
    }

    /// The memory of the trees' nodes.
    pub fn cells(&self) -> &C {
        &self.cells
    }

    /// The highest number that was ever used: nodes 1 to this.
    pub fn used(&self) -> u32 {
        self.node_pool.used()
    }

    /// Bytes of the nodes in trees, with their lives and counts.
    pub fn bytes(&self) -> u64 {
        self.node_pool.allocated(&self.cells) * (SLOTS * 8 + 8) as u64
    }

    /// Checks a tree. Returns the number of its entries and of its nodes.
    ///
    /// # Panics
    /// The message names the parts that contradict each other.
    pub fn validate(&self, root: &AtomicU64) -> (u64, u64) {
        self.validate_below(root.load(Ordering::Relaxed), self.levels)
    }

    fn validate_below(&self, raw: u64, levels: usize) -> (u64, u64) {
        let Some(link) = Link::from_raw(raw).filter(|_| levels > 0) else {
            return (u64::from(raw != 0), 0);
        };
        let life = self.cells.life(link.node).load(Ordering::Relaxed);
        assert_eq!(life, link.life, "node {} is in a tree after its life has ended", link.node);
        let (mut filled, mut entries, mut nodes) = (0, 0, 1);
        for slot in 0..SLOTS {
            let raw = self.cells.slot(link.node, slot).load(Ordering::Relaxed);
            let (its_entries, its_nodes) = self.validate_below(raw, levels - 1);
            filled += u32::from(raw != 0);
            (entries, nodes) = (entries + its_entries, nodes + its_nodes);
        }
        let count = self.cells.count(link.node).load(Ordering::Relaxed);
        assert_eq!(count, filled, "node {} counts other slots than are filled", link.node);
        assert!(filled > 0, "node {} is empty and still in its tree", link.node);
        (entries, nodes)
    }

    /// Checks that all trees together have `nodes` nodes, and that the other nodes are empty.
    ///
    /// The message names the parts that contradict each other.
    pub fn validate_all(&self, nodes: u64) {
        let unused = self.node_pool.validate(&self.cells, |node| {
            let empty = |slot| self.cells.slot(node, slot).load(Ordering::Relaxed) == 0;
            assert!((0..SLOTS).all(empty), "node {node} is not used and has something in it");
        });
        let allocated = self.node_pool.allocated(&self.cells);
        assert_eq!(
            allocated, nodes,
            "nodes are lost: {allocated} are allocated, {nodes} in trees, {unused} not"
        );
    }
}
