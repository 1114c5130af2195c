//! A page cache before a file: blocks of the file that were read lately stay compressed in memory,
//! in at most so much of it.
//!
//! ```sh
//! cargo run --release -p rampack --example page_cache -- /usr/bin/env
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rampack::{Error, Rampack, Store, StoreOptions, StoreStats};

/// Bytes of a block: as much as is read from the file at once.
const BLOCK: usize = 16 << 10;
/// The most bytes of memory.
const MEMORY: u64 = 4 << 20;

/// A file whose blocks are cached.
struct Cached {
    file: File,
    blocks: Store,
}

impl Cached {
    fn open(path: &Path) -> io::Result<Cached> {
        let blocks = Rampack::new()?.store(StoreOptions::new().limit(MEMORY).unit(BLOCK))?;
        Ok(Cached { file: File::open(path)?, blocks })
    }

    /// Reads bytes `from..` of the file, as far as it goes and one block has them.
    fn read_at(&self, into: &mut [u8], from: u64) -> io::Result<usize> {
        let (block, within) = (from / BLOCK as u64, (from % BLOCK as u64) as usize);
        let key = block.to_be_bytes();
        if let Some(length) = self.blocks.get_range(key, within, into)? {
            return Ok(length);
        }
        let mut bytes = vec![0; BLOCK];
        let mut length = 0;
        while length < BLOCK {
            match self.file.read_at(&mut bytes[length..], block * BLOCK as u64 + length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        match self.blocks.put(key, &bytes[..length]) {
            // A block that finds no room is read again next time.
            Ok(()) | Err(Error::Full) => {}
            Err(error) => return Err(error.into()),
        }
        let part = bytes[..length].get(within..).unwrap_or_default();
        let length = part.len().min(into.len());
        into[..length].copy_from_slice(&part[..length]);
        Ok(length)
    }
}

/// Reads a file twice, and compares each part.
fn run(path: &Path) -> io::Result<StoreStats> {
    let (cached, whole) = (Cached::open(path)?, std::fs::read(path)?);
    for _ in 0..2 {
        let mut at = 0;
        while at < whole.len() {
            let mut into = [0; 1000];
            let length = cached.read_at(&mut into, at as u64)?;
            assert!(length > 0 && into[..length] == whole[at..at + length], "at {at}");
            at += length;
        }
    }
    Ok(cached.blocks.stats())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: page_cache FILE")?;
    let stats = run(Path::new(&path))?;
    println!(
        "{} blocks in {} bytes of memory; {} reads came from it, {} from the file",
        stats.values, stats.memory_bytes, stats.hits, stats.misses
    );
    Ok(())
}

#[test]
fn a_file_is_read_through_the_cache() {
    let path = std::env::current_exe().unwrap();
    let stats = run(&path).unwrap();
    assert!(stats.hits > stats.misses && stats.memory_bytes <= MEMORY + (64 << 10), "{stats:?}");
}
