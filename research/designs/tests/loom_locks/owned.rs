//! Ownership of a word: the `cas` scheme of slots.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::{RACE, at_once, every, refused};

/// A manner of owning: the crate's, or a copy with a flaw.
trait Manner: 'static {
    fn own(word: &AtomicU64) -> u64;
    fn disown(word: &AtomicU64, next: u64);
}

struct Ours;

impl Manner for Ours {
    fn own(word: &AtomicU64) -> u64 {
        designs::locks::own(word)
    }
    fn disown(word: &AtomicU64, next: u64) {
        designs::locks::disown(word, next);
    }
}

/// A slot that names an object; whoever owns the slot may read the object, or free it once it has
/// put another in its place.
struct World {
    slot: AtomicU64,
    objects: [UnsafeCell<u64>; 3],
}

// SAFETY: ownership keeps them apart; loom checks that it does.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<World> {
        let objects = std::array::from_fn(|_| UnsafeCell::new(7));
        Arc::new(World { slot: AtomicU64::new(0), objects })
    }

    fn load<M: Manner>(&self) {
        let index = M::own(&self.slot);
        // SAFETY: loom checks that nobody changes it meanwhile.
        self.objects[index as usize].with(|object| assert_eq!(unsafe { *object }, 7));
        M::disown(&self.slot, index);
    }

    fn store<M: Manner>(&self) {
        let old = M::own(&self.slot);
        M::disown(&self.slot, old + 1);
        // SAFETY: loom checks that nobody reads it any more.
        self.objects[old as usize].with_mut(|object| unsafe { *object = 0 });
    }
}

fn run<M: Manner>(threads: &[fn(&World)]) {
    let world = World::new();
    at_once(&world, threads, |world, act| act(world));
    assert_eq!(world.slot.load(Ordering::Relaxed) & sync::LOCKED, 0, "somebody owns it still");
}

/// Two threads alone: of three, two could wait by turns for ever without the owner ever running,
/// which is an execution to loom.
#[test]
fn nothing_is_freed_under_an_owner() {
    every(|| run::<Ours>(&[World::load::<Ours>, World::store::<Ours>]));
    every(|| run::<Ours>(&[World::store::<Ours>, World::store::<Ours>]));
}

/// Publishes by one exchange and frees at once: nobody owns anything while reading.
struct Publishes;

impl Manner for Publishes {
    fn own(word: &AtomicU64) -> u64 {
        word.load(Ordering::Acquire)
    }
    fn disown(word: &AtomicU64, next: u64) {
        let _ = word.compare_exchange(next - 1, next, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Gives the word back without releasing what was done with it.
struct NoRelease;

impl Manner for NoRelease {
    fn own(word: &AtomicU64) -> u64 {
        designs::locks::own(word)
    }
    fn disown(word: &AtomicU64, next: u64) {
        word.store(next, Ordering::Relaxed);
    }
}

/// Owns the word without acquiring what was done with it before.
struct NoAcquire;

impl Manner for NoAcquire {
    fn own(word: &AtomicU64) -> u64 {
        loop {
            let seen = word.load(Ordering::Relaxed);
            let owned = seen | sync::LOCKED;
            let free = seen & sync::LOCKED == 0;
            let taken = || word.compare_exchange(seen, owned, Ordering::Relaxed, Ordering::Relaxed);
            if free && taken().is_ok() {
                return seen;
            }
            thread::yield_now();
        }
    }
    fn disown(word: &AtomicU64, next: u64) {
        designs::locks::disown(word, next);
    }
}

#[test]
fn owning_without_acquire_is_found() {
    refused(RACE, || run::<NoAcquire>(&[World::load::<NoAcquire>, World::store::<NoAcquire>]));
}

#[test]
fn publishing_and_freeing_at_once_is_found() {
    fn reads(world: &World) {
        let index = Publishes::own(&world.slot);
        // SAFETY: loom checks, and finds, that somebody frees it meanwhile.
        world.objects[index as usize].with(|object| assert_eq!(unsafe { *object }, 7, "freed"));
    }
    refused(&[RACE[0], "freed"], || run::<Publishes>(&[reads, World::store::<Publishes>]));
}

#[test]
fn disowning_without_release_is_found() {
    refused(RACE, || run::<NoRelease>(&[World::load::<NoRelease>, World::store::<NoRelease>]));
}
