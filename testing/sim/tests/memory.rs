//! Memory goes back to the operating system when it is not needed: by this process's resident set.
//! Alone in its file, so that nothing else changes it.

mod common;

use common::Plan;
use sim::content::Fill;
use units::{Cpu, PAGE_SIZE};

const P: u64 = PAGE_SIZE as u64;
/// 64 MiB, of which about a third is stored.
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
    // As a file system does after a while: most of it, here and there.
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
