//! The indexes of swap areas against the suite of their seam.

use pagealloc::{NoMemory, World};
use sim::indexes;
use testkit::seed;
use zswap::index::{RbTree, RbTreeSplit, XArray, XArraySplit};
use zswap::{Index, MakeIndex};

const LANES: usize = 3;

/// Every index under its name.
const INDEXES: [(&str, MakeIndex); 4] = [
    (RbTree::NAME, RbTree::make),
    (RbTreeSplit::NAME, RbTreeSplit::make),
    (XArray::NAME, XArray::make),
    (XArraySplit::NAME, XArraySplit::make),
];

fn every(test: &str, play: impl Fn(u64, indexes::Make<'_>)) {
    let seed = seed(test);
    for (name, make) in INDEXES {
        println!("{name}");
        play(seed, &|pages, entries| {
            make(&host::Mmap, pages, entries, LANES).expect("there are addresses")
        });
    }
}

#[test]
fn small_worlds() {
    every("small_worlds", |_, make| indexes::small_worlds(make));
}

#[test]
fn a_vast_area() {
    every("a_vast_area", |_, make| indexes::vast(make));
}

#[test]
fn the_model() {
    every("the_model", indexes::against_model);
}

#[test]
fn owners() {
    every("owners", indexes::owners);
}

#[test]
fn neighbours() {
    every("neighbours", indexes::neighbours);
}

#[test]
fn versions() {
    every("versions", indexes::versions);
}

#[test]
fn histories() {
    every("histories", indexes::histories);
}

/// A world without addresses.
struct Full;

impl World for Full {
    fn reserve(&self, bytes: usize) -> Result<pagealloc::Region, NoMemory> {
        Err(NoMemory { bytes })
    }
}

#[test]
fn without_addresses_there_is_no_index() {
    for (name, make) in INDEXES {
        let made: Result<Box<dyn Index>, NoMemory> = make(&Full, 1 << 20, 100, LANES);
        assert!(made.is_err(), "{name}");
    }
}
