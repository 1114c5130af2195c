//! The heap of a program that locks its memory.
//!
//! Small pieces are the system's. Large ones have a mapping of their own, and its pages are in
//! memory once they are touched, also where all that is mapped is in memory from the start
//! ([`crate::lock_memory`]): a library may ask for a buffer of sixteen megabytes for each of its
//! threads and use a page of each.
//!
//! # Why unsafe
//! An allocator is unsafe by nature.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use crate::memory::page_bytes;
use crate::swap::locks_what_it_maps;

/// Pieces of at least so many bytes are mapped by themselves.
const LARGE: usize = 4 << 20;

/// The heap, to be the `#[global_allocator]` of a program.
#[derive(Clone, Copy, Default, Debug)]
pub struct Heap;

// SAFETY: small pieces are the system's, large ones are mappings, and which of the two a piece is
// follows from its layout alone, which is the same in all calls for it.
unsafe impl GlobalAlloc for Heap {
    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promised.
            false => unsafe { System.alloc(layout) },
        }
    }

    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promised.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match is_large(layout) {
            // SAFETY: it was mapped by `map` with this size, and its owner gives it up.
            true => unsafe {
                libc::munmap(piece.cast(), rounded(layout.size()));
            },
            // SAFETY: as the caller promised.
            false => unsafe { System.dealloc(piece, layout) },
        }
    }

    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` makes a layout with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(new) {
            // SAFETY: as the caller promised; both are the system's.
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

/// Larger alignments than a page's are the system's business.
fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= 4096
}

fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(page_bytes() as usize)
}

/// Zeroed memory whose pages come when they are touched; null if there is none.
fn map(bytes: usize) -> *mut u8 {
    let bytes = rounded(bytes);
    let (none, all) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
    let locks = locks_what_it_maps();
    let access = if locks { none } else { all };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new private mapping disturbs nobody; locking it page by page and then granting
    // access to it concerns it alone.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        if locks {
            libc::mlock2(at, bytes, libc::MLOCK_ONFAULT);
            if libc::mprotect(at, bytes, all) != 0 {
                libc::munmap(at, bytes);
                return ptr::null_mut();
            }
        }
        at.cast()
    }
}
