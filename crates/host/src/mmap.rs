//! Memory from mmap.
//!
//! Addresses are reserved without access (`PROT_NONE`, `MAP_NORESERVE`) and made usable piece by
//! piece, so that capacity costs nothing and a limit on the process is met by an error instead of
//! a signal (mmap(2), mprotect(2), and the kernel document `mm/overcommit-accounting.rst`).
//!
//! Where transparent huge pages are set to `always`, the first touch of a byte would cost 2 MiB,
//! which makes nonsense of a sparse table, and khugepaged would fill up what was given back.
//! Regions therefore opt out. [`RegionKeeper::collapse`] opts a block in for as long as the system
//! takes to make it a huge page, which it stays then (kernel document
//! `admin-guide/mm/transhuge.rst`). That may take milliseconds: a huge page has to be found and
//! cleared. So memory that is wanted at once comes in pages ([`RegionKeeper::populate`]).
//!
//! In a process that locks what it maps ([`crate::lock_memory`]) regions are locked page by page,
//! as they are touched or populated; otherwise reserving would take the memory of all of it.
//!
//! # Why unsafe
//! Mapping memory is unsafe by nature: this module is where address ranges come from.

use std::io;
use std::ptr::NonNull;

use libc::c_void;
use pagealloc::{MemoryProvider, NoMemory, Region, RegionKeeper};
use units::PAGEBLOCK_SIZE;

use crate::memory::page_bytes;
use crate::swap::locks_what_it_maps;

/// Give up a range also if it is locked (Linux 5.18, madvise(2)).
const MADV_DONTNEED_LOCKED: libc::c_int = 24;
/// Collapse a range into huge pages now (Linux 6.1, madvise(2)).
const MADV_COLLAPSE: libc::c_int = 25;
/// Fault a range in as if it were written to (Linux 5.14, madvise(2)).
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// Allocates ranges of private anonymous memory.
#[derive(Clone, Copy, Default, Debug)]
pub struct Mmap;

impl Mmap {
    /// The system: memory by mmap.
    #[must_use]
    pub const fn new() -> Mmap {
        Mmap
    }
}

impl MemoryProvider for Mmap {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        let no_memory = NoMemory { bytes };
        let bytes = bytes.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE).ok_or(no_memory)?;
        let mapping = Mapping::new(bytes).ok_or(no_memory)?;
        // SAFETY: the mapping owns its range and has aligned it.
        Ok(unsafe { Region::new(mapping.base, bytes, Box::new(mapping)) })
    }
}

/// As [`Mmap`], for those who must not wait for memory: it is provided ahead of its use.
#[derive(Clone, Copy, Default, Debug)]
pub struct MmapAhead;

impl MemoryProvider for MmapAhead {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        Mmap.reserve(bytes)
    }

    fn is_ahead(&self) -> bool {
        true
    }
}

/// A range that is ours until dropped.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address range belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; the system calls on it may be made by several threads at once.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `bytes`, a multiple of 2 MiB, aligned to 2 MiB.
    fn new(bytes: usize) -> Option<Mapping> {
        let padded = bytes.checked_add(PAGEBLOCK_SIZE)?;
        // SAFETY: a new private mapping at an address of the system's choice disturbs nobody.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                padded,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        let start = address.cast::<u8>();
        let before = start.align_offset(PAGEBLOCK_SIZE);
        let after = PAGEBLOCK_SIZE - before;
        // SAFETY: both parts lie within the mapping just made and outside what is kept of it.
        let base = unsafe {
            let base = start.add(before);
            unmap(start, before);
            unmap(base.add(bytes), after);
            base
        };
        let mapping = Mapping { base: NonNull::new(base)?, bytes };
        if locks_what_it_maps() {
            // SAFETY: the range is ours; locking changes no contents. What is not locked by it is
            // locked by the process, which then takes memory for all that is committed.
            unsafe { libc::mlock2(mapping.at(0, bytes), bytes, libc::MLOCK_ONFAULT) };
        }
        // A kernel without huge pages refuses, and is right.
        mapping.advise(0, bytes, libc::MADV_NOHUGEPAGE);
        Some(mapping)
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut c_void {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "{bytes} bytes at {offset} leave a region of {}",
            self.bytes
        );
        self.base.as_ptr().wrapping_add(offset).cast()
    }

    /// In a process that keeps its memory locked (mlockall(2)), memory goes back only by a call of
    /// its own. Older kernels have none, so the range is unlocked meanwhile.
    fn release_locked(&self, offset: usize, bytes: usize) {
        if self.advise(offset, bytes, MADV_DONTNEED_LOCKED) {
            return;
        }
        // SAFETY: `at` has checked that the range is ours; locking changes no contents.
        let unlocked = unsafe { libc::munlock(self.at(offset, bytes), bytes) == 0 };
        if unlocked {
            self.advise(offset, bytes, libc::MADV_DONTNEED);
            // SAFETY: as above.
            unsafe { libc::mlock2(self.at(offset, bytes), bytes, libc::MLOCK_ONFAULT) };
        }
    }

    fn advise(&self, offset: usize, bytes: usize, advice: libc::c_int) -> bool {
        // SAFETY: `at` has checked that the range is ours. Of the advices used, only the two
        // DONTNEED change contents, and `release` promises just that.
        unsafe { libc::madvise(self.at(offset, bytes), bytes, advice) == 0 }
    }
}

// SAFETY: the mapping was made by us, is unmapped only in `drop`, and its address is given to one
// `Region` only.
unsafe impl RegionKeeper for Mapping {
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: `at` has checked that the range is ours; granting access takes nothing away.
        let result = unsafe { libc::mprotect(self.at(offset, bytes), bytes, access) };
        if result == 0 { Ok(()) } else { Err(NoMemory { bytes }) }
    }

    fn release(&self, offset: usize, bytes: usize) {
        if !self.advise(offset, bytes, libc::MADV_DONTNEED) {
            self.release_locked(offset, bytes);
        }
    }

    fn collapse(&self, offset: usize) {
        let welcome = self.advise(offset, PAGEBLOCK_SIZE, libc::MADV_HUGEPAGE);
        self.advise(offset, PAGEBLOCK_SIZE, MADV_COLLAPSE);
        if welcome {
            self.advise(offset, PAGEBLOCK_SIZE, libc::MADV_NOHUGEPAGE);
        }
    }

    fn populate(&self, offset: usize, bytes: usize) -> bool {
        let page = page_bytes() as usize;
        let (start, end) = (offset / page * page, (offset + bytes).next_multiple_of(page));
        loop {
            if self.advise(start, end - start, MADV_POPULATE_WRITE) {
                return true;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                // Before Linux 5.14.
                Some(libc::EINVAL) => break,
                _ => return false,
            }
        }
        for at in (start..end).step_by(page) {
            let byte = self.at(at, 1).cast::<u8>();
            // SAFETY: the byte lies in the committed range, and whoever uses it meanwhile does so
            // by atomics or not at all, as the caller promises; its value stays.
            unsafe { sync::touch(byte) };
        }
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and whoever drops the region has stopped using it.
        unsafe { unmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Unmaps `bytes` at `start`, if any.
///
/// # Safety
/// The range is mapped, is the caller's, and is used no more.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's promise. It cannot fail but for a lack of mapping descriptors,
        // in which case the addresses stay taken and nothing else happens.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}
