//! The blocks of a backing device: free, used, and in quarantine.
//!
//! A reader that looked at a slot earlier may still read a block that the page gave up. Such a
//! block is not free but *in quarantine*, until every reader of that time has left. A reader enters
//! before it looks at a slot, and leaves when the block has arrived.

use alloc::{string::String, sync::Arc};

use block::{BlockDevice, Geometry};
use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, Reader, ReaderEpochs};
use units::{Cpu, PAGE_SIZE};

/// A backing device and the state of its blocks. Any number of threads may call every method at
/// once, but only one thread at a time may call [`BackingBlocks::take`] or
/// [`BackingBlocks::recycle`].
pub struct BackingBlocks {
    device: Arc<dyn BlockDevice>,
    path: String,
    readers: ReaderEpochs,
    /// A bit for each block that is not free.
    used: LazyTable<AtomicU64>,
    /// A bit for each block that no slot names, but a reader may still read.
    quarantine: LazyTable<AtomicU64>,
    /// The blocks that were in quarantine when the wait for the readers began.
    leaving: LazyTable<AtomicU64>,
    blocks: u64,
    /// No block before this one is free.
    lowest: Mutex<u64>,
    /// Held by the thread that waits for readers of blocks in quarantine. Taken before `lowest`.
    recycling: Mutex<()>,
    /// Counts the blocks that entered the quarantine since it was last emptied.
    stale: AtomicU64,
    /// If set, `recycle` does not wait for readers: see [`crate::Without`].
    #[cfg(any(shuttle, asan))]
    without_readers: bool,
}

impl BackingBlocks {
    /// Takes `device`, opened as `path`, with all blocks free. Slots number blocks with 32 bits: a
    /// device beyond 16 TiB is used only up to that size.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for its tables is out.
    pub fn new(
        provider: &dyn MemoryProvider,
        device: Arc<dyn BlockDevice>,
        path: &str,
        cpus: usize,
    ) -> Result<BackingBlocks, NoMemory> {
        let Geometry { bytes, .. } = device.geometry();
        let blocks = (bytes / PAGE_SIZE as u64).min(1 << 32);
        let words = (blocks as usize).div_ceil(64);
        Ok(BackingBlocks {
            device,
            path: path.into(),
            readers: ReaderEpochs::new(cpus),
            used: LazyTable::new(provider, words)?,
            quarantine: LazyTable::new(provider, words)?,
            leaving: LazyTable::new(provider, words)?,
            blocks,
            lowest: Mutex::new(0),
            recycling: Mutex::new(()),
            stale: AtomicU64::new(0),
            #[cfg(any(shuttle, asan))]
            without_readers: false,
        })
    }

    /// A copy that does not wait for its readers.
    #[cfg(any(shuttle, asan))]
    #[must_use]
    pub fn without_readers(self) -> BackingBlocks {
        BackingBlocks { without_readers: true, ..self }
    }

    /// The backing device.
    #[must_use]
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// The path it was opened as.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Enters a reader: a block that a slot names from now on is not reused while the reader lives.
    pub fn reading(&self, cpu: Cpu) -> Reader<'_> {
        self.readers.enter(cpu)
    }

    /// Takes the first free block, or `None` if no block is free. The calling thread must not be a
    /// reader.
    pub fn take(&self) -> Option<u32> {
        if let Some(block) = self.take_free() {
            return Some(block);
        }
        // While another thread recycles, what was given up is neither free nor in quarantine.
        let _one_at_a_time = self.recycling.lock();
        self.take_free().or_else(|| self.recycle().then(|| self.take_free()).flatten())
    }

    fn take_free(&self) -> Option<u32> {
        let mut lowest = self.lowest.lock();
        let words = self.used.len() as u64;
        for word in *lowest / 64..words {
            let used = self.used.get(word as usize);
            let free = (!used.load(Ordering::Relaxed)).trailing_zeros();
            if free == 64 {
                continue;
            }
            let block = word * 64 + u64::from(free);
            if block >= self.blocks {
                break;
            }
            used.fetch_or(1 << free, Ordering::Relaxed);
            *lowest = block + 1;
            return u32::try_from(block).ok();
        }
        *lowest = self.blocks;
        None
    }

    /// Notes that a slot names a block, which another process wrote. Returns whether it was free.
    ///
    /// # Errors
    /// The number of blocks, if there is no such block.
    pub fn claim(&self, block: u32) -> Result<bool, u64> {
        if u64::from(block) >= self.blocks {
            return Err(self.blocks);
        }
        let bit = 1 << (block % 64);
        let used = self.used.get(block as usize / 64).fetch_or(bit, Ordering::Relaxed);
        Ok(used & bit == 0)
    }

    /// Gives back a block that no slot ever named.
    pub fn give_back(&self, block: u32) {
        let mut lowest = self.lowest.lock();
        self.used.get(block as usize / 64).fetch_and(!(1 << (block % 64)), Ordering::Relaxed);
        *lowest = (*lowest).min(u64::from(block));
    }

    /// Puts a block in quarantine: no slot names it any more. A reader that looked at the slot
    /// earlier may still read it.
    pub fn retire(&self, block: u32) {
        // Release pairs with the Acquire in `recycle`: the slot was changed before.
        self.quarantine.get(block as usize / 64).fetch_or(1 << (block % 64), Ordering::Release);
        // Release pairs with the Acquire in `recycle`: a thread that sees the count finds the
        // block.
        self.stale.fetch_add(1, Ordering::Release);
    }

    /// Waits for all present readers, then frees the blocks that were put in quarantine before.
    /// Returns whether there were any. The calling thread must not be a reader, and holds
    /// `recycling`.
    fn recycle(&self) -> bool {
        // Acquire pairs with the Release in `retire`.
        if self.stale.swap(0, Ordering::Acquire) == 0 {
            return false;
        }
        let (mut first, mut end) = (self.quarantine.len(), 0);
        for word in 0..self.quarantine.len() {
            let quarantine = self.quarantine.get(word);
            if quarantine.load(Ordering::Relaxed) != 0 {
                // Acquire pairs with the Release in `retire`.
                let given_up = quarantine.swap(0, Ordering::Acquire);
                self.leaving.get(word).store(given_up, Ordering::Relaxed);
                (first, end) = (first.min(word), word + 1);
            }
        }
        if first >= end {
            return false;
        }
        #[cfg(any(shuttle, asan))]
        let waits = !self.without_readers;
        #[cfg(not(any(shuttle, asan)))]
        let waits = true;
        if waits {
            self.readers.wait_for_readers();
        }
        let mut lowest = self.lowest.lock();
        for word in first..end {
            let bits = self.leaving.get(word).swap(0, Ordering::Relaxed);
            if bits != 0 {
                self.used.get(word).fetch_and(!bits, Ordering::Relaxed);
                *lowest = (*lowest).min(word as u64 * 64 + u64::from(bits.trailing_zeros()));
            }
        }
        true
    }
}
