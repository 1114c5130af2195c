//! A copy of the radix tree, with one flaw at a time.
// Each test binary uses a part of it.
#![allow(dead_code)]

use sync::Mutex;
use sync::atomic::{AtomicU32, AtomicU64, Ordering, spin_hint};

/// What is wrong with a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Lookups do not look whether a node is still in its life.
    LooksAtNoLife,
    /// They look before they read the slot.
    LooksBefore,
    /// A node that is taken out stays in its life.
    EndsNoLife,
    /// The slots of new nodes are filled without Release.
    FillsRelaxed,
    /// A new node is put into its place without Release.
    LinksRelaxed,
    /// A word is replaced in two steps.
    ReplacesInSteps,
    /// An empty node stays where it is.
    KeepsEmptyNodes,
    /// A node in which there is one more entry is taken out.
    EndsTooEarly,
}

struct Node {
    slots: Vec<AtomicU64>,
    life: AtomicU32,
    count: AtomicU32,
}

/// One tree. Words are numbers, and 0 is none.
pub struct Copy {
    flaw: Flaw,
    bits: u32,
    levels: usize,
    root: AtomicU64,
    nodes: Vec<Node>,
    unused: Mutex<Vec<u32>>,
}

impl Copy {
    pub fn new(flaw: Flaw, bits: u32, levels: usize, nodes: u32) -> Copy {
        let node = |_| Node {
            slots: (0..1 << bits).map(|_| AtomicU64::new(0)).collect(),
            life: AtomicU32::new(0),
            count: AtomicU32::new(0),
        };
        let unused = Mutex::new((1..=nodes).rev().collect());
        let nodes = (0..=nodes).map(node).collect();
        Copy { flaw, bits, levels, root: AtomicU64::new(0), nodes, unused }
    }

    fn node(&self, link: u64) -> &Node {
        &self.nodes[link as u32 as usize]
    }

    fn slot(&self, link: u64, offset: u64, level: usize) -> &AtomicU64 {
        let slot = (offset >> (level as u32 * self.bits)) as usize & ((1 << self.bits) - 1);
        &self.node(link).slots[slot]
    }

    pub fn get(&self, offset: u64) -> u64 {
        'again: loop {
            let mut raw = self.root.load(Ordering::Acquire);
            for level in (0..self.levels).rev() {
                if raw == 0 {
                    return 0;
                }
                let link = raw;
                let lives = || self.node(link).life.load(Ordering::Acquire) == (link >> 32) as u32;
                if self.flaw == Flaw::LooksBefore && !lives() {
                    spin_hint();
                    continue 'again;
                }
                raw = self.slot(link, offset, level).load(Ordering::Acquire);
                let looks = !matches!(self.flaw, Flaw::LooksBefore | Flaw::LooksAtNoLife);
                if looks && !lives() {
                    spin_hint();
                    continue 'again;
                }
            }
            return raw;
        }
    }

    fn order(&self, flaw: Flaw) -> Ordering {
        if self.flaw == flaw { Ordering::Relaxed } else { Ordering::Release }
    }

    pub fn insert(&self, offset: u64, word: u64) -> u64 {
        let mut unused = self.unused.lock();
        let (mut place, mut owner, mut level) = (&self.root, 0, self.levels);
        while level > 0 && place.load(Ordering::Relaxed) != 0 {
            level -= 1;
            owner = place.load(Ordering::Relaxed);
            place = self.slot(owner, offset, level);
        }
        let mut below = word;
        let makes = level > 0;
        for level in 0..level {
            let number = unused.pop().expect("a copy has nodes enough");
            let life = self.node(u64::from(number)).life.load(Ordering::Relaxed);
            let link = u64::from(life) << 32 | u64::from(number);
            self.slot(link, offset, level).store(below, self.order(Flaw::FillsRelaxed));
            self.node(link).count.store(1, Ordering::Relaxed);
            below = link;
        }
        let displaced = place.load(Ordering::Relaxed);
        if self.flaw == Flaw::ReplacesInSteps {
            place.store(0, Ordering::Release);
        }
        let order = if makes { self.order(Flaw::LinksRelaxed) } else { Ordering::Release };
        place.store(below, order);
        if owner != 0 && displaced == 0 {
            self.node(owner).count.fetch_add(1, Ordering::Relaxed);
        }
        displaced
    }

    /// Takes out what is at `offset`; if `only` is not 0, nothing else than that.
    pub fn remove(&self, offset: u64, only: u64) -> u64 {
        let mut unused = self.unused.lock();
        let mut path = vec![0; self.levels];
        let mut place = &self.root;
        for level in (0..self.levels).rev() {
            path[level] = place.load(Ordering::Relaxed);
            if path[level] == 0 {
                return 0;
            }
            place = self.slot(path[level], offset, level);
        }
        let word = place.load(Ordering::Relaxed);
        if word == 0 || (only != 0 && only != word) {
            return 0;
        }
        place.store(0, Ordering::Release);
        for level in 0..self.levels {
            let node = self.node(path[level]);
            let left = node.count.fetch_sub(1, Ordering::Relaxed) - 1;
            let early = self.flaw == Flaw::EndsTooEarly && level == 0 && left == 1;
            if (left > 0 && !early) || self.flaw == Flaw::KeepsEmptyNodes {
                break;
            }
            let above = match path.get(level + 1) {
                Some(above) => self.slot(*above, offset, level + 1),
                None => &self.root,
            };
            above.store(0, Ordering::Release);
            if self.flaw != Flaw::EndsNoLife {
                node.life.fetch_add(1, Ordering::Release);
            }
            unused.push(path[level] as u32);
        }
        word
    }

    /// Nodes that are in the tree.
    pub fn nodes(&self) -> usize {
        self.nodes.len() - 1 - self.unused.lock().len()
    }
}
