//! Pages move to smaller forms by themselves, within budgets, and come back.

use std::cell::Cell;
use std::sync::Arc;

use control::{Errno, Object};
use machine::{Machine, MachineOptions};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;
use zram::{Budgets, Disk, NoHostFiles, TierCounts, attributes};

const CPU: Cpu = Cpu(0);
const SECOND: u64 = 1_000_000_000;
const PAGES: u64 = 1000;
/// After so many seconds pages that nobody uses have moved.
const AGE: u32 = 64;
/// From half of that on it takes so long.
const MOVES: u32 = 16;

/// Reads of packed pages are too slow: all stay warm.
const NOT_PACKED: Budgets =
    Budgets { target: 0, cpu_percent: 5, slowest_read: 20, written_a_day: 0 };

fn machine() -> Machine {
    let options = MachineOptions {
        cpus: 2,
        memory: 1 << 30,
        files: Arc::new(NoHostFiles),
        swap_memory: Arc::new(host::Mmap),
        track_access: true,
    };
    Machine::new(Arc::new(host::Mmap), options).unwrap()
}

/// A page of words that zstd makes smaller than lz4 does.
fn page(stamp: u64) -> Page {
    const WORDS: [&[u8]; 8] =
        [b"frame ", b"zone ", b"reader ", b"slot ", b"page ", b"class ", b"codec ", b"pool "];
    let (mut page, mut at, mut state) = ([0; PAGE_SIZE], 0, stamp.wrapping_mul(2) + 1);
    while at < PAGE_SIZE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = WORDS[(state >> 61) as usize];
        let length = word.len().min(PAGE_SIZE - at);
        page[at..at + length].copy_from_slice(&word[..length]);
        at += length;
    }
    page
}

struct Subject {
    machine: Machine,
    disk: Arc<Disk>,
    now: Cell<u32>,
}

impl Subject {
    /// A disk with all pages stored in second 1000.
    fn new(budgets: Budgets) -> Subject {
        Subject::with(budgets, &page)
    }

    fn with(budgets: Budgets, contents: &dyn Fn(u64) -> Page) -> Subject {
        Subject::of_pages(PAGES, budgets, contents)
    }

    fn of_pages(pages: u64, budgets: Budgets, contents: &dyn Fn(u64) -> Page) -> Subject {
        let machine = machine();
        machine.set_clock(1000);
        let disk = machine.add().unwrap();
        disk.set_budgets(budgets).unwrap();
        disk.set_auto(true).unwrap();
        disk.set_disksize(pages * PAGE_SIZE as u64).unwrap();
        for index in 0..pages {
            disk.store_page(CPU, index, &contents(index)).unwrap();
        }
        Subject { machine, disk, now: Cell::new(1000) }
    }

    /// Lets time go by. CPU time is counted, not measured: a microsecond for each look at it.
    fn go(&self, seconds: u32) {
        let spent = Cell::new(0);
        let meter = || {
            spent.set(spent.get() + 1000);
            spent.get()
        };
        for _ in 0..seconds {
            self.now.set(self.now.get() + 1);
            self.machine.set_clock(self.now.get());
            self.disk.move_pages(SECOND, &meter).unwrap();
        }
    }

    fn warm(&self) -> TierCounts {
        self.disk.tier_stats().tiers[1].clone()
    }

    fn cold(&self) -> TierCounts {
        self.disk.tier_stats().tiers[2].clone()
    }

    fn store(&self, index: u64, contents: &Page) {
        self.disk.store_page(CPU, index, contents).unwrap();
    }

    fn load(&self, index: u64) {
        let mut found = [0; PAGE_SIZE];
        self.disk.load_page(CPU, index, &mut found).unwrap();
        assert_eq!(found, page(index), "page {index}");
    }

    /// Whether a page is compressed with the second codec.
    fn is_warm(&self, index: u64) -> bool {
        let state = attributes(self.disk.clone()).show("block_state").unwrap();
        let line = state.lines().nth(index as usize).unwrap().to_owned();
        line.ends_with("r.")
    }
}

