//! Ownership of a word: the `cas` scheme of slots.

use std::sync::Arc;

use designs::locks::{disown, own};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::{at_once, every};

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
    fn load(&self) {
        let index = own(&self.slot);
        // SAFETY: loom checks that nobody changes it meanwhile.
        self.objects[index as usize].with(|object| assert_eq!(unsafe { *object }, 7));
        disown(&self.slot, index);
    }

    fn store(&self) {
        let old = own(&self.slot);
        disown(&self.slot, old + 1);
        // SAFETY: loom checks that nobody reads it any more.
        self.objects[old as usize].with_mut(|object| unsafe { *object = 0 });
    }
}

fn run(threads: &[fn(&World)]) {
    let objects = std::array::from_fn(|_| UnsafeCell::new(7));
    let world = Arc::new(World { slot: AtomicU64::new(0), objects });
    at_once(&world, threads, |world, act| act(world));
    assert_eq!(world.slot.load(Ordering::Relaxed) & sync::LOCKED, 0, "somebody owns it still");
}

/// Two threads alone: of three, two could wait by turns for ever without the owner ever running,
/// which is an execution to loom.
#[test]
fn nothing_is_freed_under_an_owner() {
    every(|| run(&[World::load, World::store]));
    every(|| run(&[World::store, World::store]));
}
