use std::fs::File;
use std::io;
use std::sync::Arc;

use block::{BlockDevice, IoError, Job, Operation, ZeroMode};
use sync::atomic::{AtomicBool, Ordering};
use testkit::{Rng, TempDir};
use units::PAGE_SIZE;

use crate::Options;
use crate::batch::{Aside, DEPTH, Done, Part, Queue, Way, pages, run, run_of_ones};
use crate::plain::Plain;
use crate::pool::{Pool, Rail};
use crate::ring::Ring;

/// A file in memory, with a kernel that means no good: it answers in any order, late, in pieces,
/// and with the errors that ask for another try.
struct Odd {
    file: Vec<u8>,
    memory: Vec<u8>,
    under_way: Vec<Part>,
    ready: Vec<Done>,
    rng: Rng,
    odd: bool,
    /// Transfers that touch this page of the file fail with this number.
    bad: Option<(usize, i32)>,
    /// This many transfers of the bad page are left before it is a good one.
    until: u32,
    pauses: u32,
    /// This many calls of `submit` are left before all fail.
    life: u32,
}

impl Odd {
    fn new(pages: usize, rng: Rng) -> Odd {
        let (file, memory) = (vec![0; pages * PAGE_SIZE], vec![0; DEPTH * PAGE_SIZE]);
        let (under_way, ready) = (Vec::new(), Vec::new());
        let (odd, bad, until, pauses, life) = (true, None, u32::MAX, 0, u32::MAX);
        Odd { file, memory, under_way, ready, rng, odd, bad, until, pauses, life }
    }

    fn carry_out(&mut self, part: Part) -> i32 {
        if self.odd && self.rng.one_in(8) {
            return if self.rng.one_in(2) { -libc::EINTR } else { -libc::EAGAIN };
        }
        let mut length = part.length;
        let at = part.offset as usize;
        if let Some((page, error)) = self.bad
            && self.until > 0
            && at / PAGE_SIZE <= page
            && page * PAGE_SIZE < at + length
        {
            // What comes before it is transferred, as on a disk.
            length = page * PAGE_SIZE - (page * PAGE_SIZE).min(at);
            if length == 0 {
                self.until -= 1;
                return -error;
            }
        }
        if self.odd && self.rng.one_in(4) {
            length = 1 + self.rng.below(length as u64) as usize;
        }
        // Beyond the end of the file there is nothing.
        length = length.min(self.file.len().saturating_sub(at));
        let start = part.first * PAGE_SIZE + part.skip;
        let memory = &mut self.memory[start..start + length];
        match part.way {
            Way::Read => memory.copy_from_slice(&self.file[at..at + length]),
            Way::Write => self.file[at..at + length].copy_from_slice(memory),
        }
        length as i32
    }

    fn is_taken(&self, first: usize, length: usize) -> bool {
        let finished = self.ready.iter().map(|done| done.first);
        assert!(finished.clone().all(|f| self.under_way.iter().all(|part| part.first != f)));
        let taken = |part: &Part| pages(part.first, part.skip + part.length);
        self.under_way.iter().any(|part| taken(part) & pages(first, length) != 0)
    }
}

impl Queue for Odd {
    fn memory(&mut self, first: usize, length: usize) -> &mut [u8] {
        assert!(!self.is_taken(first, length), "memory of a part under way");
        &mut self.memory[first * PAGE_SIZE..][..length]
    }

    fn start(&mut self, part: Part) {
        assert!(!self.is_taken(part.first, part.skip + part.length), "a part upon a part");
        assert!(part.skip.is_multiple_of(PAGE_SIZE), "{part:?}");
        assert!(part.offset.is_multiple_of(PAGE_SIZE as u64), "{part:?}");
        assert!(part.first * PAGE_SIZE + part.skip + part.length <= self.memory.len());
        self.under_way.push(part);
    }

