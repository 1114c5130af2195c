//! The locks of experiments under loom, as `crates/sync/tests/loom.rs` has those of the product; what
//! is said there holds here.
#![cfg(loom)]

#[path = "../../../crates/sync/tests/loom/check.rs"]
mod check;
#[path = "../../../crates/sync/tests/loom/futex.rs"]
// The copies here wake all.
#[allow(dead_code)]
mod futex;
#[path = "loom_locks/owned.rs"]
mod owned;
#[path = "loom_locks/shared.rs"]
mod shared;

use std::sync::Arc;

use check::{DEADLOCK, RACE, bounded, every, refused};
use loom::thread;

/// Threads that act at once, the first of them this one: `act` with what each is to do.
fn at_once<W: Send + Sync + 'static, A: Copy + Send + 'static>(
    world: &Arc<W>,
    threads: &[A],
    act: impl Fn(&W, A) + Copy + Send + 'static,
) {
    let start = |&what: &A| {
        let world = world.clone();
        thread::spawn(move || act(&world, what))
    };
    let others: Vec<_> = threads[1..].iter().map(start).collect();
    act(world, threads[0]);
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
}

/// Tests that each flaw of a copy is found, as one of the faults.
macro_rules! found {
    ($($test:ident: $flaw:ident, $faults:expr;)*) => {
        $(
            #[test]
            fn $test() {
                crate::refused($faults, || copies(Flaw::$flaw));
            }
        )*
    };
}
use found;
