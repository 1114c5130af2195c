//! Red-black trees, after Linux's first zswap (2013), which kept its entries in such a tree.
//!
//! A table holds the node of each entry under the entry's number, so an insert allocates nothing.
//! Each tree has a lock, and every operation holds it.
//!
//! # Why unsafe
//! The index, and so its trees, decides when an entry is freed.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;
use zswap::Word;

use super::trees::Forest;

/// Words of a node: the entry, its offset, the nodes to its left and right in one word, and the
/// node above with the colour.
const NODE: usize = 4;
const WORD: usize = 0;
const OFFSET: usize = 1;
const BELOW: usize = 2;
const ABOVE: usize = 3;
/// In [`ABOVE`]: the node is red.
const RED: u64 = 1 << 32;
/// No node.
const NONE: u32 = 0;

/// Which way down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Side {
    const fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }

    const fn shift(self) -> u32 {
        match self {
            Side::Left => 0,
            Side::Right => 32,
        }
    }
}

/// The nodes of all red-black trees of an index. The locks of the trees protect them, so every
/// access is relaxed.
pub struct RedBlackTrees {
    nodes: LazyTable<[AtomicU64; NODE]>,
}

impl RedBlackTrees {
    #[inline]
    fn load(&self, node: u32, which: usize) -> u64 {
        self.nodes.get(node as usize)[which].load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, node: u32, which: usize, value: u64) {
        self.nodes.get(node as usize)[which].store(value, Ordering::Relaxed);
    }

    #[inline]
    fn offset(&self, node: u32) -> u64 {
        self.load(node, OFFSET)
    }

    #[inline]
    fn below(&self, node: u32, side: Side) -> u32 {
        (self.load(node, BELOW) >> side.shift()) as u32
    }

    #[inline]
    fn set_below(&self, node: u32, side: Side, below: u32) {
        let others = self.load(node, BELOW) & !(u64::from(u32::MAX) << side.shift());
        self.set(node, BELOW, others | u64::from(below) << side.shift());
    }

    #[inline]
    fn above(&self, node: u32) -> u32 {
        self.load(node, ABOVE) as u32
    }

    fn set_above(&self, node: u32, above: u32) {
        self.set(node, ABOVE, self.load(node, ABOVE) & RED | u64::from(above));
    }

    /// The empty node (`NONE`) counts as black.
    #[inline]
    fn is_red(&self, node: u32) -> bool {
        node != NONE && self.load(node, ABOVE) & RED != 0
    }

    fn paint(&self, node: u32, red: bool) {
        let above = u64::from(self.above(node));
        self.set(node, ABOVE, if red { above | RED } else { above });
    }

    /// The side of `above` on which `node` is.
    fn side_of(&self, node: u32, above: u32) -> Side {
        if self.below(above, Side::Left) == node { Side::Left } else { Side::Right }
    }

    /// Links `new` below `above`, or at the root, in the place of `old`.
    fn relink(&self, root: &AtomicU64, above: u32, old: u32, new: u32) {
        if above == NONE {
            root.store(u64::from(new), Ordering::Relaxed);
        } else {
            self.set_below(above, self.side_of(old, above), new);
        }
        if new != NONE {
            self.set_above(new, above);
        }
    }

    /// Moves `node` down to `side`, and the node of the other side into its place.
    fn rotate(&self, root: &AtomicU64, node: u32, side: Side) {
        let rises = self.below(node, side.other());
        let changes = self.below(rises, side);
        self.set_below(node, side.other(), changes);
        if changes != NONE {
            self.set_above(changes, node);
        }
        self.relink(root, self.above(node), node, rises);
        self.set_below(rises, side, node);
        self.set_above(node, rises);
    }

    /// Finds the node of an offset. An error has the node to insert the offset below, and the side.
    #[inline]
    fn find(&self, root: &AtomicU64, offset: u64) -> Result<u32, (u32, Side)> {
        let mut at = root.load(Ordering::Relaxed) as u32;
        let mut last = (NONE, Side::Left);
        while at != NONE {
            let its = self.offset(at);
            if its == offset {
                return Ok(at);
            }
            let side = if offset < its { Side::Left } else { Side::Right };
            last = (at, side);
            at = self.below(at, side);
        }
        Err(last)
    }

