//! The index: from the hash of a key to the word of its value.
//!
//! # How it grows
//! By linear hashing (Litwin, VLDB 1980): there are always all buckets below some number. When the
//! keys are too many, one more is added, and one bucket is split: its words go to the new one if
//! the next bit of their hash says so. So the table takes memory as it grows, page by page of a
//! range of addresses, and nobody waits for a large step. A bucket is a cache line. One that is
//! full has further buckets behind it, until it is split.
//!
//! When the keys are few, it shrinks the same way backwards: the words of the last bucket go to the
//! one that it was split from. Pages of buckets that are gone are given back.
//!
//! # How it is read
//! Words of the index change under the lock of the bucket. Readers take no lock. What could have
//! them miss a word is a move of it: a split, a merge, or the end of a bucket that is not needed
//! any more. All copy the word first, then change the version of the bucket, and then take the old
//! place out. A reader that found nothing looks again if the version has changed, or if the hash
//! belongs to another bucket by now.
//!
//! # What another process finds
//! The number of buckets is in the table, too, in a bucket that is none. A process may have died at
//! any step: then words are twice in their bucket, or once more in one that is not theirs, or
//! behind the last bucket. [`Index::mend`] takes these out.

mod chain;
mod mend;
mod scan;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{CachePadded, Mutex, WaitQueues};
use units::PAGE_SIZE;

use crate::numbers::Numbers;
use crate::word::{FINGERPRINT_BITS, Fingerprint, IDLE, REFERENCED, Word};

pub(crate) use chain::Chain;
pub(crate) use scan::END;

/// A line: the link, and seven words.
pub(crate) type Bucket = [AtomicU64; 8];

/// Words of a bucket.
pub(crate) const SLOTS: usize = 7;
/// Bytes of a bucket.
const BUCKET_BYTES: u64 = size_of::<Bucket>() as u64;

/// In the link of a bucket: the number of the next one behind it, 0 for none.
const NEXT: u64 = (1 << 32) - 1;
/// In the link of the first bucket: how often words of its chain were moved. Above it are the bits
/// of the lock.
const VERSION: u64 = ((1 << (sync::WORD_BITS - 32)) - 1) << 32;

/// The keys of a bucket on average, from which on it grows.
const LOAD: u64 = 5;

/// It shrinks when there are fewer than so many quarters of that.
const SPARSE_QUARTERS: u64 = 3;

/// The buckets of an empty index.
const FIRST: u64 = 64;
/// Buckets of a page.
const IN_PAGE: u64 = PAGE_SIZE as u64 / BUCKET_BYTES;

/// The table. Any number of threads may call every method at once.
pub(crate) struct Index {
    buckets: LazyTable<Bucket>,
    /// The buckets behind them, from number 1 on. In the place of a link, the one before has the
    /// number of buckets, and above it the same with all bits turned.
    more: LazyTable<Bucket>,
    keys: CachePadded<AtomicU64>,
    queues: WaitQueues,
    /// The numbers of buckets behind others.
    behind: Mutex<Numbers>,
    growing: Mutex<Growing>,
}

/// What a thread knows that adds or takes away a bucket.
#[derive(Default)]
struct Growing {
    /// How often a bucket was added that begins a page.
    pages_begun: u32,
    /// Buckets below this number may have memory.
    end: u64,
    /// Buckets below this number are as this process left them.
    begun: u64,
}

