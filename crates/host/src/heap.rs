//! The heap of a program that locks its memory.
//!
//! The system's allocator serves small pieces. Each large piece is a separate mapping, whose pages
//! are populated at the first touch, also in a process that locks its memory
//! ([`crate::lock_memory`]). A library may allocate sixteen megabytes for each of its threads and
//! use only a part of each. No large piece is part of a core dump.
//!
//! In a process that locks its memory, the first pages of a large piece are populated at once. A
//! library reads requests of FUSE to such pieces, and where the kernel finds no page for a request
//! while the process is being killed, that request fails.
//!
//! # Why unsafe
//! An allocator is unsafe by nature. mallopt(3) takes numbers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use crate::memory::page_bytes;
use crate::swap::locks_what_it_maps;

/// A piece of at least this many bytes is a separate mapping.
const LARGE: usize = 4 << 20;

/// This many bytes of a large piece have their pages from the beginning: the largest request of
/// FUSE (1 MiB of data, fs.fuse.max_pages_limit), what stands before its data, and a page of any
/// size.
const HEAD: usize = (1 << 20) + (128 << 10);
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// From this size on, in bytes, glibc maps each piece separately by default (`M_MMAP_THRESHOLD`,
/// mallopt(3)).
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 128 << 10;
/// What an arena takes beyond what is wanted, in bytes (`M_TOP_PAD`, 128 KiB by default). A daemon
/// that locks its memory keeps it, for each of its threads.
#[cfg(target_env = "gnu")]
const AHEAD: libc::c_int = 16 << 10;

/// Makes freed pieces of 128 KiB and more go back to the system, for the whole life of the process.
/// glibc does so only at first: with each such piece that is freed it raises the limit, up to 32
/// MiB, and keeps the memory of smaller pieces in the arenas of threads (mallopt(3)). These take
/// little ahead.
pub fn return_freed_memory() {
    // SAFETY: the calls take numbers. On an error glibc goes on as usual.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
        libc::mallopt(libc::M_TOP_PAD, AHEAD);
    }
}

/// Has glibc look at nothing later. It counts the CPUs in /sys when the threads have more than
/// eight arenas, and reads /proc/sys/vm/overcommit_memory when the heap of a thread shrinks for the
/// first time; it keeps both answers for the process. Call it on a thread that may open files and
/// is not the first one, before threads that may not.
pub(crate) fn settle() {
    #[cfg(target_env = "gnu")]
    if ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"].iter().all(|name| std::env::var_os(name).is_none()) {
        // As many as glibc would allow, so that a thread which begins when memory is locked has one
        // of its own. What an older arena grows by has no pages before it is touched
        // (`MCL_ONFAULT`), by a thread that serves perhaps.
        let most = 8 * crate::online_cpus();
        // SAFETY: the call takes numbers. On an error glibc goes on as usual.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, i32::try_from(most).unwrap_or(i32::MAX)) };
    }
    // What makes the heap shrink, and little more: when all is made resident the arena keeps it.
    let pieces: Vec<Vec<u8>> = (0..4).map(|_| Vec::with_capacity(64 << 10)).collect();
    drop(std::hint::black_box(pieces));
}

/// The heap, for use as the `#[global_allocator]` of a program.
#[derive(Clone, Copy, Default, Debug)]
pub struct Heap;

// SAFETY: small pieces come from the system's allocator, large ones are mappings. The layout alone
// decides which, and the layout is the same in all calls for a piece.
unsafe impl GlobalAlloc for Heap {
    /// # Safety
    /// The conditions of [`GlobalAlloc`].
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promised.
            false => unsafe { System.alloc(layout) },
        }
    }

    /// # Safety
    /// The conditions of [`GlobalAlloc`].
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promised.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    /// # Safety
    /// The conditions of [`GlobalAlloc`].
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match is_large(layout) {
            // SAFETY: `map` mapped it with this size, and its owner frees it.
            true => unsafe {
                libc::munmap(piece.cast(), rounded(layout.size()));
            },
            // SAFETY: as the caller promised.
            false => unsafe { System.dealloc(piece, layout) },
        }
    }

    /// # Safety
    /// The conditions of [`GlobalAlloc`].
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` makes a layout with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(new) {
            // SAFETY: as the caller promised; both pieces are the system allocator's.
            return unsafe { System.realloc(piece, layout, size) };
        }
        // SAFETY: the new piece is no part of the old one, and both are long enough.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(piece, moved, layout.size().min(size));
                self.dealloc(piece, layout);
            }
            moved
        }
    }
}

/// Is a piece a separate mapping? The system's allocator serves alignments above a page.
fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= 4096
}

fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(page_bytes() as usize)
}

/// Maps zeroed memory, whose pages are populated at the first touch; null if there is none.
fn map(bytes: usize) -> *mut u8 {
    let bytes = rounded(bytes);
    let (none, all) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
    let locks = locks_what_it_maps();
    let access = if locks { none } else { all };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new private mapping overlaps no other; keeping it out of core dumps, locking it on
    // fault and granting access change only this mapping.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        libc::madvise(at, bytes, libc::MADV_DONTDUMP);
        if locks {
            libc::mlock2(at, bytes, libc::MLOCK_ONFAULT);
            if libc::mprotect(at, bytes, all) != 0 {
                libc::munmap(at, bytes);
                return ptr::null_mut();
            }
            // Before Linux 5.14 these pages come with the first touch as well.
            libc::madvise(at, HEAD.min(bytes), MADV_POPULATE_WRITE);
        }
        at.cast()
    }
}
