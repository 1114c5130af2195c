//! The blocks of a backing device: one suite, which a table that frees blocks at once fails.
//!
//! Readers look at a slot and then, some time later, read the block it named; a writer moves the
//! contents of the slot from block to block. Blocks hold a stamp of the slot they belong to.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use block::Plain;
use pagelog::{Backed, Backing, BackingBlocks};
use sync::Reader;
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};

/// What writeback and readers want of the blocks.
trait Blocks: Sync {
    fn new(blocks: usize) -> Self;
    fn reading(&self, cpu: Cpu) -> Option<Reader<'_>>;
    fn take(&self) -> Option<u32>;
    fn give_back(&self, block: u32);
    fn retire(&self, block: u32);
}

impl Blocks for BackingBlocks {
    fn new(blocks: usize) -> BackingBlocks {
        let device = Arc::new(Plain::new(blocks * PAGE_SIZE));
        BackingBlocks::new(&host::Mmap, device, "/plain", 2).unwrap()
    }
    fn reading(&self, cpu: Cpu) -> Option<Reader<'_>> {
        Some(Backing::reading(self, cpu))
    }
    fn take(&self) -> Option<u32> {
        BackingBlocks::take(self)
    }
    fn give_back(&self, block: u32) {
        BackingBlocks::give_back(self, block);
    }
    fn retire(&self, block: u32) {
        Backing::retire(self, Backed::from_word(block.into()));
    }
}

/// Frees a block as soon as no slot names it.
struct Hasty(Mutex<Vec<u32>>);

impl Blocks for Hasty {
    fn new(blocks: usize) -> Hasty {
        Hasty(Mutex::new((0..blocks as u32).rev().collect()))
    }
    fn reading(&self, _: Cpu) -> Option<Reader<'_>> {
        None
    }
    fn take(&self) -> Option<u32> {
        self.0.lock().unwrap().pop()
    }
    fn give_back(&self, block: u32) {
        self.retire(block);
    }
    fn retire(&self, block: u32) {
        self.0.lock().unwrap().push(block);
    }
}

/// Lends a block a second time before it was given up.
struct Forgetful(AtomicU32, u32);

impl Blocks for Forgetful {
    fn new(blocks: usize) -> Forgetful {
        Forgetful(AtomicU32::new(0), blocks as u32)
    }
    fn reading(&self, _: Cpu) -> Option<Reader<'_>> {
        None
    }
    fn take(&self) -> Option<u32> {
        Some(self.0.fetch_add(1, SeqCst) % self.1)
    }
    fn give_back(&self, _: u32) {}
    fn retire(&self, _: u32) {}
}

/// Lets others take the blocks that one thread has got out of quarantine for itself.
struct Generous(Mutex<[Vec<u32>; 2]>);

impl Blocks for Generous {
    fn new(blocks: usize) -> Generous {
        Generous(Mutex::new([(0..blocks as u32).rev().collect(), Vec::new()]))
    }
    fn reading(&self, _: Cpu) -> Option<Reader<'_>> {
        None
    }
    fn take(&self) -> Option<u32> {
        let free = || self.0.lock().unwrap()[0].pop();
        free().or_else(|| {
            let [free, stale] = &mut *self.0.lock().unwrap();
            free.append(stale);
            None
        });
        thread::yield_now();
        free()
    }
    fn give_back(&self, block: u32) {
        self.0.lock().unwrap()[0].push(block);
    }
    fn retire(&self, block: u32) {
        self.0.lock().unwrap()[1].push(block);
    }
}

fn conforms<B: Blocks>(seed: u64) -> Result<(), String> {
    lends_each_once::<B>(seed)?;
    has_a_block_for_each::<B>()?;
    keeps_what_is_read::<B>(seed)
}

