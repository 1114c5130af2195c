//! Unit tests here; the loom models are in tests/loom.rs and need `--cfg loom`.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use units::Cpu;

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
fn a_word_is_locked_at_the_first_try_or_not() {
    let (queues, word) = (WaitQueues::default(), AtomicU64::new(5));
    assert_eq!(queues.try_lock(&word), Some(5));
    assert_eq!(queues.try_lock(&word), None);
    queues.unlock(&word, 3, 6);
    assert_eq!(queues.try_lock(&word), Some(6));
}

#[test]
fn patience_lets_the_other_one_run() {
    let flag = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| flag.store(1, Ordering::Relaxed));
        let mut backoff = Backoff::new();
        while flag.load(Ordering::Relaxed) == 0 {
            backoff.wait();
        }
    });
}

#[test]
fn notifications_are_heard() {
    let (event, tokens) = (EventCount::default(), Mutex::new(2));
    let take = || loop {
        let ticket = event.ticket();
        let mut left = tokens.lock();
        if *left > 0 {
            *left -= 1;
            return;
        }
        drop(left);
        event.wait(ticket);
    };
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for round in 0..2_000 {
                    take();
                    if round % 256 == 0 {
                        thread::yield_now();
                    }
                    *tokens.lock() += 1;
                    event.notify_one();
                }
            });
        }
    });
    assert_eq!(*tokens.lock(), 2);
}

#[test]
fn bit_lock_excludes_and_wakes() {
    let (queues, word) = (WaitQueues::default(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..5_000 {
                    let value = queues.lock(&word, 7);
                    if n % 512 == 0 {
                        thread::yield_now();
                    }
                    queues.unlock(&word, 7, value + 1);
                }
            });
        }
    });
    assert_eq!(word.load(Ordering::Relaxed), 20_000);
}

#[test]
fn epochs_pass_when_readers_leave() {
    let readers = ReaderEpochs::new(2);
    let reader = readers.enter(Cpu(1));
    let begun = readers.epoch();
    (0..10).for_each(|_| readers.try_flip());
    assert!(readers.epoch() - begun < 2, "a reader is there still");
    drop(reader);
    (0..2).for_each(|_| readers.try_flip());
    assert!(readers.epoch() - begun >= 2, "nobody is there any more");
    readers.wait_for_readers();
}

#[test]
#[cfg(not(shuttle))]
fn a_long_wait_for_readers_sleeps() {
    let lengths = |rounds: core::ops::Range<u32>| rounds.map(park::nap_length).collect::<Vec<_>>();
    assert!(lengths(0..64).iter().all(Option::is_none), "readers leave soon");
    let micros: Vec<u128> = lengths(64..1000).iter().map(|nap| nap.unwrap().as_micros()).collect();
    assert!(micros.is_sorted() && micros[0] == 50 && micros[micros.len() - 1] == 1000);
    assert_eq!(park::nap_length(u32::MAX), park::nap_length(1000));
}

#[test]
fn retired_words_wait_for_readers_and_no_longer() {
    let retired = Retired::new(1, 8);
    let mut freed = Vec::new();
    let reading = retired.read(Cpu(0));
    (0..7).for_each(|word| retired.retire(Cpu(0), word, |word| freed.push(word)));
    assert_eq!(freed, [], "somebody may be reading");
    drop(reading);
    assert!(retired.quiesce(|word| freed.push(word)));
    assert_eq!(freed, [0, 1, 2, 3, 4, 5, 6], "the oldest first");
    assert!(!retired.quiesce(|word| freed.push(word)));
    // With nobody there, nothing ever waits for long.
    (7..1000).for_each(|word| retired.retire(Cpu(3), word, |word| freed.push(word)));
    assert!(freed.len() > 990);
    retired.quiesce(|word| freed.push(word));
    assert!(freed.iter().copied().eq(0..1000));
}

