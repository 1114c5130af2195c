//! A disk whose backing device holds a log: what is special about a log. That every byte stays,
//! whatever happens, is tested beside the other layouts in `post` and `when_full`.

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use common::bench::{Bench, Made};
use common::{LOG_PAGES, Plan};
use control::Errno;
use sim::content::Fill;
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, Select, Writeback};

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(0);

fn page(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    // Half of it does not shrink.
    Fill::Noise(number).render(&mut page);
    page[PAGE_SIZE / 2..].fill(number as u8);
    page
}

fn all() -> Writeback {
    Writeback { select: Some(Select::Any), pages: Vec::new() }
}

#[test]
fn what_dies_makes_room_for_what_comes() {
    // They fill most of one segment of three: one is for survivors, and one for what is new.
    const PAGES: u64 = 400;
    let mut rng = Rng::new(seed("what_dies_makes_room_for_what_comes"));
    let plan = Plan {
        auto: false,
        backing_pages: 1,
        log: true,
        cpus: 2,
        ..Plan::new(PAGES * P, zcomp::LZ4)
    };
    let disk = plan.build();
    let mut numbers = vec![0; PAGES as usize];
    // Each round replaces a part of the pages. The log is rewritten many times.
    for round in 1..60 {
        for (index, number) in (0..).zip(&mut numbers) {
            if round == 1 || rng.one_in(3) {
                *number = round * PAGES + index;
                disk.disk.store_page(CPU, index, &page(*number)).expect("there is space");
            }
        }
        disk.disk.writeback(&all()).expect("cleaning makes room");
        let stats = disk.disk.stats();
        assert_eq!(stats.backed_pages, PAGES, "{stats:?}");
    }
    let log = disk.disk.log_stats().expect("there is a log");
    assert!(log.cleaned_segments > 3 && log.copied_bytes > 0, "{log:?}");
    for (index, number) in (0..).zip(&numbers) {
        let mut into = [0; PAGE_SIZE];
        disk.disk.load_page(CPU, index, &mut into).expect("it can be read");
        assert!(into == page(*number), "page {index} changed");
    }
    let mut together = vec![0; (PAGES * P) as usize];
    let read = Operation::Read { offset: 0, into: &mut together };
    disk.disk.submit(CPU, read).expect("they can be read");
    for (index, got) in together.as_chunks::<PAGE_SIZE>().0.iter().enumerate() {
        assert!(*got == page(numbers[index]), "page {index} changed");
    }
}

#[test]
fn a_full_log_keeps_what_it_has() {
    let pages = 3 * LOG_PAGES;
    let plan =
        Plan { auto: false, backing_pages: 1, log: true, ..Plan::new(pages * P, zcomp::LZ4) };
    let disk = plan.build();
    for index in 0..pages {
        disk.disk.store_page(CPU, index, &page(index)).expect("there is space");
    }
    let error = disk.disk.writeback(&all()).expect_err("they do not fit");
    assert_eq!(error.errno, Errno::ENOSPC, "{error}");
    let (stats, log) = (disk.disk.stats(), disk.disk.log_stats().expect("there is a log"));
    assert!(log.live_bytes > log.capacity_bytes / 10 * 9, "{log:?}");
    assert!(stats.backed_pages > 0 && stats.backed_pages < pages, "{stats:?}");
    for index in 0..pages {
        let mut into = [0; PAGE_SIZE];
        disk.disk.load_page(CPU, index, &mut into).expect("it can be read");
        assert!(into == page(index), "page {index} changed");
    }
    // What is discarded makes room.
    disk.disk.discard_pages(CPU, 0, pages - 100).expect("discards succeed");
    disk.disk.writeback(&all()).expect("there is room now");
    assert_eq!(disk.disk.stats().backed_pages, 100);
}

#[test]
fn objects_are_packed() {
    const PAGES: u64 = 400;
    let plan =
        Plan { auto: false, backing_pages: 1, log: true, ..Plan::new(PAGES * P, zcomp::LZ4) };
    let disk = plan.build();
    for index in 0..PAGES {
        disk.disk.store_page(CPU, index, &page(index)).expect("there is space");
    }
    let objects = disk.disk.stats().compressed_bytes;
    disk.disk.writeback(&all()).expect("there is room");
    let log = disk.disk.log_stats().expect("there is a log");
    assert!(log.written_bytes < objects + objects / 20, "{objects} bytes of objects, {log:?}");
    // Pages of extents are compressed one by one. Neighbours are alike, so that they are packed.
    for index in 0..PAGES {
        let mut page = page(index / 4);
        page[0] = index as u8;
        disk.disk.store_page(CPU, index, &page).expect("there is space");
    }
    assert!(disk.disk.pack(&zram::Pack::default()).expect("there is space") > 0);
    disk.disk.writeback(&all()).expect("there is room");
    let again = disk.disk.log_stats().expect("there is a log").written_bytes - log.written_bytes;
    assert!(again < objects + objects / 10, "{objects} bytes of objects, {again} written");
}

