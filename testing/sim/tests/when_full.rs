//! Disks whose memory is full: a write fails, waits while pages move out, or goes to the backing
//! device.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{BlockDevice, IoError, Operation, Plain};
use common::bench::{Bench, Design};
use common::{Plan, in_time};
use pagealloc::{MemoryProvider, NoMemory};
use sim::content::Fill;
use sim::suite::{self, Crowd};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{CodecError, Compressor, Context, Corrupt};
use zram::slots::{AnySlots, BitLock, MakeSlots, SlotTable};
use zram::{Slot, WhenFull};

const P: u64 = PAGE_SIZE as u64;
const CPU: Cpu = Cpu(1);
const POLICIES: [WhenFull; 2] = [WhenFull::Wait, WhenFull::Spill];
const QUICK: &str = if cfg!(asan) { zcomp::LZO } else { zcomp::LZ4 };

/// A disk whose memory holds 100 pages of noise, with a backing device for `backing_pages`.
fn plan(bytes: u64, when_full: WhenFull, backing_pages: u64) -> Plan {
    Plan { mem_limit: 100 * P, when_full, backing_pages, ..Plan::new(bytes, QUICK) }
}

fn noise(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    Fill::Noise(number).render(&mut page);
    page
}

fn holds(disk: &common::Watched, index: u64, number: u64) -> bool {
    let mut page = [0; PAGE_SIZE];
    disk.disk.load_page(CPU, index, &mut page).expect("it can be read");
    page == noise(number)
}

#[test]
fn nothing_is_refused_while_pages_can_move() {
    let mut rng = Rng::new(seed("nothing_is_refused_while_pages_can_move"));
    for (compressed_writeback, log) in common::LAYOUTS {
        for when_full in POLICIES {
            let make = |bytes: u64| {
                let plan = plan(bytes, when_full, 2 * bytes / P);
                Plan { compressed_writeback, log, ..plan }.device()
            };
            suite::overflowing(rng.next_u64(), make);
        }
    }
}

/// Others take the room that a writer makes.
#[test]
fn crowds_make_room_for_each_other() {
    let mut rng = Rng::new(seed("crowds_make_room_for_each_other"));
    for when_full in POLICIES {
        let disk = Plan { mem_limit: 4 * P, ..plan(16 * P, when_full, 200) }.build();
        suite::hot_pages(&disk, Crowd::new(rng.next_u64()));
        suite::neighbours(&disk, Crowd::new(rng.next_u64()));
    }
}

#[test]
fn a_write_fails_when_nothing_can_move() {
    let mut rng = Rng::new(seed("a_write_fails_when_nothing_can_move"));
    // Noise is not compressed again. The second device has blocks for some of the pages alone.
    for (when_full, blocks) in
        [(WhenFull::Wait, 0), (WhenFull::Wait, 40), (WhenFull::Spill, 40), (WhenFull::Fail, 400)]
    {
        suite::filling_up(rng.next_u64(), |bytes| plan(bytes, when_full, blocks).device());
    }
}

/// Stores pages of text until one is refused, and returns their number.
fn texts_that_fit(when_full: WhenFull, auto: bool) -> u64 {
    let disk = Plan { mem_limit: 200 * P, auto, ..plan(4000 * P, when_full, 0) }.build();
    let mut page = [0; PAGE_SIZE];
    let write = |index: u64, page: &mut Page| {
        Fill::Text(index).render(page);
        disk.disk.store_page(CPU, index, page)
    };
    let count = (0..4000).take_while(|index| write(*index, &mut page).is_ok()).count() as u64;
    assert_eq!(write(count, &mut page), Err(IoError::NoSpace));
    for index in 0..count {
        let mut found = [0; PAGE_SIZE];
        Fill::Text(index).render(&mut page);
        disk.disk.load_page(CPU, index, &mut found).expect("it can be read");
        assert!(found == page, "page {index} has other contents");
    }
    count
}

#[test]
fn pages_are_compressed_again_for_a_write_that_waits() {
    let at_once = texts_that_fit(WhenFull::Fail, false);
    let later = texts_that_fit(WhenFull::Wait, false);
    assert!(later > at_once * 11 / 10, "{later} pages, and {at_once} without a wait");
}

