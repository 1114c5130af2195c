//! Words of a record.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};

/// Words in memory that outlives the process. One thread at a time writes them.
pub(super) struct Words(LazyTable<AtomicU64>);

impl Words {
    pub(super) fn new(provider: &dyn MemoryProvider, count: usize) -> Result<Words, NoMemory> {
        LazyTable::provided(provider, count).map(Words)
    }

    pub(super) fn get(&self, at: usize) -> u64 {
        // Acquire pairs with the Release in `set`.
        self.0.get(at).load(Ordering::Acquire)
    }

    /// Writes a word, after all that was written before it.
    pub(super) fn set(&self, at: usize, value: u64) {
        // Release pairs with the Acquire in `get`, also of another process.
        self.0.get(at).store(value, Ordering::Release);
    }
}
