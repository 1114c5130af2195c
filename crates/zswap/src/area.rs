//! A swap area: its index, its device, and the locks of its pages.
//!
//! A thread that reads, writes or discards a page of the device holds the *lock* of the page. So
//! does a thread that stores a page that the device holds, or discards one that it may hold. So
//! each page has at most one I/O at a time. A page that is on the device and not in the cache stays
//! there under the lock, unless it is invalidated.
//!
//! A mark says that the device holds the page. It is set under the lock, after the page is written
//! and before it leaves the cache, so a page is always found in one of the two places. While the
//! cache has the page, the mark may be out of date. So a thread that removes a page from the cache
//! without writing it to the device clears the mark, before and after. Only the holder of the lock
//! can know that a page is in neither place.
//!
//! If the process dies, the index decides: the mark of a page that the cache has is out of date. A
//! page that was discarded must not come back by its mark. So a discard has the locks, too: no
//! thread that writes the page to the device marks it afterwards.

use alloc::sync::Arc;
use core::ops::Range;

use block::{BlockDevice, Context, Operation};
use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{EventCount, Published, Reader, ReaderEpochs};
use units::{Cpu, PAGE_SIZE};

use crate::index::AreaIndex;
use crate::memcg::Memcg;
use crate::{SwapType, lock_bits};

/// The most pages that are read, written or locked together: as many as one ring of the io_uring
/// devices takes at once. More pages would wait in our queue instead of the device's queue.
pub(crate) const BATCH: usize = if cfg!(shuttle) { 4 } else { 64 };

/// A bit for each page of an area, 64 in a word. Whoever frees a page sets its bit: after the last
/// store of the page has ended, and before the next one begins.
pub type FreedBits = Arc<dyn AsRef<[AtomicU64]> + Send + Sync>;

/// An area that is on. Any number of threads may call every method at once.
pub(crate) struct Area {
    pub(crate) swap: SwapType,
    /// How often an area of this number was turned on.
    pub(crate) generation: u64,
    pub(crate) pages: u64,
    pub(crate) index: AreaIndex,
    pub(crate) device: Option<Arc<dyn BlockDevice>>,
    /// The device frees room at once when it is told that nobody reads a page any more.
    quick_discard: bool,
    /// The memcg that is charged for pages stored through the device of this area.
    pub(crate) memcg: Memcg,
    locks: LazyTable<AtomicU64>,
    /// A mark for each page that the device holds, unless the cache does.
    on_device: LazyTable<AtomicU64>,
    /// The bits of pages that were freed, if frees are heard.
    pub(crate) freed: Published<FreedBits>,
    /// Pages that the device was asked for, and those among them that it has answered for.
    pub(crate) asked: AtomicU64,
    pub(crate) answered: AtomicU64,
    given_up: EventCount,
}

/// What an area is made of.
pub(crate) struct AreaForm<'a> {
    /// The memory of what ends with the process.
    pub(crate) provider: &'a dyn MemoryProvider,
    /// The memory of the marks.
    pub(crate) marks: &'a dyn MemoryProvider,
    pub(crate) readers: &'a Arc<ReaderEpochs>,
    pub(crate) swap: SwapType,
    /// How often the area came on.
    pub(crate) generation: u64,
    pub(crate) pages: u64,
}

fn place(offset: u64) -> (usize, u64) {
    ((offset / 64) as usize, 1 << (offset % 64))
}

/// The words with the marks of these pages, and the bits in each word.
fn parts(offsets: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = offsets;
    let words = if start < end { start / 64..end.div_ceil(64) } else { 0..0 };
    words.map(move |word| {
        let first = start.saturating_sub(word * 64);
        let last = (end - 1 - word * 64).min(63);
        (word as usize, u64::MAX << first & u64::MAX >> (63 - last))
    })
}

impl Area {
    /// An area without locks. Its marks are as another process left them.
    pub(crate) fn new(
        what: AreaForm<'_>,
        index: AreaIndex,
        device: Option<Arc<dyn BlockDevice>>,
        memcg: Memcg,
    ) -> Result<Area, NoMemory> {
        let AreaForm { provider, marks, readers, swap, generation, pages } = what;
        let words = pages.div_ceil(64) as usize;
        let locks = LazyTable::provided(provider, words)?;
        let on_device = LazyTable::provided(marks, words)?;
        let quick_discard = device.as_ref().is_some_and(|it| it.abilities().quick_discard);
        Ok(Area {
            swap,
            generation,
            pages,
            index,
            device,
            quick_discard,
            memcg,
            locks,
            on_device,
            freed: Published::new(readers.clone()),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            given_up: EventCount::default(),
        })
    }

