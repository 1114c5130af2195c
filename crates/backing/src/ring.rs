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
//! - the memory is freed only when no operation can reach it: dropping a ring, also by a panic,
//!   waits for all operations that the kernel has; if they do not end, the memory is never freed.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use host::errno;
use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types};
use sync::atomic::{AtomicBool, Ordering};
use units::PAGE_SIZE;

use crate::batch::{DEPTH, Done, Part, Queue, Way, pages};

const BYTES: usize = DEPTH * PAGE_SIZE;
/// The ring is given up after this many attempts, a millisecond apart, for which the kernel had no
/// memory.
const PATIENCE: u32 = 1000;
/// A ring whose system call fails is given up when nothing has finished for so long.
const LAST: Duration = Duration::from_secs(30);

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
    /// Set when the ring is dropped while the kernel still has some of its operations.
    lost: Arc<AtomicBool>,
    /// [`LAST`], except in tests.
    pub(crate) last: Duration,
}

impl Ring {
    /// A ring for `file`. It sets `lost` if it is dropped and its operations do not end: they may
    /// then be carried out at any time.
    ///
    /// # Errors
    /// The error of the system when there is no io_uring (Linux 5.6 or later), or this process may
    /// not use it.
    pub(crate) fn new(file: Arc<File>, lost: Arc<AtomicBool>) -> io::Result<Ring> {
        let (uring, disabled) = build()?;
        // This feature came with plain reads and writes (Linux 5.6).
        if !uring.params().is_feature_rw_cur_pos() {
            return Err(io::Error::from_raw_os_error(errno::ENOSYS));
        }
        let mut memory = Memory::new()?;
        let buffer = host::iovec { iov_base: memory.0.as_ptr().cast(), iov_len: BYTES };
        // SAFETY: the memory lives as long as the ring: see `drop`.
        let registered = unsafe { uring.submitter().register_buffers(&[buffer]) };
        // The limit of locked memory may be too low; the ring works without it, only slower.
        let registered = registered.is_ok();
        let enabled = if disabled { restrict(&uring) } else { Ok(()) };
        if let Err(error) = enabled {
            // SAFETY: no operation was given to the ring, and nobody else knows the memory.
            unsafe { memory.free() };
            return Err(error);
        }
        let parts = [0; DEPTH];
        let (taken, under_way, last) = (0, 0, LAST);
        Ok(Ring { uring, memory, registered, file, parts, taken, under_way, lost, last })
    }

    /// Waits for every part under way. False if some do not end.
    fn reap(&mut self) -> bool {
        while self.under_way > 0 {
            if self.submit(self.under_way).is_err() {
                return self.reap_without_calls();
            }
            while self.finished().is_some() {}
        }
        true
    }

    /// Waits for the parts that the kernel has, where the ring's system call fails. Completions are
    /// in memory that the kernel shares, and come there without that call. The parts that are still
    /// in the submission queue never begin.
    fn reap_without_calls(&mut self) -> bool {
        let mut since = Instant::now();
        loop {
            while self.finished().is_some() {
                since = Instant::now();
            }
            if self.under_way <= self.uring.submission().len() {
                return true;
            }
            if since.elapsed() >= self.last {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets the ring's system call fail from now on.
    #[cfg(test)]
    pub(crate) fn cut_off(&self) {
        let null = File::open("/dev/null").expect("/dev/null");
        // SAFETY: both descriptors are open. The ring's own becomes another file; its memory stays
        // mapped, and the kernel keeps the ring as long as that.
        assert!(unsafe { libc::dup2(null.as_raw_fd(), self.uring.as_raw_fd()) } >= 0);
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

/// Makes a ring that is disabled until [`restrict`] (Linux 5.10); on an older kernel one that is
/// not. The kernel runs its completions when the thread enters it anyway (Linux 5.19).
fn build() -> io::Result<(IoUring, bool)> {
    let entries = DEPTH as u32;
    let is_too_old = |error: &io::Error| error.raw_os_error() == Some(errno::EINVAL);
    let builder = || {
        let mut builder = IoUring::builder();
        builder.dontfork();
        builder
    };
    match builder().setup_coop_taskrun().setup_r_disabled().build(entries) {
        Err(error) if is_too_old(&error) => {}
        built => return built.map(|uring| (uring, true)),
    }
    match builder().setup_r_disabled().build(entries) {
        Err(error) if is_too_old(&error) => builder().build(entries).map(|uring| (uring, false)),
        built => built.map(|uring| (uring, true)),
    }
}

/// Allows the ring reads and writes alone, for good, and enables it. No filter of system calls sees
/// what a ring is asked for: without this, a thread that must not open files could have a ring open
/// them.
fn restrict(uring: &IoUring) -> io::Result<()> {
    let submitter = uring.submitter();
    let codes = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
    ];
    submitter.register_restrictions(&mut codes.map(Restriction::sqe_op))?;
    submitter.register_enable_rings()
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
                Some(errno::EINTR) => return Ok(()),
                Some(errno::EAGAIN | errno::EBUSY | errno::ENOMEM) => {
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
            // The kernel keeps the pages of a registered buffer until the ring is closed. The
            // thread may be one that must not change a ring ([`restrict`]).
            // SAFETY: nothing is under way, and no slice outlives the borrow it was made from.
            unsafe { self.memory.free() };
        } else {
            // Pairs with the load in `Pool::is_lost`: who sees a block of a failed write given
            // back sees this, too.
            self.lost.store(true, Ordering::Release);
            tracing::error!(
                "writes to a backing device did not end; nothing is written to it any more"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks the ring for an open of a file, and returns the result.
    fn open_by(uring: &mut IoUring) -> i32 {
        let path = c"/dev/null";
        let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr());
        let entry = open.flags(libc::O_CLOEXEC).build();
        // SAFETY: the path lives for ever.
        unsafe { uring.submission().push(&entry) }.unwrap();
        uring.submit_and_wait(1).unwrap();
        uring.completion().next().unwrap().result()
    }

    #[test]
    fn a_ring_reads_and_writes_and_opens_nothing() {
        let file = Arc::new(File::open("/dev/null").unwrap());
        // Linux before 5.10, or no io_uring at all.
        let Ok((_, true)) = build() else { return };
        let mut ring = Ring::new(file.clone(), Arc::default()).unwrap();
        assert_eq!(open_by(&mut ring.uring), -errno::EACCES);
        // Without a restriction the same request succeeds: the test can fail.
        let mut free = IoUring::new(4).unwrap();
        assert!(open_by(&mut free) >= 0);
    }
}
