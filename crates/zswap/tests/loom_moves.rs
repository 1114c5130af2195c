//! Compaction and recompression of a cache under loom: the word of an entry's object beside a
//! reader and beside the thread that frees the entry.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p rampack-zswap --test loom_moves --release`, in a
//! target directory of its own. Without `--cfg loom` this file is empty. The functions on the word
//! are the crate's own; the steps around them are those of `engine/compaction.rs`,
//! `engine/recompression.rs` and `engine/frees.rs`. Each flaw in these steps must be refused.
#![cfg(loom)]

#[path = "../src/object_word.rs"]
mod object_word;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use sync::Retired;
use units::Cpu;

/// What an object has in it, and a freed one.
const LIVE: u64 = 7;
const FREED: u64 = 1;
/// The place at which the object is at first, and the one that it is moved to.
const OLD: u64 = 1;
const NEW: u64 = 2;
/// The word of an entry without an object, and the retired word of the entry.
const NOTHING: u64 = 0;
/// Beside the place, once the entry was given up.
const CLOSED: u64 = 4;
const ENTRY: u64 = 9;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The new place is published without an ordering.
    Relaxed,
    /// The old place is freed while readers may use it.
    FreesAtOnce,
    /// The thread that compacts does not keep the entry.
    KeepsNothing,
    /// The object to be counted is looked up, and may be replaced afterwards.
    CountsEarly,
    /// The object to be freed is looked up when the entry is given up.
    LooksUpEarly,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Load,
    Move,
    Free,
}

/// An entry in an index, and the places of its object.
struct World {
    flaw: Flaw,
    index: AtomicU64,
    word: AtomicU64,
    places: [UnsafeCell<u64>; 3],
    /// Bytes of the object, as they are counted.
    bytes: AtomicU64,
    retired: Retired,
}

// SAFETY: the steps keep readers and those who write apart; loom checks that they do.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(flaw: Flaw) -> World {
        let world = World {
            flaw,
            index: AtomicU64::new(0),
            word: AtomicU64::new(NOTHING),
            bytes: AtomicU64::new(bytes_at(OLD)),
            places: [FREED, LIVE, FREED].map(UnsafeCell::new),
            // A full queue is emptied at once.
            retired: Retired::new(2, 1),
        };
        object_word::set(&world.word, OLD);
        world.index.store(ENTRY, Ordering::Release);
        world
    }

    fn is_indexed(&self) -> bool {
        self.index.load(Ordering::Acquire) == ENTRY
    }

    fn read(&self, place: u64) {
        // SAFETY: loom checks that no thread writes meanwhile.
        let found = self.places[place as usize].with(|place| unsafe { *place });
        assert_eq!(found, LIVE, "a freed object was read");
    }

    fn free(&self, place: u64) {
        // SAFETY: loom checks that no thread reads or writes meanwhile.
        self.places[place as usize].with_mut(|place| unsafe {
            assert_eq!(*place, LIVE, "freed twice");
            *place = FREED;
        });
    }

    /// Frees what a retired word names.
    fn release(&self, word: u64) {
        match word {
            ENTRY => match object_word::take(&self.word, NOTHING) & !CLOSED {
                NOTHING => {}
                place => self.free(place),
            },
            place => self.free(place),
        }
    }

    fn load(&self, cpu: Cpu) {
        let _reading = self.retired.read(cpu);
        if self.is_indexed() {
            self.read(object_word::get(&self.word) & !CLOSED);
        }
    }

    fn relocate(&self, cpu: Cpu) {
        let reading = (self.flaw != Flaw::KeepsNothing).then(|| self.retired.read(cpu));
        if !self.is_indexed() {
            return;
        }
        let from = object_word::get(&self.word);
        if from == NOTHING || from & CLOSED != 0 {
            return;
        }
        self.read(from);
        // SAFETY: only this thread knows the new place; loom checks.
        self.places[NEW as usize].with_mut(|place| unsafe { *place = LIVE });
        let moved = match self.flaw {
            Flaw::Relaxed => {
                self.word.compare_exchange(from, NEW, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            }
            _ => object_word::replace(&self.word, from, NEW),
        };
        if moved {
            self.bytes.fetch_add(bytes_at(NEW).wrapping_sub(bytes_at(from)), Ordering::Relaxed);
        }
        drop(reading);
        match (moved, self.flaw) {
            (true, Flaw::FreesAtOnce) => self.free(from),
            (true, _) => self.retired.retire(cpu, from, |word| self.release(word)),
            (false, _) => self.free(NEW),
        }
    }

    fn give_up(&self, cpu: Cpu) {
        if self.index.swap(0, Ordering::AcqRel) != ENTRY {
            return;
        }
        let last = match self.flaw {
            Flaw::LooksUpEarly | Flaw::CountsEarly => object_word::get(&self.word),
            _ => object_word::close(&self.word, CLOSED),
        };
        self.bytes.fetch_sub(bytes_at(last), Ordering::Relaxed);
        let word = if self.flaw == Flaw::LooksUpEarly { last } else { ENTRY };
        self.retired.retire(cpu, word, |word| self.release(word));
    }

    fn act(&self, act: Act, cpu: Cpu) {
        match act {
            Act::Load => self.load(cpu),
            Act::Move => self.relocate(cpu),
            Act::Free => self.give_up(cpu),
        }
    }

    /// When no thread is at it: the object is at one place, or at none if it was freed.
    fn rest(&self, freed: bool) {
        self.retired.quiesce(|word| self.release(word));
        // SAFETY: every thread has ended.
        let live = |place: &&UnsafeCell<u64>| place.with(|place| unsafe { *place }) == LIVE;
        assert_eq!(self.places.iter().filter(live).count(), usize::from(!freed), "places are lost");
        let there = self.places.iter().position(|place| live(&place)).unwrap_or(0);
        let counted = self.bytes.load(Ordering::Relaxed);
        assert_eq!(counted, bytes_at(there as u64), "bytes are counted wrongly");
        if !freed {
            self.load(Cpu(0));
        }
    }
}