    /// Locks a page if no thread holds its lock. Later lookups find no page whose removal came
    /// before a look at the lock that did not see it: see [`lock_bits`].
    pub(crate) fn try_lock_page(&self, offset: u64) -> bool {
        let (word, bit) = place(offset);
        lock_bits::try_lock(self.locks.get(word), bit)
    }

    /// Locks pages whose numbers differ in the last six bits only, as [`Area::try_lock_page`] does,
    /// if none of them is locked.
    fn try_lock_pages(&self, offsets: Range<u64>) -> bool {
        parts(offsets).all(|(word, bits)| {
            let taken = lock_bits::try_lock_all(self.locks.get(word), bits);
            if taken != bits {
                self.unclaim_all(word, taken);
            }
            taken == bits
        })
    }

    /// Locks those of the pages `bits` of word `word` that are not locked, as
    /// [`Area::try_lock_page`] does, and returns them.
    pub(crate) fn try_lock_some(&self, word: usize, bits: u64) -> u64 {
        lock_bits::try_lock_all(self.locks.get(word), bits)
    }

    pub(crate) fn unclaim_all(&self, word: usize, bits: u64) {
        lock_bits::unlock(self.locks.get(word), bits);
        self.given_up.notify_all();
    }

    /// Waits for the lock of a page and takes it. The calling thread is no reader, and holds no
    /// lock of this page or a later one.
    pub(crate) fn lock_page(&self, offset: u64) {
        while !self.try_lock_page(offset) {
            let ticket = self.given_up.ticket();
            if self.try_lock_page(offset) {
                return;
            }
            self.given_up.wait(ticket);
        }
    }

    pub(crate) fn unclaim(&self, offset: u64) {
        let (word, bit) = place(offset);
        self.unclaim_all(word, bit);
    }

    /// Waits until the thread that holds the lock of the page now has released it. The calling
    /// thread is no reader.
    pub(crate) fn wait_for(&self, offset: u64) {
        let (word, bit) = place(offset);
        loop {
            let ticket = self.given_up.ticket();
            if lock_bits::locked(self.locks.get(word)) & bit == 0 {
                return;
            }
            self.given_up.wait(ticket);
        }
    }

    /// Whether a thread holds the lock of a page that the calling thread removed from the index. If
    /// not, no thread that locks the page from now on finds what was removed.
    pub(crate) fn is_locked_after_removal(&self, offset: u64) -> bool {
        let (word, bit) = place(offset);
        lock_bits::removed();
        lock_bits::locked(self.locks.get(word)) & bit != 0
    }

    /// Waits until every lock of a page that is held now has been released. From then on no thread
    /// holds what the calling thread removed from the index. The calling thread is no reader.
    pub(crate) fn wait_for_all(&self) {
        lock_bits::removed();
        for word in 0..self.locks.len() {
            let mut locked = lock_bits::locked(self.locks.get(word));
            while locked != 0 {
                self.wait_for(word as u64 * 64 + u64::from(locked.trailing_zeros()));
                locked &= locked - 1;
            }
        }
    }