    /// Repairs the tree after an insert: `node` is red, and the node above it may be red, too.
    fn mend_red(&self, root: &AtomicU64, mut node: u32) {
        loop {
            let above = self.above(node);
            if above == NONE {
                return self.paint(node, false);
            }
            if !self.is_red(above) {
                return;
            }
            // A red node is never the root.
            let top = self.above(above);
            let side = self.side_of(above, top);
            let uncle = self.below(top, side.other());
            if self.is_red(uncle) {
                self.paint(above, false);
                self.paint(uncle, false);
                self.paint(top, true);
                node = top;
                continue;
            }
            if self.side_of(node, above) != side {
                self.rotate(root, above, side);
            }
            let rises = self.below(top, side);
            self.paint(rises, false);
            self.paint(top, true);
            return self.rotate(root, top, side.other());
        }
    }

    /// Repairs the tree after a removal: on `side` of `above` every path down lacks one black node.
    fn mend_black(&self, root: &AtomicU64, mut above: u32, mut side: Side) {
        loop {
            let node = self.below(above, side);
            if self.is_red(node) {
                return self.paint(node, false);
            }
            let mut sibling = self.below(above, side.other());
            if self.is_red(sibling) {
                self.paint(sibling, false);
                self.paint(above, true);
                self.rotate(root, above, side);
                sibling = self.below(above, side.other());
            }
            let far = self.below(sibling, side.other());
            let near = self.below(sibling, side);
            if !self.is_red(far) && !self.is_red(near) {
                self.paint(sibling, true);
                let next = self.above(above);
                if self.is_red(above) || next == NONE {
                    return self.paint(above, false);
                }
                side = self.side_of(above, next);
                above = next;
                continue;
            }
            if !self.is_red(far) {
                self.paint(near, false);
                self.paint(sibling, true);
                self.rotate(root, sibling, side.other());
                sibling = near;
            }
            self.paint(sibling, self.is_red(above));
            self.paint(above, false);
            self.paint(self.below(sibling, side.other()), false);
            return self.rotate(root, above, side);
        }
    }

    /// Puts `new` in the place of `old`, with the colour of `old` and the nodes below it.
    fn replace(&self, root: &AtomicU64, old: u32, new: u32) {
        let above = self.above(old);
        self.set(new, BELOW, self.load(old, BELOW));
        self.set(new, ABOVE, self.load(old, ABOVE));
        self.relink(root, above, old, new);
        for side in [Side::Left, Side::Right] {
            let below = self.below(new, side);
            if below != NONE {
                self.set_above(below, new);
            }
        }
    }

    /// The leftmost node from `node` down.
    fn leftmost(&self, mut node: u32) -> u32 {
        loop {
            match self.below(node, Side::Left) {
                NONE => return node,
                left => node = left,
            }
        }
    }

    /// Takes `node` out of its tree.
    fn unlink(&self, root: &AtomicU64, node: u32) {
        let (left, right) = (self.below(node, Side::Left), self.below(node, Side::Right));
        if left != NONE && right != NONE {
            // The successor has no left child. It leaves its own place and replaces this node.
            let next = self.leftmost(right);
            self.unlink_edge(root, next);
            self.replace(root, node, next);
        } else {
            self.unlink_edge(root, node);
        }
    }

    /// Takes out a node with at most one child.
    fn unlink_edge(&self, root: &AtomicU64, node: u32) {
        let above = self.above(node);
        let left = self.below(node, Side::Left);
        let child = if left == NONE { self.below(node, Side::Right) } else { left };
        let side = (above != NONE).then(|| self.side_of(node, above));
        self.relink(root, above, node, child);
        if self.is_red(node) {
            return;
        }
        match side {
            Some(side) => self.mend_black(root, above, side),
            None if child != NONE => self.paint(child, false),
            None => {}
        }
    }

