//! Sets of small numbers, as bits with a 64-ary summary tree above each.
//!
//! A bit of a summary word says whether the word below it has any bit set. So the lowest and the
//! highest member of a set of four billion are six words away. An insert or a remove touches one
//! word unless that word becomes empty or non-empty. Several trees share one lazily backed table:
//! only written parts cost memory.

use core::fmt;

use sync::atomic::{AtomicU64, Ordering};

use crate::{LazyTable, MemoryProvider, NoMemory};

const WORD: usize = 64;
/// Levels that 2^32 members need.
const MAX_LEVELS: usize = 6;

/// The start of each level of one tree in the table, the members themselves first.
#[derive(Clone, Copy, Default)]
struct Tree {
    members: usize,
    levels: usize,
    start: [usize; MAX_LEVELS],
}

/// `TREES` sets, all empty at first. Only the holder of the lock of the described data may change
/// them. The words are atomic only because the table is shared memory.
pub struct Bits<const TREES: usize> {
    words: LazyTable<AtomicU64>,
    trees: [Tree; TREES],
}

impl<const TREES: usize> Bits<TREES> {
    /// Makes the sets. Set `n` may have the members `0..members[n]`, each at most 2^32.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no addresses.
    pub fn new(
        provider: &dyn MemoryProvider,
        members: [usize; TREES],
    ) -> Result<Bits<TREES>, NoMemory> {
        let mut end = 0;
        let trees = members.map(|members| {
            let mut tree = Tree { members, ..Tree::default() };
            let mut below = members;
            loop {
                tree.start[tree.levels] = end;
                tree.levels += 1;
                below = below.div_ceil(WORD).max(1);
                end += below;
                if below == 1 {
                    return tree;
                }
            }
        });
        Ok(Bits { words: LazyTable::provided(provider, end)?, trees })
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).load(Ordering::Relaxed)
    }

    fn set_word(&self, index: usize, word: u64) {
        self.words.get(index).store(word, Ordering::Relaxed);
    }

    /// Whether `member` is in the set; a number that cannot be a member is not.
    #[inline]
    #[must_use]
    pub fn contains(&self, tree: usize, member: usize) -> bool {
        let tree = &self.trees[tree];
        member < tree.members
            && self.word(tree.start[0] + member / WORD) >> (member % WORD) & 1 != 0
    }

    /// Adds `member`.
    #[inline]
    pub fn insert(&mut self, tree: usize, member: usize) {
        debug_assert!(!self.contains(tree, member));
        let tree = &self.trees[tree];
        let mut at = member;
        for start in &tree.start[..tree.levels] {
            let old = self.word(start + at / WORD);
            self.set_word(start + at / WORD, old | 1 << (at % WORD));
            if old != 0 {
                break;
            }
            at /= WORD;
        }
    }

    /// Removes `member`.
    #[inline]
    pub fn remove(&mut self, tree: usize, member: usize) {
        debug_assert!(self.contains(tree, member));
        let tree = &self.trees[tree];
        let mut at = member;
        for start in &tree.start[..tree.levels] {
            let new = self.word(start + at / WORD) & !(1 << (at % WORD));
            self.set_word(start + at / WORD, new);
            if new != 0 {
                break;
            }
            at /= WORD;
        }
    }

    /// The lowest member from `from` on.
    #[must_use]
    pub fn next(&self, tree: usize, from: usize) -> Option<usize> {
        let Tree { members, levels, start } = self.trees[tree];
        let (mut at, mut below) = (from, members);
        for level in 0..levels {
            if at >= below {
                return None;
            }
            let rest = self.word(start[level] + at / WORD) & (!0 << (at % WORD));
            if rest != 0 {
                let mut found = at / WORD * WORD + rest.trailing_zeros() as usize;
                for start in start[..level].iter().rev() {
                    found = found * WORD + self.word(start + found).trailing_zeros() as usize;
                }
                return Some(found);
            }
            at = at / WORD + 1;
            below = below.div_ceil(WORD);
        }
        None
    }

    /// The highest member.
    #[must_use]
    pub fn last(&self, tree: usize) -> Option<usize> {
        self.descend(tree, |word| 63 - word.leading_zeros())
    }

    fn descend(&self, tree: usize, choose: impl Fn(u64) -> u32) -> Option<usize> {
        let tree = &self.trees[tree];
        let mut at = 0;
        for start in tree.start[..tree.levels].iter().rev() {
            let word = self.word(start + at);
            if word == 0 {
                return None;
            }
            at = at * WORD + choose(word) as usize;
        }
        Some(at)
    }

    /// Checks every summary bit against the word it summarises.
    ///
    /// # Panics
    /// The message gives the first word that contradicts its summary. `name` is the name of the
    /// tree.
    pub fn validate(&self, tree: usize, name: impl fmt::Display) {
        let Tree { members, levels, start } = self.trees[tree];
        let mut below = members;
        for level in 0..levels {
            let words = below.div_ceil(WORD).max(1);
            for index in 0..words {
                let word = self.word(start[level] + index);
                let used = (below - index * WORD).min(WORD);
                assert!(
                    used == WORD || word >> used == 0,
                    "{name}: level {level} has bits beyond its {below} members"
                );
                if level + 1 < levels {
                    let summary = self.word(start[level + 1] + index / WORD);
                    assert_eq!(
                        summary >> (index % WORD) & 1 != 0,
                        word != 0,
                        "{name}: word {index} of level {level} is {word:#x}, its summary disagrees"
                    );
                }
            }
            below = words;
        }
    }
}

#[cfg(test)]
mod tests;