/// The object is smaller at its new place. Nowhere it has none.
fn bytes_at(place: u64) -> u64 {
    [0, 40, 20][place as usize]
}

fn play(flaw: Flaw, acts: &'static [Act]) {
    let world = Arc::new(World::new(flaw));
    let others: Vec<_> = (1u32..)
        .zip(&acts[1..])
        .map(|(cpu, act)| {
            let world = world.clone();
            thread::spawn(move || world.act(*act, Cpu(cpu)))
        })
        .collect();
    world.act(acts[0], Cpu(0));
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
    world.rest(acts.contains(&Act::Free));
}

fn bounded(preemptions: usize, flaw: Flaw, acts: &'static [Act]) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || play(flaw, acts));
}

#[test]
fn an_object_is_there_and_freed_once_while_it_is_moved() {
    bounded(3, Flaw::None, &[Act::Move, Act::Load]);
    bounded(3, Flaw::None, &[Act::Move, Act::Free]);
    bounded(2, Flaw::None, &[Act::Move, Act::Free, Act::Load]);
}

fn refused(complaints: &[&str], flaw: Flaw, acts: &'static [Act]) {
    let checked = catch_unwind(AssertUnwindSafe(|| bounded(3, flaw, acts)));
    let payload = checked.expect_err("loom passed steps that are broken on purpose");
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("");
    let right = complaints.iter().any(|complaint| said.contains(complaint));
    assert!(right, "loom refused the steps, but for another reason: {said}");
}

const RACE: &str = "Causality violation";

#[test]
fn publishing_without_an_ordering_is_found() {
    refused(&[RACE, "a freed object was read"], Flaw::Relaxed, &[Act::Move, Act::Load]);
}

#[test]
fn freeing_a_place_under_its_readers_is_found() {
    refused(&[RACE, "a freed object was read"], Flaw::FreesAtOnce, &[Act::Move, Act::Load]);
}

#[test]
fn moving_what_is_not_kept_is_found() {
    let reasons = [RACE, "a freed object was read", "freed twice"];
    refused(&reasons, Flaw::KeepsNothing, &[Act::Move, Act::Free]);
}

#[test]
fn counting_an_object_that_is_replaced_then_is_found() {
    refused(&["bytes are counted wrongly"], Flaw::CountsEarly, &[Act::Move, Act::Free]);
}

#[test]
fn freeing_a_place_that_was_looked_up_too_early_is_found() {
    let reasons = [RACE, "a freed object was read", "freed twice", "places are lost"];
    refused(&reasons, Flaw::LooksUpEarly, &[Act::Move, Act::Free]);
}
