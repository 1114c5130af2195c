//! The table of shared objects: objects that several pages name.
//!
//! # Definitions
//! A *shared object* is one page that several have in common, or an *extent*: two to four
//! neighbouring pages compressed as one. Its *entry* is two words: what it is, and how many
//! *references* to it there are. Each page that names the entry, by its slot or its own entry, is a
//! reference; a thread that works on the object may hold others for a while.
//!
//! | bits of the first word | what |
//! |---|---|
//! | 0–49 | [`Object::word`] |
//! | 50–51 | the pages of the object, less one |
//! | 52 | the entry is in use |
//!
//! The first word of an unused entry is the number of the next one, or 0. Entry 0 is none: its
//! first word is the number of entries that were ever used, itself included.
//!
//! # Invariants
//! * The first word is written before a page names the entry, and stays until the last reference is
//!   dropped. Only compaction changes it: then it names the same object at its new place.
//! * A reference is counted before it is made, and dropped after it is gone. So the count is never
//!   lower than the number of pages; a kill may leave it higher. Recovery counts again.
//! * The number in entry 0 is above every entry that a page names.
//!
//! # Operations
//! A reader of a page has the page's reference while it reads, so it takes none of its own and
//! writes nothing: any number of CPUs read a popular page at once. Compaction waits for all readers
//! before it gives back the old place of a shared object.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};
use zcomp::EXTENT_PAGES;

use crate::Object;

const PAGES_SHIFT: u32 = Object::BITS;
const PAGES_MASK: u64 = 3;
const IN_USE: u64 = 1 << 52;
const _: () = assert!(EXTENT_PAGES == PAGES_MASK as usize + 1);

/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 16;

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The object.
    pub object: Object,
    /// The pages in it: one, or those of an extent.
    pub pages: usize,
}

impl Shared {
    /// The bytes of a page's share of the object, rounded up.
    #[must_use]
    pub const fn share(self) -> usize {
        self.object.bytes().div_ceil(self.pages)
    }

    fn word(self) -> u64 {
        self.object.word() | (self.pages as u64 - 1) << PAGES_SHIFT | IN_USE
    }

    fn from_word(word: u64) -> Shared {
        let pages = (word >> PAGES_SHIFT & PAGES_MASK) as usize + 1;
        Shared { object: Object::from_word(word), pages }
    }

    /// What a word says that may be damaged; `None` if no entry in use has such a word.
    fn checked_from_word(word: u64) -> Option<Shared> {
        if word >> PAGES_SHIFT >> 3 != 0 || word & IN_USE == 0 {
            return None;
        }
        let object = Object::checked_from_word(word)?;
        let shared = Shared::from_word(word);
        let fits = match object {
            Object::Compressed { .. } => true,
            Object::Huge(_) => shared.pages == 1,
            Object::SameFilled(_) => false,
        };
        fits.then_some(shared)
    }
}

/// The table. Any number of threads may call every method at once, but for those of recovery.
pub struct SharedObjects {
    /// The word and the references of each entry.
    entries: LazyTable<[AtomicU64; 2]>,
    /// The first unused entry, or 0.
    unused: Mutex<u32>,
}

