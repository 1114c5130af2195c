//! The answers to requests that must not wait. After "would block" nothing may have changed.

mod common;
#[path = "common/swap.rs"]
mod swap;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use block::{BlockDevice, Context, Extent, IoError, Operation, ZeroMode};
use common::{Plan, Watched};
use sim::content::Fill;
use sim::swap::{Cache, FaultyDevice, PAGES as AREA, Policy};
use testkit::Ends;
use units::{Cpu, PAGE_SIZE, Page};
use zram::{WhenFull, Writeback};

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(1);

const BLOCKED: Result<(), IoError> = Err(IoError::WouldBlock);

fn at_once(device: &dyn BlockDevice, operation: Operation<'_>) -> Result<(), IoError> {
    device.perform(Context::at_once(CPU), operation)
}

fn page(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    Fill::Noise(number).render(&mut page);
    page
}

/// A disk of 32 pages, of which those from 8 to 15 were written back.
fn disk((compressed_writeback, log): (bool, bool)) -> Watched {
    let plan = Plan { backing_pages: 64, ..Plan::new(32 * P, zcomp::LZ4) };
    let disk = Plan { compressed_writeback, log, ..plan }.build();
    for number in 0..32 {
        disk.disk.store_page(CPU, number, &page(number)).expect("there is space");
    }
    let some = Writeback { select: None, pages: vec![(8, 15)] };
    disk.disk.writeback(&some).expect("there are blocks for all");
    assert_eq!(disk.disk.stats().backed_pages, 8);
    disk
}

/// The state of a disk that is visible without a read: extents and counters.
fn told(disk: &Watched) -> (Vec<Extent>, [u64; 9]) {
    let mut extents = Vec::new();
    let seen = disk.disk.extents(CPU, 0, 32 * P, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    });
    assert_eq!(seen, Ok(()));
    let s = disk.disk.stats();
    let counts = [
        s.pages_stored,
        s.compressed_bytes,
        s.num_reads,
        s.num_writes,
        s.failed_reads + s.failed_writes,
        s.notify_free,
        s.backed_pages,
        s.backed_reads,
        s.invalid_io,
    ];
    (extents, counts)
}

#[test]
fn a_disk_does_not_wait_for_what_was_written_back() {
    for layout in common::LAYOUTS {
        let disk = disk(layout);
        let before = told(&disk);
        let ones = vec![1; 32 * PAGE_SIZE];
        let mut into = vec![0; 32 * PAGE_SIZE];
        // One page, a part of a page, one of several pages, the last of several.
        for (offset, length) in
            [(8 * P, P), (9 * P + 7, 9), (0, 32 * P), (5 * P, 4 * P), (15 * P + 1, P)]
        {
            let into = &mut into[..length as usize];
            assert_eq!(at_once(&disk, Operation::Read { offset, into }), BLOCKED, "{offset}");
        }
        // Parts of written-back pages: at the beginning, at the end, and on both sides.
        for (offset, length) in [
            (8 * P + 1, 5),
            (8 * P + 1, 3 * P - 1),
            (6 * P, 4 * P + 3),
            (6 * P + 5, 4 * P),
            (15 * P + 9, 3 * P),
            (9 * P + 9, 2 * P),
        ] {
            let from = &ones[..length as usize];
            assert_eq!(at_once(&disk, Operation::Write { offset, from }), BLOCKED, "{offset}");
            for mode in [ZeroMode::MayPunch, ZeroMode::KeepAllocated] {
                let zeroes = Operation::WriteZeroes { offset, length, mode };
                assert_eq!(at_once(&disk, zeroes), BLOCKED, "{offset}");
            }
        }
        assert_eq!(told(&disk), before, "something changed");
        for number in 0..32 {
            let mut into = [0; PAGE_SIZE];
            disk.disk.load_page(CPU, number, &mut into).expect("nothing fails");
            assert!(into == page(number), "page {number} changed");
        }
    }
}

