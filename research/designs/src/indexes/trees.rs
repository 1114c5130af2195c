//! An index of one tree, or of one for each part of the area.
//!
//! Both are a row of locks and roots above trees of one kind, which share the memory of their
//! nodes. A split index only has fewer pages per tree, so that a measurement shows the effect of
//! splitting alone.
//!
//! # Why unsafe
//! The engine frees the entries that an index returns, and the index returns the words of its
//! trees.

use core::ops::Range;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{PerCpuCounters, WaitQueues};
use units::Cpu;

use zswap::{Index, MAX_OFFSETS, Word};

/// The words of a tree's head: two cache lines. The lock is in the first; words that are read
/// without the lock belong in the second.
const HEAD: usize = 16;
/// The word of the head that is the lock.
const LOCK: usize = 0;
/// Trees per word of marks.
const MARKS: usize = 64;

/// Trees of one kind, in one memory. The caller of a method that takes a root holds the lock of its
/// tree, except for `get` of a kind that is [`Forest::LOCK_FREE`].
///
/// # Safety
/// As for [`Index`]: a word that `insert` puts in comes out at most once, from `insert` or
/// `remove`, and no other word comes out. `get` never returns a word that had come out before the
/// call.
pub unsafe trait Forest: Sized + Send + Sync {
    /// The name of an index of one such tree.
    const NAME: &'static str;
    /// The name of an index of several such trees.
    const SPLIT_NAME: &'static str;
    /// The word of a tree's head that is its root; 0 is the lock.
    const ROOT: usize;
    /// Whether `get` needs no lock.
    const LOCK_FREE: bool;

    /// Takes memory for `trees` trees of `pages` pages each, with entries numbered 1 to `entries`
    /// in all of them.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for it is out.
    fn new(
        provider: &dyn MemoryProvider,
        trees: usize,
        pages: u64,
        entries: u32,
        cpus: usize,
    ) -> Result<Self, NoMemory>;

    /// The word at `offset`.
    fn get(&self, root: &AtomicU64, offset: u64) -> Option<Word>;

    /// Puts `word` at `offset`; returns the old word.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed then.
    fn insert(
        &self,
        cpu: Cpu,
        root: &AtomicU64,
        offset: u64,
        word: Word,
    ) -> Result<Option<Word>, NoMemory>;

    /// Takes out the word at `offset`; if `only` is given, takes out only that word.
    fn remove(&self, cpu: Cpu, root: &AtomicU64, offset: u64, only: Option<Word>) -> Option<Word>;

    /// The first entry from `from` on.
    fn next(&self, root: &AtomicU64, from: u64) -> Option<(u64, Word)>;

    /// See [`Index::provide`].
    fn provide(&self, entries: u32, more: u32) -> bool;

    /// Bytes of the nodes of all trees, which have `entries` entries.
    fn bytes(&self, entries: u64) -> u64;

    /// Checks the structure of a tree. Returns the number of its entries and of its nodes.
    ///
    /// # Panics
    /// The message names the parts that contradict each other.
    fn validate(&self, root: &AtomicU64) -> (u64, u64);

    /// Checks the shared structure of all trees, which have `entries` entries and `nodes` nodes.
    ///
    /// # Panics
    /// The message names the parts that contradict each other.
    fn validate_all(&self, entries: u64, nodes: u64);
}

/// An index of trees of `PAGES` pages each, a power of two.
pub struct Trees<F, const PAGES: u64> {
    forest: F,
    heads: LazyTable<[AtomicU64; HEAD]>,
    /// A bit for each tree that ever had an entry.
    marks: LazyTable<AtomicU64>,
    queues: WaitQueues,
    entries: PerCpuCounters<1>,
    pages: u64,
}

/// Holds the lock of a tree while it lives.
struct Held<'a> {
    queues: &'a WaitQueues,
    head: &'a [AtomicU64; HEAD],
    number: usize,
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queues.unlock(&self.head[LOCK], self.number, 0);
    }
}