impl SharedObjects {
    /// A table with room for `entries` entries, which take memory when they are used.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub fn new(provider: &dyn MemoryProvider, entries: usize) -> Result<SharedObjects, NoMemory> {
        let entries = entries.clamp(2, u32::MAX as usize);
        Ok(SharedObjects { entries: LazyTable::new(provider, entries)?, unused: Mutex::new(0) })
    }

    fn word(&self, number: u32) -> &AtomicU64 {
        &self.entries.get(number as usize)[0]
    }

    fn references(&self, number: u32) -> &AtomicU64 {
        &self.entries.get(number as usize)[1]
    }

    /// The number of entries that were ever used, entry 0 included; 0 if none ever was.
    #[must_use]
    pub fn ever_used(&self) -> u32 {
        // Acquire pairs with the Release in `insert`: a new entry has no reference yet.
        self.word(0).load(Ordering::Acquire) as u32
    }

    /// Provides memory for `more` entries beyond those ever used, if it is provided ahead. Returns
    /// whether they may be used. It may wait for memory.
    pub fn provide(&self, more: usize) -> bool {
        self.entries.provide((self.ever_used().max(1) as usize).saturating_add(more))
    }

    /// Whether an object can be entered now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        *self.unused.lock() != 0 || (self.ever_used().max(1) as usize) < self.entries.ready()
    }

    /// The number of entries that there is room for, entry 0 included.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Enters an object, with one reference: the caller's. `None` if there is no room, or if memory
    /// is provided ahead and there is none. It asks the system for nothing.
    #[must_use]
    pub fn insert(&self, shared: Shared) -> Option<u32> {
        let number = {
            let mut unused = self.unused.lock();
            match *unused {
                0 => {
                    let number = self.ever_used().max(1);
                    let end = number as usize + 1;
                    if end > self.entries.ready() {
                        return None;
                    }
                    // After damage the entry may not be new. Who sees that there is one more finds
                    // no reference: Release pairs with the Acquire in `ever_used`.
                    self.references(number).store(0, Ordering::Relaxed);
                    self.word(0).store(end as u64, Ordering::Release);
                    number
                }
                number => {
                    *unused = self.word(number).load(Ordering::Relaxed) as u32;
                    number
                }
            }
        };
        self.word(number).store(shared.word(), Ordering::Relaxed);
        // Release pairs with the Acquire in `try_hold`: who gets a reference sees the word. A slot
        // that names the entry is published by its own rules.
        self.references(number).store(1, Ordering::Release);
        Some(number)
    }

    /// What the entry says. The caller has a reference, or the reference of a page that it reads.
    #[inline]
    #[must_use]
    pub fn get(&self, number: u32) -> Shared {
        // Acquire pairs with the Release in `move_to`: the copy is complete.
        Shared::from_word(self.word(number).load(Ordering::Acquire))
    }

    /// What the entry said a moment ago; `None` if it was unused. The caller must not touch what it
    /// names.
    #[must_use]
    pub fn peek(&self, number: u32) -> Option<Shared> {
        self.left_in(number).filter(|_| self.count(number) != 0)
    }

    /// The references that there were a moment ago.
    #[must_use]
    pub fn count(&self, number: u32) -> u64 {
        self.references(number).load(Ordering::Relaxed)
    }

    /// Takes one more reference. The caller has one.
    pub fn hold(&self, number: u32) {
        self.references(number).fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a reference if there is one.
    #[must_use]
    pub fn try_hold(&self, number: u32) -> bool {
        let references = self.references(number);
        let mut count = references.load(Ordering::Relaxed);
        while count > 0 {
            // Acquire pairs with the Release in `insert`.
            let held = references.compare_exchange_weak(
                count,
                count + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match held {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// Drops a reference. If it was the last one, the entry is unused now, and the caller frees the
    /// object that is returned.
    pub fn drop_reference(&self, number: u32) -> Option<Shared> {
        // Release pairs with the Acquire of the last drop: all uses of the object come before it.
        if self.references(number).fetch_sub(1, Ordering::AcqRel) != 1 {
            return None;
        }
        Some(self.leave(number))
    }

    /// Takes the object of an entry of which the caller has the only reference, which is a slot's.
    /// Once the slot does not name the entry any more, the caller lets it go with
    /// [`SharedObjects::leave`]; until then another process finds the object by it.
    #[must_use]
    pub fn take_last(&self, number: u32) -> Option<Shared> {
        let references = self.references(number);
        // Acquire pairs with the Release of drops: all uses of the object come before this.
        references.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Shared::from_word(self.word(number).load(Ordering::Relaxed)))
    }

    /// An entry without a reference is unused from now on. Returns what it was.
    pub fn leave(&self, number: u32) -> Shared {
        let word = self.word(number);
        let shared = Shared::from_word(word.load(Ordering::Relaxed));
        let mut unused = self.unused.lock();
        word.store(u64::from(*unused), Ordering::Relaxed);
        *unused = number;
        shared
    }

    /// Lets the entry name its object at its new place. The caller has a reference, and is the only
    /// one that moves objects.
    pub fn move_to(&self, number: u32, moved: Shared) {
        // Release pairs with the Acquire in `get`.
        self.word(number).store(moved.word(), Ordering::Release);
    }

    /// Calls `look` with each entry that was in use a moment ago, and its references.
    pub fn each(&self, mut look: impl FnMut(u32, Shared, u64)) {
        for number in 1..self.ever_used() {
            if let Some(shared) = self.peek(number) {
                look(number, shared, self.count(number));
            }
        }
    }

    /// Begins the recovery of what another process left: nothing has a reference. No other thread
    /// uses the table.
    ///
    /// # Errors
    /// The number of entries that were ever used, if the table has fewer.
    pub fn forget_references(&self) -> Result<(), u64> {
        let used = self.word(0).load(Ordering::Relaxed);
        if used > self.room() {
            return Err(used);
        }
        for number in 1..used as u32 {
            let references = self.references(number);
            if references.load(Ordering::Relaxed) != 0 {
                references.store(0, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// What an entry says that another process left; `None` if no entry in use says it.
    #[must_use]
    pub fn left_in(&self, number: u32) -> Option<Shared> {
        if number == 0 || number >= self.ever_used() {
            return None;
        }
        Shared::checked_from_word(self.word(number).load(Ordering::Relaxed))
    }

    /// During a recovery: no slot names the entry, after all.
    pub fn forget(&self, number: u32) {
        self.references(number).store(0, Ordering::Relaxed);
    }

    /// Ends a recovery: entries without a reference are unused. No other thread uses the table.
    pub fn link_unused(&self) {
        let mut unused = self.unused.lock();
        for number in (1..self.ever_used()).rev() {
            if self.count(number) == 0 {
                self.word(number).store(u64::from(*unused), Ordering::Relaxed);
                *unused = number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::vec::Vec;

    use super::*;

    /// The number of used entries may be damaged: then one is used for the first time again.
    #[test]
    fn nobody_holds_what_an_entry_was_before_its_first_use() {
        let table = SharedObjects::new(&host::Mmap, 4).unwrap();
        let one = Shared { object: Object::Huge(zsmalloc::Handle::from_raw(1)), pages: 1 };
        let (round, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let until = |is: &dyn Fn() -> bool| {
            let mut tries = 0;
            while !is() {
                tries += 1;
                if tries > 1000 {
                    std::thread::yield_now();
                }
            }
        };
        let mut wrong = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=5000 {
                    until(&|| round.load(Ordering::Acquire) == number);
                    until(&|| table.ever_used() == 2);
                    let held = u64::from(table.try_hold(1));
                    done.store(number << 1 | held, Ordering::Release);
                }
            });
            for number in 1..=5000 {
                table.word(0).store(1, Ordering::Relaxed);
                table.references(1).store(7, Ordering::Relaxed);
                round.store(number, Ordering::Release);
                assert_eq!(table.insert(one), Some(1));
                until(&|| done.load(Ordering::Acquire) >> 1 == number);
                let held = done.load(Ordering::Relaxed) & 1;
                if table.count(1) != 1 + held {
                    wrong.push((number, table.count(1)));
                }
            }
        });
        assert!(wrong.is_empty(), "rounds, and the references then: {wrong:?}");
    }
}
