//! The index: from the hash of a key to the word of its value.
//!
//! # How it grows
//! By linear hashing (Litwin, VLDB 1980): there are always all buckets below some number. When the
//! keys are too many, one more is added, and one bucket is split: its words go to the new one if
//! the next bit of their hash says so. So the table takes memory as it grows, page by page of a
//! range of addresses, and nobody waits for a large step. A bucket is a cache line. One that is
//! full has further buckets behind it, until it is split.
//!
//! # How it is read
//! Words of the index change under the lock of the bucket. Readers take no lock. What could have
//! them miss a word is a move of it: a split, or the end of a bucket that is not needed any more.
//! Both copy the word first, then change the version of the bucket, and then take the old place
//! out. A reader that found nothing looks again if the version has changed, or if the hash belongs
//! to another bucket by now.

mod chain;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{CachePadded, Mutex, WaitQueues};

use crate::word::{FINGERPRINT_BITS, Fingerprint, REFERENCED, Word};

pub(crate) use chain::Chain;

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

/// The buckets of an empty index.
const FIRST: u64 = 64;

/// The table. Any number of threads may call every method at once.
pub(crate) struct Index {
    buckets: LazyTable<Bucket>,
    /// The buckets behind them, from number 1 on.
    more: LazyTable<Bucket>,
    /// How many buckets there are.
    count: CachePadded<AtomicU64>,
    keys: CachePadded<AtomicU64>,
    queues: WaitQueues,
    spare: Mutex<Spare>,
    growing: Mutex<()>,
}

/// Buckets behind others that nothing uses: those from `fresh` on, and a list.
struct Spare {
    fresh: u32,
    free: u32,
}

impl Index {
    /// Makes an empty index for about `keys` keys. It holds more, more slowly.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn new(provider: &dyn MemoryProvider, keys: u64) -> Result<Index, NoMemory> {
        let buckets = (keys / LOAD).clamp(FIRST, 1 << FINGERPRINT_BITS) as usize;
        Ok(Index {
            buckets: LazyTable::new(provider, buckets)?,
            more: LazyTable::new(provider, buckets + 1)?,
            count: CachePadded::new(AtomicU64::new(FIRST)),
            keys: CachePadded::new(AtomicU64::new(0)),
            queues: WaitQueues::default(),
            spare: Mutex::new(Spare { fresh: 1, free: 0 }),
            growing: Mutex::new(()),
        })
    }

    /// The number of buckets.
    pub(crate) fn count(&self) -> u64 {
        // Acquire pairs with the Release in `grow`: the words of a new bucket are in it.
        self.count.load(Ordering::Acquire)
    }

    /// The number of keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes of the buckets that are or were used.
    pub(crate) fn bytes(&self) -> u64 {
        (self.count() + u64::from(self.spare.lock().fresh)) * BUCKET_BYTES
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
                        if !word.is_referenced() {
                            mark(slot, word);
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
                unmark(slot, word);
            } else {
                see(word);
            }
        }
    }

    /// Passes the words of a bucket to `see`. The calling thread is a reader.
    pub(crate) fn words(&self, number: u64, mut see: impl FnMut(Word)) {
        for slot in self.chain(number as usize).flat_map(|bucket| &bucket[1..]) {
            // Acquire pairs with the Release of a store: the objects are there.
            Word::from_raw(slot.load(Ordering::Acquire)).map(&mut see);
        }
    }

    /// Takes the referenced bit from a word, if it is there.
    pub(crate) fn unmark(&self, word: Word) {
        let number = self.number_of(word.fingerprint());
        for slot in self.chain(number).flat_map(|bucket| &bucket[1..]) {
            let seen = Word::from_raw(slot.load(Ordering::Relaxed));
            if let Some(seen) = seen.filter(|seen| seen.is(word) && seen.is_referenced()) {
                unmark(slot, seen);
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

    /// Takes an empty bucket; `None` if there is no more.
    fn take_spare(&self) -> Option<u32> {
        let mut spare = self.spare.lock();
        if spare.free != 0 {
            let number = spare.free;
            spare.free = self.more.get(number as usize)[0].load(Ordering::Relaxed) as u32;
            return Some(number);
        }
        let number = spare.fresh;
        if number as usize >= self.more.len() {
            return None;
        }
        spare.fresh += 1;
        Some(number)
    }

    /// Takes back a bucket that no reader can be in.
    pub(crate) fn give_back(&self, number: u32) {
        let mut spare = self.spare.lock();
        self.more.get(number as usize)[0].store(u64::from(spare.free), Ordering::Relaxed);
        spare.free = number;
    }
}

/// The bucket of a key when there are `count` buckets.
fn number_of(key: Fingerprint, count: u64) -> u64 {
    let mask = count.next_power_of_two() - 1;
    let number = u64::from(key.0) & mask;
    if number < count { number } else { number & (mask >> 1) }
}

/// Sets the referenced bit of a word, if the slot still has it.
#[inline]
fn mark(slot: &AtomicU64, word: Word) {
    let (seen, read) = (word.get(), word.get() | REFERENCED);
    let _ = slot.compare_exchange(seen, read, Ordering::Relaxed, Ordering::Relaxed);
}

fn unmark(slot: &AtomicU64, word: Word) {
    let (seen, unread) = (word.get(), word.get() & !REFERENCED);
    let _ = slot.compare_exchange(seen, unread, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
