//! A compressed secondary cache, as RocksDB has one: blocks that a small cache of plain blocks
//! drops are kept compressed, and come back from there instead of from the disk.
//!
//! ```sh
//! cargo run --release -p rampack --example secondary_cache
//! ```

use std::collections::{HashMap, VecDeque};

use rampack::{Error, Rampack, Store, StoreOptions};

/// Blocks in the first cache.
const FIRST: usize = 64;
/// The most bytes of the second.
const SECOND: u64 = 8 << 20;
const BLOCK: usize = 4 << 10;

/// Two caches before a source of blocks.
struct Caches {
    first: HashMap<u64, Vec<u8>>,
    /// The order in which blocks came into the first cache.
    order: VecDeque<u64>,
    second: Store,
    /// Reads that found their block in the first cache, in the second, and in none.
    found: [u64; 3],
}

impl Caches {
    fn new() -> Result<Caches, Error> {
        let second = Rampack::new()?.store(StoreOptions::new().limit(SECOND).unit(BLOCK))?;
        Ok(Caches { first: HashMap::new(), order: VecDeque::new(), second, found: [0; 3] })
    }

    fn get(&mut self, number: u64, read: impl FnOnce(u64) -> Vec<u8>) -> Result<&[u8], Error> {
        if self.first.contains_key(&number) {
            self.found[0] += 1;
        } else {
            let block = match self.second.get(number.to_be_bytes())? {
                Some(block) => {
                    self.found[1] += 1;
                    block
                }
                None => {
                    self.found[2] += 1;
                    read(number)
                }
            };
            self.admit(number, block)?;
        }
        Ok(&self.first[&number])
    }

    fn admit(&mut self, number: u64, block: Vec<u8>) -> Result<(), Error> {
        if self.order.len() == FIRST
            && let Some(oldest) = self.order.pop_front()
            && let Some(block) = self.first.remove(&oldest)
            // It may be there still, from the time before.
            && !self.second.contains(oldest.to_be_bytes())
        {
            match self.second.put(oldest.to_be_bytes(), block) {
                Ok(()) | Err(Error::Full) => {}
                Err(error) => return Err(error),
            }
        }
        self.order.push_back(number);
        self.first.insert(number, block);
        Ok(())
    }
}

/// A block of a table: rows that are alike.
fn block(number: u64) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK + 64);
    for row in 0.. {
        if block.len() >= BLOCK {
            break;
        }
        let id = number * 100 + row;
        block
            .extend(format!("{id:08}|customer-{}|open|{}.50;", id % 977, id * 7919 % 5000).bytes());
    }
    block.truncate(BLOCK);
    block
}

fn run() -> Result<[u64; 3], Error> {
    let mut caches = Caches::new()?;
    for step in 0..20_000u64 {
        let number = step * step % 2003;
        assert!(caches.get(number, block)? == block(number), "block {number}");
    }
    Ok(caches.found)
}

fn main() -> Result<(), Error> {
    let [first, second, none] = run()?;
    println!("{first} reads found plain blocks, {second} compressed ones, {none} went to the disk");
    Ok(())
}

#[test]
fn dropped_blocks_come_back_from_the_second_cache() {
    let [_, second, none] = run().unwrap();
    assert!(none < 1100 && second > 10_000, "{second} came back, {none} did not");
}
