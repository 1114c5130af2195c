//! A value under a lock with two modes.

use std::sync::Arc;

use loom::cell::UnsafeCell;

use crate::at_once;

/// A manner of locking: the crate's, or a copy with a flaw.
pub trait Manner: Send + Sync + 'static {
    fn reading(&self, work: &mut dyn FnMut());
    fn writing(&self, work: &mut dyn FnMut());
}

pub struct World<M> {
    pub manner: M,
    value: UnsafeCell<u64>,
}

// SAFETY: the lock keeps readers and writers apart; loom checks that it does.
unsafe impl<M: Sync> Sync for World<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Send for World<M> {}

impl<M: Manner> World<M> {
    pub fn load(&self) {
        self.manner.reading(&mut || {
            // SAFETY: loom checks that nobody changes it meanwhile.
            let value = self.value.with(|value| unsafe { *value });
            assert!(value < 5);
        });
    }

    pub fn add(&self) {
        self.manner.writing(&mut || {
            // SAFETY: loom checks that this is the only access.
            self.value.with_mut(|value| unsafe { *value += 1 });
        });
    }
}

type Act<M> = fn(&World<M>);

/// Each of `threads` does what its list says, the first of them this one; `writes` of it add.
pub fn run<M: Manner>(manner: M, threads: &[&'static [Act<M>]], writes: u64) -> Arc<World<M>> {
    let world = Arc::new(World { manner, value: UnsafeCell::new(0) });
    at_once(&world, threads, |world, acts: &[Act<M>]| acts.iter().for_each(|act| act(world)));
    // Whoever left the lock wrong is found here: it cannot be had alone.
    world.add();
    // SAFETY: loom checks that the last one's addition is ordered before this.
    world.value.with(|value| assert_eq!(unsafe { *value }, writes + 1));
    world
}