#[test]
fn queues_of_any_size_free_each_word_once_and_in_order() {
    for room in 1..=200 {
        let retired = Retired::new(1, room);
        // What is in the queue, by a model.
        let mut waiting = VecDeque::new();
        let free = |waiting: &mut VecDeque<u64>, word| {
            assert_eq!(waiting.pop_front(), Some(word), "{room} words");
        };
        for round in 0..4 * room as u64 {
            // A reader that comes and goes lets epochs pass in some rounds and not in others.
            let reading = (round % 5 < 3 && waiting.len() + 1 < room).then(|| retired.read(Cpu(0)));
            waiting.push_back(round);
            retired.retire(Cpu(0), round, |word| free(&mut waiting, word));
            drop(reading);
            assert!(waiting.len() < room, "{} of {room} words wait", waiting.len());
        }
        retired.quiesce(|word| free(&mut waiting, word));
        assert!(waiting.is_empty(), "{} of {room} words were never freed", waiting.len());
    }
}

#[test]
fn one_wait_for_readers_frees_the_words_of_all_cpus() {
    let (cpus, each) = (32, 10);
    let retired = Retired::new(cpus as usize, 1 << 10);
    for cpu in 0..cpus {
        (0..each).for_each(|word| retired.retire(Cpu(cpu), u64::from(cpu * each + word), |_| {}));
    }
    let begun = retired.epoch();
    let mut freed = Vec::new();
    assert!(retired.quiesce(|word| freed.push(word)));
    assert!(freed.iter().copied().eq(0..u64::from(cpus * each)));
    let waits = retired.epoch().wrapping_sub(begun);
    assert!(waits <= 2, "{waits} epochs for {cpus} CPUs");
}

#[test]
fn words_are_retired_while_another_thread_quiesces() {
    let retired = Retired::new(1, 1 << 14);
    retired.retire(Cpu(0), 0, |_| {});
    let (done, results) = std::sync::mpsc::channel();
    let mut freed = Vec::new();
    thread::scope(|scope| {
        let reading = retired.read(Cpu(0));
        let quiescing = scope.spawn(|| {
            retired.quiesce(|word| freed.push(word));
        });
        // At least one of these comes while the other thread waits for the reader.
        let retired = &retired;
        scope.spawn(move || {
            for word in 1..1000 {
                retired.retire(Cpu(0), word, |_| panic!("a reader may hold it"));
                thread::yield_now();
            }
            done.send(()).unwrap();
        });
        let went_on = results.recv_timeout(std::time::Duration::from_secs(10));
        drop(reading);
        assert!(went_on.is_ok(), "the queue is locked during the wait");
        quiescing.join().unwrap();
    });
    assert_eq!(freed[0], 0);
    let mut rest = Vec::new();
    retired.quiesce(|word| rest.push(word));
    freed.append(&mut rest);
    assert!(freed.iter().copied().eq(0..1000), "each word is freed once, the oldest first");
}

#[test]
fn counters_sum_and_gauges_fall() {
    let counters = PerCpuCounters::<2>::new(2);
    counters.add(Cpu(0), 0, 5);
    counters.add(Cpu(1), 0, -3);
    counters.add(Cpu(9), 1, 1);
    assert_eq!((counters.sum(0), counters.sum(1)), (2, 1));
    counters.add(Cpu(0), 1, -4);
    assert_eq!(counters.sum(1), 0, "a gauge caught in mid-change is not negative");
    counters.clear(0);
    assert_eq!(counters.sum(0), 0);
}

#[test]
fn changer_waits_for_readers() {
    let readers = Arc::new(ReaderEpochs::new(2));
    let reader = readers.enter(Cpu(1));
    let left = Arc::new(AtomicU64::new(0));
    let changer = {
        let (readers, left) = (readers.clone(), left.clone());
        thread::spawn(move || {
            readers.wait_for_readers();
            left.load(Ordering::Relaxed)
        })
    };
    thread::yield_now();
    left.store(1, Ordering::Relaxed);
    drop(reader);
    assert_eq!(changer.join().unwrap(), 1);
}

#[test]
fn a_reader_of_others_finds_nothing_that_is_published() {
    // Nobody who withdraws it would wait for that reader.
    let (readers, others) = (Arc::new(ReaderEpochs::new(1)), ReaderEpochs::new(1));
    let published = Published::new(readers.clone());
    assert!(published.publish(Box::new(5)).is_ok());
    let stranger = others.enter(Cpu(0));
    assert_eq!(published.get(&stranger), None);
    assert_eq!(published.get(&readers.enter(Cpu(0))), Some(&5));
    assert_eq!(published.withdraw(), Some(Box::new(5)), "it need not wait for a stranger");
}
