//! Memory that ends where no memory is: who reads or writes a byte too far is killed for it.

use std::ptr::NonNull;

use super::pages::{PAGE_SIZE, Page};

/// Pages that can be used, between two that cannot be touched.
pub struct Fenced {
    base: NonNull<u8>,
}

const INSIDE: usize = 3 * PAGE_SIZE;
const WHOLE: usize = INSIDE + 2 * PAGE_SIZE;

impl Fenced {
    pub fn new() -> Fenced {
        // SAFETY: a new private mapping at an address of the system's choice disturbs nobody.
        let base = unsafe {
            let (none, both) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), WHOLE, none, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            assert_eq!(libc::mprotect(base.add(PAGE_SIZE), INSIDE, both), 0);
            base
        };
        Fenced { base: NonNull::new(base.cast()).expect("an address") }
    }

    fn inside(&mut self) -> &mut [u8] {
        // SAFETY: these pages can be read and written, and are borrowed with self.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(PAGE_SIZE), INSIDE) }
    }

    /// `bytes`, copied to right before the end.
    pub fn holding(&mut self, bytes: &[u8]) -> &[u8] {
        let start = INSIDE - bytes.len();
        let place = &mut self.inside()[start..];
        place.copy_from_slice(bytes);
        place
    }

    /// The last page before the end, or the first after the beginning.
    pub fn page(&mut self, last: bool) -> &mut Page {
        let start = if last { INSIDE - PAGE_SIZE } else { 0 };
        self.inside()[start..].first_chunk_mut().expect("a page")
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no reference outlives self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), WHOLE) };
    }
}