/// Nobody calls `move_pages`, and no page is old.
#[test]
fn the_tiers_make_room_for_a_write_that_waits() {
    let again = texts_that_fit(WhenFull::Wait, false);
    let packed = texts_that_fit(WhenFull::Wait, true);
    assert!(packed > again * 11 / 10, "{packed} pages, and {again} without tiers");
}

#[test]
fn a_failing_backing_device_fails_the_write_alone() {
    for when_full in POLICIES {
        let plan = Plan { backing_faults: 1_000_000, ..plan(400 * P, when_full, 400) };
        let disk = plan.build();
        let store = |index, number| disk.disk.store_page(CPU, index, &noise(number));
        let full = (0..400).find(|index| store(*index, *index).is_err()).expect("there is a limit");
        let error = match when_full {
            WhenFull::Spill => IoError::Failed,
            _ => IoError::NoSpace,
        };
        assert_eq!(store(3, 1003), Err(error), "{when_full:?}: a page that has contents");
        let mut part = [7; 512];
        let write = Operation::Write { offset: 5 * P + 512, from: &part };
        assert_eq!(disk.submit(CPU, write), Err(IoError::NoSpace), "{when_full:?}: a part");
        let read = Operation::Read { offset: full * P, into: &mut part };
        assert_eq!(disk.submit(CPU, read), Ok(()));
        assert_eq!(part, [0; 512], "a page that was never stored");
        for index in 0..full {
            assert!(holds(&disk, index, index), "{when_full:?}: page {index}");
        }
        let stats = disk.disk.stats();
        assert_eq!((stats.failed_writes, stats.backed_writes, stats.backed_pages), (3, 0, 0));
    }
}

/// Each page counts once, however often it was tried.
#[test]
fn what_waits_is_counted_once() {
    for when_full in POLICIES {
        let disk = plan(400 * P, when_full, 800).build();
        for index in 0..100 {
            let four: Vec<u8> = (0..4).flat_map(|n| noise(4 * index + n)).collect();
            let write = Operation::Write { offset: 4 * index * P, from: &four };
            assert_eq!(disk.submit(CPU, write), Ok(()));
        }
        let stats = disk.disk.stats();
        assert_eq!((stats.num_writes, stats.failed_writes), (400, 0), "{when_full:?}");
        assert!(stats.backed_pages >= 300, "{when_full:?}: {stats:?}");
        assert!(stats.pool_bytes <= 100 * P);
        (0..400).for_each(|index| assert!(holds(&disk, index, index), "page {index}"));
    }
}

#[test]
fn a_limit_of_writeback_is_kept() {
    for when_full in POLICIES {
        let disk = plan(400 * P, when_full, 800).build();
        disk.disk.limit_writeback(true);
        disk.disk.set_writeback_limit(50);
        let store = |index| disk.disk.store_page(CPU, index, &noise(index));
        let full = (0..400).find(|index| store(*index).is_err()).expect("there is a limit");
        assert_eq!(store(full), Err(IoError::NoSpace));
        assert_eq!((full, disk.disk.stats().backed_writes), (144, 50), "{when_full:?}");
    }
}

#[test]
fn spilling_needs_a_backing_device() {
    let disk = plan(40 * P, WhenFull::Wait, 0).build();
    let error = disk.disk.set_when_full(WhenFull::Spill).unwrap_err();
    assert_eq!(error.errno, control::Errno::ENODEV, "{error}");
    disk.disk.reset().expect("nobody uses it");
    disk.disk.set_when_full(WhenFull::Spill).expect("it may get a backing device yet");
    let error = disk.disk.set_disksize(40 * P).unwrap_err();
    assert_eq!(error.errno, control::Errno::ENODEV, "{error}");
}

/// The first bytes of a page that [`Spoils`] cannot read.
const SPOILT: [u8; 16] = *b"cannot be read: ";

/// A codec, or the state of one, that finds some of what it made to be damaged.
struct Spoils<T: ?Sized>(Box<T>);

impl Compressor for Spoils<Arc<dyn Compressor>> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn context(&self) -> Result<Box<dyn Context>, CodecError> {
        Ok(Box::new(Spoils(self.0.context()?)))
    }
}

