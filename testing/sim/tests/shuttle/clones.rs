//! Clones beside writers of the origin and an administrator: each page of a clone has contents that
//! were there at one instant, what is written to one disk is in no other, and all is given back
//! once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::Plain;
use shuttle::rand::RngCore;
use units::{Cpu, PAGE_SIZE};
use zram::Disk;

use crate::bench::{Bench, Made};
use crate::snapshots::{
    OWN, P, PAGES, WRITERS, administrate, look_through, page_of, write_in_rounds,
};

/// A round of nobody: what is written to clones.
const OTHER: u64 = 77;

fn word(page: &[u8; PAGE_SIZE], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

fn load(disk: &Disk, index: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    disk.load_page(Cpu(0), index, &mut page).expect("it can be read");
    page
}

/// Runs one schedule.
pub fn play() {
    let device = Arc::new(Plain::new(PAGES as usize * PAGE_SIZE));
    let Made { disk, frames, .. } = Bench::new(device).make();
    disk.set_backing("backing").expect("there is one");
    disk.set_disksize(PAGES * P).expect("there are addresses");
    for index in 0..PAGES {
        disk.store_page(Cpu(0), index, &page_of(index, 0)).expect("there is space");
    }
    let (begun, ended, writers) = write_in_rounds(&disk);
    let administrator = administrate(&disk);
    let least = ended.each_ref().map(|it| it.load(Ordering::SeqCst));
    let cloned = disk.clone_contents().expect("there is room");
    let most = begun.each_ref().map(|it| it.load(Ordering::SeqCst));
    let copy = cloned.into_disk(1);
    check(&copy, least, most);
    copy.store_page(Cpu(0), 1, &page_of(1, OTHER)).expect("there is space");
    copy.store_page(Cpu(0), PAGES - 1, &page_of(PAGES - 1, OTHER)).expect("there is space");
    assert!(load(&copy, 1) == page_of(1, OTHER));
    if shuttle::rand::thread_rng().next_u32() % 2 == 0 {
        copy.reset().expect("nobody uses it");
    }
    writers.into_iter().for_each(|it| it.join().expect("shuttle ends with a panic"));
    administrator.join().expect("shuttle ends with a panic");
    look_through(&disk);
    assert!(load(&disk, PAGES - 1) == page_of(PAGES - 1, 0));
    assert_eq!(disk.contradictions(), Vec::<String>::new());
    drop(copy);
    disk.discard_pages(Cpu(0), 0, PAGES).expect("it has a size");
    assert_eq!((disk.stats().pool_bytes, frames.stats().allocated), (0, 0), "all came back");
}

fn check(copy: &Disk, least: [u64; 2], most: [u64; 2]) {
    for writer in 0..WRITERS {
        let rounds: Vec<_> = (writer * OWN..)
            .take(OWN as usize)
            .map(|index| {
                let page = load(copy, index);
                let round = word(&page, 8);
                assert!(page == page_of(index, round), "page {index} is torn");
                round
            })
            .collect();
        assert!(rounds.is_sorted_by(|a, b| a >= b) && rounds[0] - rounds[1] <= 1, "{rounds:?}");
        let at = writer as usize;
        let is_within = |round: &u64| (least[at]..=most[at]).contains(round);
        assert!(rounds.iter().all(is_within), "{least:?} {rounds:?} {most:?}");
    }
}
