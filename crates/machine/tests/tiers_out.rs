//! Pages that are not used for long go to the backing device by themselves, within the bytes a day
//! that are allowed, and come back.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use control::{Bound, ControlError, Errno, Object};
use machine::{Machine, MachineOptions};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Budgets, Disk, HostFiles, TierCounts, TierStats, attributes};

const CPU: Cpu = Cpu(0);
const SECOND: u64 = 1_000_000_000;
const P: u64 = PAGE_SIZE as u64;
const PAGES: u64 = 1000;
/// As much a day as any test writes in a second.
const MUCH: u64 = 86_400 * (16 << 20);
/// After so many seconds all pages that nobody uses have left.
const AGE: u32 = 1024 + 80;

/// A device that fails when told.
struct Faulty {
    next: Plain,
    fails: AtomicBool,
    writes: AtomicU64,
}

impl BlockDevice for Faulty {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if let Operation::Write { .. } = operation {
            self.writes.fetch_add(1, Ordering::Relaxed);
            if self.fails.load(Ordering::Relaxed) {
                return Err(IoError::Failed);
            }
        }
        self.next.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

struct Files(Arc<Faulty>);

impl HostFiles for Files {
    fn open_backing(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn BlockDevice>, ControlError> {
        Ok(self.0.clone())
    }
    fn read(&self, path: &str) -> Result<Vec<u8>, ControlError> {
        Err(ControlError::invalid(path))
    }
}

/// A page of words, of which a sixth does not shrink.
fn page(stamp: u64) -> Page {
    const WORDS: [&[u8]; 4] = [b"frame ", b"zone ", b"reader ", b"slot "];
    let (mut page, mut at, mut rng) = ([0; PAGE_SIZE], 0, Rng::new(stamp));
    while at < PAGE_SIZE {
        let word = rng.pick(&WORDS);
        let length = word.len().min(PAGE_SIZE - at);
        page[at..at + length].copy_from_slice(&word[..length]);
        at += length;
    }
    rng.fill(&mut page[..PAGE_SIZE / 6]);
    page
}

struct Subject {
    machine: Machine,
    disk: Arc<Disk>,
    device: Arc<Faulty>,
    rows: Bound<Disk>,
    now: Cell<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Pages,
    Log,
}

impl Subject {
    /// A disk with all pages stored in second 1000, and a backing device of so many pages.
    fn with(layout: Layout, blocks: u64, budgets: Budgets) -> Subject {
        let device = Arc::new(Faulty {
            next: Plain::new((blocks * P) as usize),
            fails: AtomicBool::new(false),
            writes: AtomicU64::new(0),
        });
        let options = MachineOptions {
            cpus: 2,
            memory: 1 << 30,
            files: Arc::new(Files(device.clone())),
            swap_memory: Arc::new(host::Mmap),
            track_access: true,
        };
        let machine = Machine::new(Arc::new(host::Mmap), options).unwrap();
        machine.set_clock(1000);
        let disk = machine.add().unwrap();
        let rows = attributes(disk.clone());
        rows.store("backing_layout", if layout == Layout::Log { "log" } else { "pages" }).unwrap();
        rows.store("backing_dev", "/backing").unwrap();
        disk.set_budgets(budgets).unwrap();
        disk.set_auto(true).unwrap();
        disk.set_disksize(PAGES * P).unwrap();
        for index in 0..PAGES {
            disk.store_page(CPU, index, &page(index)).unwrap();
        }
        Subject { machine, disk, device, rows, now: Cell::new(1000) }
    }

    fn new(layout: Layout, written_a_day: u64) -> Subject {
        Subject::with(layout, 8192, Budgets { written_a_day, ..Budgets::default() })
    }

    /// Lets time go by.
    fn go(&self, seconds: u32) {
        (0..seconds).for_each(|_| self.step(1));
    }