#[test]
fn pages_that_are_not_used_move_and_read_the_same() {
    let subject = Subject::new(NOT_PACKED);
    let before = subject.disk.stats();
    subject.go(AGE / 2 - 1);
    assert_eq!(subject.warm().moved, 0);
    subject.go(MOVES);
    let (after, warm) = (subject.disk.stats(), subject.warm());
    assert_eq!((warm.moved, warm.pages), (PAGES, PAGES), "{warm:?}");
    assert_eq!(before.compressed_bytes - after.compressed_bytes, warm.saved);
    assert!(after.pool_bytes < before.pool_bytes, "{after:?}");
    assert!(subject.disk.tier_stats().compactions > 0);
    (0..PAGES).for_each(|index| subject.load(index));
    subject.disk.validate();
}

#[test]
fn pages_in_use_stay_and_pages_that_come_back_come_up() {
    let subject = Subject::new(NOT_PACKED);
    for _ in 0..22 {
        subject.go(2);
        (0..100).for_each(|index| subject.load(index));
    }
    assert_eq!(subject.warm().moved, PAGES - 100);
    assert!(!subject.is_warm(50) && subject.is_warm(500));
    // These are needed again at once.
    (500..600).for_each(|index| subject.load(index));
    subject.go(10);
    let warm = subject.warm();
    assert_eq!((warm.too_soon, warm.raised), (100, 100), "{warm:?}");
    assert!(!subject.is_warm(550) && subject.is_warm(450));
    (0..PAGES).for_each(|index| subject.load(index));
    subject.disk.validate();
}

/// After so many seconds all of them are packed.
const COLD_AGE: u32 = 256 + 20;

#[test]
fn neighbours_that_stay_unused_are_packed_and_read_the_same() {
    let (least, subject) = (Subject::new(NOT_PACKED), Subject::new(Budgets::default()));
    least.go(AGE);
    let warm = least.disk.stats();
    subject.go(AGE / 2 - 1);
    assert_eq!(subject.cold().moved, 0);
    subject.go(MOVES + MOVES);
    let (cold, density) = (subject.cold(), subject.disk.density());
    assert_eq!(subject.warm().moved, 0, "nothing is compressed that is packed soon");
    assert_eq!((cold.moved, density.packed_pages, density.extents), (PAGES, PAGES, PAGES / 4));
    assert_eq!(cold.pages, PAGES, "a later pass finds them there: {cold:?}");
    let packed = subject.disk.stats();
    assert!(packed.compressed_bytes < warm.compressed_bytes, "{packed:?} after {warm:?}");
    let moved = subject.cold().moved;
    subject.go(COLD_AGE);
    (0..PAGES).for_each(|index| subject.load(index));
    subject.go(20);
    assert_eq!((subject.cold().moved, subject.cold().late), (moved, PAGES), "read once, late");
    subject.disk.validate();
}

#[test]
fn a_packed_page_that_is_used_again_comes_up_alone_and_its_extent_is_made_anew() {
    let subject = Subject::new(Budgets::default());
    subject.go(AGE + COLD_AGE);
    // Twice within the time that a move must last to be worth it.
    for _ in 0..2 {
        (0..PAGES).filter(|index| index % 4 == 1).for_each(|index| subject.load(index));
        subject.go(5);
    }
    let cold = subject.cold();
    assert_eq!((cold.late, cold.too_soon, cold.raised), (PAGES / 4, PAGES / 4, PAGES / 4));
    assert_eq!(subject.disk.density().packed_pages, PAGES / 4 * 3);
    // A store takes a second page away: half of each extent is gone, and it is packed anew.
    for index in (0..PAGES).filter(|index| index % 4 == 2) {
        subject.store(index, &page(index));
    }
    assert!(subject.disk.density().wasted_bytes > 0);
    subject.go(3);
    let density = subject.disk.density();
    assert_eq!((density.wasted_bytes, density.packed_pages), (0, PAGES / 2), "{density:?}");
    // When they are old again they join the others.
    subject.go(AGE + 8 * COLD_AGE);
    let density = subject.disk.density();
    assert_eq!((density.packed_pages, density.extents), (PAGES, PAGES / 4), "{density:?}");
    (0..PAGES).for_each(|index| subject.load(index));
    subject.disk.validate();
}

