//! Memory from mmap.
//!
//! Addresses are reserved without access (`PROT_NONE`, `MAP_NORESERVE`) and committed piece by
//! piece. So reserved capacity costs nothing, and a process at its limit gets an error, not a
//! signal (mmap(2), mprotect(2), and the kernel document `mm/overcommit-accounting.rst`).
//!
//! With transparent huge pages set to `always`, the first touch of a byte would cost 2 MiB, also in
//! a sparse table, and khugepaged would refill freed pages. Regions therefore opt out.
//! [`RegionKeeper::collapse`] opts a block in while the kernel makes it a huge page; the block then
//! stays one (kernel document `admin-guide/mm/transhuge.rst`). A collapse may take milliseconds,
//! because the kernel must find and clear a huge page. So memory that is needed at once is
//! populated in small pages ([`RegionKeeper::populate`]).
//!
//! A frame has 4096 bytes; a page of the system may have more (16 KiB or 64 KiB on AArch64). The
//! kernel rounds the length of a range up to its pages (madvise(2)). So memory is released only in
//! whole pages of the system, and populated in all pages that a range touches.
//!
//! In a process that locks its memory ([`crate::lock_memory`]), a region's pages are locked when
//! they are touched or populated. Otherwise a reservation would take all its memory at once.
//!
//! # Why unsafe
//! Mapping memory is unsafe by nature: this module provides all address ranges.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use libc::c_void;
use pagealloc::{MemoryProvider, NoMemory, Region, RegionKeeper};
use units::PAGEBLOCK_SIZE;

use crate::memory::page_bytes;
use crate::swap::locks_what_it_maps;

/// Free the pages of a range, also locked ones (Linux 5.18, madvise(2)).
const MADV_DONTNEED_LOCKED: libc::c_int = 24;
/// Collapse a range into huge pages now (Linux 6.1, madvise(2)).
const MADV_COLLAPSE: libc::c_int = 25;
/// Populate a range as a write would (Linux 5.14, madvise(2)).
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// Allocates ranges of private anonymous memory.
#[derive(Clone, Copy, Default, Debug)]
pub struct Mmap;

impl Mmap {
    /// Makes the provider.
    #[must_use]
    pub const fn new() -> Mmap {
        Mmap
    }
}

impl MemoryProvider for Mmap {
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory> {
        let no_memory = NoMemory { bytes };
        let bytes = bytes.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE).ok_or(no_memory)?;
        let mapping = Mapping::new(bytes, page_bytes() as usize).ok_or(no_memory)?;
        // SAFETY: the mapping owns its range, and the range is aligned.
        Ok(unsafe { Region::new(mapping.base, bytes, Box::new(mapping)) })
    }
}

/// As [`Mmap`], but memory is provided ahead of its use, for threads that must not wait for memory.
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

/// Zeroed memory of a thread that serves requests, which begins at a page of the system. A drop
/// frees it. Who shares it sees to it that no two threads use the same part at once.
pub struct Pages(Mapping);

impl Pages {
    /// `bytes` of it. With `present`, all of it has its memory from the beginning; otherwise each
    /// page gets it at the first touch.
    ///
    /// # Errors
    /// `OutOfMemory` when there is none, also for 0 bytes.
    pub fn new(bytes: usize, present: bool) -> io::Result<Pages> {
        let whole = bytes.checked_next_multiple_of(PAGEBLOCK_SIZE).filter(|it| *it > 0);
        let mapping = whole.and_then(|whole| Mapping::new(whole, page_bytes() as usize));
        let mapping = mapping.ok_or(io::ErrorKind::OutOfMemory)?;
        mapping.commit(0, mapping.bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        match !present || mapping.populate(0, bytes) {
            true => Ok(Pages(mapping)),
            false => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// The first address.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.0.base
    }

    /// Gives back the memory of a part that nobody uses, as far as it is whole pages of the system.
    /// It is zeroed then.
    pub fn release(&self, offset: usize, bytes: usize) {
        self.0.release(offset, bytes);
    }
}

/// An owned range of addresses; dropping it unmaps the range.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Bytes of a page of the system.
    page: usize,
}

// SAFETY: an address range belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; the system calls on it may be made by several threads at once.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `bytes`, a multiple of 2 MiB, aligned to 2 MiB, on a system whose pages have `page`
    /// bytes.
    pub(crate) fn new(bytes: usize, page: usize) -> Option<Mapping> {
        let mapping = Mapping::addresses(bytes, page)?;
        mapping.prepare();
        Some(mapping)
    }

