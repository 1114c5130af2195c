//! What every zone design must do. Each check panics with what is wrong.

use std::collections::BTreeSet;
use std::sync::mpsc;

use pagealloc::ZoneOptions;
use units::{Cpu, FRAMES_PER_PAGEBLOCK};

use crate::model::{Borrower, Held, Make, Random, check_stamp, stamp};
use crate::provider::HeapProvider;

/// The suite: every check of this file on zones made by `make`.
pub fn conforms(make: Make) {
    conforms_when_drained(make);
    giving_back_at_once(make);
}

/// The same but for when memory goes back to the system: that may wait until the zone is drained.
pub fn conforms_when_drained(make: Make) {
    small_scenarios(make);
    block_scenarios(make);
    random_steps(make);
    exhaustion(make);
    growth(make);
    giving_back(make);
    threads(make);
    dropping(make);
}

fn small(cpus: usize, max_frames: u32) -> ZoneOptions {
    ZoneOptions { batch: 2, cache_high: 3, ..ZoneOptions::new(cpus, max_frames) }
}

/// Every sequence of a few calls on a few frames, from the empty and from the full zone. The module
/// `exhaustive` goes deeper, without following a state twice.
pub fn small_scenarios(make: Make) {
    for capacity in [1, 3, 8, 13] {
        every_sequence(make, small(2, capacity), &[0, 1, 2], 3);
    }
    every_sequence(make, small(2, 64), &[0, 3, 5], 3);
}

/// The same where 2 MiB blocks come and go.
pub fn block_scenarios(make: Make) {
    // A sanitizer marks every frame of a block that comes or goes.
    let depth = if cfg!(asan) { 2 } else { 3 };
    for keep_free_blocks in [0, 1] {
        let options = ZoneOptions { keep_free_blocks, ..small(2, 4 * FRAMES_PER_PAGEBLOCK + 3) };
        every_sequence(make, options, &[0, 9, 10], depth);
    }
}

fn every_sequence(make: Make, options: ZoneOptions, orders: &[u8], depth: u32) {
    let mut borrower = Borrower::new(make, options);
    let largest = borrower.zone.largest();
    let orders: Vec<u8> = orders.iter().copied().filter(|order| *order <= largest).collect();
    // A call: borrow an order on a CPU, or give back the oldest or newest on a CPU.
    let calls = orders.len() * 2 + 4;
    for full in [false, true] {
        for number in 0..calls.pow(depth) {
            while full && borrower.borrow(0, 0) {}
            let mut rest = number;
            for _ in 0..depth {
                let (call, cpu) = (rest % calls / 2, (rest % calls % 2) as u32);
                rest /= calls;
                match orders.get(call) {
                    Some(order) => _ = borrower.borrow(cpu, *order),
                    None if borrower.held.is_empty() => (),
                    None if call == orders.len() => borrower.give_back(cpu, 0),
                    None => borrower.give_back(cpu, borrower.held.len() - 1),
                }
            }
            borrower.check();
            borrower.rest(|n| n as u32 % 2);
        }
    }
}

/// Long random walks between empty and full, checked at random moments.
pub fn random_steps(make: Make) {
    let mut random = Random::seeded("random_steps", 0);
    for (cpus, capacity) in [(1, 700), (3, 3000), (2, 4096)] {
        for options in [small(cpus, capacity), ZoneOptions::new(cpus, capacity)] {
            let mut borrower = Borrower::new(make, options);
            // How eager to borrow, in sixteenths: changes from time to time.
            let mut eagerness = 12;
            for _ in 0..12_000 {
                let cpu = random.below(cpus + 2) as u32;
                match random.below(2000) {
                    0 => borrower.zone.drain(),
                    1..4 => borrower.check(),
                    4..12 => eagerness = 2 + random.below(13),
                    _ if random.below(16) < eagerness => {
                        let order = match random.below(64) {
                            0 => random.below(11),
                            1..16 => random.below(4),
                            _ => 0,
                        };
                        borrower.borrow(cpu, (order as u8).min(borrower.zone.largest()));
                    }
                    _ if borrower.held.is_empty() => (),
                    _ => {
                        let index = random.below(borrower.held.len());
                        borrower.give_back(cpu, index);
                    }
                }
            }
            borrower.check();
            borrower.rest(|_| random.below(cpus) as u32);
        }
    }
}

