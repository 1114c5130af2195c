//! A copy of the radix tree with a flaw, as an index.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::ops::Range;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;
use zswap::{Index, Word};

use crate::copy::{Copy, Flaw};

/// A copy of the radix tree with a flaw, as an index.
pub struct Copied {
    tree: Copy,
    pages: u64,
    slots: u64,
}

impl Copied {
    /// Nodes of `1 << bits` slots.
    pub fn new(flaw: Flaw, bits: u32, pages: u64, entries: u32) -> Copied {
        let levels = (1..).find(|levels| pages <= 1 << (levels * bits)).expect("some number");
        let nodes = entries.min(4000) * levels;
        Copied { tree: Copy::new(flaw, bits, levels as usize, nodes), pages, slots: 1 << bits }
    }
}

// SAFETY: none. The index is broken on purpose, and tests must reject it.
unsafe impl Index for Copied {
    fn make(_: &dyn MemoryProvider, _: u64, _: u32, _: usize) -> Result<Self, NoMemory> {
        unreachable!("a test makes it with a flaw")
    }
    fn get(&self, _: Cpu, offset: u64) -> Option<Word> {
        Word::from_raw(self.tree.get(offset))
    }
    fn insert(&self, _: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory> {
        Ok(Word::from_raw(self.tree.insert(offset, word.get())))
    }
    fn remove(&self, _: Cpu, offset: u64) -> Option<Word> {
        Word::from_raw(self.tree.remove(offset, 0))
    }
    fn remove_if(&self, _: Cpu, offset: u64, word: Word) -> bool {
        self.tree.remove(offset, word.get()) != 0
    }
    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word)) {
        for offset in offsets.start..offsets.end.min(self.pages) {
            if let Some(word) = self.remove(cpu, offset) {
                visit(offset, word);
            }
        }
    }
    fn provide(&self, _: u32, _: u32) -> bool {
        true
    }
    fn count(&self) -> u64 {
        (0..self.pages).filter(|offset| self.tree.get(*offset) != 0).count() as u64
    }
    fn bytes(&self) -> u64 {
        self.tree.nodes() as u64 * self.slots * 8
    }
    fn validate(&self) {}
}
