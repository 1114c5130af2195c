//! Unit tests; the loom models are in tests/loom_locks.rs.
#![cfg(not(loom))]

use std::thread;

use sync::atomic::{AtomicU64, Ordering};

use super::*;

#[test]
fn rwlock_excludes_and_shares() {
    let counter = RwLock::new((0u64, 0u64));
    thread::scope(|scope| {
        for n in 0..4 {
            let counter = &counter;
            scope.spawn(move || {
                for round in 0..5_000 {
                    if (round + n) % 3 == 0 {
                        let mut held = counter.write();
                        held.0 += 1;
                        if round % 256 == 0 {
                            thread::yield_now();
                        }
                        held.1 += 1;
                    } else {
                        let held = counter.read();
                        assert_eq!(held.0, held.1, "a reader sees half of what a writer does");
                    }
                }
            });
        }
    });
    let held = counter.read();
    assert_eq!(held.0, 6_667);
    assert!(counter.try_write().is_none(), "somebody reads");
    let beside = counter.try_read().expect("readers read together");
    drop((held, beside));
    let mut held = counter.try_write().expect("nobody is left");
    held.0 = 1;
    assert!(counter.try_read().is_none() && counter.try_write().is_none(), "somebody writes");
    drop(held);
    assert_eq!(counter.read().0, 1);
}

#[test]
fn owners_take_turns() {
    let word = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..5_000 {
                    let value = own(&word);
                    if n % 512 == 0 {
                        thread::yield_now();
                    }
                    disown(&word, value + 1);
                }
            });
        }
    });
    assert_eq!(word.load(Ordering::Relaxed), 15_000);
}
