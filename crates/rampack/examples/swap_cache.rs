//! A compressed cache in front of a file: pages without room in memory are written to the file and
//! read back from it. It works as `rampack swap on`, but without the kernel.
//!
//! ```sh
//! cargo run --release -p rampack --features swap --example swap_cache -- /tmp/pages
//! ```

use std::path::Path;

use rampack::{Error, PAGE_SIZE, SwapCache, SwapOptions};

const PAGES: u64 = 8192;
/// The memory limit of the cache: less than the pages need.
const ROOM: u64 = 4 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: swap_cache FILE")?;
    let (stored, in_memory) = run(Path::new(&path))?;
    println!("{stored} pages are right; {in_memory} of them were in memory, the others in {path}");
    Ok(())
}

fn run(path: &Path) -> Result<(u64, u64), Error> {
    let cache = SwapCache::new(SwapOptions::new(PAGES).memory(ROOM).file(path))?;
    for index in 0..PAGES {
        cache.store(index, &page(index))?;
    }
    let in_memory = cache.stats().in_memory;
    for index in 0..PAGES {
        let mut found = [0; PAGE_SIZE];
        cache.load(index, &mut found)?;
        assert_eq!(found, page(index), "page {index}");
    }
    Ok((PAGES, in_memory))
}

/// A page that compresses to half of its size.
fn page(number: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    let mut state = number | 1;
    for byte in &mut page[..PAGE_SIZE / 2] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
    page
}

#[test]
fn pages_that_find_no_room_come_back_from_the_file() {
    let path = std::env::temp_dir().join(format!("rampack-swap-cache-{}", std::process::id()));
    let outcome = run(&path);
    std::fs::remove_file(&path).unwrap();
    let (stored, in_memory) = outcome.unwrap();
    assert!(stored == PAGES && in_memory > 0 && in_memory < PAGES, "{in_memory} of {stored}");
}
