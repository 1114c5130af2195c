//! The block device of pages in a log, by a suite that devices with a flaw must fail.

mod suite;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use block::layer::{Fault, FaultPlan};
use block::{
    Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Packed, PackedPages, Plain,
    Visit,
};
use pagelog::{LogDevice, NoDevice, PageLog};
use suite::{check, contents, packed};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};
use zcomp::{ALGORITHMS, Params};

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(0);
const CPUS: usize = 2;

fn on(below: Arc<dyn BlockDevice>, pages: u64) -> LogDevice {
    let log = PageLog::new(below, "below", CPUS).expect("a log");
    let codec = zcomp::open(zcomp::LZ4, &Params::default()).expect("a codec");
    LogDevice::new(log, &host::Mmap, pages, &*codec, CPUS).expect("a device")
}

/// A device of `pages` pages in a log of 5 MiB, one operation in `odds` of which fails.
fn device(pages: u64, odds: Option<u32>, seed: u64) -> LogDevice {
    let rate = odds.map_or(0, |odds| 1_000_000 / odds);
    let plan = FaultPlan {
        seed,
        reads_per_million: rate,
        changes_per_million: rate,
        flushes_per_million: 0,
    };
    on(Arc::new(Fault::new(Plain::new(5 << 20), plan)), pages)
}

#[test]
fn every_page_is_as_it_was_written() {
    let mut rng = Rng::new(seed("every_page_is_as_it_was_written"));
    // The contents take about half of a page: 1000 pages fit, and are written many times over.
    let device = device(1000, None, 0);
    check(&device, &mut rng, 3000).expect("all pages");
    let stats = device.stats();
    assert!(stats.cleaned_segments > 0 && stats.copied_bytes > 0, "{stats:?}");
    device.submit(CPU, Operation::Discard { offset: 0, length: 1000 * P }).expect("it is done");
    assert_eq!(device.stats().live_bytes, 0, "something was not freed");
}

#[test]
fn what_fails_changes_nothing() {
    let mut rng = Rng::new(seed("what_fails_changes_nothing"));
    // One is too large for its log, so that writes are refused.
    for (pages, odds) in [(900, Some(20)), (3000, None), (3000, Some(50))] {
        let device = device(pages, odds, rng.next_u64());
        check(&device, &mut rng, 1500).expect("all pages");
        let all = Operation::Discard { offset: 0, length: pages * P };
        device.submit(CPU, all).expect("it is done");
        assert_eq!(device.stats().live_bytes, 0, "something was not freed");
    }
}

#[test]
fn a_full_log_has_room_again_after_a_discard() {
    let device = device(3000, None, 0);
    let noise = contents(3);
    let write =
        |index: u64| device.submit(CPU, Operation::Write { offset: index * P, from: &noise });
    let full = (0..3000).find(|index| write(*index).is_err()).expect("5 MiB are not enough");
    assert_eq!(write(full), Err(IoError::NoSpace));
    let half = Operation::Discard { offset: 0, length: full / 2 * P };
    device.submit(CPU, half).expect("it is done");
    write(full).expect("there is room");
}

/// Jobs of all kinds may come together, and each has its own result.
#[test]
fn a_refused_write_fails_no_other_job() {
    let device = device(3000, None, 0);
    let (noise, zeroes) = (contents(3), [0; PAGE_SIZE]);
    let mut into = [1; PAGE_SIZE];
    let most = (0..3000).find(|index| {
        let write = Operation::Write { offset: index * P, from: &noise };
        device.submit(CPU, write).is_err()
    });
    let offset = most.expect("5 MiB are not enough") * P;
    let mut jobs = [
        Job::new(Operation::Write { offset: 2900 * P, from: &zeroes }),
        Job::new(Operation::Read { offset, into: &mut into }),
        Job::new(Operation::Write { offset, from: &noise }),
        Job::new(Operation::Discard { offset: 2950 * P, length: P }),
        Job::new(Operation::Write { offset: 3000 * P, from: &noise }),
    ];
    device.submit_all(CPU, &mut jobs);
    let results = jobs.map(|job| job.result);
    let (full, outside) = (Err(IoError::NoSpace), Err(IoError::OutOfRange));
    assert_eq!(results, [Ok(()), Ok(()), full, Ok(()), outside]);
    assert_eq!(into, zeroes);
}

