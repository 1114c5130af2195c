//! Clones of disks: each has what the origin had at one instant and what was written to it since,
//! they share memory until then, and all of it comes back.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use block::{BlockDevice, Context, Operation};
use common::{LAYOUTS, Plan, Watched};
use control::Errno;
use sim::content::Fill;
use testkit::{Ends, Rng, asked, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;
use zram::{Disk, Pack, Recompress, Restoring, Select, Share, Writeback};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;

fn load(disk: &Disk, index: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    disk.load_page(CPU, index, &mut page).expect("it can be read");
    page
}

fn rendered(fill: Fill) -> Page {
    let mut page = [0; PAGE_SIZE];
    fill.render(&mut page);
    page
}

fn store(disk: &Disk, index: u64, fill: Fill) {
    disk.store_page(CPU, index, &rendered(fill)).expect("there is space");
}

fn clone(disk: &Arc<Disk>, id: u32) -> Arc<Disk> {
    disk.clone_contents().expect("there is room").into_disk(id)
}

fn fill_of(number: u64) -> Fill {
    match number % 7 {
        0 => Fill::Words(number),
        1 => Fill::Words(number << 32 | number),
        2 => Fill::Noise(number),
        // Some are equal.
        3 => Fill::Text(number % 40),
        _ => Fill::Text(number),
    }
}

fn plans(pages: u64) -> impl Iterator<Item = Plan> {
    LAYOUTS
        .into_iter()
        .map(move |(compressed_writeback, log)| Plan {
            compressed_writeback,
            log,
            auto: false,
            ..Plan::new(pages * P, zcomp::LZ4).sized(2 * pages * P)
        })
        .map(move |plan| Plan { bytes: pages * P, ..plan })
}

/// A disk with pages of each kind, some of them on the backing device.
fn full(plan: Plan, pages: u64) -> Watched {
    let watched = plan.build();
    let disk = &watched.disk;
    (0..pages).filter(|index| index % 11 != 0).for_each(|index| store(disk, index, fill_of(index)));
    disk.share(&Share::default()).expect("there is memory");
    let some = |pages| Writeback { select: None, pages };
    disk.writeback(&some(vec![(20, 60)])).expect("there are blocks");
    disk.switch_algorithm(0, zcomp::LZ4HC, Params::at_level(9)).expect("it is known");
    disk.mark_idle(None).expect("it has a size");
    (100..140).for_each(|index| _ = load(disk, index));
    disk.pack(&Pack { select: Select::Idle, ..Pack::default() }).expect("there is memory");
    disk.recompress(&Recompress::default()).expect("there is memory");
    disk.writeback(&some(vec![(150, 170)])).expect("there are blocks");
    watched
}

#[track_caller]
fn check_full(disk: &Disk, pages: u64) {
    for index in 0..pages {
        let expected = if index % 11 == 0 { [0; PAGE_SIZE] } else { rendered(fill_of(index)) };
        assert!(load(disk, index) == expected, "page {index} of {} is another", disk.name());
    }
}

#[track_caller]
fn sound(disk: &Disk) {
    assert_eq!(disk.contradictions(), Vec::<String>::new());
    disk.validate();
}

#[test]
fn all_kinds_of_pages_are_in_a_clone() {
    const PAGES: u64 = 400;
    for plan in plans(PAGES) {
        let from = full(plan, PAGES);
        let before = from.disk.stats();
        assert!(before.backed_pages > 0 && from.disk.density().packed_pages > 0);
        let copy = clone(&from.disk, 1);
        assert_eq!((copy.bytes(), copy.name()), (PAGES * P, "zram1".into()));
        assert_eq!(copy.clone_of().map(|it| it.name()), Some("zram0".into()));
        assert_eq!(copy.stats().pages_stored, before.pages_stored);
        check_full(&copy, PAGES);
        check_full(&from.disk, PAGES);
        sound(&from.disk);
        // Each is written to, and has what was written to it.
        (0..PAGES).step_by(3).for_each(|index| store(&copy, index, Fill::Text(index + 5000)));
        check_full(&from.disk, PAGES);
        (0..PAGES).step_by(5).for_each(|index| store(&from.disk, index, Fill::Noise(index)));
        for index in 0..PAGES {
            let expected = match index {
                _ if index % 3 == 0 => rendered(Fill::Text(index + 5000)),
                _ if index % 11 == 0 => [0; PAGE_SIZE],
                _ => rendered(fill_of(index)),
            };
            assert!(load(&copy, index) == expected, "page {index} is another");
        }
        sound(&from.disk);
        // A snapshot of a clone has the clone alone.
        let mut taken = copy.snapshot(0).expect("there is no other one");
        let mut file = Vec::new();
        while let Some(bytes) = taken.next_bytes().expect("there is room") {
            file.extend(bytes);
        }
        drop(taken);
        let to = Plan { auto: false, ..Plan::new(PAGES * P, zcomp::LZ4) }.build();
        to.disk.reset().expect("nobody uses it");
        let mut rest = &file[..];
        let mut source =
            |into: &mut [u8]| Ok(std::io::Read::read(&mut rest, into).expect("memory"));
        to.disk.restore(&mut source, Restoring::default()).expect("it is whole");
        (0..PAGES).for_each(|index| assert!(load(&to.disk, index) == load(&copy, index)));
        copy.reset().expect("nobody uses it");
        assert_eq!(copy.bytes(), 0);
        sound(&from.disk);
        from.end();
        // It is an ordinary device now.
        copy.set_disksize(8 * P).expect("there are addresses");
        assert!(copy.clone_of().is_none());
        store(&copy, 7, Fill::Text(7));
        assert!(load(&copy, 7) == rendered(Fill::Text(7)));
        sound(&copy);
        copy.reset().expect("nobody uses it");
        assert_eq!(from.frames.stats().allocated, 0);
    }
}

#[test]
fn what_a_clone_has_alone_is_given_up_with_it() {
    const PAGES: u64 = 300;
    let from = Plan { auto: false, ..Plan::new(PAGES * P, zcomp::LZ4) }.build();
    (0..PAGES).for_each(|index| store(&from.disk, index, fill_of(index)));
    let before = from.disk.stats();
    let first = clone(&from.disk, 1);
    let second = clone(&first, 2);
    assert_eq!(second.clone_of().map(|it| it.name()), Some("zram0".into()));
    let shared = from.disk.stats();
    let most = before.pool_bytes + 2 * P;
    assert!(shared.pool_bytes <= most, "nothing is copied but slots and patterns of eight bytes");
    let refused = from.disk.reset().expect_err("it has clones");
    assert_eq!(refused.errno, Errno::EBUSY);
    assert!(refused.message.contains("zram1, zram2"), "{refused}");
    (0..PAGES).for_each(|index| store(&first, index, Fill::Noise(index)));
    assert!(from.disk.stats().pool_bytes > before.pool_bytes + (PAGES - 10) * P);
    first.reset().expect("nobody uses it");
    assert!(from.disk.stats().pool_bytes <= most);
    // Its slots are used again.
    let third = clone(&second, 1);
    (0..PAGES).for_each(|index| assert!(load(&third, index) == rendered(fill_of(index))));
    // Its last user gives a clone up, too.
    drop(second);
    third.reset().expect("nobody uses it");
    let after = from.disk.stats();
    assert_eq!(from.disk.density().shared_pages, 0, "each object is its page's own again");
    let of = |it: &zram::Stats| (it.compressed_bytes, it.huge_pages, it.huge_pages_since);
    assert_eq!(of(&after), of(&before));
    sound(&from.disk);
    from.end();
}

#[test]
fn clones_and_their_origin_keep_to_their_sizes() {
    const PAGES: u64 = 100;
    let from = Plan { auto: false, ..Plan::new(PAGES * P, zcomp::LZ4) }.build();
    let copy = clone(&from.disk, 1);
    let larger = copy.resize((PAGES + 1) * P).expect_err("its slots end there");
    assert_eq!(larger.errno, Errno::EBUSY, "{larger}");
    copy.resize(50 * P).expect("nothing is there");
    let mut page = [0; PAGE_SIZE];
    let beyond = copy.load_page(CPU, 50, &mut page);
    assert_eq!(beyond, Err(block::IoError::OutOfRange));
    copy.resize(PAGES * P).expect("its slots go on");
    store(&copy, PAGES - 1, Fill::Text(1));
    assert_eq!(copy.resize(50 * P).expect_err("it has contents").errno, Errno::EBUSY);
    from.disk.resize(2 * PAGES * P).expect("there is room to double");
    store(&from.disk, 2 * PAGES - 1, Fill::Text(2));
    let larger = from.disk.resize(1 << 40).expect_err("there are the clone's slots");
    assert!(larger.errno == Errno::EBUSY && larger.message.contains("zram1"), "{larger}");
    assert!(load(&copy, PAGES - 1) == rendered(Fill::Text(1)));
    sound(&from.disk);
    copy.reset().expect("nobody uses it");
    from.disk.resize(1 << 40).expect("there is nothing in the way");
    from.disk.discard_pages(CPU, 0, 2 * PAGES).expect("it has a size");
    from.disk.resize(PAGES * P).expect("it is empty");
    from.end();
}

/// What a snapshot kept of a clone that is reset meanwhile comes back, whatever was read of it; and
/// so does what one of the origin kept.
#[test]
fn a_clone_that_is_reset_ends_its_snapshot() {
    const PAGES: u64 = 300;
    for plan in plans(PAGES) {
        for (of_clone, parts) in [(true, 0), (true, 2), (false, 0), (false, 2)] {
            let from = full(plan, PAGES);
            let copy = clone(&from.disk, 1);
            let of = if of_clone { &copy } else { &from.disk };
            let mut taken = of.snapshot(0).expect("there is no other one");
            for _ in 0..parts {
                taken.next_bytes().expect("there is room");
            }
            for disk in [&copy, &from.disk] {
                (0..PAGES).step_by(2).for_each(|index| store(disk, index, Fill::Noise(index)));
            }
            copy.reset().expect("nobody uses it");
            match of_clone {
                true => {
                    let error = taken.next_bytes().map(drop).expect_err("the clone is gone");
                    assert_eq!(error.errno, Errno::ENODEV, "{error}");
                }
                false => while taken.next_bytes().expect("there is room").is_some() {},
            }
            drop(taken);
            sound(&from.disk);
            from.end();
        }
    }
}

/// A family of disks and what each has.
struct Family {
    all: Vec<(Arc<Disk>, Vec<Page>)>,
    next: u32,
}

impl Family {
    fn change(&mut self, rng: &mut Rng) {
        let at = rng.below(self.all.len() as u64) as usize;
        let (disk, pages) = &mut self.all[at];
        let index = rng.below(pages.len() as u64);
        let page = &mut pages[index as usize];
        match rng.below(10) {
            0 => {
                let count = (1 + rng.below(70)).min(pages.len() as u64 - index);
                disk.discard_pages(CPU, index, count).expect("it has a size");
                pages[index as usize..(index + count) as usize].fill([0; PAGE_SIZE]);
            }
            1 | 2 => {
                let begin = rng.below(P - 1);
                let length = 1 + rng.below(P - begin - 1);
                let from = &rendered(Fill::Noise(rng.next_u64()))[..length as usize];
                let write = Operation::Write { offset: index * P + begin, from };
                disk.perform(Context::waiting(CPU), write).expect("there is space");
                page[begin as usize..(begin + length) as usize].copy_from_slice(from);
            }
            _ => {
                *page = rendered(fill_of(rng.below(1 << 20)));
                disk.store_page(CPU, index, page).expect("there is space");
            }
        }
    }

    fn check(&self) {
        for (disk, pages) in &self.all {
            for (index, page) in pages.iter().enumerate() {
                let name = disk.name();
                assert!(load(disk, index as u64) == *page, "page {index} of {name} is another");
            }
        }
        sound(&self.all[0].0);
    }
}

/// Random changes of an origin and its clones, while clones come and go, and an administrator does
/// what he may do.
#[test]
fn clones_are_as_their_models() {
    const PAGES: u64 = 120;
    let mut rng = Rng::new(seed("clones_are_as_their_models"));
    for plan in plans(PAGES) {
        let from = Plan { auto: true, ..plan }.build();
        let mut family = Family {
            all: vec![(from.disk.clone(), vec![[0; PAGE_SIZE]; PAGES as usize])],
            next: 1,
        };
        for round in 0..60 {
            for _ in 0..rng.below(80) {
                family.change(&mut rng);
            }
            match rng.below(4) {
                0 if family.all.len() < 6 => {
                    let at = rng.below(family.all.len() as u64) as usize;
                    let (disk, pages) = &family.all[at];
                    let made = (clone(disk, family.next), pages.clone());
                    family.next += 1;
                    family.all.push(made);
                }
                1 if family.all.len() > 1 => {
                    let at = 1 + rng.below(family.all.len() as u64 - 1) as usize;
                    let (disk, _) = family.all.swap_remove(at);
                    if rng.below(2) == 0 {
                        disk.reset().expect("nobody uses it");
                    }
                }
                _ => from.meddle(round),
            }
            if round % 8 == 0 {
                family.check();
            }
        }
        family.check();
        family.all.truncate(1);
        from.end();
    }
}

/// Pages that are used stay shared, although the tiers bring others up.
#[test]
fn reads_leave_pages_shared() {
    const PAGES: u64 = 200;
    let from = Plan { auto: true, ..Plan::new(PAGES * P, zcomp::LZ4) }.build();
    (0..PAGES).for_each(|index| store(&from.disk, index, Fill::Text(index)));
    let copy = clone(&from.disk, 1);
    let before = from.disk.stats();
    for round in 0..6 {
        for disk in [&from.disk, &copy] {
            (0..PAGES).for_each(|index| assert!(load(disk, index) == rendered(Fill::Text(index))));
        }
        // The tiers move pages.
        from.meddle(14 + 16 * round);
    }
    assert!(from.disk.tier_stats().passes > 2);
    assert_eq!(from.disk.stats().pool_bytes, before.pool_bytes);
    assert_eq!(copy.stats().compressed_bytes, 0);
    sound(&from.disk);
    drop(copy);
    from.end();
}

/// Memory ends at each page that needs some: those on the backing device. There is no clone then,
/// and all is as it was.
#[test]
fn a_clone_without_room_is_taken_back() {
    const PAGES: u64 = 200;
    for plan in plans(PAGES) {
        let from = plan.build();
        (0..PAGES).for_each(|index| store(&from.disk, index, Fill::Noise(index)));
        let what = Writeback { select: None, pages: vec![(50, 149)] };
        from.disk.writeback(&what).expect("there are blocks");
        from.disk.compact().expect("it has a size");
        let before = from.disk.stats();
        let mut failures = 0;
        for frames in (0..).step_by(7) {
            from.disk.set_mem_limit(before.pool_bytes + frames * P);
            match from.disk.clone_contents() {
                Ok(cloned) => {
                    let copy = cloned.into_disk(1);
                    (0..PAGES).for_each(|index| {
                        assert!(load(&copy, index) == rendered(Fill::Noise(index)));
                    });
                    sound(&from.disk);
                    break;
                }
                Err(error) => assert_eq!(error.errno, Errno::ENOSPC, "{error}"),
            }
            failures += 1;
            let after = from.disk.stats();
            assert_eq!(after.pool_bytes, before.pool_bytes);
            assert_eq!(after.compressed_bytes, before.compressed_bytes);
            assert_eq!(from.disk.density().shared_pages, 0);
            sound(&from.disk);
        }
        assert!(failures > 10, "there was room at once");
        (0..PAGES).for_each(|index| {
            assert!(load(&from.disk, index) == rendered(Fill::Noise(index)), "page {index}");
        });
        from.end();
    }
}

/// What the page of a writer says: where it was written, and for which time.
fn say(page: &mut Page, index: u64, round: u64) {
    match (index + round) % 5 {
        0 => Fill::Noise(index ^ round << 32).render(page),
        1 => page.fill(0),
        _ => Fill::Text(index ^ round << 32).render(page),
    }
    for (at, word) in [index, round].into_iter().enumerate() {
        page[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// Writers write the pages of an origin again and again, each in rounds from its first page to its
/// last. A round that had ended before the clone began is in it, none that began after, and of each
/// writer what was there at one instant. Meanwhile clones are written to and removed.
#[test]
fn a_clone_is_of_one_instant() {
    const WRITERS: u64 = 3;
    const OWN: u64 = 90;
    const PAGES: u64 = WRITERS * OWN;
    for plan in plans(PAGES) {
        let from = Plan { auto: true, ..plan }.build();
        let (disk, ends) = (from.disk.clone(), AtomicBool::new(false));
        let ended: [AtomicU64; WRITERS as usize] = Default::default();
        let begun: [AtomicU64; WRITERS as usize] = Default::default();
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (disk, ended, begun, ends) = (&disk, &ended, &begun, &ends);
                scope.spawn(move || {
                    let (at, mut page) = (writer as usize, [0; PAGE_SIZE]);
                    for round in 1.. {
                        begun[at].store(round, Ordering::SeqCst);
                        for index in (writer * OWN..).take(OWN as usize) {
                            say(&mut page, index, round);
                            disk.store_page(Cpu(at as u32), index, &page).expect("there is space");
                        }
                        ended[at].store(round, Ordering::SeqCst);
                        if ends.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            let meddler = scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    from.meddle_next();
                }
            });
            // Also if this thread ends with a panic.
            let ending = Ends(&ends);
            // Less than a hundred: the clones of clones have the numbers above.
            for id in 1..=asked("RAMPACK_CLONES", 6) as u32 {
                let least = ended.each_ref().map(|it| it.load(Ordering::SeqCst));
                let copy = clone(&disk, id);
                let most = begun.each_ref().map(|it| it.load(Ordering::SeqCst));
                let again = clone(&copy, id + 100);
                for copy in [&copy, &again] {
                    check_rounds(copy, OWN, &least, &most);
                    (0..PAGES).for_each(|index| store(copy, index, Fill::Text(index)));
                }
                for copy in [copy, again] {
                    for index in 0..PAGES {
                        assert!(load(&copy, index) == rendered(Fill::Text(index)), "page {index}");
                    }
                    copy.reset().expect("nobody uses it");
                }
            }
            drop(ending);
            meddler.join().expect("it checks nothing");
        });
        sound(&disk);
        from.end();
    }
}

fn check_rounds(copy: &Disk, own: u64, least: &[u64], most: &[u64]) {
    for (writer, (least, most)) in least.iter().zip(most).enumerate() {
        let mut before = None;
        for index in (writer as u64 * own..).take(own as usize) {
            let page = load(copy, index);
            let round = u64::from_le_bytes(page[8..16].try_into().unwrap());
            assert!((least..=most).contains(&&round), "{least} {round} {most}");
            let mut expected = [0; PAGE_SIZE];
            if round > 0 {
                say(&mut expected, index, round);
            }
            assert!(page == expected, "page {index} is torn");
            let follows = before.is_none_or(|before| round <= before && before - round <= 1);
            assert!(follows, "page {index} has round {round}, after one with {before:?}");
            before = Some(round);
        }
    }
}

/// Ten clones, a twentieth of each written anew, take no more than half as much again as the origin
/// and slots.
#[test]
fn ten_clones_share_what_is_not_written() {
    const PAGES: u64 = 4096;
    let from = Plan { auto: false, ..Plan::new(PAGES * P, zcomp::LZ4) }.build();
    let fill = |noise, parts| Fill::Partly { noise, parts };
    let mut rng = Rng::new(seed("ten_clones"));
    (0..PAGES).for_each(|index| store(&from.disk, index, fill(index, 20 + (index % 30) as u8)));
    let one = from.disk.stats();
    let clones: Vec<_> = (1..=10).map(|id| clone(&from.disk, id)).collect();
    for copy in &clones {
        for _ in 0..PAGES / 20 {
            let index = rng.below(PAGES);
            store(copy, index, fill(rng.next_u64(), 20 + (index % 30) as u8));
        }
    }
    let all = from.disk.stats();
    let (pool, before) = (all.pool_bytes + all.overhead_bytes, one.pool_bytes + one.overhead_bytes);
    assert!(pool * 2 <= before * 3, "{pool} bytes of objects, {before} before");
    let tables: u64 = clones.iter().map(|copy| copy.stats().metadata_bytes).sum();
    // A byte a page and clone, and half a byte of times.
    assert!(tables <= 10 * PAGES * 3 / 2, "{tables} bytes of slots");
    // Entries of shared objects, and two bytes for each of eight neighbours of which one is new,
    // ten if more are.
    let written = all.metadata_bytes - one.metadata_bytes - 16 * PAGES;
    assert!(
        written <= 10 * PAGES * (30 * 2 + 7 * 10) / 100,
        "{written} bytes of slots that were written"
    );
    let (after, before) = (pool + all.metadata_bytes + tables, before + one.metadata_bytes);
    assert!(after * 100 <= before * 151, "{after} bytes with all tables, {before} before");
    drop(clones);
    from.end();
}