fn contents(device: &Plain) -> Vec<u8> {
    let mut bytes = vec![0; device.geometry().bytes as usize];
    device.submit(CPU, Operation::Read { offset: 0, into: &mut bytes }).expect("it is memory");
    bytes
}

fn on(device: Arc<dyn BlockDevice>) -> Made {
    Bench { frames: 1 << 16, ..Bench::new(device) }.make()
}

#[test]
fn what_is_not_as_it_was_written_is_an_error() {
    const PAGES: u64 = 64;
    let below = Arc::new(Plain::new((LOG_PAGES * P) as usize));
    let Made { disk, .. } = on(below.clone());
    disk.set_backing_log(true).expect("it has no backing device");
    disk.set_backing("backing").expect("there is one");
    disk.set_disksize(PAGES * P).expect("there are addresses");
    let write = |from: u64| {
        for index in 0..PAGES {
            disk.store_page(CPU, index, &page(from + index)).expect("there is space");
        }
        disk.writeback(&all()).expect("there is room");
    };
    let put = |bytes: &[u8]| {
        below.submit(CPU, Operation::Write { offset: 0, from: bytes }).expect("it is memory");
    };
    let outcomes = |from: u64| -> Vec<Result<bool, IoError>> {
        let look = |index| {
            let mut into = [0; PAGE_SIZE];
            disk.load_page(CPU, index, &mut into).map(|()| into == page(from + index))
        };
        (0..PAGES).map(look).collect()
    };
    write(0);
    let old = contents(&below);
    assert!(outcomes(0).iter().all(|outcome| *outcome == Ok(true)));
    // A byte of every object, wherever it is, and of its header.
    let used = old.iter().rposition(|byte| *byte != 0).expect("something was written");
    let mut errors = 0;
    for at in (0..used).step_by(499) {
        let mut rotten = old.clone();
        rotten[at] ^= 0x40;
        put(&rotten);
        let outcomes = outcomes(0);
        assert!(outcomes.iter().all(|outcome| *outcome != Ok(false)), "byte {at}");
        errors += outcomes.iter().filter(|outcome| outcome.is_err()).count();
    }
    assert!(errors > used / 499 / 2, "{errors} errors");
    put(&old);
    assert!(outcomes(0).iter().all(|outcome| *outcome == Ok(true)));
    // The device goes back to an earlier time, when the segment had another life.
    for round in 1..200 {
        write(round * PAGES);
    }
    put(&old);
    let outcomes = outcomes(199 * PAGES);
    assert!(outcomes.iter().all(|outcome| *outcome == Err(IoError::Corrupt)), "{outcomes:?}");
}

#[test]
fn a_log_needs_three_segments_and_comes_before_its_device() {
    let Made { disk, .. } = on(Arc::new(Plain::new((LOG_PAGES * P) as usize - 1)));
    disk.set_backing_log(true).expect("it has no backing device");
    let refused = disk.set_backing("backing").expect_err("it is too small");
    assert_eq!(refused.errno, Errno::EINVAL);
    assert!(refused.message.contains("3145728"), "{refused}");
    disk.set_backing_log(false).expect("it has no backing device");
    disk.set_backing("backing").expect("pages need no segments");
    let refused = disk.set_backing_log(true).expect_err("it has its device");
    assert_eq!(refused.errno, Errno::EBUSY);
    assert_eq!(disk.log_stats(), None);
}