#[test]
fn a_disk_replaces_whole_pages_without_waiting() {
    let disk = disk(common::LAYOUTS[0]);
    let mut into = vec![0; 8 * PAGE_SIZE];
    let ones = vec![1; 9 * PAGE_SIZE];
    // Ranges beside the written-back pages.
    assert_eq!(at_once(&disk, Operation::Read { offset: 0, into: &mut into }), Ok(()));
    assert_eq!(at_once(&disk, Operation::Write { offset: 7 * P + 1, from: &ones[..99] }), Ok(()));
    // A range over the written-back pages. Its ends are in pages in memory.
    let write = Operation::Write { offset: 7 * P + 5, from: &ones };
    assert_eq!(at_once(&disk, write), Ok(()));
    assert_eq!(disk.disk.stats().backed_pages, 0);
    let disk = self::disk(common::LAYOUTS[0]);
    let discard = Operation::Discard { offset: 7 * P + 5, length: 9 * P };
    assert_eq!(at_once(&disk, discard), Ok(()));
    assert_eq!(disk.disk.stats().backed_pages, 0);
    assert_eq!(at_once(&disk, Operation::Read { offset: 8 * P, into: &mut into }), Ok(()));
    assert!(into.iter().all(|byte| *byte == 0));
    assert_eq!(disk.disk.stats().backed_reads, 0);
}

/// A disk at its limit, full of noise, which has blocks for all of it.
fn full(when_full: WhenFull) -> Watched {
    let plan = Plan { backing_pages: 64, auto: false, ..Plan::new(32 * P, zcomp::LZ4) };
    let disk = Plan { mem_limit: 16 * P, when_full, ..plan }.build();
    let store = |number| disk.disk.store_page(CPU, number, &page(number));
    (0..15).for_each(|number| store(number).expect("there is space"));
    disk
}

/// There is room when the thread looks, and none when it stores.
#[test]
fn a_disk_does_not_wait_for_room() {
    for when_full in [WhenFull::Wait, WhenFull::Spill] {
        let disk = full(when_full);
        let (done, mut blocked) = (AtomicBool::new(false), 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    disk.disk.set_mem_limit(100 * P);
                    disk.disk.set_mem_limit(8 * P);
                }
            });
            let _ending = Ends(&done);
            for n in 0..60_000 {
                let (offset, length, from) = (n % 15 * P + 100, 50, [0; 50]);
                let change = match n % 3 {
                    0 => Operation::Write { offset, from: &from },
                    1 => Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch },
                    _ => Operation::WriteZeroes { offset, length, mode: ZeroMode::KeepAllocated },
                };
                let changed = at_once(&disk, change);
                blocked += u64::from(changed == BLOCKED);
                assert!(changed == BLOCKED || changed == Ok(()), "{changed:?}");
            }
        });
        let stats = disk.disk.stats();
        assert_eq!((stats.backed_writes, stats.failed_writes), (0, 0), "{when_full:?}: it waited");
        assert_eq!(stats.num_writes, 15 + 60_000 - blocked, "{when_full:?}");
    }
}

/// Each page of a range is given up once, whatever the request waits for.
#[test]
fn what_is_given_up_is_counted_once() {
    for when_full in [WhenFull::Wait, WhenFull::Spill] {
        let disk = full(when_full);
        // A part of the last page with contents, for which there is no room, and empty pages.
        let (offset, length) = (14 * P + 100, 9 * P);
        let zeroes = Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch };
        assert_eq!(disk.submit(CPU, zeroes), Ok(()));
        let stats = disk.disk.stats();
        assert!(stats.backed_pages > 0, "{when_full:?}: it made room");
        assert_eq!((stats.notify_free, stats.num_writes), (8, 15 + 2), "{when_full:?}");
        let mut last = page(14);
        last[100..].fill(0);
        assert!(holds(&disk, 14, &last), "{when_full:?}");
        (0..14).for_each(|n| assert!(holds(&disk, n, &page(n)), "page {n}"));
    }
}

fn holds(disk: &Watched, index: u64, contents: &Page) -> bool {
    let mut page = [0; PAGE_SIZE];
    disk.disk.load_page(CPU, index, &mut page).expect("it can be read");
    page == *contents
}