impl Index {
    /// Makes an empty index for about `keys` keys. It holds more, more slowly.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn new(provider: &dyn MemoryProvider, keys: u64) -> Result<Index, NoMemory> {
        let index = Index::over(provider, buckets_for(keys))?;
        index.set_count(FIRST);
        Ok(index)
    }

    /// The index for `keys` keys that another process left; `None` if it cannot be one. It is to be
    /// mended before it is used.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn left(
        provider: &dyn MemoryProvider,
        keys: u64,
    ) -> Result<Option<Index>, NoMemory> {
        let index = Index::over(provider, buckets_for(keys))?;
        let (count, kept) = (index.count(), index.count_word().load(Ordering::Relaxed));
        let is_one = kept == count_word(count) && (FIRST..=index.most()).contains(&count);
        Ok(is_one.then_some(index))
    }

    /// An empty index with as much room.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn another(&self, provider: &dyn MemoryProvider) -> Result<Index, NoMemory> {
        let index = Index::over(provider, self.buckets.len())?;
        index.set_count(FIRST);
        Ok(index)
    }

    fn over(provider: &dyn MemoryProvider, buckets: usize) -> Result<Index, NoMemory> {
        Ok(Index {
            buckets: LazyTable::new(provider, buckets)?,
            more: LazyTable::new(provider, buckets + 1)?,
            keys: CachePadded::new(AtomicU64::new(0)),
            queues: WaitQueues::default(),
            behind: Mutex::new(Numbers::new(buckets + 1, IN_PAGE as usize)),
            growing: Mutex::new(Growing::default()),
        })
    }

    /// The number of buckets.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        // Acquire pairs with the Release in `set_count`: the words of a new bucket are in it, and
        // those of a bucket that went are where they are now.
        u64::from(self.count_word().load(Ordering::Acquire) as u32)
    }

    fn set_count(&self, count: u64) {
        // Release pairs with the Acquire in `count`.
        self.count_word().store(count_word(count), Ordering::Release);
    }

    #[inline]
    fn count_word(&self) -> &AtomicU64 {
        &self.more.get(0)[0]
    }

    /// The most buckets.
    fn most(&self) -> u64 {
        self.buckets.len() as u64
    }

    /// The number of keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes of the buckets.
    pub(crate) fn bytes(&self) -> u64 {
        self.count() * BUCKET_BYTES + self.behind.lock().pages() * PAGE_SIZE as u64
    }

    /// Prefetches the bucket of a key.
    #[inline]
    pub(crate) fn prefetch(&self, key: Fingerprint) {
        sync::prefetch(self.buckets.address_of(self.number_of(key)));
    }

    /// Finds a word of this fingerprint for which `is_it` returns true. The calling thread is a
    /// reader.
    #[inline]
    pub(crate) fn find(
        &self,
        key: Fingerprint,
        mut is_it: impl FnMut(Word) -> bool,
    ) -> Option<Word> {
        loop {
            let number = self.number_of(key);
            let link = &self.buckets.get(number)[0];
            // Acquire pairs with the Release of a move, here and below: a reader that finds a place
            // empty from which a word was moved sees another version.
            let version = link.load(Ordering::Acquire) & VERSION;
            for bucket in self.chain(number) {
                for slot in &bucket[1..] {
                    // Acquire pairs with the Release of a store: the objects are there.
                    if let Some(word) = Word::from_raw(slot.load(Ordering::Acquire))
                        && word.fingerprint() == key
                        && is_it(word)
                    {
                        if word != word.as_read() {
                            change(slot, word, word.as_read().get());
                        }
                        return Some(word);
                    }
                }
            }
            // Acquire pairs with the Release of a move.
            if link.load(Ordering::Acquire) & VERSION == version && self.number_of(key) == number {
                return None;
            }
        }
    }

    /// The word in the index that names the same thing. The calling thread is a reader.
    pub(crate) fn find_word(&self, word: Word) -> Option<Word> {
        loop {
            let number = self.number_of(word.fingerprint());
            let link = &self.buckets.get(number)[0];
            // Acquire pairs with the Release of moves and stores, here and below: as in `find`.
            let version = link.load(Ordering::Acquire) & VERSION;
            let mut slots = self.chain(number).flat_map(|bucket| &bucket[1..]);
            let found = slots.find_map(|slot| {
                let found = Word::from_raw(slot.load(Ordering::Acquire))?;
                found.is(word).then_some(found)
            });
            // Acquire pairs with the Release of a move.
            let same = link.load(Ordering::Acquire) & VERSION == version
                && self.number_of(word.fingerprint()) == number;
            if found.is_some() || same {
                return found;
            }
        }
    }

    /// Takes the referenced bit from the words of a bucket for which `which` is true. Passes those
    /// that did not have it to `see`. The calling thread is a reader.
    pub(crate) fn visit(
        &self,
        number: u64,
        mut which: impl FnMut(Word) -> bool,
        mut see: impl FnMut(Word),
    ) {
        for slot in self.chain(number as usize).flat_map(|bucket| &bucket[1..]) {
            // Acquire pairs with the Release of a store: the objects are there.
            let Some(word) = Word::from_raw(slot.load(Ordering::Acquire)) else { continue };
            if !which(word) {
                continue;
            }
            if word.is_referenced() {
                change(slot, word, word.get() & !REFERENCED);
            } else {
                see(word);
            }
        }
    }

    /// Takes the referenced bit from a word, if it is there.
    pub(crate) fn unmark(&self, word: Word) {
        let number = self.number_of(word.fingerprint());
        for slot in self.chain(number).flat_map(|bucket| &bucket[1..]) {
            let seen = Word::from_raw(slot.load(Ordering::Relaxed));
            if let Some(seen) = seen.filter(|seen| seen.is(word) && seen.is_referenced()) {
                change(slot, seen, seen.get() & !REFERENCED);
            }
        }
    }

    /// Sets the idle bit of a word, if it is there: a read takes it away.
    pub(crate) fn set_idle(&self, word: Word) {
        let number = self.number_of(word.fingerprint());
        for slot in self.chain(number).flat_map(|bucket| &bucket[1..]) {
            let seen = Word::from_raw(slot.load(Ordering::Relaxed));
            if let Some(seen) = seen.filter(|seen| seen.is(word)) {
                change(slot, seen, seen.get() | IDLE);
            }
        }
    }

    fn number_of(&self, key: Fingerprint) -> usize {
        number_of(key, self.count()) as usize
    }

    /// The bucket of a number, and those behind it.
    fn chain(&self, number: usize) -> impl Iterator<Item = &Bucket> {
        let mut next = Some(self.buckets.get(number));
        core::iter::from_fn(move || {
            let bucket = next?;
            // Acquire pairs with the Release that links a bucket: its words are there.
            let more = bucket[0].load(Ordering::Acquire) & NEXT;
            next = (more != 0).then(|| self.more.get(more as usize));
            Some(bucket)
        })
    }

    /// Takes a bucket that nothing uses; `None` if there is no more.
    fn take_behind(&self) -> Option<u32> {
        self.behind.lock().take()
    }

    /// Takes back a bucket behind others that no reader can be in.
    pub(crate) fn give_back(&self, number: u32) {
        let mut behind = self.behind.lock();
        if let Some(page) = behind.give_back(number) {
            self.more.release(page);
        }
    }

    /// Gives back the memory of buckets that are gone, unless a page of them was begun again since
    /// [`Index::shrink`] told of it. No reader can be in them.
    pub(crate) fn give_back_pages(&self, pages_begun: u32) {
        let mut growing = self.growing.lock();
        if growing.pages_begun == pages_begun {
            let count = self.count();
            let end = growing.end.next_multiple_of(IN_PAGE).min(self.most());
            self.buckets.release(count as usize..end as usize);
            growing.end = count;
        }
    }
}

/// The most buckets of an index for so many keys.
fn buckets_for(keys: u64) -> usize {
    (keys / LOAD).clamp(FIRST, 1 << FINGERPRINT_BITS) as usize
}

/// The word that says how many buckets there are.
fn count_word(count: u64) -> u64 {
    count | !count << 32
}

/// The bucket of a key when there are `count` buckets.
fn number_of(key: Fingerprint, count: u64) -> u64 {
    let mask = count.next_power_of_two() - 1;
    let number = u64::from(key.0) & mask;
    if number < count { number } else { number & (mask >> 1) }
}

/// Changes the bits of a word that tell of reads, if the slot still has it.
#[inline]
fn change(slot: &AtomicU64, word: Word, to: u64) {
    let _ = slot.compare_exchange(word.get(), to, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