    fn submit(&mut self, least: usize) -> io::Result<()> {
        assert!(least <= self.under_way.len(), "waits for ever");
        self.life = self.life.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        let most = self.under_way.len() as u64;
        let count = if self.odd { self.rng.below(most + 1) } else { most };
        for _ in 0..count {
            let at = self.rng.below(self.under_way.len() as u64) as usize;
            let part = self.under_way.swap_remove(at);
            let result = self.carry_out(part);
            self.ready.push(Done { first: part.first, result });
        }
        Ok(())
    }

    fn finished(&mut self) -> Option<Done> {
        self.ready.pop()
    }

    fn pause(&mut self) {
        self.pauses += 1;
    }
}

struct Nothing;

impl Aside for Nothing {
    fn carry_out(&self, operation: &Operation<'_>) -> Option<Result<(), IoError>> {
        matches!(operation, Operation::Flush).then_some(Ok(()))
    }
}

const FILE: usize = 300;

/// Some operations on ranges that do not overlap, and what the file holds after them.
fn some_jobs<'m>(rng: &mut Rng, memory: &'m mut [Vec<u8>], file: &mut [u8]) -> Vec<Job<'m>> {
    let mut jobs = Vec::new();
    let mut at = 0;
    for bytes in memory {
        at = FILE.min(at + rng.below(3) as usize);
        let pages = match rng.below(10) {
            0 => 0,
            1 => 1 + rng.below(70) as usize,
            2 => 16,
            _ => 1,
        };
        let end = (at + pages).min(FILE);
        let (start, length) = (at * PAGE_SIZE, (end - at) * PAGE_SIZE);
        let (offset, range) = (start as u64, start..start + length);
        at = end;
        bytes.resize(length, 0);
        rng.fill(bytes);
        jobs.push(Job::new(match rng.below(8) {
            0 => Operation::Flush,
            1 => {
                file[range].fill(0);
                let mode = ZeroMode::KeepAllocated;
                Operation::WriteZeroes { offset, length: length as u64, mode }
            }
            2..=4 => {
                file[range].copy_from_slice(bytes);
                Operation::Write { offset, from: bytes }
            }
            _ => Operation::Read { offset, into: bytes },
        }));
        if at == FILE {
            break;
        }
    }
    rng.shuffle(&mut jobs);
    jobs
}

