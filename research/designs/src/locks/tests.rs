//! Unit tests; the loom models are in tests/loom_locks.rs, and the suite of slots uses threads.
#![cfg(not(loom))]

use super::*;

#[test]
fn rwlock_excludes_and_shares() {
    let counter = RwLock::new(0);
    let held = counter.read();
    assert!(counter.try_write().is_none(), "somebody reads");
    let beside = counter.try_read().expect("readers read together");
    drop((held, beside));
    let mut held = counter.try_write().expect("nobody is left");
    *held = 1;
    assert!(counter.try_read().is_none() && counter.try_write().is_none(), "somebody writes");
    drop(held);
    assert_eq!(*counter.read(), 1);
}
