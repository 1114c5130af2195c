//! The block device of pages in a log under shuttle: reads while pages are replaced, forgotten and
//! copied, and segments are used again. `shuttle.rs` and docs/internals/testing.md say how to run
//! it.
#![cfg(shuttle)]

#[path = "shuttle/explore.rs"]
mod explore;

use std::sync::Arc;

use block::{BlockDevice, Context, Operation, Plain};
use explore::{Play, holds};
use pagelog::{LogDevice, PageLog};
use shuttle::thread;
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;

const P: u64 = PAGE_SIZE as u64;
const CPUS: usize = 2;
/// Pages of a segment, if they do not shrink.
const FULL: u64 = 252;
/// About half as many: with the ends of their runs, twice as many nearly fill a segment.
const HALF: u64 = 120;
/// Pages of the device.
const PAGES: u64 = FULL + HALF;
/// The page that is read while others change it.
const READ: u64 = 3;

/// What explore tells of a run beside its schedules: nothing.
mod scenario {
    pub fn tally() {}
}

/// Noise: it does not shrink.
fn page(version: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    testkit::Rng::new(version).fill(&mut page);
    page
}

fn write(device: &LogDevice, cpu: u32, number: u64, version: u64) {
    let page = page(version);
    let write = Operation::Write { offset: number * P, from: &page };
    device.submit(Cpu(cpu), write).expect("there is room");
}

/// The version of a page among those it may have; zeroes are version 0.
fn read(device: &LogDevice, cpu: u32, number: u64, allowed: &[u64]) -> u64 {
    let mut found = [1; PAGE_SIZE];
    let read = Operation::Read { offset: number * P, into: &mut found };
    device.submit(Cpu(cpu), read).expect("it can be read");
    let is = |version: &&u64| match version {
        0 => found == [0; PAGE_SIZE],
        version => found == page(**version),
    };
    *allowed.iter().find(is).expect("the page is none that it may be")
}

/// Discards pages, as a cache does whose pages nobody reads any more.
fn forget(device: &LogDevice, cpu: u32, first: u64, count: u64) {
    let discard = Operation::Discard { offset: first * P, length: count * P };
    device.perform(Context::at_once(Cpu(cpu)), discard).expect("it needs no waiting");
}

/// A device of four segments. The first has the page that is read and `live` others, the third has
/// room for one more page, and the fourth is in reserve.
fn device(live: u64) -> LogDevice {
    let log = PageLog::new(Arc::new(Plain::new(4 << 20)), "below", CPUS).expect("a log");
    let codec = zcomp::open(zcomp::LZ4, &Params::default()).expect("a codec");
    let device = LogDevice::new(log, &host::Mmap, PAGES, &*codec, CPUS).expect("a device");
    let all = |first: u64, count: u64, version: u64| {
        let from: Vec<Page> = (0..count).map(|n| page(version + n)).collect();
        let write = Operation::Write { offset: first * P, from: from.as_flattened() };
        device.submit(Cpu(0), write).expect("there is room");
    };
    all(0, FULL, 1000);
    // The others of the first segment move to the second.
    all(READ + 1 + live, FULL - READ - 1 - live, 2000);
    forget(&device, 0, 0, READ);
    all(FULL, HALF, 3000);
    all(FULL, HALF, 3000);
    (0..5).for_each(|_| all(FULL, 1, 3000));
    device
}

/// A page is read while it is replaced, and its segment is used again.
fn replaced(live: u64) -> Play {
    Arc::new(move || {
        let device = Arc::new(device(live));
        let reader = {
            let device = device.clone();
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..3 {
                    let versions = [1000 + READ, 1, 2, 3];
                    let found = read(&device, 1, READ, &versions[last..]);
                    last = versions.iter().position(|it| *it == found).expect("it is one");
                }
            })
        };
        for version in 1..=3 {
            write(&device, 0, READ, version);
        }
        reader.join().expect("the reader ends");
        for number in READ + 1..READ + 1 + live {
            read(&device, 0, number, &[1000 + number]);
        }
        assert_eq!(read(&device, 0, READ, &[3]), 3);
    })
}

/// Two write the same page, a third forgets another, and all of it is freed in the end.
fn crowd() -> Play {
    Arc::new(|| {
        let device = Arc::new(device(4));
        let threads = [1, 2].map(|thread| {
            let device = device.clone();
            thread::spawn(move || {
                for round in 0..2 {
                    write(&device, thread, READ, u64::from(thread) * 10 + round);
                    forget(&device, thread, READ + u64::from(thread), 1);
                    let versions = [10, 11, 20, 21];
                    read(&device, thread, READ, &versions);
                }
            })
        });
        for thread in threads {
            thread.join().expect("the thread ends");
        }
        read(&device, 0, READ, &[11, 21]);
        let all = Operation::Discard { offset: 0, length: PAGES * P };
        device.submit(Cpu(0), all).expect("it is done");
        assert_eq!(device.stats().live_bytes, 0, "something was not freed");
    })
}

#[test]
fn a_page_is_read_while_its_segment_is_used_again() {
    holds("a_page_is_read_while_its_segment_is_used_again", "log", &replaced(0));
}

#[test]
fn a_page_is_read_while_its_segment_is_cleaned() {
    holds("a_page_is_read_while_its_segment_is_cleaned", "log", &replaced(4));
}

#[test]
fn writers_of_one_page_leave_nothing_behind() {
    holds("writers_of_one_page_leave_nothing_behind", "log", &crowd());
}
