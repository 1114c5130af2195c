//! Indexes of swap areas that are broken, each in one way. The suites must reject them.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::ops::Range;

use pagealloc::{NoMemory, World};
use units::Cpu;
use zswap::index::XArraySplit;
use zswap::{Index, MakeIndex, Word};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing: the copy that the others are made from.
    None,
    /// `remove_if` takes out whatever is there.
    IgnoresWord,
    /// `remove_if` says yes and takes nothing out.
    TakesNothing,
    /// An entry that was replaced is forgotten.
    LosesReplaced,
    /// `drain` leaves out the last of its range.
    LeavesLast,
    /// `drain` tells of every entry but the first.
    HidesFirst,
    /// `remove` does not take out, so that an entry has two owners.
    KeepsRemoved,
    /// `get` finds nothing at some offsets.
    IsBlind,
    /// Neighbouring offsets share an entry.
    SharesPlaces,
    /// What was removed stays counted.
    ForgetsCounts,
}

impl Flaw {
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

    /// What makes an index with it.
    pub fn make(self) -> MakeIndex {
        match self {
            Flaw::None => |w, p, e, l| Broken::make(Flaw::None, w, p, e, l),
            Flaw::IgnoresWord => |w, p, e, l| Broken::make(Flaw::IgnoresWord, w, p, e, l),
            Flaw::TakesNothing => |w, p, e, l| Broken::make(Flaw::TakesNothing, w, p, e, l),
            Flaw::LosesReplaced => |w, p, e, l| Broken::make(Flaw::LosesReplaced, w, p, e, l),
            Flaw::LeavesLast => |w, p, e, l| Broken::make(Flaw::LeavesLast, w, p, e, l),
            Flaw::HidesFirst => |w, p, e, l| Broken::make(Flaw::HidesFirst, w, p, e, l),
            Flaw::KeepsRemoved => |w, p, e, l| Broken::make(Flaw::KeepsRemoved, w, p, e, l),
            Flaw::IsBlind => |w, p, e, l| Broken::make(Flaw::IsBlind, w, p, e, l),
            Flaw::SharesPlaces => |w, p, e, l| Broken::make(Flaw::SharesPlaces, w, p, e, l),
            Flaw::ForgetsCounts => |w, p, e, l| Broken::make(Flaw::ForgetsCounts, w, p, e, l),
        }
    }
}

struct Broken(Box<dyn Index>, Flaw);

impl Broken {
    fn make(
        flaw: Flaw,
        world: &dyn World,
        pages: u64,
        entries: u32,
        cpus: usize,
    ) -> Result<Box<dyn Index>, NoMemory> {
        Ok(Box::new(Broken(XArraySplit::make(world, pages, entries, cpus)?, flaw)))
    }

    fn place(&self, offset: u64) -> u64 {
        if self.1 == Flaw::SharesPlaces && offset == 5 { 4 } else { offset }
    }
}

impl Index for Broken {
    fn get(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        if self.1 == Flaw::IsBlind && offset % 16 == 3 {
            return None;
        }
        self.0.get(cpu, self.place(offset))
    }
    fn insert(&self, cpu: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory> {
        let old = self.0.insert(cpu, self.place(offset), word)?;
        Ok(old.filter(|_| self.1 != Flaw::LosesReplaced))
    }
    fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        match self.1 {
            Flaw::KeepsRemoved => self.0.get(cpu, offset),
            _ => self.0.remove(cpu, self.place(offset)),
        }
    }
    fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool {
        match self.1 {
            Flaw::IgnoresWord => self.0.remove(cpu, offset).is_some(),
            Flaw::TakesNothing => self.0.get(cpu, offset) == Some(word),
            _ => self.0.remove_if(cpu, self.place(offset), word),
        }
    }
    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word)) {
        let mut hidden = self.1 == Flaw::HidesFirst;
        let offsets = match self.1 {
            Flaw::LeavesLast => offsets.start..offsets.end.saturating_sub(1).max(offsets.start),
            _ => offsets,
        };
        self.0.drain(cpu, offsets, &mut |offset, word| {
            if !std::mem::take(&mut hidden) {
                visit(offset, word);
            }
        });
    }
    fn provide(&self, entries: u32, more: u32) -> bool {
        self.0.provide(entries, more)
    }

    fn count(&self) -> u64 {
        if self.1 == Flaw::ForgetsCounts { 0 } else { self.0.count() }
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn validate(&self) {
        self.0.validate();
    }
}
