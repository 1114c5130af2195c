//! Snapshots of disks: what a page had at the instant, whatever is done to it meanwhile; and files
//! that are not what was written are refused.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{LAYOUTS, Plan, Watched};
use control::{ControlError, Errno};
use sim::content::Fill;
use testkit::{Ends, Rng, seed};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::Params;
use zram::{Disk, Pack, Recompress, Restored, Restoring, Select, Share, Snapshot, Writeback};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;

/// The rest of a snapshot.
fn rest(mut snapshot: Snapshot) -> Result<Vec<u8>, ControlError> {
    let mut file = Vec::new();
    while let Some(bytes) = snapshot.next_bytes()? {
        file.extend(bytes);
    }
    Ok(file)
}

fn snapshot(disk: &Arc<Disk>) -> Vec<u8> {
    rest(disk.snapshot(7).expect("there is no other one")).expect("there is room")
}

/// Restores a file, which comes in pieces of `piece` bytes.
fn restore(disk: &Arc<Disk>, mut file: &[u8], piece: usize) -> Result<Restored, ControlError> {
    let mut source = |into: &mut [u8]| {
        let count = into.len().min(file.len()).min(piece);
        into[..count].copy_from_slice(&file[..count]);
        file = &file[count..];
        Ok(count)
    };
    disk.restore(&mut source, Restoring::default())
}

/// A disk without a size, with a backing device.
fn empty(plan: Plan) -> Watched {
    let watched = plan.build();
    watched.disk.reset().expect("nobody uses it");
    watched
}

fn load(disk: &Disk, index: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    disk.load_page(CPU, index, &mut page).expect("it can be read");
    page
}

fn store(disk: &Disk, index: u64, fill: Fill) {
    let mut page = [0; PAGE_SIZE];
    fill.render(&mut page);
    disk.store_page(CPU, index, &page).expect("there is space");
}

fn fill_of(index: u64) -> Fill {
    match index % 7 {
        0 => Fill::Words(index),
        1 => Fill::Words(index << 32 | index),
        2 => Fill::Noise(index),
        // Some are equal.
        3 => Fill::Text(index % 40),
        _ => Fill::Text(index),
    }
}

/// A disk with pages of each kind, some of them on the backing device.
fn full(plan: Plan, pages: u64) -> Watched {
    let watched = plan.build();
    let disk = &watched.disk;
    for index in (0..pages).filter(|index| index % 11 != 0) {
        store(disk, index, fill_of(index));
    }
    disk.share(&Share::default()).expect("there is memory");
    let some = |pages| Writeback { select: None, pages };
    if plan.backing_pages > 0 {
        disk.writeback(&some(vec![(20, 60)])).expect("there are blocks");
    }
    disk.switch_algorithm(0, zcomp::LZ4HC, Params::at_level(9)).expect("it is known");
    for index in 70..90 {
        store(disk, index, fill_of(index));
    }
    disk.mark_idle(None).expect("it has a size");
    for index in 100..140 {
        load(disk, index);
    }
    disk.pack(&Pack { select: Select::Idle, ..Pack::default() }).expect("there is memory");
    disk.recompress(&Recompress::default()).expect("there is memory");
    if plan.backing_pages > 0 {
        disk.writeback(&some(vec![(150, 170)])).expect("there are blocks");
    }
    watched
}

fn check_full(disk: &Disk, pages: u64) {
    for index in 0..pages {
        let mut expected = [0; PAGE_SIZE];
        if index % 11 != 0 || (70..90).contains(&index) {
            fill_of(index).render(&mut expected);
        }
        assert!(load(disk, index) == expected, "page {index} is another");
    }
}

fn plans(pages: u64) -> impl Iterator<Item = Plan> {
    LAYOUTS.into_iter().map(move |(compressed_writeback, log)| Plan {
        compressed_writeback,
        log,
        auto: false,
        ..Plan::new(pages * P, zcomp::LZ4).sized(pages * P)
    })
}