fn lends_each_once<B: Blocks>(seed: u64) -> Result<(), String> {
    const BLOCKS: usize = 200;
    let table = B::new(BLOCKS);
    let mut rng = Rng::new(seed);
    let mut held: Vec<u32> = Vec::new();
    for _ in 0..5000 {
        if rng.one_in(2) {
            match table.take() {
                Some(block) if held.contains(&block) => {
                    return Err(format!("{block} allocated twice"));
                }
                Some(block) if block as usize >= BLOCKS => return Err(format!("{block} past end")),
                Some(block) => held.push(block),
                None if held.len() < BLOCKS => return Err("none, and some are free".into()),
                None => {}
            }
        } else if !held.is_empty() {
            let block = held.swap_remove(rng.below(held.len() as u64) as usize);
            if rng.one_in(2) { table.retire(block) } else { table.give_back(block) }
        }
    }
    let mut more = 0;
    while table.take().is_some() {
        more += 1;
        if more + held.len() > BLOCKS {
            return Err("more blocks than there are".into());
        }
    }
    if more + held.len() == BLOCKS { Ok(()) } else { Err("blocks are lost".into()) }
}

/// There are as many blocks as threads, and each has one at a time.
fn has_a_block_for_each<B: Blocks>() -> Result<(), String> {
    const THREADS: usize = 2;
    let table = B::new(THREADS);
    let none = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    match table.take() {
                        Some(block) => table.retire(block),
                        None => drop(none.fetch_add(1, SeqCst)),
                    }
                }
            });
        }
    });
    match none.into_inner() {
        0 => Ok(()),
        count => Err(format!("none {count} times, and each thread had one at most")),
    }
}

fn keeps_what_is_read<B: Blocks>(seed: u64) -> Result<(), String> {
    const BLOCKS: usize = 4;
    const MOVES: u64 = 3000;
    let table = B::new(BLOCKS);
    let (first, other) = (table.take().unwrap(), table.take().unwrap());
    // What blocks hold: the number of the slot they belong to. Slot 0 is read, slot 1 takes up
    // blocks that slot 0 gave up.
    let stamps: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(9)).collect();
    let slots = [AtomicU32::new(first), AtomicU32::new(other)];
    stamps[first as usize].store(0, SeqCst);
    stamps[other as usize].store(1, SeqCst);
    let (done, wrong) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for reader in 0..2u32 {
            let (table, stamps, slots, done, wrong) = (&table, &stamps, &slots, &done, &wrong);
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    let reading = table.reading(Cpu(reader));
                    let number = u64::from(reader);
                    let block = slots[reader as usize].load(SeqCst);
                    // The read is under way for a while.
                    thread::yield_now();
                    if stamps[block as usize].load(SeqCst) != number {
                        wrong.fetch_add(1, SeqCst);
                    }
                    drop(reading);
                }
            });
        }
        let mut rng = Rng::new(seed);
        for _ in 0..MOVES {
            let slot = rng.below(2);
            let Some(block) = table.take() else { continue };
            stamps[block as usize].store(slot, SeqCst);
            let old = slots[slot as usize].swap(block, SeqCst);
            table.retire(old);
            if rng.one_in(4) {
                thread::yield_now();
            }
        }
        done.store(true, SeqCst);
    });
    match wrong.load(SeqCst) {
        0 => Ok(()),
        count => Err(format!("{count} reads got another slot's block")),
    }
}

#[test]
fn blocks_conform() {
    conforms::<BackingBlocks>(seed("blocks_conform")).unwrap();
}

#[test]
fn a_table_that_lends_twice_is_rejected() {
    conforms::<Forgetful>(seed("a_table_that_lends_twice_is_rejected")).unwrap_err();
}

#[test]
fn a_table_that_frees_at_once_is_rejected() {
    let mut rng = Rng::new(seed("a_table_that_frees_at_once_is_rejected"));
    // Which threads meet when is up to the machine; one of many tries is enough.
    let caught = (0..200).any(|_| conforms::<Hasty>(rng.next_u64()).is_err());
    assert!(caught, "blocks were reused under their readers, and nobody noticed");
}

#[test]
fn a_table_that_recycles_for_others_is_rejected() {
    let caught = (0..20).any(|_| has_a_block_for_each::<Generous>().is_err());
    assert!(caught, "others took what a thread had recycled, and nobody noticed");
}
