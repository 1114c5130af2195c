//! A snapshot beside writers and an administrator: each page has contents that were there at one
//! instant, and what was kept for it is given back once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::Plain;
use shuttle::rand::RngCore;
use shuttle::thread::{self, JoinHandle};
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use zram::snapshot::{Form, Item, read_snapshot};
use zram::{Disk, Select, Share, Writeback};

use crate::bench::{Bench, Made};

/// Bytes of a page.
pub const P: u64 = PAGE_SIZE as u64;
/// Threads that write.
pub const WRITERS: u64 = 2;
/// Pages of each writer.
pub const OWN: u64 = 2;
/// Pages of the disk.
pub const PAGES: u64 = WRITERS * OWN + 1;
/// How often each writes its pages.
pub const ROUNDS: u64 = 3;

/// A page of a writer in a round. It does not shrink, so a snapshot has it as it is; the last page
/// is there to be equal to others.
pub fn page_of(index: u64, round: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    Rng::new(index << 32 | round).fill(&mut page);
    page[..8].copy_from_slice(&index.to_le_bytes());
    page[8..16].copy_from_slice(&round.to_le_bytes());
    page
}

/// The rounds that each writer has begun or ended.
pub type Rounds = Arc<[AtomicU64; WRITERS as usize]>;

/// Starts the writers. Returns the rounds that began, and those that ended.
pub fn write_in_rounds(disk: &Arc<Disk>) -> (Rounds, Rounds, Vec<JoinHandle<()>>) {
    let (begun, ended) = (Rounds::default(), Rounds::default());
    let writers = (0..WRITERS).map(|writer| {
        let (disk, begun, ended) = (disk.clone(), begun.clone(), ended.clone());
        thread::spawn(move || {
            for round in 1..=ROUNDS {
                begun[writer as usize].store(round, Ordering::SeqCst);
                for index in (writer * OWN..).take(OWN as usize) {
                    let page = page_of(index, round);
                    disk.store_page(Cpu(0), index, &page).expect("there is space");
                }
                ended[writer as usize].store(round, Ordering::SeqCst);
            }
        })
    });
    let writers = writers.collect();
    (begun, ended, writers)
}

/// Starts one who does work on the disk meanwhile.
pub fn administrate(disk: &Arc<Disk>) -> JoinHandle<()> {
    let disk = disk.clone();
    thread::spawn(move || {
        let write = Writeback { select: Some(Select::Any), pages: Vec::new() };
        for _ in 0..2 {
            match shuttle::rand::thread_rng().next_u32() % 3 {
                0 => drop(disk.compact()),
                1 => drop(disk.share(&Share::default())),
                _ => drop(disk.writeback(&write)),
            }
        }
    })
}

/// Runs one schedule.
pub fn play() {
    let device = Arc::new(Plain::new(PAGES as usize * PAGE_SIZE));
    let Made { disk, frames, .. } = Bench::new(device).make();
    disk.set_backing("backing").expect("there is one");
    disk.set_disksize(PAGES * P).expect("there are addresses");
    for index in 0..PAGES {
        let as_last = index == 0 && shuttle::rand::thread_rng().next_u32() % 2 == 0;
        let index_in = if as_last { PAGES - 1 } else { index };
        disk.store_page(Cpu(0), index, &page_of(index_in, 0)).expect("there is space");
    }
    let (begun, ended, writers) = write_in_rounds(&disk);
    let administrator = administrate(&disk);
    let least = ended.each_ref().map(|it| it.load(Ordering::SeqCst));
    let taken = disk.snapshot(0).expect("there is no other one");
    let most = begun.each_ref().map(|it| it.load(Ordering::SeqCst));
    let drops_it = shuttle::rand::thread_rng().next_u32() % 8 == 0;
    if drops_it {
        drop(taken);
    } else {
        check(taken, least, most);
    }
    writers.into_iter().for_each(|it| it.join().expect("shuttle ends with a panic"));
    administrator.join().expect("shuttle ends with a panic");
    look_through(&disk);
    disk.discard_pages(Cpu(0), 0, PAGES).expect("it has a size");
    assert_eq!((disk.stats().pool_bytes, frames.stats().allocated), (0, 0), "all came back");
}

fn check(mut taken: zram::Snapshot, least: [u64; 2], most: [u64; 2]) {
    let mut file = Vec::new();
    while let Some(bytes) = taken.next_bytes().expect("there is room") {
        file.extend(bytes);
    }
    drop(taken);
    let (mut rest, mut objects, mut rounds) = (&file[..], Vec::new(), Vec::new());
    let mut source = |into: &mut [u8]| Ok(std::io::Read::read(&mut rest, into).expect("memory"));
    let mut see = |item: Item<'_>| {
        match item {
            Item::Object { form: Form::Huge(page), .. } => objects.push(*page),
            Item::Page { index, form } => {
                let page = match form {
                    Form::Huge(page) | Form::Plain(page) => *page,
                    Form::Part { object, .. } => objects[object as usize],
                    other => panic!("page {index} is {other:?}"),
                };
                let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
                assert!(page == page_of(word(0), word(8)), "page {index} is torn");
                assert!(word(0) == index as u64 || word(8) == 0, "page {index} is another");
                rounds.push(word(8));
            }
            _ => {}
        }
        Ok(())
    };
    read_snapshot(&mut source, &mut see).expect("it is whole");
    assert_eq!(rounds.len() as u64, PAGES);
    for (writer, rounds) in rounds.chunks_exact(OWN as usize).enumerate() {
        assert!(rounds.is_sorted_by(|a, b| a >= b) && rounds[0] - rounds[1] <= 1, "{rounds:?}");
        let is_within = |round: &u64| (least[writer]..=most[writer]).contains(round);
        assert!(rounds.iter().all(is_within), "{least:?} {rounds:?} {most:?}");
    }
}

/// Every page of a writer is of the last round.
pub fn look_through(disk: &Disk) {
    for index in 0..PAGES - 1 {
        let mut page = [0; PAGE_SIZE];
        disk.load_page(Cpu(0), index, &mut page).expect("it can be read");
        assert!(page == page_of(index, ROUNDS), "page {index} is another");
    }
    disk.validate();
}
