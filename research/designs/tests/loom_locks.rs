//! The locks of experiments under loom, as `crates/sync/tests/loom.rs` has those of the product; what
//! is said there holds here. What they must reject is below `testing/mutants`.
#![cfg(loom)]

#[path = "../../../crates/sync/tests/loom/check.rs"]
#[allow(dead_code)]
mod check;
#[path = "loom_locks/owned.rs"]
mod owned;
#[path = "loom_locks/shared.rs"]
mod shared;

use std::sync::Arc;

use check::{bounded, every};
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
