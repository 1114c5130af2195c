//! Indexes of swap areas that are broken, each in one way. The suites must reject them.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::ops::Range;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;
use zswap::index::Flat;
use zswap::{Index, Word};

/// The fault of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// No fault: the copy from which the others are made.
    None = 0,
    /// `remove_if` removes any word.
    IgnoresWord,
    /// `remove_if` reports success and removes nothing.
    TakesNothing,
    /// `insert` loses the replaced entry.
    LosesReplaced,
    /// `drain` leaves the last entry of its range.
    LeavesLast,
    /// `drain` shows every entry except the first.
    HidesFirst,
    /// `remove` leaves the entry in place, so that it has two owners.
    KeepsRemoved,
    /// `get` finds nothing at some offsets.
    IsBlind,
    /// Neighbouring offsets share an entry.
    SharesPlaces,
    /// Removed entries stay counted.
    ForgetsCounts,
    /// `remove_if` compares the entry's number and ignores its life.
    IgnoresLives,
    /// `insert` removes the old word before it inserts the new one.
    ReplacesInSteps,
    /// `remove` reads the word, removes it in a second step, and returns the word it read.
    RemovesInSteps,
    /// `drain` shows the entries in another order.
    DrainsBackwards,
}

impl Flaw {
    /// Those that a cache shows, one thread after the other.
    pub const ALL: [Flaw; 9] = [
        Flaw::IgnoresWord,
        Flaw::TakesNothing,
        Flaw::LosesReplaced,
        Flaw::LeavesLast,
        Flaw::HidesFirst,
        Flaw::KeepsRemoved,
        Flaw::IsBlind,
        Flaw::SharesPlaces,
        Flaw::ForgetsCounts,
    ];
}

/// The product's index with the flaw of this number.
pub struct Broken<const FLAW: u8>(Flat);

/// Calls a function with the type of the index that has the flaw.
macro_rules! with_flaw {
    ($flaw:expr, $function:ident($($argument:expr),*)) => {{
        use broken_index::{Broken, Flaw};
        match $flaw {
            Flaw::None => $function::<Broken<{ Flaw::None as u8 }>>($($argument),*),
            Flaw::IgnoresWord => $function::<Broken<{ Flaw::IgnoresWord as u8 }>>($($argument),*),
            Flaw::TakesNothing => $function::<Broken<{ Flaw::TakesNothing as u8 }>>($($argument),*),
            Flaw::LosesReplaced => {
                $function::<Broken<{ Flaw::LosesReplaced as u8 }>>($($argument),*)
            }
            Flaw::LeavesLast => $function::<Broken<{ Flaw::LeavesLast as u8 }>>($($argument),*),
            Flaw::HidesFirst => $function::<Broken<{ Flaw::HidesFirst as u8 }>>($($argument),*),
            Flaw::KeepsRemoved => $function::<Broken<{ Flaw::KeepsRemoved as u8 }>>($($argument),*),
            Flaw::IsBlind => $function::<Broken<{ Flaw::IsBlind as u8 }>>($($argument),*),
            Flaw::SharesPlaces => $function::<Broken<{ Flaw::SharesPlaces as u8 }>>($($argument),*),
            Flaw::ForgetsCounts => {
                $function::<Broken<{ Flaw::ForgetsCounts as u8 }>>($($argument),*)
            }
            Flaw::IgnoresLives => $function::<Broken<{ Flaw::IgnoresLives as u8 }>>($($argument),*),
            Flaw::ReplacesInSteps => {
                $function::<Broken<{ Flaw::ReplacesInSteps as u8 }>>($($argument),*)
            }
            Flaw::RemovesInSteps => {
                $function::<Broken<{ Flaw::RemovesInSteps as u8 }>>($($argument),*)
            }
            Flaw::DrainsBackwards => {
                $function::<Broken<{ Flaw::DrainsBackwards as u8 }>>($($argument),*)
            }
        }
    }};
}
pub(crate) use with_flaw;

impl<const FLAW: u8> Broken<FLAW> {
    const fn is(flaw: Flaw) -> bool {
        FLAW == flaw as u8
    }

    fn place(&self, offset: u64) -> u64 {
        if Self::is(Flaw::SharesPlaces) && offset == 5 { 4 } else { offset }
    }
}

// SAFETY: none. The index is broken on purpose, and tests must reject it.
unsafe impl<const FLAW: u8> Index for Broken<FLAW> {
    fn make(
        provider: &dyn MemoryProvider,
        pages: u64,
        entries: u32,
        cpus: usize,
    ) -> Result<Self, NoMemory> {
        Ok(Broken(Flat::make(provider, pages, entries, cpus)?))
    }
    fn get(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        if Self::is(Flaw::IsBlind) && offset % 16 == 3 {
            return None;
        }
        self.0.get(cpu, self.place(offset))
    }
    fn insert(&self, cpu: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory> {
        let before =
            if Self::is(Flaw::ReplacesInSteps) { self.0.remove(cpu, offset) } else { None };
        let old = before.or(self.0.insert(cpu, self.place(offset), word)?);
        Ok(old.filter(|_| !Self::is(Flaw::LosesReplaced)))
    }
    fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        if Self::is(Flaw::KeepsRemoved) {
            return self.0.get(cpu, offset);
        }
        let seen = if Self::is(Flaw::RemovesInSteps) { self.0.get(cpu, offset) } else { None };
        let removed = self.0.remove(cpu, self.place(offset));
        if Self::is(Flaw::RemovesInSteps) { seen } else { removed }
    }
    fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool {
        if Self::is(Flaw::IgnoresWord) {
            self.0.remove(cpu, offset).is_some()
        } else if Self::is(Flaw::TakesNothing) {
            self.0.get(cpu, offset) == Some(word)
        } else {
            let there = self.0.get(cpu, offset).filter(|_| Self::is(Flaw::IgnoresLives));
            let there = there.filter(|there| there.number() == word.number());
            self.0.remove_if(cpu, self.place(offset), there.unwrap_or(word))
        }
    }
    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word)) {
        let mut hidden = Self::is(Flaw::HidesFirst);
        let offsets = match Self::is(Flaw::LeavesLast) {
            true => offsets.start..offsets.end.saturating_sub(1).max(offsets.start),
            false => offsets,
        };
        let mut all = Vec::new();
        self.0.drain(cpu, offsets, &mut |offset, word| {
            if !std::mem::take(&mut hidden) {
                all.push((offset, word));
            }
        });
        if Self::is(Flaw::DrainsBackwards) {
            all.reverse();
        }
        all.into_iter().for_each(|(offset, word)| visit(offset, word));
    }
    fn provide(&self, entries: u32, more: u32) -> bool {
        self.0.provide(entries, more)
    }

    fn count(&self) -> u64 {
        if Self::is(Flaw::ForgetsCounts) { 0 } else { self.0.count() }
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn validate(&self) {
        self.0.validate();
    }
}
