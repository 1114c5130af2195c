//! Keeps pages compressed in this process.
//!
//! ```sh
//! cargo run --release -p rampack --example embed
//! ```

use std::error::Error;

use rampack::{DiskOptions, PAGE_SIZE, Rampack};

const PAGES: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let store = Rampack::new()?.disk(DiskOptions { size: 1 << 30, ..DiskOptions::default() })?;
    for index in 0..PAGES {
        store.store(index, &row_page(index))?;
    }
    let mut page = [0; PAGE_SIZE];
    for index in 0..PAGES {
        store.load(index, &mut page)?;
        assert_eq!(page, row_page(index));
    }
    let stats = store.stats();
    let (data, memory) = (stats.orig_bytes >> 10, stats.pool_bytes >> 10);
    println!("{PAGES} pages, {data} KiB, are in {memory} KiB of memory");
    Ok(())
}

/// A page as in a database: similar rows.
fn row_page(number: u64) -> [u8; PAGE_SIZE] {
    let mut page = [0; PAGE_SIZE];
    for (row, bytes) in page.chunks_mut(64).enumerate() {
        let text = format!("{{\"id\":{},\"name\":\"user {}\"}}", number * 64 + row as u64, row * 7);
        bytes[..text.len().min(64)].copy_from_slice(&text.as_bytes()[..text.len().min(64)]);
    }
    page
}

#[test]
fn it_runs() {
    main().unwrap();
}