/// All frames can be allocated, from any CPU, however the free ones are spread over the CPUs' caches.
pub fn exhaustion(make: Make) {
    let capacity = 2 * 1024 + 17;
    for orders in [[0, 0], [0, 10], [0, 3], [4, 0]] {
        let mut borrower = Borrower::new(make, ZoneOptions::new(4, capacity));
        let largest = borrower.zone.largest();
        for (round, order) in orders.map(|order: u8| order.min(largest)).into_iter().enumerate() {
            // `borrow` itself checks that nothing is left when the answer is None.
            while borrower.borrow(round as u32, order) {}
            assert_eq!(borrower.frames_held(), u64::from(capacity >> order << order));
            borrower.check();
            for n in (0..borrower.held.len()).rev() {
                borrower.give_back(n as u32, n);
            }
        }
        borrower.rest(|_| 0);
    }
}

/// Memory is asked for as it is needed, and a refusal is an answer like another.
pub fn growth(make: Make) {
    let capacity = 12 * 1024;
    let mut borrower = Borrower::new(make, ZoneOptions::new(2, capacity));
    assert_eq!(borrower.zone.stats().managed, 0, "nothing is asked for before it's needed");
    assert!(borrower.borrow(0, 0));
    let first = borrower.zone.stats().managed;
    assert!(first < u64::from(capacity), "all {first} frames were asked for at once");

    let largest = borrower.zone.largest();
    borrower.provider.refuse(true);
    // An order of two is not in any cache.
    while borrower.borrow(1, 0) && borrower.borrow(1, largest.min(1)) {}
    let stats = borrower.zone.stats();
    assert_eq!(stats.managed, first, "what was refused is not managed");
    borrower.zone.validate();
    for n in (1..borrower.held.len()).rev() {
        borrower.give_back(0, n);
    }

    borrower.provider.refuse(false);
    while borrower.borrow(0, largest.min(2)) {}
    assert_eq!(borrower.zone.stats().managed, u64::from(capacity));
    borrower.rest(|_| 1);
}

/// What is free of a zone that is drained goes back to the operating system, once, and nothing else
/// does.
pub fn giving_back(make: Make) {
    for keep_free_blocks in [0, 2] {
        let options =
            ZoneOptions { keep_free_blocks, ..ZoneOptions::new(2, 16 * FRAMES_PER_PAGEBLOCK) };
        let mut borrower = Borrower::new(make, options);
        borrower.zone.drain();
        assert!(borrower.borrow(0, 0));
        borrower.rest(|_| 0);
        assert_eq!(borrower.record.log().released.len(), 1, "one block was touched");
        borrower.zone.drain();
        assert_eq!(borrower.record.log().released.len(), 1, "nothing new was touched");

        for round in 0..3 {
            let before = borrower.record.log().released.len();
            (0..8).for_each(|_| borrower.borrow_pageblock(0));
            let touched: BTreeSet<usize> =
                borrower.held.iter().map(|held| held.frame.0 as usize / 512).collect();
            for n in (0..borrower.held.len()).rev() {
                borrower.give_back(round, n);
            }
            borrower.rest(|_| 0);
            let released = borrower.record.log().released[before..].to_vec();
            assert_eq!(released.len(), 8, "each block goes back once: {released:?}");
            assert_eq!(released.into_iter().collect::<BTreeSet<_>>(), touched);
        }
    }
    released_in_use(make);
}

/// Blocks that come free go back at once, but for those that may keep their memory. Of a zone of
/// single frames, a CPU's pcp list and its reservation may hold two more.
pub fn giving_back_at_once(make: Make) {
    for keep_free_blocks in [0, 2] {
        let options =
            ZoneOptions { keep_free_blocks, ..ZoneOptions::new(2, 16 * FRAMES_PER_PAGEBLOCK) };
        let mut borrower = Borrower::new(make, options);
        for round in 0..3 {
            let before = borrower.record.log().released.len();
            (0..8).for_each(|_| borrower.borrow_pageblock(0));
            for n in (0..borrower.held.len()).rev() {
                borrower.give_back(round, n);
            }
            let kept = 8 - (borrower.record.log().released.len() - before);
            let most = keep_free_blocks as usize + if borrower.zone.largest() == 0 { 2 } else { 0 };
            assert!(kept <= most, "{kept} free blocks keep their memory");
            borrower.rest(|_| 0);
        }
    }
}

