//! A store and its clones, which are a *family*.
//!
//! # Definitions
//! A store has an index of its own. All else is the family's: the pool, the table of groups, what
//! waits for readers, the codecs, the limit. The same word in two indexes names the same object. An
//! object is *held* by the stores whose indexes have its word.
//!
//! # Why so
//! A clone is a copy of the index, so it costs words. Nobody counts who holds an object: the
//! indexes say it, as a word has the same fingerprint in all of them. What a store gives up is
//! looked for in the others, at the cost of a line of memory for each clone. The other ways are
//! dearer:
//! * A count for each object that is shared is a table as large as the index, and moves with the
//!   objects.
//! * A frozen index below two that differ from it looks twice for a value, keeps tombs for what was
//!   removed, and still has to know when nobody finds a word of it any more.
//! * The windows of a disk with clones work because its slots are numbered.
//!
//! # Invariants
//! * The first index of the family locks for all: whoever changes a word that other stores may have
//!   holds the lock of its bucket there, and takes that of another index second. So the holders of
//!   an object do not change while somebody looks for them.
//! * What a store puts, removes or clears is its own. What changes the place of a value (a move, a
//!   group, recompression) changes it for all holders at once. What leaves by itself leaves all
//!   holders: memory comes back only then.
//! * A group counts the words of all stores that name its members.
//! * Whoever changes words is a reader all the while. The list of stores changes when no such
//!   thread is under way, and others wait. So a clone has what its origin had at one instant.
//!
//! A store without clones pays a look at [`Family::state`] for each change, and none for a read.

use alloc::sync::Arc;
use core::ops::Deref;
use core::slice;

use sync::atomic::{AtomicU32, AtomicU64};
use sync::{Mutex, PerCpuCounters};
use units::Cpu;

use crate::Tell;
use crate::index::{Chain, Index};
use crate::outcome::Reason;
use crate::word::Word;

/// The most stores of a family: the counts of a group have room for the words of so many.
pub(crate) const MOST: usize = 255;

/// One store, or none: nobody looks at the list.
pub(crate) const ALONE: u32 = 0;
pub(crate) const SEVERAL: u32 = 1;
/// The list changes.
pub(crate) const CHANGES: u32 = 2;

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Data,
    Hits,
    Misses,
    Puts,
    Removes,
    Evicted,
    Expired,
    Refused,
    All,
}

/// What a store has for itself.
pub(crate) struct Own {
    /// No other store of the family has it.
    pub(crate) number: u8,
    pub(crate) index: Index,
    pub(crate) counts: PerCpuCounters<{ Count::All as usize }>,
    pub(crate) evicted: Option<Arc<Tell>>,
}

/// The stores of a family.
pub(crate) struct Family {
    pub(crate) state: AtomicU32,
    pub(crate) stores: Mutex<Arc<[Arc<Own>]>>,
    pub(crate) changing: Mutex<()>,
}

/// The stores of a family for a while.
pub(crate) struct Stores<'a> {
    pub(crate) own: &'a Arc<Own>,
    pub(crate) all: Option<Arc<[Arc<Own>]>>,
}

impl Own {
    pub(crate) fn count(&self, cpu: Cpu, which: Count, amount: i64) {
        self.counts.add(cpu, which as usize, amount);
    }

    /// Counts a value that left by itself.
    pub(crate) fn count_left(&self, cpu: Cpu, reason: Reason, data: usize) {
        let count = if reason == Reason::Evicted { Count::Evicted } else { Count::Expired };
        self.count(cpu, count, 1);
        self.count(cpu, Count::Data, -(data as i64));
    }
}

impl Family {
    pub(crate) fn new(own: Arc<Own>) -> Family {
        let (state, changing) = (AtomicU32::new(ALONE), Mutex::new(()));
        Family { state, stores: Mutex::new([own].into()), changing }
    }

    /// All stores. A store that is being dropped may not be one of them any more.
    pub(crate) fn all(&self) -> Arc<[Arc<Own>]> {
        self.stores.lock().clone()
    }
}

impl Deref for Stores<'_> {
    type Target = [Arc<Own>];

    #[inline]
    fn deref(&self) -> &[Arc<Own>] {
        self.all.as_deref().unwrap_or(slice::from_ref(self.own))
    }
}

impl Stores<'_> {
    /// The word of one of the stores that names the same thing. It was read if it was in any of
    /// them, and is idle if it is in all. The calling thread is a reader.
    pub(crate) fn find(&self, word: Word) -> Option<Word> {
        let found = self.iter().filter_map(|own| own.index.find_word(word));
        found.reduce(Word::of_both)
    }

    /// Calls `change` for each store that has a word, with the slot in its locked chain. Nobody
    /// else changes the word meanwhile, in any.
    pub(crate) fn at_each(
        &self,
        word: Word,
        mut change: impl FnMut(&Own, &mut Chain<'_>, &AtomicU64),
    ) {
        let mut first = None;
        for own in self.iter() {
            let mut chain = own.index.lock(word.fingerprint());
            if let Some(slot) = chain.slot_of(word) {
                change(own, &mut chain, slot);
            }
            first.get_or_insert(chain);
        }
    }

    /// Puts `next` in the place of a word, for all stores that have it. Returns how many.
    pub(crate) fn rename(&self, word: Word, next: Word) -> usize {
        let mut holders = 0;
        self.at_each(word, |_, chain, slot| {
            holders += usize::from(chain.replace(slot, next, true).is_some());
        });
        holders
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = &Arc<Own>> {
        self.iter().filter(|own| !Arc::ptr_eq(own, self.own))
    }
}