#[test]
fn a_page_whose_neighbours_are_in_use_stays_warm() {
    let subject = Subject::new(Budgets::default());
    for _ in 0..180 {
        subject.go(2);
        (0..PAGES).filter(|index| index % 4 != 3).for_each(|index| subject.load(index));
    }
    assert_eq!(subject.disk.density().packed_pages, 0);
    assert_eq!((subject.warm().pages, subject.cold().moved), (PAGES / 4, 0));
}

#[test]
fn noise_whose_neighbours_are_in_use_stays_as_it_is() {
    let noise = |index: u64| {
        let mut rng = testkit::Rng::new(index);
        let mut page = page(index);
        if index % 4 == 3 {
            rng.fill(&mut page);
        }
        page
    };
    let subject = Subject::with(Budgets::default(), &noise);
    let before = subject.disk.stats().compressed_bytes;
    let mut found = [0; PAGE_SIZE];
    for _ in 0..180 {
        subject.go(2);
        for index in (0..PAGES).filter(|index| index % 4 != 3) {
            subject.disk.load_page(CPU, index, &mut found).unwrap();
        }
    }
    assert_eq!((subject.warm().moved, subject.cold().moved), (0, 0));
    assert_eq!(subject.disk.stats().compressed_bytes, before);
}

#[test]
fn a_page_that_is_packed_with_none_becomes_warm() {
    // Noise and one page are no smaller together.
    let noise = |index: u64| {
        let mut page = page(index);
        if index % 4 != 3 {
            testkit::Rng::new(index).fill(&mut page);
        }
        page
    };
    let subject = Subject::with(Budgets::default(), &noise);
    let before = subject.disk.stats();
    subject.go(COLD_AGE);
    assert_eq!(subject.disk.density().packed_pages, 0);
    assert!((0..PAGES).all(|index| subject.is_warm(index) == (index % 4 == 3)));
    let after = subject.disk.stats();
    assert!(after.compressed_bytes < before.compressed_bytes);
    assert_eq!(after.huge_pages, before.huge_pages, "{after:?}");
    let (warm, cold) = (subject.warm(), subject.cold());
    assert_eq!((warm.moved, cold.moved, cold.saved), (PAGES / 4, 0, 0));
    assert!(warm.saved > 0 && subject.disk.tier_stats().compactions > 0, "{warm:?}");
    let mut found = [0; PAGE_SIZE];
    for index in 0..PAGES {
        subject.disk.load_page(CPU, index, &mut found).unwrap();
        assert_eq!(found, noise(index), "page {index}");
    }
    subject.disk.validate();
}

#[test]
fn a_page_waits_for_a_neighbour_that_is_compared() {
    let subject = Subject::new(Budgets::default());
    subject.go(AGE);
    assert_eq!(subject.cold().moved, PAGES);
    subject.disk.discard_pages(CPU, 0, 4).unwrap();
    subject.store(0, &page(0));
    subject.go(1);
    subject.store(1, &page(1));
    subject.go(20);
    assert_eq!(subject.disk.density().packed_pages, PAGES - 2);
    assert_eq!(subject.warm().moved, 0);
}

#[test]
fn pages_that_were_compared_become_warm_if_none_is_to_be_packed_any_more() {
    for seconds in AGE / 2..AGE / 2 + 6 {
        let subject = Subject::new(Budgets::default());
        subject.go(seconds);
        subject.disk.set_budgets(NOT_PACKED).unwrap();
        subject.go(20);
        let (warm, cold) = (subject.warm(), subject.cold());
        assert_eq!(warm.pages + cold.pages, PAGES, "after {seconds} s: {warm:?} {cold:?}");
        // They are packed when they may be.
        subject.disk.set_budgets(Budgets::default()).unwrap();
        subject.go(20);
        assert_eq!(subject.cold().pages, PAGES);
    }
}