fn check_reads(jobs: &[Job<'_>], file: &[u8]) {
    for job in jobs {
        assert_eq!(job.result, Ok(()));
        if let Operation::Read { offset, into } = &job.operation {
            let start = *offset as usize;
            assert!(**into == file[start..start + into.len()], "{} at {start}", into.len());
        }
    }
}

#[test]
fn batches_come_together_again_whatever_the_kernel_does() {
    let seed = testkit::seed("batches_come_together_again_whatever_the_kernel_does");
    let mut rng = Rng::new(seed);
    let mut odd = Odd::new(FILE, rng.fork());
    let mut model = vec![0; FILE * PAGE_SIZE];
    for _ in 0..200 {
        let mut memory = vec![Vec::new(); rng.below(120) as usize];
        let mut jobs = some_jobs(&mut rng, &mut memory, &mut model);
        run(&mut odd, &Nothing, &mut jobs).unwrap();
        assert!(odd.under_way.is_empty(), "something is still under way");
        check_reads(&jobs, &model);
        assert!(odd.file == model);
    }
}

#[test]
fn a_failure_is_its_own_jobs_alone() {
    for (errno, error) in [
        (libc::ENOSPC, IoError::NoSpace),
        (libc::EIO, IoError::Failed),
        (libc::ENOMEM, IoError::NoMemory),
        (libc::EROFS, IoError::ReadOnly),
        (libc::EOPNOTSUPP, IoError::Unsupported),
    ] {
        let mut odd = Odd::new(FILE, Rng::new(errno as u64));
        odd.bad = Some((101, errno));
        let data: Vec<Vec<u8>> = (0..100).map(|n| vec![n as u8 + 1; 2 * PAGE_SIZE]).collect();
        let write = |(n, from): (usize, &'static [u8])| {
            Job::new(Operation::Write { offset: (2 * n * PAGE_SIZE) as u64, from })
        };
        let data: &'static [Vec<u8>] = data.leak();
        let mut jobs: Vec<_> = data.iter().map(|v| &v[..]).enumerate().map(write).collect();
        run(&mut odd, &Nothing, &mut jobs).unwrap();
        for (n, job) in jobs.iter().enumerate() {
            assert_eq!(job.result, if n == 50 { Err(error) } else { Ok(()) }, "job {n}");
            let kept = if n == 50 { PAGE_SIZE } else { 2 * PAGE_SIZE };
            assert!(odd.file[2 * n * PAGE_SIZE..][..kept].iter().all(|b| *b == n as u8 + 1));
        }
        assert!(odd.under_way.is_empty());
    }
}

#[test]
fn what_gets_nowhere_is_given_up() {
    // A file cut off behind our back ends before the range does.
    let mut odd = Odd::new(3, Rng::new(1));
    let (mut gone, mut there) = (vec![0; 4 * PAGE_SIZE], vec![1; PAGE_SIZE]);
    let mut jobs = [
        Job::new(Operation::Read { offset: 0, into: &mut gone }),
        Job::new(Operation::Read { offset: 0, into: &mut there }),
    ];
    run(&mut odd, &Nothing, &mut jobs).unwrap();
    assert_eq!([jobs[0].result, jobs[1].result], [Err(IoError::Failed), Ok(())]);
    // A kernel that wants another try for ever.
    let mut odd = Odd::new(3, Rng::new(1));
    odd.bad = Some((1, libc::EAGAIN));
    let mut jobs = [Job::new(Operation::Read { offset: 0, into: &mut gone })];
    run(&mut odd, &Nothing, &mut jobs).unwrap();
    assert_eq!(jobs[0].result, Err(IoError::Failed));
    assert!(odd.under_way.is_empty());
    assert!(odd.pauses > 10_000, "it was given up after {} pauses", odd.pauses);
}

#[test]
fn a_kernel_that_is_busy_for_a_while_is_asked_again_after_pauses() {
    let mut odd = Odd::new(3, Rng::new(1));
    (odd.odd, odd.bad, odd.until) = (false, Some((1, libc::EAGAIN)), 5000);
    odd.file.fill(7);
    let mut into = vec![0; 3 * PAGE_SIZE];
    let mut jobs = [Job::new(Operation::Read { offset: 0, into: &mut into })];
    run(&mut odd, &Nothing, &mut jobs).unwrap();
    assert_eq!(jobs[0].result, Ok(()));
    assert!(into.iter().all(|byte| *byte == 7));
    assert!((4990..=5000).contains(&odd.pauses), "{} pauses", odd.pauses);
}

#[test]
fn a_dead_queue_fails_what_it_had_and_what_it_would_have_got() {
    let mut odd = Odd::new(FILE, Rng::new(1));
    (odd.odd, odd.life) = (false, 1);
    let mut memory = vec![vec![0; PAGE_SIZE]; 3 * DEPTH];
    let job = |(n, into): (usize, &'static mut [u8])| {
        Job::new(Operation::Read { offset: (n * PAGE_SIZE) as u64, into })
    };
    let memory: &'static mut [Vec<u8>] = std::mem::take(&mut memory).leak();
    let mut jobs: Vec<_> = memory.iter_mut().map(|v| &mut v[..]).enumerate().map(job).collect();
    run(&mut odd, &Nothing, &mut jobs).unwrap_err();
    assert!(jobs[..DEPTH].iter().all(|job| job.result == Ok(())));
    assert!(jobs[DEPTH..].iter().all(|job| job.result == Err(IoError::Failed)));
}

#[test]
fn neighbouring_bits_are_found() {
    assert_eq!(run_of_ones(0, 1), None);
    assert_eq!(run_of_ones(u64::MAX, 16), Some(0));
    assert_eq!(run_of_ones(0b1101_1000, 2), Some(3));
    assert_eq!(run_of_ones(0b1101_1000, 3), None);
    assert_eq!(run_of_ones(0xffff << 48, 16), Some(48));
    assert_eq!(run_of_ones(0x7fff << 49, 16), None);
    assert_eq!(pages(0, 64 * PAGE_SIZE), u64::MAX);
    assert_eq!(pages(3, PAGE_SIZE + 1), 0b11000);
    assert_eq!(pages(63, 1), 1 << 63);
}

fn file(pages: usize) -> (TempDir, Arc<File>) {
    let directory = TempDir::new();
    let file = File::options().read(true).write(true).create_new(true).open(directory.join("f"));
    let file = file.unwrap();
    file.set_len((pages * PAGE_SIZE) as u64).unwrap();
    (directory, Arc::new(file))
}

#[test]
fn real_queues_do_as_the_model() {
    let seed = testkit::seed("real_queues_do_as_the_model");
    for uring in [true, false] {
        let mut rng = Rng::new(seed);
        let (_directory, file) = file(FILE);
        let pool = Pool::new(file, 2, uring);
        let mut model = vec![0; FILE * PAGE_SIZE];
        for _ in 0..100 {
            let mut memory = vec![Vec::new(); rng.below(120) as usize];
            let mut jobs = some_jobs(&mut rng, &mut memory, &mut model);
            run(&mut pool.lease(), &Nothing, &mut jobs).unwrap();
            check_reads(&jobs, &model);
        }
    }
}

/// A ring, if the kernel has some.
fn ring(test: &str, file: Arc<File>) -> Option<Ring> {
    let ring = Ring::new(file, Arc::default());
    let what = "io_uring (a kernel with it, and kernel.io_uring_disabled=0)";
    testkit::met(test, &[testkit::Need::other(ring.is_ok(), what)]).then(|| ring.ok())?
}

#[test]
fn a_ring_that_is_dropped_waits_for_what_is_under_way() {
    let (_directory, file) = file(DEPTH);
    let name = "a_ring_that_is_dropped_waits_for_what_is_under_way";
    let Some(mut ring) = ring(name, file.clone()) else { return };
    for first in 0..DEPTH {
        ring.memory(first, PAGE_SIZE).fill(first as u8 + 1);
        let offset = (first * PAGE_SIZE) as u64;
        let length = PAGE_SIZE;
        ring.start(Part { way: Way::Write, first, skip: 0, length, offset });
    }
    drop(ring);
    let mut plain = Plain::new(file);
    for first in 0..DEPTH {
        let offset = (first * PAGE_SIZE) as u64;
        plain.start(Part { way: Way::Read, first: 0, skip: 0, length: PAGE_SIZE, offset });
        assert!(plain.memory(0, PAGE_SIZE).iter().all(|byte| *byte == first as u8 + 1));
        assert_eq!(plain.finished().unwrap().result, PAGE_SIZE as i32);
    }
}

/// A pipe that takes nothing more, and a ring with a write of a page of ones to it under way. The
/// ring's system call fails from then on. It tells `lost` if the write does not end.
fn cut_off(test: &str, lost: &Arc<AtomicBool>) -> Option<(std::io::PipeReader, Ring)> {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    let (reader, mut writer) = std::io::pipe().unwrap();
    // As much as a pipe holds (pipe(7)).
    writer.write_all(&[0; 1 << 16]).unwrap();
    let ring = Ring::new(Arc::new(File::from(OwnedFd::from(writer))), lost.clone());
    let what = "io_uring (a kernel with it, and kernel.io_uring_disabled=0)";
    if !testkit::met(test, &[testkit::Need::other(ring.is_ok(), what)]) {
        return None;
    }
    let mut ring = ring.ok()?;
    ring.memory(0, PAGE_SIZE).fill(1);
    ring.start(Part { way: Way::Write, first: 0, skip: 0, length: PAGE_SIZE, offset: 0 });
    ring.submit(0).unwrap();
    ring.cut_off();
    ring.submit(1).expect_err("it is no ring any more");
    Some((reader, ring))
}

#[test]
fn a_ring_that_cannot_be_called_any_more_waits_for_what_the_kernel_has() {
    use std::io::Read;
    let name = "a_ring_that_cannot_be_called_any_more_waits_for_what_the_kernel_has";
    let lost = Arc::default();
    let Some((mut reader, mut ring)) = cut_off(name, &lost) else { return };
    // The kernel never gets this one.
    ring.start(Part { way: Way::Write, first: 9, skip: 0, length: PAGE_SIZE, offset: 0 });
    let (gone, is_gone) = std::sync::mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop(ring);
        gone.send(()).unwrap();
    });
    let early = is_gone.recv_timeout(std::time::Duration::from_millis(200));
    let mut before = vec![1; 1 << 16];
    reader.read_exact(&mut before).unwrap();
    assert!(early.is_err(), "the ring is gone, and the kernel has a write of it");
    dropping.join().unwrap();
    let mut page = [0; PAGE_SIZE];
    reader.read_exact(&mut page).unwrap();
    assert_eq!(page, [1; PAGE_SIZE]);
    assert!(!lost.load(Ordering::Acquire), "all has ended");
    assert_eq!(reader.read(&mut page).unwrap(), 0, "a write that never began");
}

