//! Keeps pages compressed in this process.
//!
//! ```sh
//! cargo run --release -p rampack --example embed
//! ```

use std::error::Error;

use rampack::{PAGE_SIZE, Rampack};

const PAGES: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let store = Rampack::new()?.disk(1 << 30)?;
    for index in 0..PAGES {
        store.store(index, &row_page(index))?;
    }
    let mut page = [0; PAGE_SIZE];
    for index in 0..PAGES {
        store.load(index, &mut page)?;
        assert_eq!(page, row_page(index));
    }
    let stats = store.stats();
    let (data, memory) = (stats.pages * PAGE_SIZE as u64, stats.memory_bytes);
    println!("{PAGES} pages, {} KiB, are in {} KiB of memory", data >> 10, memory >> 10);
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
