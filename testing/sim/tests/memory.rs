//! Unused memory goes back to the operating system, as the resident set of this process shows. The
//! test is alone in its file, so that no other test changes the resident set.

mod common;

use common::Plan;
use sim::content::Fill;
use units::{Cpu, PAGE_SIZE};

const P: u64 = PAGE_SIZE as u64;
/// 64 MiB, which compress to about a third.
const PAGES: u64 = 16 << 10;

#[test]
fn discards_and_compaction_give_memory_back() {
    let disk = Plan::new(PAGES * P, zcomp::LZ4).build();
    let start = host::resident_bytes();
    let since_start = || host::resident_bytes().saturating_sub(start);
    let mut page = [0; PAGE_SIZE];
    for index in 0..PAGES {
        Fill::Partly { noise: index, parts: 20 + (index % 7) as u8 * 5 }.render(&mut page);
        disk.disk.store_page(Cpu(index as u32 % 3), index, &page).expect("there is space");
    }
    let (full, pool) = (since_start(), disk.disk.stats().pool_bytes);
    assert!(full > pool * 9 / 10, "{full} resident for {pool} in the pool");
    // Discards most pages, here and there, as a file system does after a while.
    for index in (0..PAGES).filter(|index| index % 8 != 0) {
        disk.disk.discard_pages(Cpu(0), index, 1).expect("it lies within the disk");
    }
    disk.disk.compact().expect("it has a size");
    let (compacted, pool) = (since_start(), disk.disk.stats().pool_bytes);
    assert!(compacted < pool + pool / 4 + (4 << 20), "{compacted} resident for {pool} in the pool");
    disk.disk.discard_pages(Cpu(0), 0, PAGES).expect("it lies within the disk");
    disk.disk.compact().expect("it has a size");
    let empty = since_start();
    assert!(empty < 4 << 20, "{empty} resident for an empty disk");
}
