//! Recovery of entries that another process left.
//!
//! An entry lives if an index names it in its present life and with its key. All others are free.

use alloc::{format, string::String, vec::Vec};
use core::cmp::Reverse;

use objects::Object;
use pagealloc::NoMemory;
use sync::atomic::Ordering;

use super::{
    AGES, CLOSED, Content, ENTRY_BYTES, Entries, KEY, LIFE_SHIFT, LINKED, LIST_SHIFT, NAMED,
    OBJECT, PATTERN, Part, SAME_FILLED, STATE,
};
use crate::{Key, Word, object_word};

impl Entries {
    /// Provides memory for the entries that were ever used, and takes them out of their lists.
    /// Passes what cannot be right to `finding`.
    ///
    /// # Errors
    /// [`NoMemory`] if the table is provided ahead and memory is out.
    pub(crate) fn begin_recovery(&self, finding: impl FnOnce(String)) -> Result<(), NoMemory> {
        let (used, most) = (self.touched(), u64::from(self.capacity));
        if used > most {
            finding(format!("{used} entries were used, and there is room for {most}"));
            self.used.get(0).store(most, Ordering::Relaxed);
        }
        let used = self.touched() as usize;
        if !self.table.provide(used + 1) {
            return Err(NoMemory { bytes: used * ENTRY_BYTES as usize });
        }
        for number in 1..=used {
            let state = &self.table.get(number)[STATE];
            if state.load(Ordering::Relaxed) & (NAMED | LINKED) != 0 {
                state.fetch_and(!(NAMED | LINKED), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The content of the entry that is named by `word` in the place of `key`.
    ///
    /// # Errors
    /// Says why there is no such entry.
    pub(crate) fn find(&self, word: Word, key: Key) -> Result<Content, String> {
        let number = word.number();
        if !(1..=self.touched()).contains(&u64::from(number)) {
            return Err(format!("there is no entry {number}"));
        }
        let entry = self.table.get(number as usize);
        let life = entry[STATE].load(Ordering::Relaxed) >> LIFE_SHIFT;
        if life != word.get() >> LIFE_SHIFT {
            return Err(format!("entry {number} is in another life"));
        }
        if entry[KEY].load(Ordering::Relaxed) & ((1 << Key::BITS) - 1) != key.pack() {
            return Err(format!("entry {number} is of another page"));
        }
        let none = || format!("entry {number} names no object that can be");
        match object_word::get(&entry[OBJECT]) {
            SAME_FILLED => Ok(Content::SameFilled(entry[PATTERN].load(Ordering::Relaxed))),
            word if word >> Object::BITS == 0 => match Object::checked_from_word(word) {
                // An entry holds the whole pattern, so no object is a pattern.
                None | Some(Object::SameFilled(_)) => Err(none()),
                Some(object) => Ok(Content::Stored(object)),
            },
            word if word & (SAME_FILLED | CLOSED) != 0 => Err(none()),
            word => Part::checked_from_word(word).map(Content::Part).ok_or_else(none),
        }
    }

    /// Notes that an index names an entry. Any number of threads may call it at once.
    pub(crate) fn set_named(&self, number: u32) {
        self.table.get(number as usize)[STATE].fetch_or(NAMED, Ordering::Relaxed);
    }

    /// Takes back that an index names an entry.
    pub(crate) fn set_unnamed(&self, number: u32) {
        self.table.get(number as usize)[STATE].fetch_and(!NAMED, Ordering::Relaxed);
    }

    fn is_named(&self, number: u32) -> bool {
        self.state(number) & NAMED != 0
    }

    /// Frees the entries that no index names. Of the others, returns those that are to be `listed`,
    /// the oldest first, and the age of the youngest.
    pub(crate) fn settle(&self, listed: impl Fn(u32) -> bool) -> (Vec<u32>, u32) {
        let used = self.touched() as u32;
        let mut common = self.common.lock();
        // The lowest numbers are taken first.
        for number in (1..=used).rev().filter(|number| !self.is_named(*number)) {
            object_word::set(&self.table.get(number as usize)[OBJECT], SAME_FILLED);
            self.push(&mut common, number);
        }
        self.has_common.store(common.count > 0, Ordering::Relaxed);
        drop(common);
        let all = (1..=used).filter(|number| self.is_named(*number) && listed(*number));
        let mut all: Vec<u32> = all.collect();
        let younger = |one, other| if behind(one, other) < AGES / 2 { other } else { one };
        let youngest = all.iter().map(|number| self.age(*number)).reduce(younger).unwrap_or(0);
        all.sort_by_key(|number| Reverse(behind(self.age(*number), youngest)));
        (all, youngest)
    }

    /// Says that a recovered entry is in a list again.
    pub(crate) fn set_list(&self, number: u32, list: u8) {
        let state = &self.table.get(number as usize)[STATE];
        let rest = state.load(Ordering::Relaxed) & !(0xff << LIST_SHIFT);
        state.store(rest | LINKED | u64::from(list) << LIST_SHIFT, Ordering::Relaxed);
    }
}

/// How much older `age` is than `youngest`. Entries have only the lower bits of their ages.
fn behind(age: u32, youngest: u32) -> u64 {
    u64::from(youngest).wrapping_sub(age.into()) % AGES
}
