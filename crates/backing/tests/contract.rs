//! The contract of a block device, kept by files and block devices, with io_uring and without.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backing::{Options, open};
use block::{BlockDevice, IoError, Job, Operation, ZeroMode};
use common::*;
use sim::events::Weights;
use sim::model::Drive;
use sim::suite::Crowd;
use testkit::{Need, Rng, TempDir};
use units::Cpu;

const MODES: [Options; 3] =
    [options(true, true, true), options(true, false, false), options(false, true, true)];

const fn options(io_uring: bool, direct: bool, ready: bool) -> Options {
    Options { rings: 3, io_uring, direct, ready, keep: false, private: false, sealed: false }
}

/// The suite on new files of `directory`.
fn suite(directory: &Path, options: Options, seed: u64) {
    let count = AtomicU32::new(0);
    let make = |bytes| -> Arc<dyn BlockDevice> {
        let name = count.fetch_add(1, Ordering::Relaxed).to_string();
        let device = open(&sparse(&directory.join(name), bytes), options).unwrap();
        assert_eq!(device.geometry().minimum_block, 4096);
        device
    };
    sim::suite::edges(&make);
    let mut rng = Rng::new(seed);
    for (pages, events) in [(1, 400), (7, 1500), (300, 2000)] {
        sim::suite::against_model(&make, pages * P, Drive::new(rng.next_u64(), events));
    }
    // Not the pages that many write at once: the system promises no order for them.
    sim::suite::neighbours(&*make(16 * P), Crowd::new(rng.next_u64()));
}

#[test]
fn a_file_is_a_block_device() {
    let seed = testkit::seed("a_file_is_a_block_device");
    for options in MODES {
        suite(TempDir::new().path(), options, seed);
    }
}

#[test]
fn a_file_in_memory_is_a_block_device() {
    if !testkit::met("a_file_in_memory_is_a_block_device", &MOUNT) {
        return;
    }
    let seed = testkit::seed("a_file_in_memory_is_a_block_device");
    let mounted = Mounted::tmpfs(64 << 20);
    suite(&mounted.join(""), MODES[0], seed);
}

#[test]
fn a_block_device_is_one() {
    if !testkit::met("a_block_device_is_one", &[Need::Root, Need::Loop]) {
        return;
    }
    let seed = testkit::seed("a_block_device_is_one");
    for options in MODES {
        let device = Loop::new(300 * P, &[]);
        // It cannot tell what it holds: everything is data from the start.
        let backing = open(&device.path, options).unwrap();
        // They begin with zeroes.
        sim::suite::neighbours(&*backing, Crowd::new(seed));
        let zeroes = Operation::Discard { offset: 0, length: 300 * P };
        backing.submit(Cpu(0), zeroes).unwrap();
        against_a_vector(&*backing, seed);
    }
}

/// Random batches against a vector.
fn against_a_vector(device: &dyn BlockDevice, seed: u64) {
    let mut rng = Rng::new(seed);
    let pages = device.geometry().bytes / P;
    let mut model = vec![0u8; (pages * P) as usize];
    for _ in 0..150 {
        // Ranges that do not overlap, in any order; now and then more than a ring takes.
        let mut ranges = Vec::new();
        let mut at = rng.below(pages);
        let most = if rng.one_in(5) { 300 } else { 40 };
        while at < pages && ranges.len() < most {
            let count = if rng.one_in(10) { 1 + rng.below(40) } else { 1 }.min(pages - at);
            ranges.push((at * P, count * P));
            at += count + rng.below(2);
        }
        rng.shuffle(&mut ranges);
        let mut memory: Vec<Vec<u8>> = ranges.iter().map(|r| vec![0; r.1 as usize + 1]).collect();
        let mut jobs = Vec::new();
        for (&(offset, length), memory) in ranges.iter().zip(&mut memory) {
            rng.fill(memory);
            // Not aligned.
            let skip = rng.below(2) as usize;
            let bytes = &mut memory[skip..skip + length as usize];
            let kept = &mut model[offset as usize..(offset + length) as usize];
            jobs.push(Job::new(match rng.below(12) {
                0 => {
                    kept.fill(0);
                    Operation::Discard { offset, length }
                }
                n @ 1..=2 => {
                    kept.fill(0);
                    let mode = if n == 1 { ZeroMode::MayPunch } else { ZeroMode::KeepAllocated };
                    Operation::WriteZeroes { offset, length, mode }
                }
                3 => Operation::Flush,
                4..=7 => {
                    kept.copy_from_slice(bytes);
                    Operation::Write { offset, from: bytes }
                }
                _ => Operation::Read { offset, into: bytes },
            }));
        }
        device.submit_all(Cpu(0), &mut jobs);
        for job in jobs {
            assert_eq!(job.result, Ok(()));
            if let Operation::Read { offset, into } = job.operation {
                let expected = &model[offset as usize..offset as usize + into.len()];
                assert!(*into == *expected, "{} bytes at {offset}", into.len());
            }
        }
    }
    let mut all = vec![1; model.len()];
    device.submit(Cpu(0), Operation::Read { offset: 0, into: &mut all }).unwrap();
    assert!(all == model);
}

#[test]
fn batches_against_a_vector() {
    let seed = testkit::seed("batches_against_a_vector");
    let directory = TempDir::new();
    for (n, options) in MODES.into_iter().enumerate() {
        let path = sparse(&directory.join(n.to_string()), 500 * P);
        against_a_vector(&*open(&path, options).unwrap(), seed);
    }
}