#[test]
fn a_device_with_writes_that_do_not_end_takes_no_more() {
    let name = "a_device_with_writes_that_do_not_end_takes_no_more";
    let lost = Arc::default();
    let Some((reader, mut ring)) = cut_off(name, &lost) else { return };
    ring.last = std::time::Duration::from_millis(20);
    drop(ring);
    assert!(lost.load(Ordering::Acquire), "the write is still under way");
    drop(reader);
    let directory = TempDir::new();
    let path = directory.join("file");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let backing = crate::device::BackingFile::open(&path, Options::default()).unwrap();
    let page = [7; PAGE_SIZE];
    let write = || backing.submit(units::Cpu(0), Operation::Write { offset: 0, from: &page });
    write().unwrap();
    backing.pool.lose();
    assert_eq!(write(), Err(IoError::Failed));
    let discard = Operation::Discard { offset: 0, length: 4096 };
    assert_eq!(backing.submit(units::Cpu(0), discard), Err(IoError::Failed));
    let mut found = [0; PAGE_SIZE];
    backing.submit(units::Cpu(0), Operation::Read { offset: 0, into: &mut found }).unwrap();
    assert_eq!(found, page);
}

#[test]
fn a_file_is_unlocked_only_when_no_write_to_it_can_come_any_more() {
    let name = "a_file_is_unlocked_only_when_no_write_to_it_can_come_any_more";
    let directory = TempDir::new();
    let path = directory.join("file");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    // The kernel keeps the file of a ring open that has writes under way, as this does.
    let close = |backing: crate::device::BackingFile| {
        let file = backing.file.clone();
        drop(backing);
        (File::open(&path).unwrap().try_lock().is_ok(), file)
    };
    let open = || crate::device::BackingFile::open(&path, Options::default()).unwrap();
    assert!(close(open()).0, "all has ended");
    let backing = open();
    let Some((_reader, mut ring)) = cut_off(name, &backing.pool.lost) else { return };
    ring.last = std::time::Duration::from_millis(20);
    backing.pool.put(Rail::Ring(Box::new(ring)));
    assert!(!close(backing).0, "another user has the file, and a write of this one may come");
}