impl<F: Forest + 'static, const PAGES: u64> Trees<F, PAGES> {
    /// The name of the index.
    pub const NAME: &'static str = if PAGES == MAX_OFFSETS { F::NAME } else { F::SPLIT_NAME };

    /// The number of an offset's tree, and the offset within the tree.
    #[inline]
    fn place(&self, offset: u64) -> (usize, u64) {
        debug_assert!(offset < self.pages, "page {offset} of an area of {}", self.pages);
        ((offset / PAGES) as usize, offset % PAGES)
    }

    #[inline]
    fn lock(&self, number: usize) -> Held<'_> {
        let head = self.heads.get(number);
        self.queues.lock(&head[LOCK], number);
        Held { queues: &self.queues, head, number }
    }

    /// Takes out the word at `offset`, or only the word `only`.
    fn take(&self, cpu: Cpu, offset: u64, only: Option<Word>) -> Option<Word> {
        let (number, offset) = self.place(offset);
        let held = self.lock(number);
        let word = self.forest.remove(cpu, &held.head[F::ROOT], offset, only);
        drop(held);
        if word.is_some() {
            self.entries.add(cpu, 0, -1);
        }
        word
    }

    fn mark(&self, number: usize) {
        let (word, bit) = (self.marks.get(number / MARKS), 1 << (number % MARKS));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The first tree from `from` on that ever had an entry.
    fn next_tree(&self, from: usize) -> Option<usize> {
        (from / MARKS..self.marks.len()).find_map(|n| {
            let first = from.saturating_sub(n * MARKS);
            let marks = self.marks.get(n).load(Ordering::Relaxed) & (u64::MAX << first);
            (marks != 0).then(|| n * MARKS + marks.trailing_zeros() as usize)
        })
    }
}

// SAFETY: words go into one tree and come out of it under its lock, as the `Forest` promises. The
// words that `drain` visits were taken out before.
unsafe impl<F: Forest + 'static, const PAGES: u64> Index for Trees<F, PAGES> {
    fn make(
        provider: &dyn MemoryProvider,
        pages: u64,
        entries: u32,
        cpus: usize,
    ) -> Result<Trees<F, PAGES>, NoMemory> {
        const { assert!(PAGES.is_power_of_two()) };
        let trees = usize::try_from(pages.div_ceil(PAGES).max(1))
            .map_err(|_| NoMemory { bytes: usize::MAX })?;
        Ok(Trees {
            forest: F::new(provider, trees, pages.min(PAGES), entries, cpus)?,
            heads: LazyTable::provided(provider, trees)?,
            marks: LazyTable::provided(provider, trees.div_ceil(MARKS))?,
            queues: WaitQueues::default(),
            entries: PerCpuCounters::new(cpus),
            pages,
        })
    }

    #[inline]
    fn get(&self, _: Cpu, offset: u64) -> Option<Word> {
        let (number, offset) = self.place(offset);
        if F::LOCK_FREE {
            return self.forest.get(&self.heads.get(number)[F::ROOT], offset);
        }
        let held = self.lock(number);
        self.forest.get(&held.head[F::ROOT], offset)
    }

    fn insert(&self, cpu: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory> {
        let (number, offset) = self.place(offset);
        self.mark(number);
        let held = self.lock(number);
        let displaced = self.forest.insert(cpu, &held.head[F::ROOT], offset, word)?;
        drop(held);
        if displaced.is_none() {
            self.entries.add(cpu, 0, 1);
        }
        Ok(displaced)
    }

    fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        self.take(cpu, offset, None)
    }

    fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool {
        self.take(cpu, offset, Some(word)).is_some()
    }

    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word)) {
        let end = offsets.end.min(self.pages);
        let mut from = offsets.start;
        while from < end
            && let Some(number) = self.next_tree((from / PAGES) as usize)
        {
            let base = number as u64 * PAGES;
            let held = self.lock(number);
            let root = &held.head[F::ROOT];
            let found = self.forest.next(root, from.saturating_sub(base));
            let found = found.filter(|(offset, _)| base + offset < end);
            if let Some((offset, _)) = found {
                self.forest.remove(cpu, root, offset, None);
            }
            drop(held);
            from = match found {
                None => base.saturating_add(PAGES),
                Some((offset, word)) => {
                    self.entries.add(cpu, 0, -1);
                    visit(base + offset, word);
                    base + offset + 1
                }
            };
        }
    }

    fn provide(&self, entries: u32, more: u32) -> bool {
        self.forest.provide(entries, more)
    }

    fn count(&self) -> u64 {
        self.entries.sum(0)
    }

    fn bytes(&self) -> u64 {
        self.forest.bytes(self.count())
    }

    fn validate(&self) {
        let (mut entries, mut nodes, mut from) = (0, 0, 0);
        while let Some(number) = self.next_tree(from) {
            let held = self.lock(number);
            let (of_tree, its_nodes) = self.forest.validate(&held.head[F::ROOT]);
            (entries, nodes, from) = (entries + of_tree, nodes + its_nodes, number + 1);
        }
        assert_eq!(self.count(), entries, "entries are counted that are not there, or not counted");
        self.forest.validate_all(entries, nodes);
    }
}