#[test]
fn jobs_that_are_wrong_do_not_spoil_the_others() {
    let directory = TempDir::new();
    let device = open(&sparse(&directory.join("f"), 10 * P), Options::default()).unwrap();
    let page = [7; P as usize];
    let write = |offset| Job::new(Operation::Write { offset, from: &page });
    let mut short = [0; 10];
    let mut jobs = vec![
        write(10 * P),
        write(0),
        write(P),
        write(512),
        write(u64::MAX),
        Job::new(Operation::Read { offset: P, into: &mut short }),
        write(9 * P),
    ];
    device.submit_all(Cpu(0), &mut jobs);
    let results: Vec<_> = jobs.iter().map(|job| job.result).collect();
    use IoError::{OutOfRange, Unaligned};
    let expected =
        [Err(OutOfRange), Ok(()), Ok(()), Err(Unaligned), Err(OutOfRange), Err(Unaligned), Ok(())];
    assert_eq!(results, expected);
    for (offset, fill) in [(0, 7), (P, 7), (2 * P, 0), (9 * P, 7)] {
        let mut into = [1; P as usize];
        device.submit(Cpu(0), Operation::Read { offset, into: &mut into }).unwrap();
        assert_eq!(into, [fill; P as usize], "{offset}");
    }
}

#[test]
fn more_threads_than_rings() {
    let name = "more_threads_than_rings";
    let seed = testkit::seed(name);
    let directory = TempDir::new();
    for options in MODES {
        let device = open(&sparse(&directory.join("f"), 16 * 64 * P), options).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..16u64 {
                let device = &device;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed ^ thread);
                    let base = thread * 64 * P;
                    let mut held = [0u8; 64];
                    for _ in 0..20 {
                        let fill = rng.next_u64() as u8;
                        let some: Vec<u64> = (0..64).filter(|_| rng.one_in(2)).collect();
                        let page = [fill; P as usize];
                        let write = |n: &u64| {
                            Job::new(Operation::Write { offset: base + n * P, from: &page })
                        };
                        let mut jobs: Vec<_> = some.iter().map(write).collect();
                        device.submit_all(Cpu(thread as u32), &mut jobs);
                        assert!(jobs.iter().all(|job| job.result == Ok(())));
                        some.iter().for_each(|n| held[*n as usize] = fill);
                        let mut all = vec![1; 64 * P as usize];
                        let read = Operation::Read { offset: base, into: &mut all };
                        device.submit(Cpu(0), read).unwrap();
                        for (page, fill) in all.chunks(P as usize).zip(held) {
                            assert!(page.iter().all(|byte| *byte == fill));
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_full_file_system_refuses_write_by_write() {
    let name = "a_full_file_system_refuses_write_by_write";
    if !testkit::met(name, &MOUNT) {
        return;
    }
    for options in MODES {
        let mounted = Mounted::tmpfs(1 << 20);
        // Much longer than there is space.
        let device = open(&sparse(&mounted.join("f"), 64 << 20), options).unwrap();
        let page = [7; P as usize];
        let write = |n| Job::new(Operation::Write { offset: n * P, from: &page });
        let mut jobs: Vec<_> = (0..1000).map(write).collect();
        device.submit_all(Cpu(0), &mut jobs);
        let refused = |jobs: &[Job<'_>]| jobs.iter().filter(|job| job.result.is_err()).count();
        assert!((700..=760).contains(&refused(&jobs)), "{} were refused", refused(&jobs));
        let full = |job: &Job<'_>| job.result == Ok(()) || job.result == Err(IoError::NoSpace);
        assert!(jobs.iter().all(full));
        for (n, job) in (0..).zip(&jobs) {
            let mut into = [1; P as usize];
            device.submit(Cpu(0), Operation::Read { offset: n * P, into: &mut into }).unwrap();
            assert_eq!(into, if job.result.is_ok() { page } else { [0; P as usize] }, "page {n}");
        }
        // What is given up is there for others.
        let discard = Operation::Discard { offset: 0, length: 1000 * P };
        device.submit(Cpu(0), discard).unwrap();
        assert!(device.abilities().discard);
        let mut jobs: Vec<_> = (2000..2200).map(write).collect();
        device.submit_all(Cpu(0), &mut jobs);
        assert_eq!(refused(&jobs), 0);
    }
}

#[test]
fn a_full_file_system_loses_nothing() {
    let name = "a_full_file_system_loses_nothing";
    let needs = [Need::Root, Need::Loop, Need::program("mkfs.ext4", "e2fsprogs")];
    if !testkit::met(name, &needs) {
        return;
    }
    let seed = testkit::seed(name);
    let device = Loop::new(8 << 20, &[]);
    let at = device.root.join("at");
    std::fs::create_dir(&at).unwrap();
    testkit::run(std::process::Command::new("mkfs.ext4").arg("-q").arg(&device.path));
    testkit::run(std::process::Command::new("mount").arg(&device.path).arg(&at));
    let unmount = testkit::try_run;
    let result = std::panic::catch_unwind(|| {
        for options in MODES {
            let path = sparse(&at.join("f"), 64 << 20);
            let backing = open(&path, options).unwrap();
            let weights = Weights { write_pages: 60, discard: 1, ..Default::default() };
            let drive = Drive { weights, may_fill_up: true, ..Drive::new(seed, 1500) };
            let outcome = drive.run(&*backing);
            assert!(outcome.held > 0);
            let big = vec![3; 16 << 20];
            let write = Operation::Write { offset: 0, from: &big };
            assert_eq!(backing.submit(Cpu(0), write), Err(IoError::NoSpace));
            drop(backing);
            std::fs::remove_file(path).unwrap();
        }
    });
    unmount(std::process::Command::new("umount").arg("-l").arg(&at));
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
