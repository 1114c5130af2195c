//! The seals of all blocks: 24 bytes a block, never on the device.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};

use crate::key::Seal;

/// Bytes of a seal. The seal of block N is at N times as many; it begins with a number, in the
/// system's byte order, which is 0 for a block that cannot be opened.
pub const SEAL_BYTES: usize = 24;
/// The number of a block that is being written.
const CHANGING: u64 = u64::MAX;

/// What is known of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// It was never written, or was given up: it reads as zeroes.
    Empty,
    /// A write of it is under way.
    Changing,
    Sealed(Seal),
}

/// Tells the entry behind the last block from a seal, whose tag is as good as random.
const MARK: u64 = 0x7261_6d70_6163_6b21;

/// A number and a tag for each block. Behind the last block is the number of the last write: where
/// the table outlives the process, no number is used again. Its entry is marked, so that a later
/// process finds it if the device has become longer or shorter since.
pub(crate) struct Seals {
    blocks: LazyTable<[AtomicU64; 3]>,
    count: usize,
}

impl Seals {
    /// The seals of this many blocks, which are all empty. If memory is provided ahead, all of it
    /// is provided here.
    pub fn new(provider: &dyn MemoryProvider, blocks: usize) -> Result<Seals, NoMemory> {
        let seals = Seals { blocks: LazyTable::provided(provider, blocks + 1)?, count: blocks };
        seals.mark();
        Ok(seals)
    }

    /// The seals that another process left in the memory of the provider, `bytes` bytes, of as many
    /// blocks as it had. An older program marked no entry: it is taken to have had `blocks`.
    pub fn left(
        provider: &dyn MemoryProvider,
        bytes: u64,
        blocks: usize,
    ) -> Result<Seals, NoMemory> {
        let entries = bytes as usize / SEAL_BYTES;
        let table = LazyTable::new(provider, entries)?;
        let mut seals = Seals { blocks: table, count: blocks };
        if blocks >= entries || !seals.is_marked(blocks) {
            // It is near the end: what is looked at has memory from then on.
            let marked = (0..entries).rev().find(|entry| seals.is_marked(*entry));
            seals.count = marked.unwrap_or(blocks);
        }
        if seals.count >= entries || !seals.blocks.provide(seals.count + 1) {
            return Err(NoMemory { bytes: (blocks + 1) * SEAL_BYTES });
        }
        seals.mark();
        Ok(seals)
    }

    /// The number of blocks.
    pub fn count(&self) -> usize {
        self.count
    }

    fn mark(&self) {
        let [_, first, second] = self.blocks.get(self.count);
        first.store(MARK, Ordering::Relaxed);
        second.store(!(self.count as u64), Ordering::Relaxed);
    }

    fn is_marked(&self, entry: usize) -> bool {
        let [_, first, second] = self.blocks.get(entry);
        first.load(Ordering::Relaxed) == MARK && second.load(Ordering::Relaxed) == !(entry as u64)
    }

    /// The number of the next write. It is never given again.
    pub fn next_number(&self) -> u64 {
        // Relaxed: only the numbers matter.
        self.blocks.get(self.count)[0].fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn get(&self, block: u64) -> Known {
        let [number, low, high] = self.blocks.get(block as usize);
        // Acquire pairs with the Release in `put`: the tag is that of the number.
        match number.load(Ordering::Acquire) {
            0 => Known::Empty,
            CHANGING => Known::Changing,
            number => {
                let mut tag = [0; 16];
                tag[..8].copy_from_slice(&low.load(Ordering::Relaxed).to_le_bytes());
                tag[8..].copy_from_slice(&high.load(Ordering::Relaxed).to_le_bytes());
                Known::Sealed(Seal { number, tag })
            }
        }
    }

    /// Marks a block as being written. Returns its number until now, for [`Seals::restore`].
    pub fn begin(&self, block: u64) -> u64 {
        // Relaxed: no operations on one block overlap.
        self.blocks.get(block as usize)[0].swap(CHANGING, Ordering::Relaxed)
    }

    /// The write failed, and the device may still have the contents of before.
    pub fn restore(&self, block: u64, number: u64) {
        // Release pairs with the Acquire in `get`; the tag was never changed.
        self.blocks.get(block as usize)[0].store(number, Ordering::Release);
    }

    /// The device has the page of this seal.
    pub fn put(&self, block: u64, seal: Seal) {
        let [number, low, high] = self.blocks.get(block as usize);
        let (first, second) = seal.tag.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        low.store(word(first), Ordering::Relaxed);
        high.store(word(second), Ordering::Relaxed);
        // Release pairs with the Acquire in `get`.
        number.store(seal.number, Ordering::Release);
    }

    /// From now on the block reads as zeroes.
    pub fn clear(&self, block: u64) {
        self.restore(block, 0);
    }
}
