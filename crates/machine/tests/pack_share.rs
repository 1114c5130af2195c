//! Packing neighbours and sharing equal pages: what each does to memory and to pages that are used
//! afterwards, what it counts, and each refusal with its error number.

use std::collections::HashMap;
use std::sync::Arc;

use block::{BlockDevice, Plain};
use control::{Bound, ControlError, Object};
use machine::{Machine, MachineOptions};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, HostFiles, Pack, Recompress, Select, Share, Which, Writeback, attributes};

const CPU: Cpu = Cpu(0);
const PAGES: u64 = 256;

struct Files;

impl HostFiles for Files {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(Arc::new(Plain::new(2 * PAGES as usize * PAGE_SIZE)))
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}

struct Fixture {
    machine: Machine,
    disk: Arc<Disk>,
    rows: Bound<Disk>,
}

impl Fixture {
    /// A device whose pages are stored by lz4 and packed by zstd.
    fn new() -> Fixture {
        let options = MachineOptions {
            cpus: 2,
            memory: 1 << 30,
            files: Arc::new(Files),
            swap_memory: Arc::new(host::Mmap),
            track_access: false,
        };
        let machine = Machine::new(Arc::new(host::Mmap), options).unwrap();
        let disk = machine.add().unwrap();
        let rows = attributes(disk.clone());
        let fixture = Fixture { machine, disk, rows };
        fixture.set("recomp_algorithm", "algo=zstd priority=1");
        fixture.set("backing_dev", "/backing");
        fixture
    }

    fn ready() -> Fixture {
        let fixture = Fixture::new();
        fixture.set("disksize", "4M");
        fixture
    }

