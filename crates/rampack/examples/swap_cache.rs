//! A compressed cache in front of a file: pages without room in memory are written to the file and
//! read back from it. It works as `rampack swap on`, but without the kernel.
//!
//! ```sh
//! cargo run --release -p rampack --example swap_cache -- /tmp/pages
//! ```

use std::error::Error;
use std::fs::File;
use std::path::Path;

use block::Operation;
use rampack::{AreaOptions, BlockDevice, PAGE_SIZE, Rampack, SwapDevice, SwapType};

const PAGES: u64 = 8192;
/// The memory limit of the cache: less than the pages need.
const ROOM: u64 = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: swap_cache FILE")?;
    let (stored, in_memory) = run(Path::new(&path))?;
    println!("{stored} pages are right; {in_memory} of them were in memory, the others in {path}");
    Ok(())
}

fn run(path: &Path) -> Result<(u64, u64), Box<dyn Error>> {
    File::options().write(true).create_new(true).open(path)?.set_len(PAGES * PAGE_SIZE as u64)?;
    let file = backing::open(path, backing::Options::default())?;
    let zswap = Rampack::new()?.swap()?;
    zswap.set_max_pool_bytes(ROOM);
    let (swap, memcg) = (SwapType::new(0)?, zswap.memcg("example")?);
    zswap.swapon(swap, PAGES, AreaOptions { device: Some(file), memcg })?;

    let device = SwapDevice::new(zswap.clone(), swap);
    for index in 0..PAGES {
        let offset = index * PAGE_SIZE as u64;
        device.submit(rampack::cpu(), Operation::Write { offset, from: &page(index) })?;
    }
    let in_memory = zswap.area_stats(swap).map_or(0, |stats| stats.cached);
    for index in 0..PAGES {
        let mut found = [0; PAGE_SIZE];
        let offset = index * PAGE_SIZE as u64;
        device.submit(rampack::cpu(), Operation::Read { offset, into: &mut found })?;
        assert_eq!(found, page(index), "page {index}");
    }
    zswap.invalidate_area(rampack::cpu(), swap);
    zswap.swapoff(swap)?;
    Ok((PAGES, in_memory))
}

/// A page that compresses to half of its size.
fn page(number: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    fastrand::Rng::with_seed(number).fill(&mut page[..PAGE_SIZE / 2]);
    page
}

#[test]
fn pages_that_find_no_room_come_back_from_the_file() {
    let directory = testkit::TempDir::new();
    let (stored, in_memory) = run(&directory.join("pages")).unwrap();
    assert!(stored == PAGES && in_memory > 0 && in_memory < PAGES, "{in_memory} of {stored}");
}
