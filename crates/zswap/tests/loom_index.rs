//! The table of the product under loom: lookups beside entries that come, go and are replaced; the
//! order of the index with the lock bits of pages (a page is written back beside its invalidation),
//! with what an entry names, and with the mark that the device has the page.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-zswap --test loom_index --release`, in a
//! target directory of its own. Without `--cfg loom` this file is empty. The crate itself is empty
//! with it, as its pools are not made for loom; the table and the lock bits are compiled into this
//! test. `designs/tests/loom_index.rs` plays the same on the radix tree.
//!
//! Beside them are a table and lock bits with flaws, which loom must refuse.
#![cfg(loom)]

extern crate alloc;

#[path = "../src/index/contract.rs"]
#[allow(dead_code)]
mod contract;
#[allow(dead_code)]
#[path = "../src/index/flat.rs"]
mod flat;
#[path = "common/index_models.rs"]
mod index_models;
#[allow(dead_code)]
#[path = "../src/key.rs"]
mod key;
#[path = "../src/lock_bits.rs"]
mod lock_bits;

use contract::Index;
use flat::Flat;
use index_models::{
    Barriers, Tree, a_neighbour_stays, a_page_is_invalidated, a_page_is_marked_before_it_leaves,
    a_word_is_replaced, an_entry_is_written_first, raw, refused_model, told_and_found, two_change,
};
use key::{MAX_OFFSETS, Word};
use loom::sync::atomic::{AtomicU64, Ordering};
use pagealloc::{MemoryProvider, NoMemory, Region};
use units::Cpu;

const PAGES: u64 = 4;
const _: () = assert!(PAGES < MAX_OFFSETS);

const CPU: Cpu = Cpu(0);

impl Tree for Flat {
    fn get(&self, offset: u64) -> u64 {
        raw(Index::get(self, CPU, offset))
    }
    fn insert(&self, offset: u64, word: u64) -> u64 {
        let word = Word::from_raw(word).expect("a word");
        raw(Index::insert(self, CPU, offset, word).expect("there is memory"))
    }
    fn remove(&self, offset: u64, only: u64) -> u64 {
        match Word::from_raw(only) {
            None => raw(Index::remove(self, CPU, offset)),
            Some(word) => u64::from(Index::remove_if(self, CPU, offset, word)) * only,
        }
    }
}

/// Tables are made one by one under loom.
struct NoProvider;

impl MemoryProvider for NoProvider {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        Err(NoMemory { bytes })
    }
}

fn flat() -> Flat {
    Flat::make(&NoProvider, PAGES, 0, 1).expect("it asks for nothing")
}

/// A table of one page whose words order nothing.
struct Careless(AtomicU64);

impl Tree for Careless {
    fn get(&self, _: u64) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn insert(&self, _: u64, word: u64) -> u64 {
        self.0.swap(word, Ordering::Relaxed)
    }
    fn remove(&self, _: u64, _: u64) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn careless() -> Careless {
    Careless(AtomicU64::new(0))
}

#[test]
fn neighbours_that_stay() {
    a_neighbour_stays(flat);
}

#[test]
fn words_that_are_replaced() {
    a_word_is_replaced(flat);
}

#[test]
fn words_come_out_once() {
    two_change(flat);
}

#[test]
fn what_one_is_told_of_is_found() {
    told_and_found(flat);
}

#[test]
fn what_a_word_names_was_written() {
    an_entry_is_written_first(flat);
}

#[test]
fn a_page_is_in_one_of_two_places() {
    a_page_is_marked_before_it_leaves(flat);
}

#[test]
fn invalidated_pages_are_not_written() {
    a_page_is_invalidated(flat, Barriers::Real);
    a_page_is_invalidated(flat, Barriers::Copied { locking: true, removing: true });
}

#[test]
fn a_table_that_orders_nothing_is_found() {
    refused_model(|| an_entry_is_written_first(careless), &["Causality violation"]);
    refused_model(|| a_page_is_marked_before_it_leaves(careless), &["in neither place"]);
}

/// Two threads write the page's place at once.
const BOTH_WRITE: &[&str] = &["Causality violation"];

#[test]
fn locking_without_a_barrier_is_found() {
    let barriers = Barriers::Copied { locking: false, removing: true };
    refused_model(|| a_page_is_invalidated(flat, barriers), BOTH_WRITE);
}

#[test]
fn removing_without_a_barrier_is_found() {
    let barriers = Barriers::Copied { locking: true, removing: false };
    refused_model(|| a_page_is_invalidated(flat, barriers), BOTH_WRITE);
}
