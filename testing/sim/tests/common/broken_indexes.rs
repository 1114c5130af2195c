//! Indexes that are broken, each in one way.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::ops::Range;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;
use zswap::{Index, Word};

/// The fault of an index that wraps another index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// No fault.
    Nothing,
    /// `remove_if` compares the entry's number and ignores its life.
    IgnoresLives,
    /// `insert` does not return the displaced word.
    LosesDisplaced,
    /// `insert` removes the old word before it inserts the new one.
    ReplacesInSteps,
    /// `remove` reads the word, removes it in a second step, and returns the word it read.
    RemovesInSteps,
    /// `drain` leaves the last page of a range.
    DrainsTooLittle,
    /// `drain` shows the entries in another order.
    DrainsBackwards,
}

/// An index with a fault.
pub struct Over {
    pub index: Box<dyn Index>,
    pub wrong: Wrong,
}

// SAFETY: none. The index is broken on purpose, and tests must reject it.
unsafe impl Index for Over {
    fn make(_: &dyn MemoryProvider, _: u64, _: u32, _: usize) -> Result<Self, NoMemory> {
        unreachable!("a test makes it with a flaw")
    }
    fn get(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        self.index.get(cpu, offset)
    }
    fn insert(&self, cpu: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory> {
        match self.wrong {
            Wrong::LosesDisplaced => self.index.insert(cpu, offset, word).map(|_| None),
            Wrong::ReplacesInSteps => {
                let displaced = self.index.remove(cpu, offset);
                self.index.insert(cpu, offset, word).map(|meanwhile| displaced.or(meanwhile))
            }
            _ => self.index.insert(cpu, offset, word),
        }
    }
    fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        if self.wrong != Wrong::RemovesInSteps {
            return self.index.remove(cpu, offset);
        }
        let seen = self.index.get(cpu, offset);
        self.index.remove(cpu, offset);
        seen
    }
    fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool {
        let there = self.index.get(cpu, offset);
        match there.filter(|there| there.number() == word.number()) {
            Some(there) if self.wrong == Wrong::IgnoresLives => {
                self.index.remove_if(cpu, offset, there)
            }
            _ => self.index.remove_if(cpu, offset, word),
        }
    }
    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word)) {
        let mut all = Vec::new();
        let end = match self.wrong {
            Wrong::DrainsTooLittle => offsets.end.saturating_sub(1),
            _ => offsets.end,
        };
        self.index.drain(cpu, offsets.start..end, &mut |offset, word| all.push((offset, word)));
        if self.wrong == Wrong::DrainsBackwards {
            all.reverse();
        }
        all.into_iter().for_each(|(offset, word)| visit(offset, word));
    }
    fn provide(&self, entries: u32, more: u32) -> bool {
        self.index.provide(entries, more)
    }
    fn count(&self) -> u64 {
        self.index.count()
    }
    fn bytes(&self) -> u64 {
        self.index.bytes()
    }
    fn validate(&self) {
        self.index.validate();
    }
}