#[test]
fn all_kinds_of_pages_come_back() {
    const PAGES: u64 = 400;
    for plan in plans(PAGES) {
        let from = full(plan, PAGES);
        let (stats, density) = (from.disk.stats(), from.disk.density());
        assert!(stats.backed_pages > 0 && density.packed_pages > 0 && density.shared_pages > 0);
        let file = snapshot(&from.disk);
        let to = empty(plan);
        let restored = restore(&to.disk, &file, 1000).expect("it is whole");
        let expected =
            Restored { bytes: PAGES * P, name: "zram0".into(), time: 7, pages: stats.pages_stored };
        assert_eq!(restored, expected);
        let (now, shapes) = (to.disk.stats(), to.disk.density());
        assert_eq!(now.pages_stored, stats.pages_stored);
        assert_eq!(now.huge_pages, stats.huge_pages + backed_huge(&from.disk));
        assert_eq!((shapes.packed_pages, shapes.extents), (density.packed_pages, density.extents));
        assert_eq!(shapes.shared_objects, density.shared_objects);
        let (plain, objects) = (stats.backed_pages * P, stats.compressed_bytes);
        let most = objects + plain + stats.pages_stored * 16 + 2000;
        assert!(file.len() as u64 <= most, "objects go as they are");
        check_full(&to.disk, PAGES);
        check_full(&from.disk, PAGES);
        // What was restored can be saved again, and used.
        let again = empty(plan);
        restore(&again.disk, &snapshot(&to.disk), 1 << 20).expect("it is whole");
        check_full(&again.disk, PAGES);
        store(&to.disk, 3, Fill::Noise(9));
        to.disk.compact().expect("it has a size");
        to.disk.share(&Share::default()).expect("there is memory");
        check_full(&again.disk, PAGES);
        for watched in [&from, &to, &again] {
            watched.end();
        }
    }
}

/// Pages on the backing device that are as they are and would not shrink.
fn backed_huge(disk: &Disk) -> u64 {
    let page = |index| load(disk, index);
    let backed = (20..61).chain(150..171).filter(|index| index % 11 != 0 && index % 7 == 2);
    backed.filter(|index| page(*index) == page(*index)).count() as u64
}

/// What the page of a writer says: who wrote it, where, and for which time.
fn said(page: &Page) -> (u64, u64, u64) {
    let word = |at: usize| u64::from_le_bytes(page[at * 8..at * 8 + 8].try_into().unwrap());
    (word(0), word(1), word(2))
}

