//! Unit tests here; the loom models are in tests/loom.rs and need `--cfg loom`.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;

use units::Lane;

use crate::atomic::{AtomicU64, Ordering};
use crate::*;

#[test]
fn mutex_excludes() {
    let counter = Arc::new(Mutex::new(0u64));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    *counter.lock() += 1;
                }
            });
        }
    });
    assert_eq!(*counter.lock(), 80_000);
    let held = counter.lock();
    assert!(counter.try_lock().is_none());
    assert!(counter.try_lock().is_none(), "trying in vain does not unlock");
    drop(held);
    assert!(counter.try_lock().is_some());
}

#[test]
fn bit_lock_excludes_and_wakes() {
    let (rooms, word) = (Rooms::default(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..5_000 {
                    let value = rooms.lock(&word, 7);
                    if n % 512 == 0 {
                        thread::yield_now();
                    }
                    rooms.unlock(&word, 7, value + 1);
                }
            });
        }
    });
    assert_eq!(word.load(Ordering::Relaxed), 20_000);
}

#[test]
fn counters_sum_and_gauges_fall() {
    let counters = LaneCounters::<2>::new(2);
    counters.add(Lane(0), 0, 5);
    counters.add(Lane(1), 0, -3);
    counters.add(Lane(9), 1, 1);
    assert_eq!((counters.sum(0), counters.sum(1)), (2, 1));
    counters.add(Lane(0), 1, -4);
    assert_eq!(counters.sum(1), 0, "a gauge caught in mid-change is not negative");
    counters.clear(0);
    assert_eq!(counters.sum(0), 0);
}

#[test]
fn changer_waits_for_pins() {
    let pins = Arc::new(Pins::new(2));
    let pin = pins.pin(Lane(1));
    let left = Arc::new(AtomicU64::new(0));
    let changer = {
        let (pins, left) = (pins.clone(), left.clone());
        thread::spawn(move || {
            pins.wait_for_readers();
            left.load(Ordering::Relaxed)
        })
    };
    thread::yield_now();
    left.store(1, Ordering::Relaxed);
    drop(pin);
    assert_eq!(changer.join().unwrap(), 1);
}
