//! The locks of experiments under loom, as `crates/sync/tests/loom.rs` has those of the product; what
//! is said there holds here.
#![cfg(loom)]

#[path = "../../../crates/sync/tests/loom/check.rs"]
mod check;
#[path = "../../../crates/sync/tests/loom/futex.rs"]
mod futex;
#[path = "loom_locks/owned.rs"]
mod owned;
#[path = "loom_locks/owner.rs"]
mod owner;
#[path = "loom_locks/rwlock.rs"]
mod rwlock;
#[path = "loom_locks/shared.rs"]
mod shared;
#[path = "loom_locks/slots.rs"]
mod slots;

use check::{DEADLOCK, RACE, bounded, every, refused};