#[test]
fn memory_under_way_is_not_given_out() {
    let (_directory, file) = file(1);
    let Some(mut ring) = ring("memory_under_way_is_not_given_out", file) else { return };
    ring.start(Part { way: Way::Read, first: 3, skip: 0, length: 2 * PAGE_SIZE, offset: 0 });
    let refused = |act: &mut dyn FnMut()| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).expect_err("it is refused");
    };
    refused(&mut || ring.memory(4, PAGE_SIZE).fill(0));
    let part = Part { way: Way::Read, first: 2, skip: 0, length: 2 * PAGE_SIZE, offset: 0 };
    refused(&mut || ring.start(part));
    refused(&mut || ring.memory(DEPTH - 1, PAGE_SIZE + 1).fill(0));
    ring.memory(5, PAGE_SIZE).fill(1);
}

#[test]
fn a_pool_makes_no_more_rings_than_it_may() {
    let (_directory, file) = file(1);
    let pool = Pool::new(file, 3, true);
    assert_eq!(pool.made(), 1);
    let two = [pool.lease(), pool.lease()];
    assert_eq!(pool.made(), 2);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    drop(pool.lease());
                }
            });
        }
    });
    drop(two);
    assert!((2..=3).contains(&pool.made()), "{}", pool.made());
    let mut broken = pool.lease();
    broken.broken = true;
    let before = pool.made();
    drop(broken);
    assert_eq!(pool.made(), before - 1);
    // A user that panics takes its ring along.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _lease = pool.lease();
        panic!("this is part of the test");
    }))
    .expect_err("it panics");
    assert!(pool.made() < before);
    drop(pool.lease());
}