#[test]
fn idle_pages_that_are_equal_share_an_object() {
    // Every page is there three times, far from each other.
    let thrice = |index: u64| page(index % (PAGES / 3));
    let subject = Subject::with(Budgets::default(), &thrice);
    subject.go(AGE + 20);
    let density = subject.disk.density();
    let (models, rest) = (PAGES / 3, PAGES % 3);
    // The first of them stays, and two go to it.
    assert_eq!(subject.warm().moved, PAGES - models);
    assert!(density.shared_pages >= (models * 3 + rest) * 9 / 10, "{density:?}");
    assert!(density.shared_objects <= models && density.saved_bytes > 0, "{density:?}");
    subject.store(0, &page(7777));
    for index in 1..PAGES {
        let mut found = [0; PAGE_SIZE];
        subject.disk.load_page(CPU, index, &mut found).unwrap();
        assert_eq!(found, thrice(index), "page {index}");
    }
    // Used twice in a short time, they have objects of their own again: the first one, and one that
    // came to it.
    let before = subject.disk.density().shared_pages;
    for _ in 0..2 {
        subject.go(10);
        let mut found = [0; PAGE_SIZE];
        for index in [5, PAGES / 3 + 5] {
            subject.disk.load_page(CPU, index, &mut found).unwrap();
        }
    }
    subject.go(2);
    assert_eq!(subject.disk.density().shared_pages, before - 2);
    subject.disk.validate();
}

#[test]
fn a_page_in_use_stays_hot_when_one_comes_that_it_was_like_before() {
    let subject = Subject::new(NOT_PACKED);
    subject.go(AGE);
    assert!(subject.is_warm(0));
    // What it had comes to another place. It is in use with something else.
    subject.store(0, &page(7777));
    subject.store(500, &page(0));
    let mut found = [0; PAGE_SIZE];
    for _ in 0..AGE {
        subject.go(2);
        subject.disk.load_page(CPU, 0, &mut found).unwrap();
    }
    assert!(subject.is_warm(500) && !subject.is_warm(0));
    assert_eq!(found, page(7777));
}

#[test]
fn pages_that_differ_do_not_share_whatever_their_fingerprints() {
    let subject = Subject::new(Budgets::default());
    subject.go(AGE + 20);
    let density = subject.disk.density();
    assert_eq!((density.shared_pages, density.shared_objects), (0, 0));
}

#[test]
fn without_a_codec_that_packs_pages_the_coldest_stay_warm() {
    let machine = machine();
    machine.set_clock(1000);
    let disk = machine.add().unwrap();
    let rows = attributes(disk.clone());
    rows.store("recomp_algorithm", "algo=lz4hc priority=1").unwrap();
    rows.store("auto", "1").unwrap();
    disk.set_disksize(PAGES * PAGE_SIZE as u64).unwrap();
    (0..PAGES).for_each(|index| disk.store_page(CPU, index, &page(index)).unwrap());
    let subject = Subject { machine, disk, now: Cell::new(1000) };
    subject.go(AGE + COLD_AGE);
    assert_eq!((subject.cold().moved, subject.disk.density().packed_pages), (0, 0));
    // Given one later, they are packed.
    subject.disk.switch_algorithm(2, "zstd", Params::default()).unwrap();
    subject.go(COLD_AGE);
    assert_eq!(subject.cold().moved, PAGES);
    (0..PAGES).for_each(|index| subject.load(index));
}

#[test]
fn a_discarded_page_does_not_come_back() {
    let subject = Subject::new(Budgets::default());
    subject.go(AGE + 20);
    subject.load(7);
    subject.disk.discard_pages(CPU, 7, 1).unwrap();
    subject.go(20);
    assert_eq!(subject.disk.stats().pages_stored, PAGES - 1);
}