    /// A store of the page is about to be committed: the page is not freed any more. See `sweep`.
    #[inline]
    pub(crate) fn clear_freed(&self, reader: &Reader<'_>, offset: u64) {
        let Some(bits) = self.freed.get(reader) else { return };
        let (word, bit) = place(offset);
        let word = &(**bits).as_ref()[word];
        // Whoever frees the page did so before this store was asked for, or will after its end. So
        // a bit that is not there now does not come before that.
        if word.load(Ordering::Relaxed) & bit != 0 {
            // The Release of the commit that follows keeps it behind this.
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Whether the device holds the page, unless the cache does.
    pub(crate) fn is_on_device(&self, offset: u64) -> bool {
        let (word, bit) = place(offset);
        // Acquire pairs with the Release in `set_on_device`.
        self.on_device.get(word).load(Ordering::Acquire) & bit != 0
    }

    /// Marks that the device holds the page. The caller holds the lock of the page.
    pub(crate) fn set_on_device(&self, offset: u64) {
        let (word, bit) = place(offset);
        // Release pairs with the Acquire in `is_on_device`: the page has been written.
        self.on_device.get(word).fetch_or(bit, Ordering::Release);
    }

    /// Clears the mark: the copy on the device is out of date.
    pub(crate) fn clear_on_device(&self, cpu: Cpu, offset: u64) {
        self.clear_range_on_device(cpu, offset..offset + 1);
    }

    /// The number of pages that the device holds.
    pub(crate) fn count_on_device(&self) -> u64 {
        let words = (0..self.on_device.len()).map(|word| self.on_device.get(word));
        words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// Whether the device holds any of these pages.
    pub(crate) fn any_on_device(&self, offsets: Range<u64>) -> bool {
        parts(offsets)
            .any(|(word, bits)| self.on_device.get(word).load(Ordering::Relaxed) & bits != 0)
    }

    /// The pages among these that are marked, in ascending order.
    pub(crate) fn marked(&self, offsets: Range<u64>) -> impl Iterator<Item = u64> {
        parts(offsets).flat_map(|(word, bits)| {
            let marks = self.on_device.get(word).load(Ordering::Relaxed) & bits;
            let first = word as u64 * 64;
            (0..64).filter(move |bit| marks & 1 << bit != 0).map(move |bit| first + bit)
        })
    }

    /// Clears the marks of these pages: their copies on the device are out of date.
    pub(crate) fn clear_range_on_device(&self, cpu: Cpu, offsets: Range<u64>) {
        for (word, bits) in parts(offsets) {
            let marks = self.on_device.get(word);
            if marks.load(Ordering::Relaxed) & bits != 0 {
                let mut cleared = marks.fetch_and(!bits, Ordering::Relaxed) & bits;
                while cleared != 0 {
                    let bit = u64::from(cleared.trailing_zeros());
                    self.forget(cpu, word as u64 * 64 + bit);
                    cleared &= cleared - 1;
                }
            }
        }
    }

    /// Lets the device use the room of a page that it does not hold. The calling thread has the
    /// lock of the page, or has cleared its mark.
    pub(crate) fn forget(&self, cpu: Cpu, offset: u64) {
        self.forget_all(cpu, offset, 1);
    }

    fn forget_all(&self, cpu: Cpu, first: u64, count: u64) {
        let Some(device) = self.device.as_ref().filter(|_| self.quick_discard) else { return };
        let (offset, length) = (first * PAGE_SIZE as u64, count * PAGE_SIZE as u64);
        // A hint: if it keeps the room, nothing is wrong.
        let _ = device.perform(Context::at_once(cpu), Operation::Discard { offset, length });
    }

    /// Lets the device use the room of the pages among these that are not marked. For recovery: a
    /// process may end between clearing a mark and telling the device.
    pub(crate) fn forget_unmarked(&self, cpu: Cpu, offsets: Range<u64>) {
        for (word, bits) in parts(offsets) {
            let mut rest = !self.on_device.get(word).load(Ordering::Relaxed) & bits;
            while rest != 0 {
                let first = rest.trailing_zeros();
                let count = (!(rest >> first)).trailing_zeros();
                self.forget_all(cpu, word as u64 * 64 + u64::from(first), count.into());
                rest &= u64::MAX.checked_shl(first + count).unwrap_or(0);
            }
        }
    }

    /// Whether any page is locked. For tests and checks.
    pub(crate) fn any_page_locked(&self) -> bool {
        (0..self.locks.len()).any(|word| self.locks.get(word).load(Ordering::Relaxed) != 0)
    }
}

/// Locks of pages of one area, released together.
pub(crate) struct PageLocks<'a> {
    area: &'a Area,
    offsets: [u64; BATCH],
    count: usize,
}

impl<'a> PageLocks<'a> {
    pub(crate) fn of(area: &'a Area) -> PageLocks<'a> {
        PageLocks { area, offsets: [0; BATCH], count: 0 }
    }

    /// Locks a page behind all pages that are locked already. See [`Area::lock_page`].
    pub(crate) fn add(&mut self, offset: u64) {
        self.area.lock_page(offset);
        self.keep(offset);
    }

    /// Locks a page as [`PageLocks::add`] does, but only if no thread holds its lock.
    pub(crate) fn try_add(&mut self, offset: u64) -> bool {
        let locked = self.area.try_lock_page(offset);
        if locked {
            self.keep(offset);
        }
        locked
    }

    /// Locks at most [`BATCH`] pages, whose numbers differ in the last six bits only, if none of
    /// them is locked.
    pub(crate) fn try_add_all(&mut self, offsets: Range<u64>) -> bool {
        let locked = self.area.try_lock_pages(offsets.clone());
        if locked {
            offsets.for_each(|offset| self.keep(offset));
        }
        locked
    }

    fn keep(&mut self, offset: u64) {
        debug_assert!(self.count == 0 || self.offsets[self.count - 1] < offset);
        self.offsets[self.count] = offset;
        self.count += 1;
    }
}

impl Drop for PageLocks<'_> {
    fn drop(&mut self) {
        let mut rest = &self.offsets[..self.count];
        while let Some(first) = rest.first() {
            let (word, _) = place(*first);
            let count = rest.iter().take_while(|offset| place(**offset).0 == word).count();
            let bits = rest[..count].iter().fold(0, |bits, offset| bits | place(*offset).1);
            self.area.unclaim_all(word, bits);
            rest = &rest[count..];
        }
    }
}