/// An area whose pages are `n % 8 == 7` on the device, and the others in the cache.
fn area() -> (swap::Engine, Arc<FaultyDevice>, Arc<dyn BlockDevice>) {
    let engine = swap::Engine::new(swap::INDEXES[0], 3);
    let device_below = FaultyDevice::new(AREA, 3, 0);
    engine.swapon(0, device_below.clone()).expect("it is off");
    engine.set(Policy::MaxPool(0));
    let device = engine.device(0);
    for number in (0..48).filter(|number| number % 8 == 7) {
        let write = Operation::Write { offset: number * P, from: &page(number) };
        device.submit(CPU, write).expect("there is space");
    }
    assert_eq!(engine.zswap.reclaim(CPU, 6).written, 6);
    for number in (0..48).filter(|number| number % 8 != 7) {
        let write = Operation::Write { offset: number * P, from: &page(number) };
        device.submit(CPU, write).expect("there is space");
    }
    drop(device_below.attempts());
    (engine, device_below, device)
}

#[test]
fn an_area_does_not_wait_for_its_device() {
    let (engine, device_below, device) = area();
    let before = format!("{:?}", engine.zswap.stats());
    let ones = vec![1; 8 * PAGE_SIZE];
    let mut into = vec![0; 8 * PAGE_SIZE];
    for (first, count) in [(7, 1), (5, 3), (0, 8), (15, 2)] {
        let (offset, length) = (first * P, count * P);
        let (into, from) = (&mut into[..length as usize], &ones[..length as usize]);
        let keep = ZeroMode::KeepAllocated;
        for operation in [
            Operation::Read { offset, into },
            Operation::Write { offset, from },
            Operation::Discard { offset, length },
            Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch },
        ] {
            let text = format!("pages {first} and on, {operation:?}");
            assert_eq!(at_once(&device, operation), BLOCKED, "{text:.60}");
        }
        if first % 8 == 7 {
            let zeroes = Operation::WriteZeroes { offset, length, mode: keep };
            assert_eq!(at_once(&device, zeroes), BLOCKED, "pages {first} and on");
        }
    }
    assert_eq!(format!("{:?}", engine.zswap.stats()), before, "something changed");
    assert!(device_below.attempts().is_empty(), "the device was written to");
    // Pages in the cache, and pages that were never written.
    for first in [0, 8, 48] {
        let into = &mut into[..7 * PAGE_SIZE];
        let read = Operation::Read { offset: first * P, into: &mut *into };
        assert_eq!(at_once(&device, read), Ok(()));
        for (number, is) in (first..).zip(into.as_chunks::<PAGE_SIZE>().0) {
            let was = if number < 48 { page(number) } else { [0; PAGE_SIZE] };
            assert!(*is == was, "page {number} changed");
        }
    }
    let write = Operation::Write { offset: 8 * P, from: &ones[..7 * PAGE_SIZE] };
    assert_eq!(at_once(&device, write), Ok(()));
    assert_eq!(at_once(&device, Operation::Flush), Ok(()));
}

#[test]
fn an_area_writes_nothing_back_for_a_store_that_is_not_to_wait() {
    for number in 0..3 {
        let (engine, device_below, device) = area();
        match number {
            // If the cache is full, it has to write back other pages. If it is off, or the page is
            // too large, the page has to go to the device.
            0 => engine.set(Policy::MaxPool(8 * P)),
            1 => engine.set(Policy::Enabled(false)),
            _ => engine.set(Policy::Ratio(1)),
        }
        let new = page(1000);
        assert_eq!(at_once(&device, Operation::Write { offset: 0, from: &new }), BLOCKED);
        assert!(device_below.attempts().is_empty(), "the device was written to");
        let mut into = [0; PAGE_SIZE];
        assert_eq!(at_once(&device, Operation::Read { offset: 0, into: &mut into }), Ok(()));
        assert!(into == page(0), "{number}: the page changed");
        assert_eq!(device.submit(CPU, Operation::Write { offset: 0, from: &new }), Ok(()));
        assert!(!device_below.attempts().is_empty(), "{number}: nothing was written");
        assert_eq!(device.submit(CPU, Operation::Read { offset: 0, into: &mut into }), Ok(()));
        assert!(into == new, "{number}: the page did not change");
    }
}