#[test]
fn a_changed_block_is_an_error_and_nothing_else_is() {
    let below = Arc::new(Plain::new(5 << 20));
    let device = on(below.clone(), 100);
    for index in 0..100 {
        let from = contents(index * 5 + 4);
        device.submit(CPU, Operation::Write { offset: index * P, from: &from }).expect("room");
    }
    let bad = || {
        let mut into = [0; PAGE_SIZE];
        let mut read = |index: &u64| {
            device.submit(CPU, Operation::Read { offset: index * P, into: &mut into }).is_err()
        };
        (0..100).filter(|index| read(index)).collect::<Vec<u64>>()
    };
    assert!(device.abilities().checked);
    assert_eq!(bad(), []);
    let mut block = [0; PAGE_SIZE];
    below.submit(CPU, Operation::Read { offset: 0, into: &mut block }).expect("it is there");
    block[40] ^= 1;
    below.submit(CPU, Operation::Write { offset: 0, from: &block }).expect("it is there");
    assert_eq!(bad(), [0]);
    let read = Operation::Read { offset: 0, into: &mut block };
    assert_eq!(device.submit(CPU, read), Err(IoError::Corrupt));
}

/// What comes compressed lies on the device byte by byte, and is expanded when it is read.
#[test]
fn compressed_pages_are_written_as_they_are() {
    let below = Arc::new(Plain::new(5 << 20));
    let device = on(below.clone(), 100);
    let page = contents(4);
    let mut written = 0;
    for (codec, index) in ALGORITHMS.iter().zip(0..) {
        let Some(object) = packed(codec, &page).filter(|_| device.takes(codec)) else { continue };
        let mut pages =
            [Packed { codec: Some(codec), bytes: &object, ..Packed::whole(index, &page) }];
        device.write_packed(CPU, &mut pages);
        assert_eq!(pages[0].result, Ok(()), "{codec}");
        let mut log = vec![0; 1 << 20];
        below.submit(CPU, Operation::Read { offset: 0, into: &mut log }).expect("it is there");
        let there = log.windows(object.len()).any(|bytes| bytes == object);
        assert!(there, "no object of {codec} is on the device");
        let mut into = [0; PAGE_SIZE];
        device.submit(CPU, Operation::Read { offset: index * P, into: &mut into }).expect(codec);
        assert!(into == page, "{codec}");
        written += 1;
    }
    assert_eq!(written, 5, "lz4, lz4hc, lzo, lzo-rle and 842 need no memory to expand a page");
}

#[test]
fn pages_that_cannot_be_of_their_codec_are_refused() {
    let device = device(10, None, 0);
    let page = contents(4);
    let whole = |index| Packed::whole(index, &page);
    let mut pages = [
        Packed { codec: Some(zcomp::DEFLATE), bytes: &[1; 9], ..whole(0) },
        Packed { codec: Some(zcomp::LZ4), ..whole(1) },
        Packed { bytes: &[1; 9], ..whole(2) },
        whole(10),
        whole(u64::MAX),
        whole(3),
    ];
    device.write_packed(CPU, &mut pages);
    let unsupported = Err(IoError::Unsupported);
    let (part, outside) = (Err(IoError::Unaligned), Err(IoError::OutOfRange));
    let results = pages.map(|page| page.result);
    assert_eq!(results, [unsupported, unsupported, part, outside, outside, Ok(())]);
    assert_eq!(device.stats().live_bytes, u64::from(segments::stored(lz4_bytes(&page))));
}

fn lz4_bytes(page: &[u8; PAGE_SIZE]) -> u16 {
    packed(zcomp::LZ4, page).expect("it shrinks").len() as u16
}

/// Objects of other codecs may be larger. A log that is half full has pages compressed again.
#[test]
fn a_log_that_is_half_full_takes_objects_of_its_own_codec_only() {
    let device = device(3000, None, 0);
    let noise = contents(3);
    let takes = || [device.takes(zcomp::LZ4), device.takes(zcomp::LZO), device.takes("none")];
    for index in 0..3000 {
        let stats = device.stats();
        let has_room = stats.live_bytes <= stats.capacity_bytes / 2;
        assert_eq!(takes(), [true, has_room, false]);
        if !has_room {
            return;
        }
        device.submit(CPU, Operation::Write { offset: index * P, from: &noise }).expect("room");
    }
    panic!("5 MiB have room for more");
}

#[test]
fn pages_that_a_log_cannot_name_are_refused() {
    let log = PageLog::new(Arc::new(Plain::new(5 << 20)), "below", CPUS).expect("a log");
    let codec = zcomp::open(zcomp::LZ4, &Params::default()).expect("a codec");
    let most = 16 << 40 >> 12;
    match LogDevice::new(log, &host::Mmap, most + 1, &*codec, CPUS) {
        Err(NoDevice::Pages(pages)) => assert_eq!(pages, most + 1),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("a header of the log has 32 bits for the number of a page"),
    }
}