    /// As [`Mapping::new`]; the memory is that of `file`, from its beginning. Other mappings of the
    /// file show the same contents. A child process gets no copy of the mapping.
    pub(crate) fn of_file(file: &File, bytes: usize, page: usize) -> Option<Mapping> {
        Mapping::over(file, libc::MAP_SHARED, bytes, page)
    }

    /// As [`Mapping::of_file`], but what is written stays in the mapping. The contents of a page
    /// are those of the file until then.
    pub(crate) fn copy_of_file(file: &File, bytes: usize, page: usize) -> Option<Mapping> {
        Mapping::over(file, libc::MAP_PRIVATE, bytes, page)
    }

    fn over(file: &File, kind: libc::c_int, bytes: usize, page: usize) -> Option<Mapping> {
        let mapping = Mapping::addresses(bytes, page)?;
        let flags = kind | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the new mapping replaces a range that is ours and that nobody has used yet.
        let address = unsafe {
            let at = mapping.base.as_ptr().cast();
            libc::mmap(at, bytes, libc::PROT_NONE, flags, file.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        mapping.prepare();
        mapping.advise(0, bytes, libc::MADV_DONTFORK);
        Some(mapping)
    }

    /// Reserves addresses of private anonymous memory.
    fn addresses(bytes: usize, page: usize) -> Option<Mapping> {
        let padded = bytes.checked_add(PAGEBLOCK_SIZE)?;
        // SAFETY: a new private mapping at an address that the system chooses overlaps no other.
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
        // SAFETY: both parts lie within the new mapping and outside the part that is kept.
        let base = unsafe {
            let base = start.add(before);
            unmap(start, before);
            unmap(base.add(bytes), after);
            base
        };
        Some(Mapping { base: NonNull::new(base)?, bytes, page })
    }

    /// Sets how the kernel treats the range.
    fn prepare(&self) {
        let bytes = self.bytes;
        if locks_what_it_maps() {
            // SAFETY: the range is ours; locking changes no contents. On an error the lock of the
            // process applies, and every committed page takes memory.
            unsafe { libc::mlock2(self.at(0, bytes), bytes, libc::MLOCK_ONFAULT) };
        }
        // A kernel without huge pages refuses this; that is fine.
        self.advise(0, bytes, libc::MADV_NOHUGEPAGE);
        // The memory of others is no part of a core dump.
        self.advise(0, bytes, libc::MADV_DONTDUMP);
    }

    /// The first address.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn at(&self, offset: usize, bytes: usize) -> *mut c_void {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "{bytes} bytes at {offset} leave a region of {}",
            self.bytes
        );
        self.base.as_ptr().wrapping_add(offset).cast()
    }

    /// Frees the pages of a locked range (mlockall(2)), which needs its own advice. An older kernel
    /// does not have this advice, so the range is unlocked meanwhile. The range is whole pages of
    /// the system.
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
        // SAFETY: `at` has checked that the range is ours. Of the advice values used, only the two
        // DONTNEED change contents, and `release` documents that.
        unsafe { libc::madvise(self.at(offset, bytes), bytes, advice) == 0 }
    }
}

// SAFETY: this module made the mapping, only `drop` unmaps it, and only one `Region` gets its
// address.
unsafe impl RegionKeeper for Mapping {
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: `at` has checked that the range is ours; granting access changes no contents.
        let result = unsafe { libc::mprotect(self.at(offset, bytes), bytes, access) };
        if result == 0 { Ok(()) } else { Err(NoMemory { bytes }) }
    }

    fn release(&self, offset: usize, bytes: usize) {
        let whole = whole_pages(offset, bytes, self.page);
        if whole.is_empty() {
            return;
        }
        let (offset, bytes) = (whole.start, whole.len());
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
        let page = self.page;
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
            // SAFETY: the byte lies in the committed range. The caller promises that other threads
            // use it only by atomics, or not at all. Its value stays.
            unsafe { sync::touch(byte) };
        }
        true
    }
}

/// The pages of `page` bytes that lie whole in a range of bytes; empty if there is none. The kernel
/// would zap all pages that the range touches, and the frames beside the range in them may be in
/// use.
pub(crate) fn whole_pages(offset: usize, bytes: usize, page: usize) -> Range<usize> {
    offset.next_multiple_of(page)..(offset + bytes) / page * page
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and the owner that drops the region no longer uses it.
        unsafe { unmap(self.base.as_ptr(), self.bytes) };
    }
}

/// Unmaps `bytes` at `start`, if any.
///
/// # Safety
/// The range is mapped, belongs to the caller, and is not used any more.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's promise. It fails only if the kernel has no mapping descriptor left;
        // the addresses then stay mapped.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}