    /// Checks the subtree of `node` below `above`: offsets within `from..to`, colours and links.
    /// Returns its black height and its number of entries.
    fn check(&self, node: u32, above: u32, from: u64, to: u64) -> (u32, u64) {
        if node == NONE {
            return (0, 0);
        }
        let offset = self.offset(node);
        assert!(
            (from..to).contains(&offset),
            "page {offset} is in the tree where only pages {from} to {to} are"
        );
        let word = Word::from_raw(self.load(node, WORD));
        assert_eq!(word.map(Word::number), Some(node), "page {offset} has the node of another");
        assert_eq!(self.above(node), above, "page {offset} does not know what is above it");
        let red = self.is_red(node);
        assert!(!(red && self.is_red(above)), "page {offset} is red, and so is what is above it");
        let (left, of_left) = self.check(self.below(node, Side::Left), node, from, offset);
        let (right, of_right) = self.check(self.below(node, Side::Right), node, offset + 1, to);
        assert_eq!(
            left, right,
            "below page {offset} the ways down have different numbers of blacks"
        );
        (left + u32::from(!red), of_left + of_right + 1)
    }
}

// SAFETY: a word is only in the node of its entry, and threads link and unlink that node under the
// lock of the tree.
unsafe impl Forest for RedBlackTrees {
    const NAME: &'static str = "rbtree";
    const SPLIT_NAME: &'static str = "rbtree-split";
    /// The root is beside the lock, as every reader of it takes the lock.
    const ROOT: usize = 1;
    const LOCK_FREE: bool = false;

    fn new(
        provider: &dyn MemoryProvider,
        _: usize,
        _: u64,
        entries: u32,
        _: usize,
    ) -> Result<RedBlackTrees, NoMemory> {
        Ok(RedBlackTrees { nodes: LazyTable::new(provider, entries as usize + 1)? })
    }

    fn get(&self, root: &AtomicU64, offset: u64) -> Option<Word> {
        let node = self.find(root, offset).ok()?;
        Word::from_raw(self.load(node, WORD))
    }

    fn insert(
        &self,
        _: Cpu,
        root: &AtomicU64,
        offset: u64,
        word: Word,
    ) -> Result<Option<Word>, NoMemory> {
        let node = word.number();
        let displaced = match self.find(root, offset) {
            Ok(old) => {
                let displaced = Word::from_raw(self.load(old, WORD));
                if old != node {
                    self.replace(root, old, node);
                }
                displaced
            }
            Err((above, side)) => {
                self.set(node, BELOW, 0);
                self.set(node, ABOVE, u64::from(above) | RED);
                if above == NONE {
                    root.store(u64::from(node), Ordering::Relaxed);
                } else {
                    self.set_below(above, side, node);
                }
                self.mend_red(root, node);
                None
            }
        };
        self.set(node, OFFSET, offset);
        self.set(node, WORD, word.get());
        Ok(displaced)
    }

    fn remove(&self, _: Cpu, root: &AtomicU64, offset: u64, only: Option<Word>) -> Option<Word> {
        let node = self.find(root, offset).ok()?;
        let word = Word::from_raw(self.load(node, WORD))?;
        if only.is_some_and(|only| only != word) {
            return None;
        }
        self.unlink(root, node);
        Some(word)
    }

    fn next(&self, root: &AtomicU64, from: u64) -> Option<(u64, Word)> {
        let node = match self.find(root, from) {
            Ok(node) => node,
            Err((above, Side::Left)) => above,
            // Climbs out of every right side, and out of one left side.
            Err((mut node, Side::Right)) => loop {
                let above = self.above(node);
                if above == NONE || self.side_of(node, above) == Side::Left {
                    break above;
                }
                node = above;
            },
        };
        if node == NONE {
            return None;
        }
        Word::from_raw(self.load(node, WORD)).map(|word| (self.offset(node), word))
    }

    fn provide(&self, entries: u32, _: u32) -> bool {
        // A node has the number of its entry, which starts at 1.
        self.nodes.provide(entries as usize + 1)
    }

    fn bytes(&self, entries: u64) -> u64 {
        entries * size_of::<[AtomicU64; NODE]>() as u64
    }

    fn validate(&self, root: &AtomicU64) -> (u64, u64) {
        let node = root.load(Ordering::Relaxed) as u32;
        assert!(!self.is_red(node), "the root is red");
        let (_, entries) = self.check(node, NONE, 0, u64::MAX);
        (entries, entries)
    }

    fn validate_all(&self, _: u64, _: u64) {}
}
