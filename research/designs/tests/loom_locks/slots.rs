//! A slot and the objects it names, under ways of holding a slot while it is read. They belong to
//! slot tables that are compared with the one that disks have: that one runs under loom itself, in
//! `crates/zram/tests/loom_slots.rs`. `epoch` is in `retired`.

use std::sync::Arc;

use designs::locks::SharedWaitQueues;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::{LOCKED, WAITED, WaitQueues};

use crate::{RACE, at_once, bounded, every, refused};

/// A slot's word, and a lock beside it for those who need one.
struct Slot {
    word: AtomicU64,
    lock: AtomicU64,
}

/// How a slot is held.
trait Scheme: Default + Send + Sync + 'static {
    fn load(&self, slot: &Slot, read: impl FnOnce(u64));
    /// Puts `new` into the slot and returns what was there.
    fn swap(&self, slot: &Slot, new: u64) -> u64;
}

/// `spinlock`: the lock is beside the word.
#[derive(Default)]
struct Beside(WaitQueues);

impl Scheme for Beside {
    fn load(&self, slot: &Slot, read: impl FnOnce(u64)) {
        self.0.lock(&slot.lock, 7);
        read(slot.word.load(Ordering::Relaxed));
        self.0.unlock(&slot.lock, 7, 0);
    }
    fn swap(&self, slot: &Slot, new: u64) -> u64 {
        self.0.lock(&slot.lock, 7);
        let old = slot.word.load(Ordering::Relaxed);
        slot.word.store(new, Ordering::Relaxed);
        self.0.unlock(&slot.lock, 7, 0);
        old
    }
}

/// `rwlock` and `global-rwlock`: readers share the lock, which is beside the word or one for all.
#[derive(Default)]
struct Shared(SharedWaitQueues);

impl Scheme for Shared {
    fn load(&self, slot: &Slot, read: impl FnOnce(u64)) {
        self.0.read(&slot.lock, 7);
        read(slot.word.load(Ordering::Relaxed));
        self.0.end_read(&slot.lock, 7);
    }
    fn swap(&self, slot: &Slot, new: u64) -> u64 {
        self.0.write(&slot.lock, 7);
        let old = slot.word.load(Ordering::Relaxed);
        slot.word.store(new, Ordering::Relaxed);
        self.0.end_write(&slot.lock, 7);
        old
    }
}

/// `cas`: the word has an owner.
#[derive(Default)]
struct Owned;

impl Scheme for Owned {
    fn load(&self, slot: &Slot, read: impl FnOnce(u64)) {
        let word = designs::locks::own(&slot.word);
        read(word);
        designs::locks::disown(&slot.word, word);
    }
    fn swap(&self, slot: &Slot, new: u64) -> u64 {
        let old = designs::locks::own(&slot.word);
        designs::locks::disown(&slot.word, new);
        old
    }
}

const LIVE: u64 = 7;
const FREED: u64 = u64::MAX;

/// A slot, and the objects it may name. One that was freed is never used again.
struct World<S> {
    scheme: S,
    slot: Slot,
    next: AtomicUsize,
    objects: [UnsafeCell<u64>; 3],
}

// SAFETY: the scheme keeps readers and those who free apart; loom checks that it does.
unsafe impl<S: Sync> Sync for World<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Send for World<S> {}

impl<S: Scheme> World<S> {
    fn load(&self) {
        self.scheme.load(&self.slot, |word| {
            // SAFETY: loom checks that nobody changes it meanwhile.
            let object = self.objects[word as usize].with(|object| unsafe { *object });
            assert_eq!(object, LIVE, "a freed object was read");
        });
    }

    fn store(&self) {
        let new = self.next.fetch_add(1, Ordering::Relaxed);
        // SAFETY: nobody knows it yet; loom checks.
        self.objects[new].with_mut(|object| unsafe { *object = LIVE });
        let old = self.scheme.swap(&self.slot, new as u64);
        // SAFETY: loom checks that nobody reads it any more.
        self.objects[old as usize].with_mut(|object| unsafe {
            assert_eq!(*object, LIVE, "freed twice");
            *object = FREED;
        });
    }
}

type Act<S> = fn(&World<S>);

fn run<S: Scheme>(threads: &[Act<S>]) {
    let objects = std::array::from_fn(|n| UnsafeCell::new(if n == 0 { LIVE } else { 0 }));
    let slot = Slot { word: AtomicU64::new(0), lock: AtomicU64::new(0) };
    let world = World { scheme: S::default(), slot, next: AtomicUsize::new(1), objects };
    let world = Arc::new(world);
    at_once(&world, threads, |world, act| act(world));
    world.load();
    let word = world.slot.word.load(Ordering::Relaxed);
    assert_eq!(word & (LOCKED | WAITED), 0, "the word is left locked");
}

fn two<S: Scheme>() {
    every(|| run::<S>(&[World::load, World::store]));
    every(|| run::<S>(&[World::store, World::store]));
}

fn three<S: Scheme>() {
    bounded(2, || run::<S>(&[World::load, World::store, World::store]));
    bounded(2, || run::<S>(&[World::load, World::load, World::store]));
}

#[test]
fn nothing_is_freed_under_the_lock_beside_the_word() {
    two::<Beside>();
    three::<Beside>();
}

#[test]
fn nothing_is_freed_under_the_shared_lock() {
    two::<Shared>();
    three::<Shared>();
}

/// Two threads alone, for the reason that `owned` gives.
#[test]
fn nothing_is_freed_under_the_owner_of_the_word() {
    two::<Owned>();
}

/// Readers look at the word and hold nothing; writers lock it as ever.
#[derive(Default)]
struct HoldsNothing(Beside);

impl Scheme for HoldsNothing {
    fn load(&self, slot: &Slot, read: impl FnOnce(u64)) {
        read(slot.word.load(Ordering::Acquire));
    }
    fn swap(&self, slot: &Slot, new: u64) -> u64 {
        self.0.swap(slot, new)
    }
}

/// Readers share a lock that is not the one that writers take.
#[derive(Default)]
struct TwoLocks(Shared, Owned);

impl Scheme for TwoLocks {
    fn load(&self, slot: &Slot, read: impl FnOnce(u64)) {
        self.0.load(slot, |word| read(word & !LOCKED));
    }
    fn swap(&self, slot: &Slot, new: u64) -> u64 {
        self.1.swap(slot, new)
    }
}

const FREED_UNDER_A_READER: &[&str] = &[RACE[0], "a freed object was read"];

#[test]
fn holding_nothing_is_found() {
    refused(FREED_UNDER_A_READER, || run::<HoldsNothing>(&[World::load, World::store]));
}

#[test]
fn holding_something_else_is_found() {
    refused(FREED_UNDER_A_READER, || run::<TwoLocks>(&[World::load, World::store]));
}
