//! Runs the suite of block devices on a disk of the whole stack.

mod common;

use std::sync::Arc;

use block::{BlockDevice, IoError, Operation};
use common::Plan;
use sim::content::Fill;
use sim::events::Weights;
use sim::model::{Drive, drive};
use sim::suite::{self, Crowd};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};

const P: u64 = PAGE_SIZE as u64;
const ALGORITHMS: &[&str] = zcomp::ALGORITHMS;

#[test]
fn lz4_passes_the_suite() {
    let seed = seed("lz4_passes_the_suite");
    suite::block_device(seed, |bytes| Plan::new(bytes, zcomp::LZ4).device());
    suite::block_device(seed, |bytes| {
        Plan { compact_every: 7, cpus: 1, ..Plan::new(bytes, zcomp::LZ4) }.device()
    });
}

#[test]
fn zstd_passes_the_suite() {
    let seed = seed("zstd_passes_the_suite");
    for level in [None, Some(-5), Some(6)] {
        let plan = |bytes| Plan { level, ..Plan::new(bytes, zcomp::ZSTD) };
        suite::block_device(seed, |bytes| plan(bytes).device());
    }
}

#[test]
fn deflate_passes_the_suite() {
    let seed = seed("deflate_passes_the_suite");
    suite::block_device(seed, |bytes| Plan::new(bytes, zcomp::DEFLATE).device());
}

#[test]
fn long_runs_agree_with_the_model() {
    let mut rng = Rng::new(seed("long_runs_agree_with_the_model"));
    for &algorithm in ALGORITHMS {
        let device = Plan { compact_every: 500, ..Plan::new(1500 * P, algorithm) }.device();
        let outcome = drive(&*device, rng.next_u64(), 12_000);
        assert!(outcome.held > 500, "so few pages test little: {outcome:?}");
    }
}

#[test]
fn a_disk_at_its_limit_keeps_what_it_has() {
    let mut rng = Rng::new(seed("a_disk_at_its_limit_keeps_what_it_has"));
    for &algorithm in ALGORITHMS {
        let limit = 40 * P;
        let plan =
            |bytes| Plan { mem_limit: limit, compact_every: 97, ..Plan::new(bytes, algorithm) };
        suite::filling_up(rng.next_u64(), |bytes| plan(bytes).device());
        let disk = plan(400 * P).build();
        let drive = Drive { may_fill_up: true, ..Drive::new(rng.next_u64(), 2000) };
        let outcome = drive.run(&disk);
        let stats = disk.disk.stats();
        assert!(outcome.refused > 0, "the limit was not reached");
        assert!(stats.failed_writes >= outcome.refused, "failed writes are counted: {stats:?}");
        assert!(stats.pool_bytes_peak <= limit + limit / 8, "far over the limit: {stats:?}");
    }
}

#[test]
fn a_machine_without_memory_keeps_what_it_has() {
    let mut rng = Rng::new(seed("a_machine_without_memory_keeps_what_it_has"));
    for &algorithm in ALGORITHMS {
        let plan = |bytes| Plan { memory: 120 * P, ..Plan::new(bytes, algorithm) };
        suite::filling_up(rng.next_u64(), |bytes| plan(bytes).device());
    }
}

#[test]
fn limits_can_be_moved_and_lifted() {
    let disk = Plan::new(64 * P, zcomp::LZ4).build();
    let mut noise = [0; PAGE_SIZE];
    let mut write = |page: u64| {
        Fill::Noise(page).render(&mut noise);
        disk.submit(Cpu(1), Operation::Write { offset: page * P, from: &noise })
    };
    (0..16).for_each(|page| assert_eq!(write(page), Ok(())));
    disk.disk.set_mem_limit(8 * P);
    assert_eq!(write(20), Err(IoError::NoSpace));
    let mut into = [0; PAGE_SIZE];
    for page in 0..16 {
        let read = disk.submit(Cpu(0), Operation::Read { offset: page * P, into: &mut into });
        let mut expected = [0; PAGE_SIZE];
        Fill::Noise(page).render(&mut expected);
        assert!(read == Ok(()) && into == expected, "page {page} is not what it was");
    }
    disk.disk.set_mem_limit(0);
    assert_eq!(write(20), Ok(()));
}

#[test]
fn crowds_and_compaction_get_along() {
    let mut rng = Rng::new(seed("crowds_and_compaction_get_along"));
    for &algorithm in ALGORITHMS {
        let disk = Plan::new(64 * P, algorithm).build();
        let compact = || {
            disk.disk.compact().expect("the disk has a size");
        };
        let crowd = Crowd { beside: &compact, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&disk, crowd);
        let crowd = Crowd { seed: rng.next_u64(), ..crowd };
        suite::neighbours(&disk, crowd);
    }
}

