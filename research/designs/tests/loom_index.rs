//! The radix tree whose lookups take no lock, under loom: lookups beside entries that come, go and
//! are replaced, and beside nodes that are used again in other places. And the order of the tree with
//! the lock bits of pages, and with what an entry names.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-designs --test loom_index --release`, in a
//! target directory of its own. Without `--cfg loom` this file is empty. The tree, the stock of its
//! nodes, and the words and lock bits of `zswap` are compiled into this test, with nodes of two
//! slots. The models are those of `zswap/tests/loom_index.rs`.
//! `testing/mutants` has the trees that loom must refuse.
#![cfg(loom)]

extern crate alloc;

#[path = "../src/indexes/cells.rs"]
mod cells;
#[path = "../../../crates/zswap/tests/common/index_models.rs"]
mod index_models;
#[allow(dead_code)]
#[path = "../../../crates/zswap/src/key.rs"]
mod key;
#[path = "../../../crates/zswap/src/lock_bits.rs"]
mod lock_bits;
#[allow(dead_code)]
#[path = "../src/indexes/node_pool.rs"]
mod node_pool;
#[allow(dead_code)]
#[path = "../src/indexes/radix.rs"]
mod radix;

use cells::{Cells, SLOTS};
use index_models::{
    Barriers, Tree, a_neighbour_stays, a_node_moves, a_page_is_invalidated, a_word_is_replaced,
    an_entry_is_written_first, raw, told_and_found, two_change,
};
use key::{MAX_OFFSETS, Word};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use radix::Radix;
use sync::Mutex;
use units::Cpu;

/// Two levels of two slots.
const PAGES: u64 = 4;
const LEVELS: usize = 2;
/// As many nodes as can be in the tree, so that they are used again at once.
const NODES: u32 = 3;
const _: () = assert!(PAGES < MAX_OFFSETS && SLOTS.pow(LEVELS as u32) as u64 == PAGES);

struct Nodes(Vec<([AtomicU64; SLOTS], AtomicU32, AtomicU32)>);

impl Cells for Nodes {
    fn slot(&self, node: u32, slot: usize) -> &AtomicU64 {
        &self.0[node as usize].0[slot]
    }
    fn life(&self, node: u32) -> &AtomicU32 {
        &self.0[node as usize].1
    }
    fn count(&self, node: u32) -> &AtomicU32 {
        &self.0[node as usize].2
    }
    fn highest(&self) -> u32 {
        NODES
    }
}

/// The crate's tree, with a lock for those who change it.
struct Real {
    radix: Radix<Nodes>,
    root: AtomicU64,
    lock: Mutex<()>,
}

impl Real {
    fn new() -> Real {
        let zero = || AtomicU32::new(0);
        let node = |_| ([AtomicU64::new(0), AtomicU64::new(0)], zero(), zero());
        let nodes = Nodes((0..=NODES).map(node).collect());
        let radix = Radix::new(nodes, PAGES, 1);
        Real { radix, root: AtomicU64::new(0), lock: Mutex::new(()) }
    }
}

impl Tree for Real {
    fn get(&self, offset: u64) -> u64 {
        raw(self.radix.get(&self.root, offset))
    }
    fn insert(&self, offset: u64, word: u64) -> u64 {
        let _lock = self.lock.lock();
        let word = Word::from_raw(word).expect("a word");
        raw(self.radix.insert(Cpu(0), &self.root, offset, word).expect("there are nodes"))
    }
    fn remove(&self, offset: u64, only: u64) -> u64 {
        let _lock = self.lock.lock();
        raw(self.radix.remove(Cpu(0), &self.root, offset, Word::from_raw(only)))
    }
}

#[test]
fn nodes_that_move() {
    a_node_moves(Real::new);
}

#[test]
fn neighbours_that_stay() {
    a_neighbour_stays(Real::new);
}

#[test]
fn words_that_are_replaced() {
    a_word_is_replaced(Real::new);
}

#[test]
fn words_come_out_once() {
    two_change(Real::new);
}

#[test]
fn what_one_is_told_of_is_found() {
    told_and_found(Real::new);
}

#[test]
fn what_a_word_names_was_written() {
    an_entry_is_written_first(Real::new);
}

#[test]
fn invalidated_pages_are_not_written() {
    a_page_is_invalidated(Real::new, Barriers::Real);
}