#[test]
fn bad_requests_are_refused() {
    let device = device(10, None, 0);
    let mut page = [0; PAGE_SIZE];
    let mut read = |offset| device.submit(CPU, Operation::Read { offset, into: &mut page });
    assert_eq!(read(10 * P), Err(IoError::OutOfRange));
    assert_eq!(read(u64::MAX - P + 1), Err(IoError::OutOfRange));
    assert_eq!(read(512), Err(IoError::Unaligned));
    let write = Operation::Write { offset: 0, from: &[0; 512] };
    assert_eq!(device.submit(CPU, write), Err(IoError::Unaligned));
    let mut page = [0; PAGE_SIZE];
    let read = Operation::Read { offset: 0, into: &mut page };
    assert_eq!(device.perform(Context::at_once(CPU), read), Err(IoError::WouldBlock));
}

/// Threads write and read pages of their own. A page that two write has one version, whole.
#[test]
fn threads_find_their_pages() {
    const THREADS: u64 = 4;
    const EACH: u64 = 200;
    let device = &device(THREADS * EACH + 1, None, 0);
    let seed = seed("threads_find_their_pages");
    let shared = THREADS * EACH;
    let (done, dones) = mpsc::channel();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let done = done.clone();
            scope.spawn(move || {
                let (mut rng, first) = (Rng::new(seed.wrapping_add(thread)), thread * EACH);
                let mut versions = vec![0; EACH as usize];
                let mut page = [0; PAGE_SIZE];
                for round in 1..1500 {
                    let n = rng.below(EACH);
                    let offset = (first + n) * P;
                    if rng.one_in(2) {
                        versions[n as usize] = round * THREADS + thread;
                        let from = contents(versions[n as usize]);
                        device.submit(CPU, Operation::Write { offset, from: &from }).expect("room");
                        let write = Operation::Write { offset: shared * P, from: &from };
                        device.submit(Cpu(thread as u32), write).expect("room");
                    }
                    let read = Operation::Read { offset, into: &mut page };
                    device.submit(Cpu(thread as u32), read).expect("it is there");
                    assert!(page == contents(versions[n as usize]), "page {} changed", first + n);
                    let read = Operation::Read { offset: shared * P, into: &mut page };
                    device.submit(CPU, read).expect("it is there");
                }
                done.send(()).expect("the test waits");
            });
        }
    });
    assert_eq!(dones.try_iter().count(), THREADS as usize);
    let stats = device.stats();
    assert!(stats.cleaned_segments > 0, "{stats:?}");
}

/// A flaw that the suite must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// Says that a refused write is done.
    SaysDone,
    /// Leaves a page where it was, once in a while.
    KeepsOld,
    /// Does not discard.
    KeepsDiscarded,
    /// Reads the page beside, once in a while.
    ReadsNeighbour,
}

struct Flawed {
    device: LogDevice,
    flaw: Flaw,
    calls: AtomicU64,
}

impl BlockDevice for Flawed {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.device.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let sometimes = self.calls.fetch_add(1, Ordering::Relaxed) % 16 == 15;
        match (operation, self.flaw) {
            (Operation::Write { .. }, Flaw::KeepsOld) if sometimes => Ok(()),
            (Operation::Discard { .. }, Flaw::KeepsDiscarded) => Ok(()),
            (Operation::Read { offset, into }, Flaw::ReadsNeighbour) if sometimes && offset > 0 => {
                self.device.perform(context, Operation::Read { offset: offset - P, into })
            }
            (operation @ Operation::Write { .. }, Flaw::SaysDone) => {
                let _ = self.device.perform(context, operation);
                Ok(())
            }
            (operation, _) => self.device.perform(context, operation),
        }
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.device.extents(cpu, offset, length, visit)
    }
}

#[test]
fn flaws_are_found() {
    let mut rng = Rng::new(seed("flaws_are_found"));
    for flaw in [Flaw::SaysDone, Flaw::KeepsOld, Flaw::KeepsDiscarded, Flaw::ReadsNeighbour] {
        let device = device(3000, Some(50), rng.next_u64());
        let flawed = Flawed { device, flaw, calls: AtomicU64::new(0) };
        check(&flawed, &mut rng, 1500).expect_err(&format!("{flaw:?} was not found"));
    }
}
