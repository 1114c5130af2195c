//! Runs the suite of indexes on the product's index, and on broken ones.

#[path = "common/broken_index.rs"]
mod broken_index;
#[path = "common/swap.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use broken_index::{Flaw, with_flaw};
use common::{INDEXES, Kind};
use pagealloc::{MemoryProvider, NoMemory};
use sim::indexes;
use testkit::seed;
use zswap::Index;
use zswap::index::{self, Flat};

const CPUS: usize = 3;

fn every(test: &str, play: impl Fn(u64, indexes::Make<'_>)) {
    let seed = seed(test);
    for kind in crate::INDEXES {
        println!("{}", kind.0);
        play(seed, &|pages, entries| make(kind, &host::Mmap, pages, entries).expect("addresses"));
    }
}

fn make(
    (_, make): &Kind,
    provider: &dyn MemoryProvider,
    pages: u64,
    entries: u32,
) -> Result<Box<dyn Index>, NoMemory> {
    make.unwrap_or(index::make::<Flat>)(provider, pages, entries, CPUS)
}

#[test]
fn small_scenarios() {
    every("small_scenarios", |_, make| indexes::small_scenarios(make));
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

/// A provider without addresses.
struct Full;

impl MemoryProvider for Full {
    fn reserve(&self, bytes: usize) -> Result<pagealloc::Region, NoMemory> {
        Err(NoMemory { bytes })
    }
}

#[test]
fn without_addresses_there_is_no_index() {
    for kind in crate::INDEXES {
        assert!(make(kind, &Full, 1 << 20, 100).is_err(), "{}", kind.0);
    }
}

fn broken(flaw: Flaw) -> impl Fn(u64, u32) -> Box<dyn Index> + Sync {
    fn boxed<I: Index>(pages: u64, entries: u32) -> Box<dyn Index> {
        Box::new(I::make(&host::Mmap, pages, entries, CPUS).expect("there are addresses"))
    }
    move |pages, entries| with_flaw!(flaw, boxed(pages, entries))
}

/// The parts for one thread must find a flaw that one thread can see. Shuttle finds the flaws that
/// need several threads, because it controls when threads run.
fn found(complaint: &str, play: impl FnOnce()) {
    let payload = catch_unwind(AssertUnwindSafe(play)).expect_err("it passes, broken as it is");
    let said = payload.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(said.contains(complaint), "found for another reason: {said}");
}

#[test]
fn what_is_not_broken_passes() {
    let seed = seed("what_is_not_broken_passes");
    let good = broken(Flaw::None);
    indexes::small_scenarios(&good);
    indexes::vast(&good);
    indexes::against_model(seed, &good);
    indexes::histories(seed, &good);
}

#[test]
fn removing_another_life_is_found() {
    let seed = seed("removing_another_life_is_found");
    found("remove_if", || indexes::small_scenarios(&broken(Flaw::IgnoresLives)));
    found("remove_if", || indexes::against_model(seed, &broken(Flaw::IgnoresLives)));
}

#[test]
fn losing_what_was_displaced_is_found() {
    let seed = seed("losing_what_was_displaced_is_found");
    found("insert(", || indexes::small_scenarios(&broken(Flaw::LosesReplaced)));
    found("insert(", || indexes::against_model(seed, &broken(Flaw::LosesReplaced)));
    found("entries are lost", || indexes::owners(seed, &broken(Flaw::LosesReplaced)));
    found("no order of calls", || indexes::histories(seed, &broken(Flaw::LosesReplaced)));
}

#[test]
fn draining_wrongly_is_found() {
    found("drain(", || indexes::vast(&broken(Flaw::DrainsBackwards)));
    found("drain(", || indexes::small_scenarios(&broken(Flaw::LeavesLast)));
}
