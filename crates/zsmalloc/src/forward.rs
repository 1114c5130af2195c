//! Forwarding entries: the present places of the objects of an emptied zspage.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::Mutex;
use sync::atomic::{AtomicU32, Ordering};

use crate::handle::{Handle, MAX_SLOTS};

/// The number of entries in a table is a multiple of this.
const UNIT: usize = 16;
const BINS: usize = MAX_SLOTS / UNIT + 1;

/// The forwarding tables of a pool. A table is named by the number of its first entry.
pub(crate) struct Forwards {
    entries: LazyTable<AtomicU32>,
    free: Mutex<FreeTables>,
}

struct FreeTables {
    /// Entries that were ever part of a table.
    fresh: usize,
    /// For each length in units: a free table plus one. Its first entry holds the next.
    heads: [u32; BINS],
    in_use: usize,
}

impl Forwards {
    /// Makes room for `entries` entries, lazily backed.
    pub(crate) fn new(provider: &dyn MemoryProvider, entries: usize) -> Result<Forwards, NoMemory> {
        let free = FreeTables { fresh: 0, heads: [0; BINS], in_use: 0 };
        Ok(Forwards { entries: LazyTable::new(provider, entries)?, free: Mutex::new(free) })
    }

    /// Makes a table with `slots` empty entries; `None` when there is no room.
    pub(crate) fn make(&self, slots: usize) -> Option<u32> {
        let units = slots.div_ceil(UNIT);
        let mut free = self.free.lock();
        let table = match free.heads[units].checked_sub(1) {
            Some(table) => {
                free.heads[units] = self.entries.get(table as usize).load(Ordering::Relaxed);
                table
            }
            None if free.fresh + units * UNIT <= self.entries.ready() => {
                free.fresh += units * UNIT;
                (free.fresh - units * UNIT) as u32
            }
            None => return None,
        };
        free.in_use += units * UNIT;
        for n in 0..slots {
            self.entries.get(table as usize + n).store(0, Ordering::Relaxed);
        }
        Some(table)
    }

    /// If memory is provided ahead: provides `more` entries beyond those ever used.
    pub(crate) fn provide(&self, more: usize) -> bool {
        let fresh = self.free.lock().fresh;
        self.entries.provide(fresh + more)
    }

    /// Takes back a table that was made for `slots` and that no thread follows any more.
    pub(crate) fn unmake(&self, table: u32, slots: usize) {
        let units = slots.div_ceil(UNIT);
        let mut free = self.free.lock();
        self.entries.get(table as usize).store(free.heads[units], Ordering::Relaxed);
        free.heads[units] = table + 1;
        free.in_use -= units * UNIT;
    }

    /// The place where the object of `slot` was moved to; `None` if it was not moved.
    #[inline]
    pub(crate) fn follow(&self, table: u32, slot: usize) -> Option<Handle> {
        // Acquire pairs with the Release in `enter`: the object's bytes are at the new place.
        let raw = self.entries.get(table as usize + slot).load(Ordering::Acquire);
        (raw != 0).then(|| Handle::from_raw(raw))
    }

    /// Publishes that the object of `slot` is at `to`, where its bytes have been written.
    pub(crate) fn enter(&self, table: u32, slot: usize, to: Handle) {
        // Release pairs with the Acquire in `follow`.
        self.entries.get(table as usize + slot).store(to.get(), Ordering::Release);
    }

    /// Bytes of the tables in use.
    pub(crate) fn bytes(&self) -> u64 {
        (self.free.lock().in_use * size_of::<AtomicU32>()) as u64
    }
}