fn say(page: &mut Page, writer: u64, index: u64, round: u64) {
    // Some are huge, and some are filled with little.
    match (index + round) % 5 {
        0 => Fill::Noise(index ^ round << 32).render(page),
        1 => page.fill(0),
        _ => Fill::Text(index ^ round << 32).render(page),
    }
    for (at, word) in [writer, index, round].into_iter().enumerate() {
        page[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// Writers write their pages again and again, each in rounds, from the first page to the last or
/// from the last to the first. A round that had ended before the snapshot began is in it, and none
/// that began after that; and of each writer it has what was there at one instant: a part of a
/// round up to some page, and the round before from there on.
#[test]
fn a_snapshot_is_of_one_instant() {
    const WRITERS: u64 = 3;
    const OWN: u64 = 90;
    const PAGES: u64 = WRITERS * OWN;
    let mut rng = Rng::new(seed("a_snapshot_is_of_one_instant"));
    for plan in plans(PAGES) {
        let from = Plan { auto: true, memory: 1 << 30, ..plan }.build();
        let (disk, ends) = (from.disk.clone(), AtomicBool::new(false));
        let ended: [AtomicU64; WRITERS as usize] = Default::default();
        let begun: [AtomicU64; WRITERS as usize] = Default::default();
        let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.next_u64()).collect();
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (disk, ended, begun, ends) = (&disk, &ended, &begun, &ends);
                let mut rng = Rng::new(seeds[writer as usize]);
                scope.spawn(move || {
                    let mut page = [0; PAGE_SIZE];
                    let at = writer as usize;
                    for round in 1.. {
                        begun[at].store(round, Ordering::SeqCst);
                        for n in 0..OWN {
                            let index = writer * OWN + n;
                            say(&mut page, writer, index, round);
                            match rng.below(4) {
                                // The same by two changes of a part.
                                0 => {
                                    let offset = index * P;
                                    let half = PAGE_SIZE / 2;
                                    let mut old = load(disk, index);
                                    old[half..].copy_from_slice(&page[half..]);
                                    disk.store_page(CPU, index, &old).expect("there is space");
                                    write(disk, offset, &page[..half]);
                                }
                                _ => disk
                                    .store_page(Cpu(at as u32), index, &page)
                                    .expect("there is space"),
                            }
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
            for _ in 0..12 {
                let least = ended.each_ref().map(|it| it.load(Ordering::SeqCst));
                let taken = disk.snapshot(0).expect("there is no other one");
                let most = begun.each_ref().map(|it| it.load(Ordering::SeqCst));
                let file = rest(taken).expect("there is room");
                let to = empty(plan);
                restore(&to.disk, &file, 1 << 16).expect("it is whole");
                for writer in 0..WRITERS {
                    let (least, most) = (least[writer as usize], most[writer as usize]);
                    let mut before = u64::MAX;
                    for index in (writer * OWN..).take(OWN as usize) {
                        let page = load(&to.disk, index);
                        let (by, at, round) = said(&page);
                        if round == 0 {
                            assert!(least == 0, "page {index} was written before");
                            before = before.min(1);
                            continue;
                        }
                        assert_eq!((by, at), (writer, index), "another page");
                        assert!((least..=most).contains(&round), "{least} {round} {most}");
                        assert!(
                            round <= before && (before == u64::MAX || before - round <= 1),
                            "page {index} has round {round}, after one with {before}"
                        );
                        before = round;
                    }
                }
                to.end();
            }
            drop(ending);
            meddler.join().expect("it checks nothing");
        });
        from.end();
    }
}

fn write(disk: &Disk, offset: u64, from: &[u8]) {
    use block::{BlockDevice, Context, Operation};
    let write = Operation::Write { offset, from };
    disk.perform(Context::waiting(CPU), write).expect("there is space");
}

#[test]
fn damaged_files_are_refused_and_leave_the_disk_without_a_size() {
    const PAGES: u64 = 60;
    let plan = Plan { auto: false, ..Plan::new(PAGES * P, zcomp::LZ4) };
    let from = plan.build();
    for index in 0..PAGES {
        store(&from.disk, index, if index < 3 { Fill::Noise(index) } else { Fill::Words(index) });
    }
    let file = snapshot(&from.disk);
    let to = empty(plan);
    let refused = |file: &[u8]| {
        let error = restore(&to.disk, file, usize::MAX).expect_err("it is damaged");
        assert_eq!(error.errno, Errno::EINVAL, "{error}");
        assert_eq!(to.disk.bytes(), 0);
        let stats = to.disk.stats();
        assert_eq!((stats.pages_stored, stats.compressed_bytes, stats.pool_bytes), (0, 0, 0));
        error.message
    };
    let mut rng = Rng::new(seed("damaged_files"));
    for at in 0..file.len() {
        let mut file = file.clone();
        file[at] ^= 1 << rng.below(8);
        let said = refused(&file);
        let known = ["record", "no snapshot", "version"];
        assert!(known.iter().any(|word| said.contains(word)), "byte {at}: {said}");
    }
    for length in 0..file.len() {
        refused(&file[..length]);
    }
    let said = refused(&[&file[..], b"\n"].concat());
    assert!(said.contains(&format!("byte {}", file.len())), "{said}");
    assert_eq!(to.frames.stats().allocated, 0, "what was read came back");
    restore(&to.disk, &file, 1).expect("the disk is as new");
    assert_eq!(to.disk.stats().pages_stored, PAGES);
    let twice = restore(&to.disk, &file, 1).expect_err("it has contents");
    assert_eq!(twice.errno, Errno::EBUSY);
    to.end();
}

#[test]
fn no_write_fails_because_of_a_snapshot() {
    const PAGES: u64 = 400;
    let limit = (PAGES + 64) * P;
    for when_full in [zram::WhenFull::Fail, zram::WhenFull::Wait] {
        let plan =
            Plan { auto: false, mem_limit: limit, when_full, ..Plan::new(PAGES * P, zcomp::LZ4) };
        let from = plan.build();
        let write_all = |round: u64| {
            (0..PAGES).for_each(|index| store(&from.disk, index, Fill::Noise(index | round << 32)));
        };
        write_all(0);
        let mut taken = from.disk.snapshot(0).expect("there is no other one");
        assert!(from.disk.has_snapshot());
        taken.next_bytes().expect("it begins");
        write_all(1);
        let error = loop {
            match taken.next_bytes() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("there was no room for all of it"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.errno, Errno::ENOSPC, "{error}");
        drop(taken);
        assert!(!from.disk.has_snapshot());
        write_all(2);
        assert_eq!(from.disk.stats().failed_writes, 0, "{when_full:?}");
        snapshot(&from.disk);
        from.end();
    }
}

/// Pages that could be smaller stay as they are rather than take the room of a snapshot.
#[test]
fn no_move_takes_the_room_of_a_snapshot() {
    const PAGES: u64 = 400;
    let plan = Plan { auto: false, ..Plan::new(PAGES * P, zcomp::LZ4) };
    let from = plan.build();
    (0..PAGES).for_each(|index| store(&from.disk, index, Fill::Text(index)));
    let taken = from.disk.snapshot(0).expect("there is no other one");
    (0..PAGES / 2).for_each(|index| store(&from.disk, index, Fill::Noise(index)));
    from.disk.set_mem_limit(from.disk.stats().pool_bytes);
    // They may end early.
    let _ = from.disk.recompress(&Recompress::default());
    let _ = from.disk.pack(&Pack::default());
    let file = rest(taken).expect("nothing took its room");
    from.disk.set_mem_limit(0);
    let to = empty(plan);
    restore(&to.disk, &file, 1 << 16).expect("it is whole");
    for index in 0..PAGES {
        let mut expected = [0; PAGE_SIZE];
        Fill::Text(index).render(&mut expected);
        assert!(load(&to.disk, index) == expected, "page {index} is another");
    }
    [&from, &to].iter().for_each(|watched| watched.end());
}

#[test]
fn a_snapshot_that_is_dropped_gives_all_back() {
    const PAGES: u64 = 300;
    for plan in plans(PAGES) {
        let from = full(plan, PAGES);
        for parts in 0..4 {
            let mut taken = from.disk.snapshot(0).expect("there is no other one");
            let busy = from.disk.snapshot(0).map(drop).expect_err("there is one");
            assert_eq!(busy.errno, Errno::EBUSY);
            for _ in 0..parts {
                taken.next_bytes().expect("there is room");
            }
            (0..PAGES).for_each(|index| store(&from.disk, index, Fill::Text(index)));
            from.disk.share(&Share::default()).expect("there is memory");
        }
        from.disk.compact().expect("it has a size");
        let kept: u64 = from.disk.stats().compressed_bytes;
        assert!(kept < PAGES * P / 2);
        from.end();
    }
}

#[test]
fn a_reset_ends_a_snapshot() {
    let from = Plan { auto: false, ..Plan::new(100 * P, zcomp::LZ4) }.build();
    store(&from.disk, 5, Fill::Text(5));
    let mut taken = from.disk.snapshot(0).expect("there is no other one");
    taken.next_bytes().expect("it begins");
    store(&from.disk, 5, Fill::Text(6));
    from.disk.reset().expect("nobody uses it");
    from.disk.set_disksize(100 * P).expect("there are addresses");
    store(&from.disk, 5, Fill::Text(7));
    let error = taken.next_bytes().expect_err("what it was of is gone");
    assert_eq!(error.errno, Errno::ENODEV);
    drop(taken);
    snapshot(&from.disk);
    from.end();
}

/// A codec that only a slot of the snapshot needs stays, whatever others are chosen meanwhile.
#[test]
fn codecs_of_a_snapshot_stay() {
    const PAGES: u64 = 64;
    let plan = Plan { auto: false, ..Plan::new(PAGES * P, zcomp::ZSTD) };
    let from = plan.build();
    (0..PAGES).for_each(|index| store(&from.disk, index, Fill::Text(index)));
    let taken = from.disk.snapshot(0).expect("there is no other one");
    for level in 1..=40 {
        from.disk.switch_algorithm(0, zcomp::LZ4, Params::at_level(level)).expect("it is known");
        (0..PAGES).for_each(|index| store(&from.disk, index, Fill::Text(index + 1000)));
    }
    let file = rest(taken).expect("there is room");
    let to = empty(plan);
    restore(&to.disk, &file, 4096).expect("it is whole");
    for index in 0..PAGES {
        let mut expected = [0; PAGE_SIZE];
        Fill::Text(index).render(&mut expected);
        assert!(load(&to.disk, index) == expected, "page {index} is another");
    }
    from.end();
    to.end();
}

/// A disk takes its algorithms from a snapshot if it is told to, and may be larger.
#[test]
fn a_restored_disk_may_have_the_algorithms_and_another_size() {
    let from = Plan { auto: false, ..Plan::new(64 * P, zcomp::ZSTD) }.build();
    store(&from.disk, 9, Fill::Text(9));
    let file = snapshot(&from.disk);
    let to = empty(Plan { auto: false, ..Plan::new(64 * P, zcomp::LZ4) });
    let mut rest = &file[..];
    let mut source =
        |into: &mut [u8]| Ok(std::io::Read::read(&mut rest, into).expect("it is memory"));
    let how = Restoring { bytes: Some(63 * P), ..Restoring::default() };
    let error = to.disk.restore(&mut source, how).expect_err("it is too small");
    assert_eq!(error.errno, Errno::EINVAL);
    let mut rest = &file[..];
    let mut source =
        |into: &mut [u8]| Ok(std::io::Read::read(&mut rest, into).expect("it is memory"));
    let how = Restoring { bytes: Some(90 * P), algorithms: true };
    to.disk.restore(&mut source, how).expect("it is whole");
    assert_eq!(to.disk.bytes(), 90 * P);
    assert_eq!(to.disk.chosen_algorithms()[0], Some(zcomp::ZSTD));
    assert!(load(&to.disk, 9) == load(&from.disk, 9));
    to.end();
}