#[test]
fn no_io_uring_is_no_obstacle() {
    let (_directory, file) = file(1);
    assert!(matches!(Pool::new(file, 1, false).take_one(), Rail::Plain(_)));
}

#[test]
fn rings_that_are_to_be_ready_are_there_before_the_first_call() {
    let directory = TempDir::new();
    let path = directory.join("file");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    for io_uring in [true, false] {
        let options = Options { rings: 5, io_uring, ready: true, ..Options::default() };
        let backing = crate::device::BackingFile::open(&path, options).unwrap();
        assert_eq!(backing.pool.made(), 5);
        let write = Operation::Write { offset: 0, from: &[7; 8192] };
        backing.submit(units::Cpu(0), write).unwrap();
        assert_eq!(backing.pool.made(), 5);
    }
}

#[test]
fn a_discard_leaves_the_blocks_of_a_file_that_keeps_its_space() {
    use std::os::unix::fs::MetadataExt;
    let directory = TempDir::new();
    let path = directory.join("file");
    std::fs::write(&path, [7; 1 << 20]).unwrap();
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    let before = blocks();
    let options = Options { keep: true, ..Options::default() };
    let backing = crate::device::BackingFile::open(&path, options).unwrap();
    assert!(!backing.abilities().discard);
    let discard = Operation::Discard { offset: 0, length: 1 << 20 };
    backing.submit(units::Cpu(0), discard).unwrap();
    assert_eq!(blocks(), before);
}

#[test]
fn a_write_through_the_page_cache_waits_for_the_storage() {
    use std::os::fd::AsRawFd;
    let directory = TempDir::new();
    let path = directory.join("file");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    for direct in [false, true] {
        for io_uring in [false, true] {
            let options = Options { direct, io_uring, ..Options::default() };
            let backing = crate::device::BackingFile::open(&path, options).unwrap();
            // SAFETY: the descriptor is borrowed from an open file; the request takes no argument.
            let flags = unsafe { libc::fcntl(backing.file.as_raw_fd(), libc::F_GETFL) };
            assert!(flags >= 0);
            let is_direct = flags & libc::O_DIRECT != 0;
            // The file system of the test may refuse direct I/O.
            assert!(direct || !is_direct, "{flags:o}");
            assert_eq!(flags & libc::O_DSYNC != 0, !is_direct, "{flags:o}");
            let write = Operation::Write { offset: 0, from: &[7; 8192] };
            backing.submit(units::Cpu(0), write).unwrap();
            let mut page = [0; PAGE_SIZE];
            let read = Operation::Read { offset: 0, into: &mut page };
            backing.submit(units::Cpu(0), read).unwrap();
            assert_eq!(page, [7; PAGE_SIZE]);
        }
    }
}