impl Context for Spoils<dyn Context> {
    fn compress(&mut self, page: &Page, into: &mut [u8]) -> Option<usize> {
        self.0.compress(page, into)
    }
    fn decompress(&mut self, bytes: &[u8], page: &mut Page) -> Result<(), Corrupt> {
        self.0.decompress(bytes, page)?;
        if page.starts_with(&SPOILT) { Err(Corrupt) } else { Ok(()) }
    }
}

#[test]
fn a_page_that_cannot_be_read_is_not_waited_for() {
    let over_codec = |codec: Arc<dyn Compressor>| -> Arc<dyn Compressor> {
        if codec.name() == QUICK { Arc::new(Spoils(Box::new(codec))) } else { codec }
    };
    let bench = Bench::new(Arc::new(Plain::new(0)));
    let disk = Bench { over_codec: Box::new(over_codec), ..bench }.make().disk;
    disk.set_algorithm(QUICK).expect("it is known");
    disk.set_auto(true).expect("it keeps times of use");
    disk.set_mem_limit(100 * P);
    disk.set_when_full(WhenFull::Wait).expect("it has no size");
    disk.set_disksize(400 * P).expect("there are addresses");
    let mut page = [7; PAGE_SIZE];
    page[..SPOILT.len()].copy_from_slice(&SPOILT);
    disk.store_page(CPU, 0, &page).expect("there is room");
    assert_eq!(disk.load_page(CPU, 0, &mut page), Err(IoError::Corrupt));
    let full = in_time(move || (1..400).find(|n| disk.store_page(CPU, *n, &noise(*n)).is_err()));
    assert!(full.is_some(), "there is a limit");
}

/// Looks at slots of a [`Counted`].
static LOOKS: AtomicU64 = AtomicU64::new(0);

/// The product's slots, with a count of looks.
struct Counted(BitLock);

// SAFETY: all is done by a table that keeps the promises.
unsafe impl SlotTable for Counted {
    const NAME: &'static str = "counted";
    const BYTES: usize = BitLock::BYTES;

    fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Self, NoMemory> {
        BitLock::new(provider, slots, cpus).map(Counted)
    }
    fn count(&self) -> usize {
        self.0.count()
    }
    fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        self.0.load(cpu, index, read)
    }
    fn update(&self, index: usize, next: impl FnMut(Slot) -> Option<Slot>) -> Result<Slot, Slot> {
        self.0.update(index, next)
    }
    fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
        self.0.retire(cpu, displaced, free);
    }
    fn peek(&self, index: usize) -> Slot {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        self.0.peek(index)
    }
    fn next_touched(&self, from: usize, end: usize) -> usize {
        self.0.next_touched(from, end)
    }
    fn touched(&self, end: usize) -> u64 {
        self.0.touched(end)
    }
    fn prefetch(&self, index: usize) {
        self.0.prefetch(index);
    }
}

#[test]
fn a_disk_that_is_full_is_not_searched_for_each_refused_write() {
    const PAGES: u64 = 400;
    let slots = ("counted", (|| Some(AnySlots::make::<Counted>())) as fn() -> Option<MakeSlots>);
    for auto in [false, true] {
        let plan = plan(PAGES * P, WhenFull::Wait, 0);
        let disk = Plan { auto, design: Design { slots, ..Design::PRODUCT }, ..plan }.build();
        let store = |index| disk.disk.store_page(CPU, index, &noise(index));
        let full = (0..PAGES).find(|index| store(*index).is_err()).expect("there is a limit");
        let before = LOOKS.load(Ordering::Relaxed);
        (0..100).for_each(|_| assert_eq!(store(full), Err(IoError::NoSpace)));
        let looks = LOOKS.load(Ordering::Relaxed) - before;
        assert!(looks < 2 * PAGES, "auto {auto}: {looks} looks at {PAGES} slots");
        // What has changed may make room.
        disk.disk.discard_pages(CPU, 0, 1).expect("it is there");
        assert_eq!(store(full), Ok(()));
        assert_eq!(store(full + 1), Err(IoError::NoSpace));
    }
}
