//! A memory provider on the heap that keeps a record of what was asked of it.
//!
//! Releasing wipes the first and the last word of each page at once, which is where the borrower
//! of the suite writes: so releasing what is allocated is found out. Nothing here asks
//! the operating system, so tests on it run under Miri as well.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::boxed::Box;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::vec;
use std::vec::Vec;

use pagealloc::{MemoryProvider, NoMemory, Region, RegionKeeper, watch};
use units::{PAGE_SIZE, PAGEBLOCK_SIZE};

/// Allocates heap memory. Clones share one record.
#[derive(Clone, Default)]
pub struct HeapProvider {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    records: Vec<Arc<Record>>,
    refusing: bool,
    ahead: bool,
    /// Pages that may still be populated; any number without.
    pages: Option<usize>,
}

/// What was asked of one region.
pub struct Record {
    base: usize,
    bytes: usize,
    provider: HeapProvider,
    log: Mutex<Log>,
}

/// The history of one region, in 2 MiB blocks where a number means a place.
#[derive(Clone, Default)]
pub struct Log {
    /// Whether each block may be touched.
    pub committed: Vec<bool>,
    /// Blocks released, in order; one may be there several times.
    pub released: Vec<usize>,
    /// Frames released with less than their block.
    pub pieces_released: usize,
    /// Blocks collapsed, in order.
    pub collapsed: Vec<usize>,
    /// Parts populated, in order: the first frame, and how many.
    pub populated: Vec<(usize, usize)>,
    /// The region is gone.
    pub dropped: bool,
}

impl HeapProvider {
    /// From now on every commit is refused, or none.
    pub fn refuse(&self, refusing: bool) {
        self.state.lock().unwrap().refusing = refusing;
    }

    /// A provider whose memory is provided ahead, with `pages` pages of it.
    pub fn ahead(pages: usize) -> HeapProvider {
        let provider = HeapProvider::default();
        provider.state.lock().unwrap().ahead = true;
        provider.set_pages(pages);
        provider
    }

    /// From now on `pages` pages more may be populated.
    pub fn set_pages(&self, pages: usize) {
        self.state.lock().unwrap().pages = Some(pages);
    }

    fn take_pages(&self, pages: usize) -> bool {
        let mut state = self.state.lock().unwrap();
        let left = state.pages.map(|left| left.checked_sub(pages));
        match left {
            Some(Some(left)) => state.pages = Some(left),
            Some(None) => return false,
            None => {}
        }
        true
    }

    /// Is every commit refused now?
    pub fn is_refusing(&self) -> bool {
        self.state.lock().unwrap().refusing
    }

    /// The record of the region that begins at `base`.
    pub fn record_of(&self, base: NonNull<u8>) -> Arc<Record> {
        let state = self.state.lock().unwrap();
        let found = state.records.iter().rev().find(|record| record.base == base.as_ptr() as usize);
        found.expect("the base of a zone is the base of a region of its provider").clone()
    }

    /// Whether each region made here has been dropped.
    pub fn all_dropped(&self) -> bool {
        self.state.lock().unwrap().records.iter().all(|record| record.log().dropped)
    }
}

impl MemoryProvider for HeapProvider {
    fn is_ahead(&self) -> bool {
        self.state.lock().unwrap().ahead
    }

    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        let refused = NoMemory { bytes };
        let bytes = bytes.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE).ok_or(refused)?;
        let layout = Layout::from_size_align(bytes, PAGEBLOCK_SIZE).map_err(|_| refused)?;
        // SAFETY: the size isn't zero.
        let base =
            NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let committed = vec![false; bytes / PAGEBLOCK_SIZE];
        let record = Arc::new(Record {
            base: base.as_ptr() as usize,
            bytes,
            provider: self.clone(),
            log: Mutex::new(Log { committed, ..Log::default() }),
        });
        self.state.lock().unwrap().records.push(record.clone());
        // SAFETY: the keeper owns the allocation, and the layout aligned it.
        Ok(unsafe { Region::new(base, bytes, Box::new(Keeper { base, layout, record })) })
    }
}

