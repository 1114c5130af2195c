//! Clones are made and end, and words change meanwhile. See the module `family`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use pagealloc::MemoryProvider;
use sync::atomic::Ordering;
use sync::{Backoff, Mutex, PerCpuCounters, Reader};
use units::Cpu;

use super::{Displaced, Values, no_memory};
use crate::family::{ALONE, CHANGES, Count, MOST, Own, SEVERAL, Stores};
use crate::index::{Chain, END};
use crate::outcome::NoStore;
use crate::state::Swept;
use crate::word::{Fingerprint, Place, Word};

/// A thread that changes words: a reader. The list of stores does not change.
pub(super) struct Writer<'a> {
    reader: Reader<'a>,
    stores: Stores<'a>,
}

impl<'a> Deref for Writer<'a> {
    type Target = Reader<'a>;

    #[inline]
    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl<'a> Writer<'a> {
    pub(super) fn stores(&self) -> &Stores<'a> {
        &self.stores
    }

    /// Locks the bucket of a key for all stores, unless the lock of the own index does that. It is
    /// to be taken first.
    pub(super) fn lock_others(&self, key: Fingerprint) -> Option<Chain<'_>> {
        let first = self.stores.all.as_ref()?.first()?;
        (!Arc::ptr_eq(first, self.stores.own)).then(|| first.index.lock(key))
    }

    /// Whether no other store has a word that was taken out of the own index under the lock of all.
    pub(super) fn was_last(&self, word: Word) -> bool {
        // A group counts its words.
        matches!(word.place(), Place::Member(..))
            || self.stores.others().all(|own| own.index.find_word(word).is_none())
    }
}

impl Values {
    /// Enters a thread that changes words. It must not be a reader.
    #[inline]
    pub(super) fn write(&self, cpu: Cpu) -> Writer<'_> {
        loop {
            let reader = self.retired.read(cpu);
            // A thread that changes the list sees the reader, or this is what it has set. Acquire
            // pairs with the Release in `change`.
            let all = match self.family.state.load(Ordering::Acquire) {
                ALONE => None,
                SEVERAL => Some(self.family.all()),
                _ => {
                    drop(reader);
                    drop(self.family.changing.lock());
                    continue;
                }
            };
            return Writer { reader, stores: Stores { own: &self.own, all } };
        }
    }

    /// The stores of the family. One may come or go meanwhile.
    #[inline]
    pub(super) fn stores(&self) -> Stores<'_> {
        // Acquire pairs with the Release in `change`.
        let is_alone = self.family.state.load(Ordering::Acquire) == ALONE;
        Stores { own: &self.own, all: (!is_alone).then(|| self.family.all()) }
    }

    /// This store as if it had no clones.
    pub(super) fn alone(&self) -> Stores<'_> {
        Stores { own: &self.own, all: None }
    }

    /// Makes a clone: a store with the values that this one has at an instant within this call. It
    /// takes memory for its index, and shares the objects of all values until they are replaced.
    /// Reads go on meanwhile; what changes a store of the family waits until the index is copied.
    ///
    /// The clone has the options of this one, but [`crate::Options::evicted`]. The limit is that of
    /// all of them together, and what they share counts once. At the limit, values go that were
    /// read in none of them lately, and they leave all that share them. The index of the clone has
    /// memory of `provider`. The calling thread is not in a call of [`crate::Options::evicted`].
    ///
    /// # Errors
    /// [`NoStore`] for a store that outlives its process, for more than 254 clones, and when memory
    /// or address space is out.
    pub fn clone_contents(&self, provider: &dyn MemoryProvider) -> Result<Values, NoStore> {
        if self.kept {
            let text = "a store that outlives its process has no clones: save it, and load it into \
                        another one";
            return Err(NoStore::Invalid(text.into()));
        }
        let index = self.own.index.another(provider).map_err(no_memory)?;
        let (own, is_whole) = self.change(|stores| {
            let is_free = |number: &u8| stores.iter().all(|own| own.number != *number);
            let number = (0..MOST as u8).find(is_free).ok_or_else(|| {
                NoStore::Invalid(alloc::format!("{MOST} stores share all: no more are allowed"))
            })?;
            let counts = PerCpuCounters::new(self.cpus);
            let own = Arc::new(Own { number, index, counts, evicted: None });
            let is_whole = own.index.copy(&self.own.index, |word| {
                if let Place::Member(group, _) = word.place() {
                    self.groups.join(group);
                }
            });
            let data = self.own.counts.sum(Count::Data as usize);
            own.count(Cpu(0), Count::Data, data as i64);
            stores.push(own.clone());
            Ok((own, is_whole))
        })?;
        let (shared, swept) = (self.shared.clone(), Mutex::new(Swept::default()));
        let clone = Values { own, shared, swept, lost: 0 };
        if is_whole { Ok(clone) } else { Err(NoStore::NoMemory("the index is full".into())) }
    }

    /// Changes the list of stores while no thread changes words.
    fn change<R>(&self, change: impl FnOnce(&mut Vec<Arc<Own>>) -> R) -> R {
        let family = &self.family;
        let _changing = family.changing.lock();
        // The fences of the wait order this with who enters: it is waited for, or it sees this.
        family.state.store(CHANGES, Ordering::Relaxed);
        self.retired.wait_for_readers();
        let mut stores = family.all().to_vec();
        let changed = change(&mut stores);
        let state = if stores.len() > 1 { SEVERAL } else { ALONE };
        *family.stores.lock() = stores.into();
        // Release pairs with the Acquire in `write`.
        family.state.store(state, Ordering::Release);
        self.settle();
        // The next store with the number of one that went has nothing that waits.
        self.quiesce(Cpu(0));
        changed
    }

    /// Gives up what the store has, if others have not.
    pub(super) fn leave_family(&self) {
        let cpu = Cpu(0);
        let (mut place, mut words) = (0, Vec::new());
        while place < END {
            let next = {
                let _reader = self.retired.read(cpu);
                self.own.index.scan(place, &mut words)
            };
            // A word may have been renamed meanwhile.
            if words.is_empty() {
                place = next;
            }
            for word in words.drain(..) {
                let taken = self.take_out(&self.write(cpu), word, 0);
                taken.into_iter().for_each(|displaced| self.dispose(cpu, displaced));
            }
        }
        self.change(|stores| stores.retain(|own| !Arc::ptr_eq(own, &self.own)));
        // Another store may tell of a value that left this one.
        let mut backoff = Backoff::new();
        while self.own.evicted.as_ref().is_some_and(|tell| Arc::strong_count(tell) > 1) {
            backoff.wait();
        }
    }

    /// Takes a word out of the index of this store, if it is there still.
    pub(super) fn take_out(
        &self,
        writer: &Writer<'_>,
        word: Word,
        data: usize,
    ) -> Option<Displaced> {
        let _others = writer.lock_others(word.fingerprint());
        let mut chain = self.own.index.lock(word.fingerprint());
        let word = chain.take(chain.slot_of(word)?)?;
        Some(Displaced { word, data, was_last: writer.was_last(word) })
    }
}