    /// Lets minutes go by, with a look each minute.
    fn go_minutes(&self, minutes: u32) {
        (0..minutes).for_each(|_| self.step(60));
    }

    fn step(&self, seconds: u32) {
        self.now.set(self.now.get() + seconds);
        self.machine.set_clock(self.now.get());
        self.disk.move_pages(u64::from(seconds) * SECOND, &|| 0).unwrap();
    }

    /// Lets time go by while some pages are read every other second.
    fn go_reading(&self, seconds: u32, pages: std::ops::Range<u64>) {
        for _ in 0..seconds / 2 {
            self.go(2);
            pages.clone().for_each(|index| self.load(index));
        }
    }

    fn load(&self, index: u64) {
        let mut found = [0; PAGE_SIZE];
        self.disk.load_page(CPU, index, &mut found).unwrap();
        assert!(found == page(index), "page {index}");
    }

    fn backed(&self) -> u64 {
        self.disk.stats().backed_pages
    }

    fn is_out(&self, index: u64) -> bool {
        let state = self.rows.show("block_state").unwrap();
        state.lines().nth(index as usize).unwrap().contains('w')
    }

    fn stats(&self) -> TierStats {
        self.disk.tier_stats()
    }

    fn out(&self) -> TierCounts {
        self.stats().tiers[3].clone()
    }

    /// The bytes that the device was written, as it counts them.
    fn written(&self) -> u64 {
        let pages = self.disk.stats().backed_writes * P;
        self.disk.log_stats().map_or(pages, |log| log.written_bytes)
    }

