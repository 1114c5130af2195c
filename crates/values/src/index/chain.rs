//! Changes of the index: a bucket is locked, with those behind it.

use alloc::vec::Vec;

use sync::atomic::{AtomicU64, Ordering};

use super::{
    Bucket, FIRST, Growing, IN_PAGE, Index, LOAD, NEXT, SLOTS, SPARSE_QUARTERS, VERSION, number_of,
};
use crate::word::{Fingerprint, IDLE, Left, REFERENCED, Word};

/// A bucket with those behind it, locked until this is dropped.
pub(crate) struct Chain<'a> {
    index: &'a Index,
    number: usize,
    /// What the link of the first bucket has below the bits of the lock.
    own: u64,
}

/// There is no bucket for another word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoBucket;

impl Index {
    /// Locks the bucket of a key.
    pub(crate) fn lock(&self, key: Fingerprint) -> Chain<'_> {
        loop {
            let chain = self.lock_number(self.number_of(key));
            if self.number_of(key) == chain.number {
                return chain;
            }
        }
    }

    pub(super) fn lock_number(&self, number: usize) -> Chain<'_> {
        let own = self.queues.lock(&self.buckets.get(number)[0], number);
        Chain { index: self, number, own }
    }

    /// Adds a bucket if the keys are many. Passes what is to be given back when no reader can be in
    /// it to `left`. Returns whether there is one more.
    pub(crate) fn grow(&self, left: impl FnMut(Left)) -> bool {
        if self.keys() <= self.count() * LOAD || self.count() >= self.most() {
            return false;
        }
        // Another thread grows it, or will at its next key.
        let Some(mut growing) = self.growing.try_lock() else { return false };
        let count = self.count();
        if count >= self.most() {
            return false;
        }
        debug_assert!(count >= FIRST);
        if count.is_multiple_of(IN_PAGE) {
            growing.pages_begun = growing.pages_begun.wrapping_add(1);
        }
        growing.end = growing.end.max(count + 1);
        if growing.begun <= count {
            // Another process may have died with its lock, and memory that was given back may stay.
            let bucket = self.buckets.get(count as usize);
            bucket.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            growing.begun = count + 1;
        }
        let bit = 1 << count.ilog2();
        let mut old = self.lock_number((count - bit) as usize);
        let mut new = self.lock_number(count as usize);
        let moves = |word: &Word| u64::from(word.fingerprint().0) & bit != 0;
        let fits = old.words().filter(moves).all(|word| new.place(word).is_ok());
        if !fits {
            // The words stay where they are, and the new bucket is empty again.
            new.clear(|_| true);
            return false;
        }
        // Who looks into the new bucket from now on finds the words.
        self.set_count(count + 1);
        old.change_version();
        old.clear(|word| moves(&word));
        let gone = old.shorten_all();
        drop((new, old));
        drop(growing);
        gone.into_iter().map(Left::Bucket).for_each(left);
        true
    }

    /// Takes the last bucket away if the keys are few. Passes what is to be given back when no
    /// reader can be in it to `left`. Returns whether there is one less.
    pub(crate) fn shrink(&self, mut left: impl FnMut(Left)) -> bool {
        let is_sparse = |count: u64| self.keys() * 4 < count * LOAD * SPARSE_QUARTERS;
        if self.count() <= FIRST || !is_sparse(self.count()) {
            return false;
        }
        // Another thread shrinks it, or will at its next key.
        let Some(growing) = self.growing.try_lock() else { return false };
        let count = self.count();
        if count <= FIRST || !is_sparse(count) {
            return false;
        }
        let last = count - 1;
        let bit = 1 << last.ilog2();
        let mut into = self.lock_number((last - bit) as usize);
        let mut gone = self.lock_number(last as usize);
        if !gone.words().all(|word| into.place(word).is_ok()) {
            // The words stay where they are.
            into.clear(|word| number_of(word.fingerprint(), count) == last);
            return false;
        }
        // Who looks for the words from now on looks where they are.
        self.set_count(last);
        gone.change_version();
        gone.clear(|_| true);
        let mut behind = gone.shorten_all();
        behind.extend(into.shorten_all());
        let pages_begun = growing.pages_begun;
        drop((gone, into));
        drop(growing);
        behind.into_iter().map(Left::Bucket).for_each(&mut left);
        if last.is_multiple_of(IN_PAGE) {
            left(Left::Pages(pages_begun));
        }
        true
    }
}

impl Index {
    /// Puts the words of another index of the same room in, and passes each to `see`. Nobody
    /// changes words of the other meanwhile, and nobody uses this one, which is empty. Returns
    /// whether there was room for all.
    pub(crate) fn copy(&self, from: &Index, mut see: impl FnMut(Word)) -> bool {
        // Its words stay in their buckets.
        let _growing = from.growing.lock();
        let count = from.count();
        self.set_count(count);
        *self.growing.lock() = Growing { pages_begun: 0, end: count, begun: count };
        (0..count as usize).all(|number| {
            let mut chain = self.lock_number(number);
            // Acquire pairs with the Release of a store: what it names is there.
            let words = from.chain(number).flat_map(|bucket| &bucket[1..]);
            let mut words = words.filter_map(|slot| Word::from_raw(slot.load(Ordering::Acquire)));
            words.all(|word| chain.insert(word).map(|()| see(word)).is_ok())
        })
    }
}

