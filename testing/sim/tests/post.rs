//! An administrator's operations on stored pages while other threads use the pages: idle marks,
//! recompression, writeback, compaction, new sizes, codecs and limits. Every byte must stay as
//! written, whatever fails on the backing device.

mod common;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use common::bench::{Bench, Made};
use common::{Plan, SOON, Watched, in_time};
use sim::content::Fill;
use sim::events::Weights;
use sim::model::Drive;
use sim::suite::{self, Crowd};
use testkit::{Rng, asked, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{CodecError, Compressor, Corrupt, Packer, ZSTD};
use zram::{Disk, Recompress, Select, WhenFull, Writeback};

const P: u64 = PAGE_SIZE as u64;

fn plan(bytes: u64, algorithm: &'static str) -> Plan {
    Plan::new(0, algorithm).sized(bytes)
}

#[test]
fn a_meddled_disk_passes_the_suite() {
    let seed = seed("a_meddled_disk_passes_the_suite");
    for (compressed_writeback, log) in common::LAYOUTS {
        for (algorithm, meddle_every) in [(zcomp::LZ4, 3), (zcomp::DEFLATE, 5)] {
            suite::block_device(seed, |bytes| {
                let plan = plan(bytes, algorithm);
                Plan { meddle_every, compressed_writeback, log, ..plan }.device()
            });
        }
    }
}

#[test]
fn failing_writeback_loses_nothing() {
    let mut rng = Rng::new(seed("failing_writeback_loses_nothing"));
    for log in [false, true] {
        for backing_faults in [10_000, 500_000, 1_000_000] {
            let plan = plan(300 * P, zcomp::LZ4);
            let disk = Plan { backing_faults, log, meddle_every: 7, ..plan }.build();
            Drive::new(rng.next_u64(), 4000).run(&disk);
            let writes = disk.disk.stats().backed_writes;
            assert_eq!(writes == 0, backing_faults == 1_000_000, "{writes} writes were made");
        }
    }
}

/// Many threads use their own pages and know every byte of them, and one thread acts as
/// administrator. `RAMPACK_EVENTS` makes the test longer.
#[test]
fn every_byte_stays_while_everything_changes() {
    let mut rng = Rng::new(seed("every_byte_stays_while_everything_changes"));
    let events = asked("RAMPACK_EVENTS", 48_000);
    const THREADS: u64 = 4;
    const PAGES: u64 = 200;
    let plan = plan(THREADS * PAGES * P, zcomp::LZ4);
    for log in [false, true] {
        let plan = Plan { compressed_writeback: true, log, cpus: 2, backing_faults: 2000, ..plan };
        let disk = Arc::new(plan.build());
        let limits = [0, 100 * P, 400 * P, 0];
        let round = AtomicU32::new(0);
        let meddle = || {
            let number = round.fetch_add(1, Ordering::Relaxed);
            disk.meddle(number);
            disk.disk.set_mem_limit(limits[number as usize % limits.len()]);
        };
        let weights = Weights { write_pages: 40, discard: 8, ..Weights::default() };
        let drives = [(); THREADS as usize].map(|()| Drive {
            weights,
            may_fill_up: true,
            ..Drive::new(rng.next_u64(), events / THREADS as usize)
        });
        suite::owners(&disk, PAGES, &drives, &meddle);
        disk.disk.set_mem_limit(0);
        let stats = disk.disk.stats();
        assert!(stats.backed_writes > 0 && stats.backed_reads > 0, "{stats:?}");
        let cleaned = disk.disk.log_stats().map(|log| log.cleaned_segments);
        assert!(cleaned != Some(0), "no segment was cleaned");
    }
}

#[test]
fn crowds_on_the_same_pages_and_writeback_get_along() {
    let mut rng = Rng::new(seed("crowds_on_the_same_pages_and_writeback_get_along"));
    for (compressed_writeback, log) in common::LAYOUTS {
        // The blocks are few, so that each is soon used again.
        let plan = Plan { backing_pages: 6, ..plan(16 * P, zcomp::LZ4) };
        let disk = Plan { compressed_writeback, log, ..plan }.build();
        let disk: &Watched = &disk;
        let back = || {
            let pages = vec![(0, disk.disk.bytes() / P - 1)];
            // The write may fail because no block is left.
            let _ = disk.disk.writeback(&Writeback { select: None, pages });
            disk.meddle(disk.disk.stats().backed_writes as u32);
        };
        let crowd = Crowd { beside: &back, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(disk, crowd);
        suite::neighbours(disk, Crowd { seed: rng.next_u64(), ..crowd });
        assert!(disk.disk.stats().backed_writes > 0);
    }
}

/// A device whose operation number `at` fails. It lets other threads run before each read ends.
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

fn on(backing: Arc<FailsAt>) -> Made {
    let made = Bench { cpus: 1, frames: 1 << 16, ..Bench::new(backing) }.make();
    let disk = &made.disk;
    disk.set_algorithm_at(1, zcomp::ZSTD).unwrap();
    disk.set_backing("one").unwrap();
    disk.set_disksize(32 * P).unwrap();
    made
}

fn text(stamp: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    Fill::Text(stamp).render(&mut page);
    page
}

/// Stores, writes back, reads in every way, changes and recompresses pages. A request may fail, but
/// wrong bytes are a failure of the test. Returns the number of failed requests.
fn script(disk: &Disk) -> u32 {
    let mut failed = 0;
    let all = Writeback { select: Some(Select::Any), pages: Vec::new() };
    (0..20).for_each(|index| disk.store_page(Cpu(0), index, &text(index)).unwrap());
    failed += u32::from(disk.writeback(&all).is_err());
    let mut whole = vec![0; 20 * PAGE_SIZE];
    match disk.submit(Cpu(0), Operation::Read { offset: 0, into: &mut whole }) {
        Ok(()) => (0..20).for_each(|index| {
            assert_eq!(whole[index * PAGE_SIZE..][..PAGE_SIZE], text(index as u64), "page {index}");
        }),
        Err(_) => failed += 1,
    }
    let mut expected: Vec<[u8; PAGE_SIZE]> = (0..20).map(text).collect();
    for (index, page) in expected.iter_mut().enumerate().take(8) {
        let write = Operation::Write { offset: index as u64 * P + 10, from: &[0xee; 20] };
        match disk.submit(Cpu(0), write) {
            Ok(()) => page[10..30].fill(0xee),
            Err(_) => failed += 1,
        }
    }
    disk.recompress(&Recompress::default()).unwrap();
    failed += u32::from(disk.writeback(&all).is_err());
    for (index, page) in expected.iter().enumerate() {
        let mut back = [0; PAGE_SIZE];
        let mut load = || disk.load_page(Cpu(0), index as u64, &mut back);
        // A thread may repeat a failed read.
        let loaded = load().or_else(|_| {
            failed += 1;
            load()
        });
        loaded.unwrap();
        assert!(back == *page, "page {index} is not what was stored");
    }
    failed
}

#[test]
fn a_fault_at_every_operation_of_the_backing_device() {
    let fails_at = |at| {
        let next = Plain::new(64 * PAGE_SIZE);
        Arc::new(FailsAt { next, count: AtomicU64::new(0), at })
    };
    let sound = fails_at(u64::MAX);
    let Made { disk, .. } = on(sound.clone());
    assert_eq!(script(&disk), 0);
    let operations = sound.count.load(Ordering::Relaxed);
    assert!(operations > 60, "only {operations} operations");
    for at in 0..operations {
        let Made { disk, frames, .. } = on(fails_at(at));
        assert_eq!(script(&disk), 1, "operation {at} failed, and one request with it");
        disk.validate();
        disk.discard_pages(Cpu(0), 0, 32).unwrap();
        assert_eq!(disk.stats().backed_pages, 0);
        assert_eq!(frames.stats().allocated, 0);
    }
}

/// What happens whenever a codec of this name compresses something.
type Beside = Arc<RwLock<Box<dyn Fn(&'static str) + Send + Sync>>>;

/// A codec, or the state of one, beside which something happens.
struct Heard<T: ?Sized>(Box<T>, &'static str, Beside);

impl<T: ?Sized> Heard<T> {
    fn happens(&self) {
        self.2.read().expect("nothing panics")(self.1);
    }
}

impl Compressor for Heard<Arc<dyn Compressor>> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn context(&self) -> Result<Box<dyn zcomp::Context>, CodecError> {
        Ok(Box::new(Heard(self.0.context()?, self.1, self.2.clone())))
    }
    fn packer(&self) -> Result<Option<Box<dyn Packer>>, CodecError> {
        let heard = |packer| Box::new(Heard(packer, self.1, self.2.clone())) as Box<dyn Packer>;
        Ok(self.0.packer()?.map(heard))
    }
}

impl zcomp::Context for Heard<dyn zcomp::Context> {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        self.happens();
        self.0.compress(page, into)
    }
    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        self.0.decompress(bytes, page)
    }
    fn decompress_part(
        &mut self,
        bytes: &[u8],
        which: (usize, usize),
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        self.0.decompress_part(bytes, which, page)
    }
}

impl Packer for Heard<dyn Packer> {
    fn compress(&mut self, pages: &[u8], into: &mut [u8]) -> Option<usize> {
        self.happens();
        self.0.compress(pages, into)
    }
}

/// A disk with these pages, and what happens beside its codecs, of which zstd is the second.
fn heard(pages: &[Fill]) -> (Made, Beside) {
    let beside: Beside = Arc::new(RwLock::new(Box::new(|_| {})));
    let with = beside.clone();
    let over_codec = move |codec: Arc<dyn Compressor>| -> Arc<dyn Compressor> {
        let name = codec.name();
        Arc::new(Heard(Box::new(codec), name, with.clone()))
    };
    let bench = Bench::new(Arc::new(Plain::new(0)));
    let made = Bench { over_codec: Box::new(over_codec), ..bench }.make();
    made.clock.set(1000);
    made.disk.set_algorithm(zcomp::LZ4).unwrap();
    made.disk.set_algorithm_at(1, ZSTD).unwrap();
    made.disk.set_auto(true).unwrap();
    made.disk.set_disksize(pages.len() as u64 * P).unwrap();
    for (index, fill) in pages.iter().enumerate() {
        let mut page = [0; PAGE_SIZE];
        fill.render(&mut page);
        made.disk.store_page(Cpu(0), index as u64, &page).unwrap();
    }
    (made, beside)
}

/// Reads all pages.
fn read_all(disk: &Disk) {
    disk.read_all(|index, error| panic!("page {index}: {error}"));
}

/// Lets all pages be read whenever zstd compresses something, or nothing happen.
fn reads_beside(disk: &Arc<Disk>, beside: &Beside, on: bool) {
    let of = Arc::downgrade(disk);
    let reads = move |codec| {
        _ = of.upgrade().filter(|_| on && codec == ZSTD).inspect(|disk| read_all(disk))
    };
    *beside.write().unwrap() = Box::new(reads);
}

/// A page that is read while it is compressed again stays as it is, and nobody prepares it any more.
#[test]
fn a_page_that_is_read_meanwhile_is_free_again() {
    // The second one becomes no smaller.
    for fill in [Fill::Text(1), Fill::Noise(1)] {
        let (Made { disk, .. }, beside) = heard(&[fill]);
        disk.mark_idle(None).unwrap();
        reads_beside(&disk, &beside, true);
        let before = disk.stats();
        disk.recompress(&Recompress::default()).unwrap();
        assert_eq!(disk.stats().compressed_bytes, before.compressed_bytes);
        assert_eq!(disk.contradictions(), Vec::<String>::new());
        reads_beside(&disk, &beside, false);
        disk.validate();
    }
}

/// The recompression of a large disk takes hours. What it frees is used meanwhile.
#[test]
fn a_write_to_a_full_disk_does_not_wait_for_the_end_of_an_operation() {
    const PAGES: u64 = 600;
    let (Made { disk, clock, .. }, beside) = heard(&[Fill::Zeroes; PAGES as usize]);
    disk.set_auto(false).unwrap();
    disk.set_mem_limit(94 * P);
    let full = (0..PAGES).find(|n| disk.store_page(Cpu(1), *n, &text(*n)).is_err());
    let full = full.expect("there is a limit");
    // Some frames are kept for smaller objects.
    disk.set_mem_limit(100 * P);
    disk.set_when_full(WhenFull::Wait).unwrap();
    // The operation is held up before it has compressed any page, and at half of them.
    let (tell, told) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let (goes_on, compressed) = (Mutex::new(goes_on), AtomicU64::new(0));
    *beside.write().unwrap() = Box::new(move |codec| match codec {
        ZSTD => {
            if [0, full / 2].contains(&compressed.fetch_add(1, Ordering::Relaxed)) {
                tell.send(codec).unwrap();
                let _ = goes_on.lock().unwrap().recv_timeout(SOON);
            }
        }
        _ => tell.send(codec).unwrap(),
    });
    let of = disk.clone();
    let operation = thread::spawn(move || of.recompress(&Recompress::default()));
    let next = || told.recv_timeout(SOON).expect("all comes so far");
    assert_eq!(next(), ZSTD);
    let of = disk.clone();
    let written = thread::spawn(move || of.store_page(Cpu(1), full, &text(full)));
    // It is tried twice, tried again by one that may wait, and tried while that waits.
    assert_eq!([next(), next(), next(), next()], [zcomp::LZ4; 4]);
    // While nothing changes, it is tried again in the next second.
    assert_eq!(told.recv_timeout(Duration::from_millis(50)).ok(), None);
    clock.set(1001);
    assert_eq!(next(), zcomp::LZ4);
    go_on.send(()).unwrap();
    while next() != ZSTD {}
    in_time(move || written.join().unwrap()).expect("there is room");
    assert!(disk.is_processed().unwrap(), "it is held up still");
    drop(go_on);
    operation.join().unwrap().unwrap();
}

/// Pages that are all used while they are packed save nothing, and are packed later.
#[test]
fn only_what_was_packed_counts_as_saved() {
    let (Made { disk, clock, .. }, beside) = heard(&[0, 1, 2, 3].map(Fill::Text));
    let cold = || disk.tier_stats().tiers[2].clone();
    let pass = |seconds: std::ops::RangeInclusive<u32>| {
        for second in seconds {
            clock.set(second);
            disk.move_pages(1 << 40, &|| 0).unwrap();
        }
    };
    reads_beside(&disk, &beside, true);
    pass(1001..=1400);
    assert_eq!((cold().moved, cold().saved), (0, 0));
    let before = disk.stats();
    reads_beside(&disk, &beside, false);
    pass(1401..=2000);
    assert_eq!(cold().moved, 4);
    let pool = |stats: zram::Stats| stats.compressed_bytes;
    assert!(cold().saved > 0 && pool(disk.stats()) < pool(before), "{:?}", cold());
}