impl Record {
    /// What has happened so far.
    pub fn log(&self) -> Log {
        self.log.lock().unwrap().clone()
    }

    /// How many blocks were released so far.
    pub fn blocks_released(&self) -> u64 {
        self.log.lock().unwrap().released.len() as u64
    }

    /// Whether frames `start..end` may be touched.
    pub fn is_committed(&self, start: usize, end: usize) -> bool {
        let blocks = start * PAGE_SIZE / PAGEBLOCK_SIZE..(end * PAGE_SIZE).div_ceil(PAGEBLOCK_SIZE);
        self.log.lock().unwrap().committed[blocks].iter().all(|committed| *committed)
    }
}

struct Keeper {
    base: NonNull<u8>,
    layout: Layout,
    record: Arc<Record>,
}

// SAFETY: heap memory belongs to the process, not to a thread.
unsafe impl Send for Keeper {}
// SAFETY: as above; the record is behind a lock.
unsafe impl Sync for Keeper {}

impl Keeper {
    fn check(&self, what: &str, offset: usize, bytes: usize, unit: usize) {
        let whole = offset.is_multiple_of(unit) && bytes.is_multiple_of(unit);
        let within = offset + bytes <= self.record.bytes;
        assert!(whole && within, "{what} of {bytes} bytes at {offset} in {}", self.record.bytes);
    }

    fn zero(&self, offset: usize, bytes: usize) {
        // SAFETY: `check` was called; whoever calls commit or release owns that part.
        unsafe { self.base.as_ptr().add(offset).write_bytes(0, bytes) };
    }
}

// SAFETY: the allocation is freed only when the keeper is dropped.
unsafe impl RegionKeeper for Keeper {
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        self.check("commit", offset, bytes, PAGEBLOCK_SIZE);
        if self.record.provider.state.lock().unwrap().refusing {
            return Err(NoMemory { bytes });
        }
        let mut log = self.record.log.lock().unwrap();
        for block in offset / PAGEBLOCK_SIZE..(offset + bytes) / PAGEBLOCK_SIZE {
            if !std::mem::replace(&mut log.committed[block], true) {
                self.zero(block * PAGEBLOCK_SIZE, PAGEBLOCK_SIZE);
            }
        }
        Ok(())
    }

    fn release(&self, offset: usize, bytes: usize) {
        self.check("release", offset, bytes, PAGE_SIZE);
        // A system wipes memory behind everybody's back. Nobody may touch it all the same.
        let start = self.base.map_addr(|base| base.saturating_add(offset));
        watch::unpoison(start, bytes);
        for page in (offset..offset + bytes).step_by(PAGE_SIZE) {
            self.zero(page, 8);
            self.zero(page + PAGE_SIZE - 8, 8);
        }
        if cfg!(asan) {
            // SAFETY: what a zone releases lies within the region and is allocated to nobody.
            unsafe { watch::poison(start, bytes) };
        }
        let mut log = self.record.log.lock().unwrap();
        if bytes < PAGEBLOCK_SIZE {
            log.pieces_released += bytes / PAGE_SIZE;
        } else {
            log.released.extend(offset / PAGEBLOCK_SIZE..(offset + bytes) / PAGEBLOCK_SIZE);
        }
    }

    fn collapse(&self, offset: usize) {
        self.check("collapse", offset, PAGEBLOCK_SIZE, PAGEBLOCK_SIZE);
        self.record.log.lock().unwrap().collapsed.push(offset / PAGEBLOCK_SIZE);
    }

    fn populate(&self, offset: usize, bytes: usize) -> bool {
        self.check("populate", offset, bytes, PAGE_SIZE);
        if !self.record.provider.take_pages(bytes / PAGE_SIZE) {
            return false;
        }
        let part = (offset / PAGE_SIZE, bytes / PAGE_SIZE);
        self.record.log.lock().unwrap().populated.push(part);
        true
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.record.log.lock().unwrap().dropped = true;
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
