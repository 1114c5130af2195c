//! An io_uring with memory of its own.
//!
//! # Why unsafe
//! The kernel reads and writes the memory of an operation, and no borrow shows when. These rules of
//! the module make it sound:
//!
//! - the kernel gets only memory of the ring, never a caller's;
//! - the pages of an operation under way are marked in `taken`, and [`Queue::memory`] and
//!   [`Queue::start`] refuse them, so no code in this process accesses them meanwhile;
//! - only the completion of the operation clears its marks;
//! - the memory is freed only when no mark is left: dropping a ring, also by a panic, waits for all
//!   operations under way; if this wait fails, the memory is never freed.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use units::PAGE_SIZE;

use crate::batch::{DEPTH, Done, Part, Queue, Way, pages};

const BYTES: usize = DEPTH * PAGE_SIZE;
/// The ring is given up after this many attempts, a millisecond apart, for which the kernel had no
/// memory.
const PATIENCE: u32 = 1000;

/// Page-aligned memory, zeroed at first. It is not freed unless [`Memory::free`] is called.
struct Memory(NonNull<u8>);

// SAFETY: memory belongs to the process, not to a thread.
unsafe impl Send for Memory {}

impl Memory {
    const LAYOUT: Layout = match Layout::from_size_align(BYTES, PAGE_SIZE) {
        Ok(layout) => layout,
        Err(_) => panic!("a page is a power of two"),
    };

    fn new() -> io::Result<Memory> {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(Memory::LAYOUT) };
        NonNull::new(memory).map(Memory).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// The address of byte `skip` of page `first`, with `length` bytes of memory behind it.
    fn at(&self, first: usize, skip: usize, length: usize) -> *mut u8 {
        let start = first * PAGE_SIZE + skip;
        assert!(start <= BYTES && length <= BYTES - start, "{length} bytes at {start} are outside");
        // SAFETY: it was just checked to lie within the allocation.
        unsafe { self.0.as_ptr().add(start) }
    }

    /// # Safety
    /// The memory is not in use any more, also not by the kernel, and was not freed before.
    unsafe fn free(&mut self) {
        // SAFETY: it was allocated with this layout; the caller promises the rest.
        unsafe { dealloc(self.0.as_ptr(), Memory::LAYOUT) };
    }
}

/// A ring for one file. One thread at a time may use it.
pub(crate) struct Ring {
    uring: IoUring,
    memory: Memory,
    /// The memory is registered with the kernel as buffer 0.
    registered: bool,
    file: Arc<File>,
    /// The pages of each part under way, at the index of its first page.
    parts: [u64; DEPTH],
    /// The pages of all parts under way.
    taken: u64,
    under_way: usize,
}

impl Ring {
    /// A ring for `file`.
    ///
    /// # Errors
    /// The error of the system when there is no io_uring (Linux 5.6 or later), or this process may
    /// not use it.
    pub(crate) fn new(file: Arc<File>) -> io::Result<Ring> {
        let entries = DEPTH as u32;
        let mut builder = IoUring::builder();
        builder.dontfork();
        // The kernel runs completions when the thread enters it anyway (Linux 5.19).
        let uring = match builder.setup_coop_taskrun().build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries)?,
            built => built?,
        };
        // This feature came with plain reads and writes (Linux 5.6).
        if !uring.params().is_feature_rw_cur_pos() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let memory = Memory::new()?;
        let buffer = libc::iovec { iov_base: memory.0.as_ptr().cast(), iov_len: BYTES };
        // SAFETY: the memory lives as long as the ring: see `drop`.
        let registered = unsafe { uring.submitter().register_buffers(&[buffer]) };
        // The limit of locked memory may be too low; the ring works without it, only slower.
        let registered = registered.is_ok();
        let parts = [0; DEPTH];
        Ok(Ring { uring, memory, registered, file, parts, taken: 0, under_way: 0 })
    }

    /// Waits for every part under way. False if the wait fails.
    fn reap(&mut self) -> bool {
        while self.under_way > 0 {
            if self.submit(self.under_way).is_err() {
                return false;
            }
            while self.finished().is_some() {}
        }
        true
    }

    fn entry(&self, part: Part) -> io_uring::squeue::Entry {
        let at = self.memory.at(part.first, part.skip, part.length);
        let (file, length) = (types::Fd(self.file.as_raw_fd()), part.length as u32);
        let entry = match (part.way, self.registered) {
            (Way::Read, true) => {
                opcode::ReadFixed::new(file, at, length, 0).offset(part.offset).build()
            }
            (Way::Write, true) => {
                opcode::WriteFixed::new(file, at, length, 0).offset(part.offset).build()
            }
            (Way::Read, false) => opcode::Read::new(file, at, length).offset(part.offset).build(),
            (Way::Write, false) => opcode::Write::new(file, at, length).offset(part.offset).build(),
        };
        entry.user_data(part.first as u64)
    }
}

impl Queue for Ring {
    fn memory(&mut self, first: usize, length: usize) -> &mut [u8] {
        let at = self.memory.at(first, 0, length);
        assert!(self.taken & pages(first, length) == 0, "a part is under way in page {first}");
        // SAFETY: the range lies in our memory, which was initialised, and no operation of the
        // kernel is under way in it. The slice borrows the ring exclusively, so no operation can
        // begin and no other slice can exist while it lives.
        unsafe { std::slice::from_raw_parts_mut(at, length) }
    }

    fn start(&mut self, part: Part) {
        let entry = self.entry(part);
        let pages = pages(part.first, part.skip + part.length);
        assert!(self.taken & pages == 0, "a part is under way in page {}", part.first);
        // SAFETY: `entry` names memory of the ring that no other operation has, and that lives
        // until its completion is seen. The file is open as long as the ring.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        // The ring has as many entries as pages.
        assert!(pushed.is_ok(), "more parts than the ring has entries");
        self.parts[part.first] = pages;
        self.taken |= pages;
        self.under_way += 1;
    }

    fn submit(&mut self, least: usize) -> io::Result<()> {
        for _ in 0..PATIENCE {
            let error = match self.uring.submit_and_wait(least) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            match error.raw_os_error() {
                // The caller takes the completions so far and calls again.
                Some(libc::EINTR) => return Ok(()),
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    if !self.uring.completion().is_empty() {
                        return Ok(());
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                _ => return Err(error),
            }
        }
        Err(io::ErrorKind::OutOfMemory.into())
    }

    fn finished(&mut self) -> Option<Done> {
        let entry = self.uring.completion().next()?;
        let first = entry.user_data() as usize;
        let pages = std::mem::take(&mut self.parts[first]);
        assert!(pages != 0, "page {first} finished twice");
        self.taken &= !pages;
        self.under_way -= 1;
        Some(Done { first, result: entry.result() })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Closing a ring does not wait for operations under way (io_uring_setup(2)).
        if self.reap() {
            let _ = self.uring.submitter().unregister_buffers();
            // SAFETY: nothing is under way, and no slice outlives the borrow it was made from.
            unsafe { self.memory.free() };
        } else {
            tracing::error!("a ring could not be emptied; its memory is left to the kernel");
        }
    }
}