    fn set(&self, name: &str, value: &str) {
        self.rows.store(name, value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
    }

    fn refusal(&self, name: &str, value: &str) -> (i32, String) {
        let error = self.rows.store(name, value).expect_err(value);
        (error.errno.0, error.message)
    }

    fn store(&self, index: u64, page: &Page) {
        self.disk.store_page(CPU, index, page).unwrap();
    }

    fn load(&self, index: u64) -> Page {
        let mut page = [0; PAGE_SIZE];
        self.disk.load_page(CPU, index, &mut page).unwrap();
        page
    }

    /// Fills the disk, and lets all pages be idle.
    fn fill(&self, page: impl Fn(u64) -> Page) {
        (0..PAGES).for_each(|index| self.store(index, &page(index)));
        self.set("idle", "all");
    }

    fn pack(&self) -> u64 {
        self.disk.pack(&Pack { select: Select::Idle, ..Pack::default() }).unwrap()
    }

    fn share(&self) -> u64 {
        self.disk.share(&Share { select: Select::Idle, max_pages: None }).unwrap()
    }

    fn is_sound(&self) {
        assert_eq!(self.disk.contradictions(), [""; 0]);
        self.disk.validate();
    }

    /// Checks every page, and that nothing is left when all are discarded.
    fn end(self, page: impl Fn(u64) -> Page) {
        for index in 0..PAGES {
            assert!(self.load(index) == page(index), "page {index} is another");
        }
        self.is_sound();
        self.disk.discard_pages(CPU, 0, PAGES).unwrap();
        let (stats, density) = (self.disk.stats(), self.disk.density());
        assert_eq!([stats.pages_stored, stats.compressed_bytes, stats.pool_bytes], [0; 3]);
        let left = [density.packed_pages, density.extents, density.shared_pages];
        assert_eq!((left, density.shared_objects), ([0; 3], 0));
        assert_eq!(self.machine.frames().stats().allocated, 0);
    }
}

/// A page of words that many pages have in common, with some of its own.
fn text(number: u64) -> Page {
    let mut rng = Rng::new(number);
    let mut page = [0; PAGE_SIZE];
    for (n, word) in page.chunks_exact_mut(8).enumerate() {
        let value = match (n % 4, rng.below(16)) {
            (0, _) => (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            (_, 0) => rng.next_u64() >> 24,
            _ => 7,
        };
        word.copy_from_slice(&value.to_ne_bytes());
    }
    page
}

fn noise(number: u64) -> Page {
    let mut rng = Rng::new(!number);
    core::array::from_fn(|_| rng.next_u64() as u8)
}

#[test]
fn neighbours_take_less_memory_as_one() {
    let fixture = Fixture::ready();
    fixture.fill(text);
    let which = Which { priority: Some(1), algorithm: None };
    fixture.disk.recompress(&Recompress { which, ..Recompress::default() }).unwrap();
    fixture.set("idle", "all");
    let alone = fixture.disk.stats().compressed_bytes;
    assert_eq!(fixture.pack(), PAGES);
    let (stats, density) = (fixture.disk.stats(), fixture.disk.density());
    assert!(stats.compressed_bytes * 10 < alone * 9, "{alone}, {}", stats.compressed_bytes);
    assert_eq!((density.packed_pages, density.extents), (PAGES, PAGES / 4));
    assert_eq!((density.extent_bytes, density.wasted_bytes), (stats.compressed_bytes, 0));
    assert_eq!(stats.pages_stored, PAGES);
    // It is done: nothing changes.
    assert_eq!(fixture.pack(), 0);
    assert_eq!(fixture.disk.stats().compressed_bytes, stats.compressed_bytes);
    fixture.is_sound();
    fixture.end(text);
}

#[test]
fn pages_leave_their_extent_one_by_one() {
    let fixture = Fixture::ready();
    fixture.fill(text);
    assert_eq!(fixture.pack(), PAGES);
    // One of each extent is stored anew, then another is discarded, then the rest go.
    (0..PAGES).step_by(4).for_each(|index| fixture.store(index, &noise(index)));
    let density = fixture.disk.density();
    assert_eq!((density.packed_pages, density.extents), (PAGES / 4 * 3, PAGES / 4));
    assert!(density.wasted_bytes > 0);
    // Extents with three pages stay.
    assert_eq!(fixture.pack(), 0);
    (0..PAGES).skip(1).step_by(4).for_each(|index| {
        fixture.disk.discard_pages(CPU, index, 1).unwrap();
    });
    fixture.is_sound();
    // Two of four are left: they are packed anew, or taken apart.
    let before = fixture.disk.stats().compressed_bytes;
    fixture.pack();
    let (stats, density) = (fixture.disk.stats(), fixture.disk.density());
    assert_eq!(density.wasted_bytes, 0, "{density:?}");
    assert!(stats.compressed_bytes < before);
    fixture.end(|index| match index % 4 {
        0 => noise(index),
        1 => [0; PAGE_SIZE],
        _ => text(index),
    });
}

#[test]
fn what_packing_does_not_make_smaller_stays() {
    let fixture = Fixture::ready();
    fixture.fill(noise);
    let before = fixture.disk.stats();
    assert_eq!(fixture.pack(), 0);
    assert_eq!(fixture.disk.stats(), before);
    fixture.end(noise);
}

#[test]
fn pages_in_use_are_not_packed_or_shared() {
    let fixture = Fixture::ready();
    fixture.fill(|index| text(index % 8));
    (0..PAGES).filter(|index| index % 4 != 3).for_each(|index| _ = fixture.load(index));
    assert_eq!(fixture.pack(), 0, "only one page of each group is idle");
    assert_eq!(fixture.share(), PAGES / 4 - 2, "there are two different idle ones");
    fixture.end(|index| text(index % 8));
}

#[test]
fn packed_pages_are_changed_written_back_and_read() {
    let fixture = Fixture::ready();
    fixture.set("writeback_batch_size", "16");
    fixture.fill(text);
    assert_eq!(fixture.pack(), PAGES);
    // They are idle as before.
    let pages = vec![(0, 9)];
    fixture.disk.writeback(&Writeback { select: None, pages }).unwrap();
    assert_eq!(fixture.disk.stats().backed_pages, 10);
    assert_eq!(fixture.disk.density().packed_pages, PAGES - 10);
    let select = Some(Select::Idle);
    fixture.disk.writeback(&Writeback { select, pages: Vec::new() }).unwrap();
    let (stats, density) = (fixture.disk.stats(), fixture.disk.density());
    assert_eq!((stats.backed_pages, stats.pool_bytes), (PAGES, 0));
    assert_eq!((density.packed_pages, density.extents), (0, 0));
    fixture.end(text);
}

#[test]
fn equal_pages_share_an_object() {
    let fixture = Fixture::ready();
    let page =
        |index: u64| if index.is_multiple_of(3) { noise(index / 60) } else { text(index % 5) };
    fixture.fill(page);
    let mut counts = HashMap::<_, u64>::new();
    (0..PAGES).for_each(|index| *counts.entry(page(index)).or_default() += 1);
    let duplicates = PAGES - counts.len() as u64;
    assert_eq!(fixture.share(), duplicates);
    let (stats, density) = (fixture.disk.stats(), fixture.disk.density());
    let several = counts.values().filter(|count| **count > 1);
    assert_eq!(density.shared_objects, several.clone().count() as u64);
    assert_eq!(density.shared_pages, several.sum::<u64>());
    assert!(density.saved_bytes > 0);
    assert_eq!(stats.pages_stored, PAGES);
    assert_eq!(stats.huge_pages, PAGES.div_ceil(3), "as the kernel counts them");
    fixture.is_sound();
    // A later pass finds what came later, beside what is shared already.
    assert_eq!(fixture.share(), 0);
    fixture.store(0, &text(4));
    fixture.set("idle", "all");
    assert_eq!(fixture.share(), 1);
    fixture.store(0, &page(0));
    fixture.end(page);
}

#[test]
fn pages_of_one_fingerprint_are_compared() {
    let fixture = Fixture::ready();
    fixture.fill(|index| text(index % 4));
    let what = Share { select: Select::Idle, max_pages: None };
    assert_eq!(fixture.disk.share_by(&what, &|_| 7).unwrap(), PAGES - 4);
    fixture.is_sound();
    fixture.end(|index| text(index % 4));
}

#[test]
fn operations_end_at_their_number_of_pages() {
    let fixture = Fixture::ready();
    fixture.fill(|index| text(index / 2));
    fixture.set("share", "type=idle max_pages=10");
    assert_eq!(fixture.disk.density().shared_pages, 20);
    fixture.set("pack", "type=idle max_pages=9 algo=zstd");
    assert_eq!(fixture.disk.density().packed_pages, 8);
    assert_eq!(fixture.disk.density().extents, 2);
    fixture.end(|index| text(index / 2));
}

#[test]
fn a_disk_need_not_end_with_a_group() {
    let fixture = Fixture::new();
    fixture.set("disksize", &(9 * PAGE_SIZE).to_string());
    (0..9).for_each(|index| fixture.store(index, &text(index)));
    assert_eq!(fixture.disk.pack(&Pack::default()).unwrap(), 8);
    (0..9).for_each(|index| assert!(fixture.load(index) == text(index)));
    fixture.is_sound();
}

#[test]
fn everything_together_keeps_every_byte() {
    let fixture = Fixture::ready();
    let page = |index: u64| if index % 5 < 2 { text(index / 40) } else { text(index) };
    fixture.fill(page);
    for round in 0..6 {
        fixture.share();
        fixture.pack();
        (0..PAGES).filter(|index| (index + round) % 7 == 0).for_each(|index| {
            fixture.disk.discard_pages(CPU, index, 1).unwrap();
        });
        fixture.disk.compact().unwrap();
        fixture.is_sound();
        fixture.set("recompress", "type=idle");
        (0..PAGES).filter(|index| (index + round) % 7 == 0).for_each(|index| {
            fixture.store(index, &page(index));
        });
        fixture.set("idle", "all");
    }
    fixture.disk.reset_peak();
    fixture.end(page);
}

#[test]
fn refusals_say_what_is_allowed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.refusal("pack", "type=idle").0, 22, "it has no size");
    assert_eq!(fixture.refusal("share", "type=idle").0, 22);
    fixture.set("disksize", "4M");
    let (errno, message) = fixture.refusal("pack", "priority=0");
    assert!(errno == 22 && message.contains("packs no pages; zstd does"), "{message}");
    for text in ["type=foo", "type", "priority=4", "algo=nosuch", "max_pages=x", "threshold=3"] {
        assert_eq!(fixture.refusal("pack", text).0, 22, "{text}");
    }
    for text in ["type=foo", "priority=1", "max_pages=-1"] {
        assert_eq!(fixture.refusal("share", text).0, 22, "{text}");
    }
    let machine = Machine::new(
        Arc::new(host::Mmap),
        MachineOptions {
            cpus: 1,
            memory: 1 << 24,
            files: Arc::new(Files),
            swap_memory: Arc::new(host::Mmap),
            track_access: false,
        },
    );
    let disk = machine.unwrap().add().unwrap();
    disk.set_disksize(1 << 20).unwrap();
    let error = disk.pack(&Pack::default()).unwrap_err();
    assert!(error.message.contains("recomp_algorithm"), "{error}");
}