/// A device whose next read waits until it is told to go on.
struct Held {
    next: Plain,
    holds: AtomicBool,
    /// What the read wants, while it waits.
    reading: Mutex<Option<Range<u64>>>,
    /// Something there changed meanwhile.
    changed: AtomicBool,
    waits: mpsc::Sender<()>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl BlockDevice for Held {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        let range = offset..offset + length;
        if operation.changes() {
            let reading = self.reading.lock().expect("nobody panics");
            let meets = |read: &Range<u64>| read.start < range.end && range.start < read.end;
            if reading.as_ref().is_some_and(meets) {
                self.changed.store(true, Ordering::Relaxed);
            }
        } else if self.holds.swap(false, Ordering::Relaxed) {
            *self.reading.lock().expect("nobody panics") = Some(range);
            self.waits.send(()).expect("the test listens");
            self.goes_on.lock().expect("nobody panics").recv().expect("the test speaks");
            let read = self.next.perform(context, operation);
            *self.reading.lock().expect("nobody panics") = None;
            return read;
        }
        self.next.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

/// However long a read takes, its segment is not used again before. The writer must wait for it.
#[test]
fn a_read_keeps_its_segment() {
    const PAGES: u64 = 300;
    let (waits, is_waiting) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let device = Arc::new(Held {
        next: Plain::new((LOG_PAGES * P) as usize),
        holds: AtomicBool::new(false),
        reading: Mutex::new(None),
        changed: AtomicBool::new(false),
        waits,
        goes_on: Mutex::new(goes_on),
    });
    let Made { disk, .. } = on(device.clone());
    disk.set_backing_log(true).expect("it has no backing device");
    disk.set_backing("backing").expect("there is one");
    disk.set_disksize(PAGES * P).expect("there are addresses");
    let write = |round: u64| {
        for index in 0..PAGES {
            disk.store_page(CPU, index, &page(round * PAGES + index)).expect("there is space");
        }
        disk.writeback(&all()).expect("there is room");
    };
    write(0);
    device.holds.store(true, Ordering::Relaxed);
    let (ended, has_ended) = mpsc::channel();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut into = [0; PAGE_SIZE];
            disk.load_page(Cpu(1), 7, &mut into).map(|()| into)
        });
        is_waiting.recv().expect("the read waits");
        scope.spawn(|| {
            (1..30).for_each(write);
            ended.send(()).expect("the test listens");
        });
        // The log is far too small for all that. Who waits longer sees the same.
        let early = has_ended.recv_timeout(Duration::from_millis(300));
        go_on.send(()).expect("the read listens");
        let found = reader.join().expect("it does not panic").expect("it can be read");
        assert!(early.is_err(), "a segment was used again that is being read");
        assert!(!device.changed.load(Ordering::Relaxed), "what is being read was changed");
        let number = (found != page(7)).then(|| (1..30).find(|n| found == page(n * PAGES + 7)));
        assert!(number != Some(None), "the page is none that was stored");
        has_ended.recv().expect("the writer goes on");
    });
}

/// A device whose operation number `at` fails.
struct FailsAt {
    next: Plain,
    count: AtomicU64,
    at: u64,
}

impl BlockDevice for FailsAt {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if self.count.fetch_add(1, Ordering::Relaxed) == self.at {
            return Err(IoError::Failed);
        }
        self.next.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

/// Replaces pages until segments are cleaned, with a fault at one operation. A request may fail;
/// every page must be there afterwards.
fn script(disk: &Disk) -> u32 {
    const PAGES: u64 = 300;
    let mut failed = 0;
    let mut rng = Rng::new(1);
    let mut numbers = vec![0; PAGES as usize];
    for round in 1..14 {
        for (index, number) in (0..).zip(&mut numbers) {
            if round == 1 || rng.one_in(3) {
                *number = round * PAGES + index;
                disk.store_page(CPU, index, &page(*number)).expect("there is space");
            }
        }
        failed += u32::from(disk.writeback(&all()).is_err());
    }
    for (index, number) in (0..).zip(&numbers) {
        let mut into = [0; PAGE_SIZE];
        let mut load = || disk.load_page(CPU, index, &mut into);
        let loaded = load().or_else(|_| {
            failed += 1;
            load()
        });
        loaded.expect("the fault is over");
        assert!(into == page(*number), "page {index} changed");
    }
    failed
}

#[test]
fn a_fault_at_every_operation_loses_nothing() {
    let fails_at = |at| {
        let next = Plain::new((LOG_PAGES * P) as usize);
        Arc::new(FailsAt { next, count: AtomicU64::new(0), at })
    };
    let made = |device: &Arc<FailsAt>| {
        let made = on(device.clone());
        let disk = &made.disk;
        disk.set_backing_log(true).expect("it has no backing device");
        disk.set_backing("backing").expect("there is one");
        disk.set_disksize(400 * P).expect("there are addresses");
        made
    };
    let sound = fails_at(u64::MAX);
    let Made { disk, .. } = made(&sound);
    assert_eq!(script(&disk), 0);
    let log = disk.log_stats().expect("there is a log");
    assert!(log.cleaned_segments > 0, "{log:?}");
    let operations = sound.count.load(Ordering::Relaxed);
    // The reads at the end are alike.
    for at in 0..operations - 290 {
        let device = fails_at(at);
        let Made { disk, frames, .. } = made(&device);
        let failed = script(&disk);
        // A discard is a hint, and a segment that cannot be read at once is read by blocks.
        assert!(failed <= 1, "operation {at} failed, and {failed} requests with it");
        disk.discard_pages(CPU, 0, 400).expect("discards succeed");
        let log = disk.log_stats().expect("there is a log");
        assert_eq!((log.live_bytes, disk.stats().backed_pages), (0, 0), "operation {at}");
        disk.validate();
        assert_eq!(frames.stats().allocated, 0);
    }
}