/// Blocks of which anything is allocated stay, while those around them go.
fn released_in_use(make: Make) {
    let mut borrower = Borrower::new(make, ZoneOptions::new(1, 8 * FRAMES_PER_PAGEBLOCK));
    while borrower.borrow(0, 0) {}
    let keep = |held: &Held| held.frame.0 % (2 * FRAMES_PER_PAGEBLOCK) == 100;
    for n in (0..borrower.held.len()).rev() {
        if !keep(&borrower.held[n]) {
            borrower.give_back(0, n);
        }
    }
    borrower.zone.drain();
    borrower.check();
    let log = borrower.record.log();
    let mut released = log.released;
    released.sort_unstable();
    assert_eq!(released, [1, 3, 5, 7], "every second 2 MiB block is wholly free");
    let others = 4 * (FRAMES_PER_PAGEBLOCK as usize - 1);
    assert_eq!(log.pieces_released, others, "of the other blocks all but one frame is free");
    borrower.zone.drain();
    assert_eq!(borrower.record.log().pieces_released, others, "nothing came free since");
    borrower.rest(|_| 0);
}

/// Threads that share CPUs and free what others were allocated.
pub fn threads(make: Make) {
    const THREADS: usize = 4;
    let steps = if cfg!(miri) { 200 } else { 8_000 };
    let seed = testkit::seed("threads");
    let provider = HeapProvider::default();
    let options = ZoneOptions { keep_free_blocks: 0, ..ZoneOptions::new(2, 5 * 1024) };
    let zone = make(&provider, options);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<Held>()).unzip();
    std::thread::scope(|scope| {
        for (n, receiver) in receivers.into_iter().enumerate() {
            let (zone, senders) = (&*zone, senders.clone());
            scope.spawn(move || {
                let mut random = Random::new(seed, n as u64);
                let mut held: Vec<Held> = Vec::new();
                let give = |cpu: u32, block: Held| {
                    check_stamp(zone, block);
                    zone.take_back(Cpu(cpu), block.frame, block.order);
                };
                for step in 0..steps {
                    let cpu = n as u32 + u32::from(random.below(10) == 0);
                    if random.below(16) < if step / 1000 % 2 == 0 { 10 } else { 6 } {
                        let order = if random.below(8) == 0 { random.below(11) } else { 0 };
                        let order = (order as u8).min(zone.largest());
                        if let Some(frame) = zone.lend(Cpu(cpu), order) {
                            held.push(stamp(zone, frame, order, random.next()));
                        }
                    } else if !held.is_empty() {
                        let block = held.swap_remove(random.below(held.len()));
                        if random.below(4) == 0 {
                            // The receiver lives as long as any sender, so this can't fail.
                            _ = senders[random.below(THREADS)].send(block);
                        } else {
                            give(cpu, block);
                        }
                    }
                    if let Ok(block) = receiver.try_recv() {
                        give(cpu, block);
                    }
                }
                drop(senders);
                held.into_iter().chain(receiver).for_each(|block| give(n as u32, block));
            });
        }
        drop(senders);
    });
    zone.drain();
    zone.validate();
    let stats = zone.stats();
    assert_eq!((stats.allocated, stats.cached), (0, 0), "everything was given back");
    assert_eq!(stats.free_blocks[10], stats.managed / 1024, "everything free is merged");
    let released = provider.record_of(zone.base()).log().released.len() as u64;
    assert_eq!(stats.returned_blocks, released);
}

/// A zone that is dropped gives all its memory back.
pub fn dropping(make: Make) {
    let provider = HeapProvider::default();
    let zone = make(&provider, ZoneOptions::new(2, 600));
    assert!(zone.alloc(Cpu(0)).is_some());
    drop(zone);
    assert!(provider.all_dropped(), "a region outlives its zone");
}