impl<'a> Chain<'a> {
    fn buckets(&self) -> impl Iterator<Item = &'a Bucket> {
        self.index.chain(self.number)
    }

    /// Its slots, empty or not.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &'a AtomicU64> {
        self.buckets().flat_map(|bucket| &bucket[1..])
    }

    /// Takes out words that are somewhere else, too.
    fn clear(&mut self, which: impl Fn(Word) -> bool) {
        for slot in self.slots() {
            // Release pairs with the Acquire in `find`: who finds it empty sees the new version.
            if Word::from_raw(slot.load(Ordering::Relaxed)).is_some_and(&which) {
                slot.store(0, Ordering::Release);
            }
        }
    }

    /// Its words.
    pub(crate) fn words(&self) -> impl Iterator<Item = Word> {
        self.slots().filter_map(|slot| Word::from_raw(slot.load(Ordering::Relaxed)))
    }

    /// The slot of a word of this fingerprint for which `is_it` returns true.
    pub(crate) fn find(
        &self,
        key: Fingerprint,
        mut is_it: impl FnMut(Word) -> bool,
    ) -> Option<&'a AtomicU64> {
        self.slots().find(|slot| {
            let word = Word::from_raw(slot.load(Ordering::Relaxed));
            word.is_some_and(|word| word.fingerprint() == key && is_it(word))
        })
    }

    /// The slot of a word that names the same thing.
    pub(crate) fn slot_of(&self, word: Word) -> Option<&'a AtomicU64> {
        self.find(word.fingerprint(), |seen| seen.is(word))
    }

    /// Puts `word` in the place of the word of `slot`, which is returned: the commit. The bits that
    /// tell of reads stay if `keep` says so.
    pub(crate) fn replace(&mut self, slot: &AtomicU64, word: Word, keep: bool) -> Option<Word> {
        // AcqRel: Release pairs with the Acquire in `find`: the objects of the new word are there.
        let old = Word::from_raw(slot.swap(word.get(), Ordering::AcqRel))?;
        let bits = old.get() & (REFERENCED | IDLE);
        if keep && bits != 0 {
            slot.fetch_or(bits, Ordering::Relaxed);
        }
        Some(old)
    }

    /// Takes the word of `slot` out.
    pub(crate) fn take(&mut self, slot: &AtomicU64) -> Option<Word> {
        // AcqRel pairs with the Acquire in `find`: what comes after the word comes after it there.
        let old = Word::from_raw(slot.swap(0, Ordering::AcqRel))?;
        self.index.keys.fetch_sub(1, Ordering::Relaxed);
        Some(old)
    }

    /// Puts a word in: the commit of a new key.
    ///
    /// # Errors
    /// [`NoBucket`]; nothing has changed then.
    pub(crate) fn insert(&mut self, word: Word) -> Result<(), NoBucket> {
        self.place(word)?;
        self.index.keys.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn place(&mut self, word: Word) -> Result<(), NoBucket> {
        if let Some(slot) = self.slots().find(|slot| slot.load(Ordering::Relaxed) == 0) {
            // Release pairs with the Acquire in `find`: the objects are there.
            slot.store(word.get(), Ordering::Release);
            return Ok(());
        }
        let number = self.index.take_behind().ok_or(NoBucket)?;
        let bucket = self.index.more.get(number as usize);
        bucket.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        bucket[1].store(word.get(), Ordering::Relaxed);
        let last = self.buckets().last();
        last.into_iter().for_each(|last| self.link(last, number));
        Ok(())
    }

    /// Links a bucket behind `last`; 0 for none.
    fn link(&mut self, last: &Bucket, number: u32) {
        let first = self.index.buckets.get(self.number);
        if core::ptr::eq(last, first) {
            let own = self.own & !NEXT | u64::from(number);
            self.change(own);
        } else {
            // Release pairs with the Acquire in `chain`.
            last[0].store(u64::from(number), Ordering::Release);
        }
    }

    fn change_version(&mut self) {
        let next = self.own.wrapping_add(1 << 32) & VERSION;
        self.change(self.own & !VERSION | next);
    }

    /// Changes the link of the first bucket without the bits of the lock. Only the holder of the
    /// lock changes the others, so these become exactly `own`.
    fn change(&mut self, own: u64) {
        let link = &self.index.buckets.get(self.number)[0];
        // Release pairs with the Acquire in `find` and `chain`.
        link.fetch_xor(self.own ^ own, Ordering::AcqRel);
        self.own = own;
    }

    /// Takes out the buckets behind the first whose words have room before them, and returns their
    /// numbers.
    fn shorten_all(&mut self) -> Vec<u32> {
        let mut gone = Vec::new();
        while let Some(number) = self.shorten() {
            gone.push(number);
        }
        gone
    }

    /// Takes out the last bucket behind the first if its words have room before it, and returns its
    /// number. The words stay in it, for readers that are there.
    fn shorten(&mut self) -> Option<u32> {
        let count = self.buckets().count();
        if count < 2 || self.words().count() > (count - 1) * SLOTS {
            return None;
        }
        let before = self.buckets().nth(count - 2)?;
        let last = self.buckets().nth(count - 1)?;
        let number = (before[0].load(Ordering::Relaxed) & NEXT) as u32;
        let mut empty = self.slots().take((count - 1) * SLOTS);
        for word in &last[1..] {
            // A mark that a reader sets in the old place now is lost, which does no harm.
            let word = word.load(Ordering::Relaxed);
            if word == 0 {
                continue;
            }
            let slot = empty.find(|slot| slot.load(Ordering::Relaxed) == 0)?;
            // Release pairs with the Acquire in `find`, as in `place`.
            slot.store(word, Ordering::Release);
        }
        drop(empty);
        self.change_version();
        self.link(before, 0);
        Some(number)
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let link = &self.index.buckets.get(self.number)[0];
        self.index.queues.unlock(link, self.number, self.own);
    }
}