#[test]
fn crowds_may_reach_the_limit() {
    let mut rng = Rng::new(seed("crowds_may_reach_the_limit"));
    for &algorithm in ALGORITHMS {
        // A few pages less than the crowd needs.
        let disk = Plan { mem_limit: 3 * P, ..Plan::new(64 * P, algorithm) }.build();
        let compact = || {
            disk.disk.compact().expect("the disk has a size");
        };
        let crowd = Crowd { may_refuse: true, beside: &compact, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&disk, crowd);
        assert!(disk.disk.stats().failed_writes > 0, "the limit was not reached");
        suite::neighbours(&disk, Crowd { seed: rng.next_u64(), ..crowd });
    }
}

/// Many threads write to pages of their own, and one thread compacts the zspages they leave.
#[test]
fn compaction_moves_objects_under_many_writers() {
    let mut rng = Rng::new(seed("compaction_moves_objects_under_many_writers"));
    let disk = Arc::new(Plan::new(4 * 256 * P, zcomp::LZ4).build());
    let compact = || {
        disk.disk.compact().expect("the disk has a size");
    };
    let weights = Weights { write_pages: 60, discard: 20, ..Weights::default() };
    let drives = [(); 4].map(|()| Drive { weights, ..Drive::new(rng.next_u64(), 3000) });
    suite::owners(&disk, 256, &drives, &compact);
    assert!(disk.disk.stats().pages_compacted > 0, "nothing was ever moved");
}

#[test]
fn resets_leave_nothing_behind() {
    let mut rng = Rng::new(seed("resets_leave_nothing_behind"));
    let disk = Plan::new(100 * P, zcomp::LZ4).build();
    for round in 0..6 {
        drive(&disk, rng.next_u64(), 1000);
        disk.disk.validate();
        disk.disk.reset().expect("nobody uses it");
        let stats = disk.disk.stats();
        assert_eq!((stats.disksize, stats.pool_bytes, stats.num_writes), (0, 0, 0), "{stats:?}");
        assert_eq!(disk.frames.stats().allocated, 0, "a reset kept frames");
        let mut byte = [0];
        let read = disk.submit(Cpu(0), Operation::Read { offset: 0, into: &mut byte });
        assert_eq!(read, Err(IoError::NotReady));
        disk.set_up(Plan::new(
            (50 + 40 * round) * P,
            ALGORITHMS[round as usize % ALGORITHMS.len()],
        ));
    }
}

/// A request during a reset finds the old contents, the new device, or no device.
#[test]
fn resets_beside_requests() {
    let mut rng = Rng::new(seed("resets_beside_requests"));
    let disk = Plan::new(8 * P, zcomp::LZ4).build();
    let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for cpu in 0..3 {
        let (mut rng, disk) = (rng.fork(), &disk);
        tasks.push(Box::new(move || {
            let mut page = [0; PAGE_SIZE];
            let mut expected = [0; PAGE_SIZE];
            for _ in 0..3000 {
                let at = rng.below(8);
                let offset = at * P;
                let done = if rng.one_in(2) {
                    Fill::Text(at).render(&mut page);
                    disk.submit(Cpu(cpu), Operation::Write { offset, from: &page })
                } else {
                    let read = disk.submit(Cpu(cpu), Operation::Read { offset, into: &mut page });
                    Fill::Text(at).render(&mut expected);
                    let known = page == expected || page == [0; PAGE_SIZE];
                    assert!(read.is_err() || known, "page {at} is not one that was written");
                    read
                };
                let allowed = [Ok(()), Err(IoError::NotReady), Err(IoError::OutOfRange)];
                assert!(allowed.contains(&done), "{done:?}");
            }
        }));
    }
    let restart = || {
        disk.disk.reset().expect("nobody has it open");
        assert_eq!(disk.frames.stats().allocated, 0, "a reset kept frames");
        disk.set_up(Plan::new(8 * P, zcomp::ZSTD));
    };
    suite::together(tasks, &restart);
}

#[test]
fn ranges_past_the_end_are_refused_and_counted() {
    let disk = Plan::new(3 * P, zcomp::LZ4).build();
    let mut bytes = [1; 2];
    for offset in [3 * P - 1, 3 * P, u64::MAX - 1, u64::MAX] {
        let read = disk.submit(Cpu(0), Operation::Read { offset, into: &mut bytes });
        assert_eq!(read, Err(IoError::OutOfRange), "at {offset}");
        let write = disk.submit(Cpu(0), Operation::Write { offset, from: &bytes });
        assert_eq!(write, Err(IoError::OutOfRange), "at {offset}");
    }
    let discard = disk.submit(Cpu(0), Operation::Discard { offset: P, length: u64::MAX });
    assert_eq!(discard, Err(IoError::OutOfRange));
    assert_eq!(disk.disk.stats().invalid_io, 9);
    assert_eq!(disk.disk.stats().pages_stored, 0);
}

#[test]
fn the_same_seed_gives_the_same_statistics() {
    let seed = seed("the_same_seed_gives_the_same_statistics");
    for &algorithm in ALGORITHMS {
        let run = |seed| {
            let disk = Plan { compact_every: 301, ..Plan::new(300 * P, algorithm) }.build();
            let outcome = drive(&disk, seed, 3000);
            (outcome, disk.disk.stats())
        };
        assert_eq!(run(seed), run(seed));
        assert_ne!(run(seed), run(!seed));
    }
}