    fn check_all(&self) {
        (0..PAGES).for_each(|index| self.load(index));
        self.disk.validate();
    }
}

#[test]
fn pages_that_are_unused_for_long_leave_and_read_the_same() {
    for layout in [Layout::Pages, Layout::Log] {
        let subject = Subject::new(layout, MUCH);
        let before = subject.disk.stats();
        subject.go(256 + 80);
        assert_eq!(subject.stats().tiers[2].pages, PAGES, "they are cold");
        assert_eq!((subject.backed(), subject.written()), (0, 0), "{layout:?}");
        subject.go(AGE - 256);
        let (out, stats) = (subject.out(), subject.stats());
        assert_eq!((subject.backed(), out.moved, out.pages), (PAGES, PAGES, PAGES), "{out:?}");
        assert_eq!((stats.written_bytes, stats.failed_writes), (subject.written(), 0));
        assert!(out.saved > 0 && subject.disk.stats().pool_bytes < before.pool_bytes / 20);
        let text = subject.rows.show("auto_stat").unwrap();
        assert!(text.ends_with(&format!(" written {} failed_writes 0\n", subject.written())));
        let writes = subject.device.writes.load(Ordering::Relaxed);
        assert!(layout == Layout::Pages || writes <= PAGES / 100, "{writes} writes");
        // A read long after the last one says nothing about the next.
        subject.go_minutes(66);
        subject.check_all();
        subject.go(9);
        let out = subject.out();
        assert_eq!((subject.backed(), out.late, out.too_soon), (PAGES, PAGES, 0), "{layout:?}");
    }
}

#[test]
fn nothing_leaves_unless_it_is_allowed() {
    let subject = Subject::new(Layout::Log, 0);
    subject.go(2 * AGE);
    assert_eq!((subject.backed(), subject.out().age), (0, None));
    // An operator's limit holds as well.
    subject.rows.store("writeback_limit", "100").unwrap();
    subject.rows.store("writeback_limit_enable", "1").unwrap();
    subject.rows.store("auto_writeback", "1T").unwrap();
    subject.go(2 * AGE);
    assert_eq!((subject.backed(), subject.stats().failed_writes), (100, 0));
    subject.check_all();
}

#[test]
fn pages_in_use_stay_and_those_that_are_used_again_come_back() {
    for layout in [Layout::Pages, Layout::Log] {
        let subject = Subject::new(layout, MUCH);
        subject.go_reading(AGE, 0..100);
        assert_eq!(subject.backed(), PAGES - 100, "{layout:?}");
        assert!(!subject.is_out(50) && subject.is_out(100));
        // Used soon after they left.
        subject.go_reading(10, 500..600);
        subject.go(8);
        let out = subject.out();
        assert_eq!((out.too_soon, out.raised), (100, 100), "{layout:?} {out:?}");
        assert_eq!(subject.backed(), PAGES - 200, "{layout:?}");
        assert!(!subject.is_out(550) && subject.is_out(450));
        // One that was written is in memory at once, one that was discarded is gone.
        subject.disk.store_page(CPU, 450, &page(450)).unwrap();
        subject.disk.discard_pages(CPU, 700, 1).unwrap();
        subject.go(8);
        assert_eq!(subject.disk.stats().pages_stored, PAGES - 1);
        subject.disk.store_page(CPU, 700, &page(700)).unwrap();
        subject.check_all();
    }
}

#[test]
fn no_more_is_written_than_a_day_allows() {
    for (layout, a_day) in
        [(Layout::Pages, 86_400 << 10), (Layout::Log, 86_400 << 10), (Layout::Log, 9 << 20)]
    {
        let subject = Subject::new(layout, a_day);
        let mut saved_up = 0;
        for second in 0..2 * AGE {
            subject.go(1);
            let written = subject.written();
            let earned = u64::from(second + 1) * a_day / 86_400;
            saved_up = saved_up.max(written);
            assert!(written <= earned.max(32 << 10), "{layout:?}: {written} of {earned}");
            // Those who change all the time cost what they cost.
            let index = u64::from(second) % 100;
            subject.disk.store_page(CPU, index, &page(index)).unwrap();
        }
        assert!(subject.backed() > 0, "{layout:?} {a_day}");
        assert_eq!(subject.stats().written_bytes, saved_up);
        subject.check_all();
        // However long nothing is written, an hour's worth is the most.
        let before = subject.written();
        for _ in 0..100 {
            subject.disk.move_pages(100 * 3600 * SECOND, &|| 0).unwrap();
        }
        (0..PAGES).for_each(|index| subject.load(index));
        assert!(subject.written() - before <= (a_day / 24).max(32 << 10));
    }
}

#[test]
fn below_the_target_nothing_is_written() {
    let (target, written_a_day) = (64 << 20, MUCH);
    let subject =
        Subject::with(Layout::Log, 8192, Budgets { target, written_a_day, ..Budgets::default() });
    subject.go(2 * AGE);
    assert_eq!((subject.backed(), subject.written()), (0, 0));
    // The other tiers are not enough for this.
    let target = subject.disk.stats().pool_bytes / 2;
    subject.disk.set_budgets(Budgets { target, ..subject.disk.budgets() }).unwrap();
    subject.go(AGE);
    let stats = subject.disk.stats();
    assert!(stats.pool_bytes <= target, "{} of {target}", stats.pool_bytes);
    assert!(stats.backed_pages > 0 && stats.backed_pages < PAGES, "{stats:?}");
    subject.check_all();
}

#[test]
fn a_device_that_fails_loses_nothing_and_is_tried_less_and_less() {
    for layout in [Layout::Pages, Layout::Log] {
        let subject = Subject::new(layout, MUCH);
        subject.device.fails.store(true, Ordering::Relaxed);
        subject.go(AGE);
        let first = subject.stats().failed_writes;
        assert!((1..=8).contains(&first), "{layout:?}: {first}");
        assert_eq!((subject.backed(), subject.out().moved), (0, 0));
        assert!(subject.disk.density().packed_pages > PAGES / 2, "the other tiers go on");
        subject.go_minutes(4 * 60);
        let then = subject.stats().failed_writes;
        assert!(then > first && then <= first + 12, "{layout:?}: {first}, {then}");
        subject.check_all();
        subject.device.fails.store(false, Ordering::Relaxed);
        subject.go_minutes(80);
        assert_eq!(subject.stats().failed_writes, then, "{layout:?}");
        assert_eq!(subject.backed(), PAGES, "it is tried again");
        subject.check_all();
    }
}

#[test]
fn a_full_device_keeps_what_it_has_and_the_rest_stays() {
    for (layout, blocks) in [(Layout::Pages, 300), (Layout::Log, 768)] {
        let budgets = Budgets { written_a_day: MUCH, ..Budgets::default() };
        let subject = Subject::with(layout, blocks, budgets);
        // Pages that do not shrink, so that they fill a log.
        let noise = |index: u64| {
            let mut page = [0; PAGE_SIZE];
            Rng::new(index + 7).fill(&mut page);
            page
        };
        (0..PAGES).for_each(|index| subject.disk.store_page(CPU, index, &noise(index)).unwrap());
        subject.go(AGE + 200);
        let backed = subject.backed();
        assert!(backed > 200 && backed < PAGES, "{layout:?}: {backed}");
        assert!(subject.stats().failed_writes > 0, "{layout:?}");
        let mut found = [0; PAGE_SIZE];
        for index in 0..PAGES {
            subject.disk.load_page(CPU, index, &mut found).unwrap();
            assert!(found == noise(index), "page {index}");
        }
        subject.disk.validate();
    }
}

/// Whatever is read, written and discarded meanwhile.
#[test]
fn pages_are_what_was_stored_last() {
    let mut rng = Rng::new(seed("pages_are_what_was_stored_last"));
    for layout in [Layout::Pages, Layout::Log] {
        let subject = Subject::new(layout, MUCH);
        let mut stamps: Vec<Option<u64>> = (0..PAGES).map(Some).collect();
        let check = |index: u64, stamp: Option<u64>| {
            let mut found = [1; PAGE_SIZE];
            subject.disk.load_page(CPU, index, &mut found).unwrap();
            assert!(found == stamp.map_or([0; PAGE_SIZE], page), "page {index}");
        };
        for round in 0..400 {
            subject.go(1 + rng.below(20) as u32);
            for _ in 0..rng.below(20) {
                // The first ones more often.
                let end = 1 + rng.below(PAGES);
                let index = rng.below(end);
                match rng.below(4) {
                    0 => {
                        let stamp = PAGES + round;
                        subject.disk.store_page(CPU, index, &page(stamp)).unwrap();
                        stamps[index as usize] = Some(stamp);
                    }
                    1 if rng.one_in(8) => {
                        subject.disk.discard_pages(CPU, index, 1).unwrap();
                        stamps[index as usize] = None;
                    }
                    _ => check(index, stamps[index as usize]),
                }
            }
        }
        let out = subject.out();
        assert!(out.moved > 0 && out.raised > 0, "{out:?}");
        (0..).zip(&stamps).for_each(|(index, stamp)| check(index, *stamp));
        subject.disk.validate();
    }
}

#[test]
fn it_needs_a_backing_device() {
    let subject = Subject::new(Layout::Log, 0);
    subject.rows.store("auto_writeback", "10M").unwrap();
    assert_eq!(subject.rows.show("auto_writeback").unwrap(), "10485760\n");
    assert_eq!(subject.rows.store("auto_writeback", "much").unwrap_err().errno, Errno::EINVAL);
    let plain = subject.machine.add().unwrap();
    let rows = attributes(plain.clone());
    rows.store("auto_writeback", "10M").unwrap();
    rows.store("auto_writeback", "0").unwrap();
    plain.set_disksize(P).unwrap();
    let refused = rows.store("auto_writeback", "10M").unwrap_err();
    assert_eq!(refused.errno, Errno::ENODEV);
    assert!(refused.message.contains("backing_dev"), "{refused}");
    assert_eq!(rows.show("auto_writeback").unwrap(), "0\n");
}