#[test]
fn work_stops_when_its_cpu_time_is_spent_and_goes_on_later() {
    let subject = Subject::new(Budgets { cpu_percent: 1, ..Budgets::default() });
    // Each look at the meter takes a millisecond, so ten of them are a second's share.
    let spent = Cell::new(0);
    let meter = || {
        spent.set(spent.get() + 1_000_000);
        spent.get()
    };
    let mut waits = 0;
    for second in 0..200 {
        subject.machine.set_clock(2000 + second as u32);
        waits += u32::from(subject.disk.move_pages(SECOND, &meter).unwrap());
        let cpu = subject.disk.tier_stats().cpu_ns;
        assert!(cpu <= (second + 1) * 10_000_000 + 3_000_000, "{cpu} after {second}");
    }
    assert!(waits > 2);
    assert_eq!(subject.cold().moved, PAGES);
}

#[test]
fn a_disk_at_rest_is_left_alone_until_it_is_used() {
    let subject = Subject::new(Budgets::default());
    let passes = || subject.disk.tier_stats().passes;
    subject.go(1000);
    let before = passes();
    subject.go(640);
    assert!((9..=11).contains(&(passes() - before)), "{} to {}", before, passes());
    let uses: [&dyn Fn(); 3] = [&|| subject.load(7), &|| subject.store(7, &page(7)), &|| {
        subject.disk.discard_pages(CPU, 7, 1).unwrap()
    }];
    for used in uses {
        subject.go(1000);
        let before = passes();
        used();
        subject.go(5);
        assert!(passes() > before, "a use is heard before the next one");
    }
}

#[test]
fn at_the_target_pages_stay() {
    let all = Subject::new(Budgets::default());
    let most = all.disk.stats().pool_bytes;
    all.go(AGE + 40);
    let least = all.disk.stats().pool_bytes;
    assert!(least < most);
    let subject = Subject::new(Budgets { target: most, ..Budgets::default() });
    subject.go(AGE + 40);
    assert_eq!(subject.warm().moved, 0, "there is nothing to do");
    let budgets = Budgets { target: least, ..Budgets::default() };
    subject.disk.set_budgets(budgets).unwrap();
    subject.go(AGE + 40);
    assert!(subject.cold().moved > 0);
    assert!(subject.disk.stats().pool_bytes <= least + least / 20);
}

#[test]
fn it_is_off_until_asked_for_and_ends_when_told() {
    let machine = machine();
    let disk = machine.add().unwrap();
    let rows = attributes(disk.clone());
    assert_eq!(rows.show("auto").unwrap(), "0\n");
    assert!(!disk.move_pages(SECOND, &|| 0).unwrap());
    assert_eq!(
        rows.show("auto_stat").unwrap(),
        "passes 0 compactions 0 cpu_ms 0 written 0 failed_writes 0\n"
    );
    rows.store("disksize", "1M").unwrap();
    rows.store("auto", "1").unwrap();
    assert!(rows.show("recomp_algorithm").unwrap().contains("[zstd]"), "chosen by itself");
    disk.move_pages(SECOND, &|| 0).unwrap();
    assert!(rows.show("auto_stat").unwrap().starts_with("hot - 0 0 0 0 0 0\nwarm 64 0 "));
    rows.store("auto", "0").unwrap();
    disk.move_pages(SECOND, &|| 0).unwrap();
    assert!(rows.show("auto_stat").unwrap().starts_with("passes"));
    for (name, value) in [("auto_target", "2M"), ("auto_slowest_read", "9")] {
        rows.store(name, value).unwrap();
    }
    assert_eq!(rows.show("auto_target").unwrap(), "2097152\n");
    for (name, value) in [("auto", "2"), ("auto_cpu_percent", "0"), ("auto_cpu_percent", "101")] {
        assert_eq!(rows.store(name, value).unwrap_err().errno, Errno::EINVAL, "{name}={value}");
    }
    let plain = machine.add().unwrap();
    plain.set_track_access(false).unwrap();
    let refused = plain.set_auto(true).unwrap_err();
    assert!(refused.message.contains("track_access"), "{refused}");
    assert!(!plain.auto());
}
