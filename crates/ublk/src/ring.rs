//! The ring of one queue, with the memory of its requests.
//!
//! # Why unsafe
//! The driver copies data into and out of the buffers of a queue, and writes descriptors of
//! requests to shared memory. No borrow shows when it does so. These rules of the module make it
//! sound:
//!
//! - each buffer has one [`Tag`]; the owner of the tag owns the buffer;
//! - the command that names a buffer gives the tag to the driver, and only the end of that command
//!   gives it back;
//! - the memory is freed with the last tag, and a tag that the driver still has when the ring is
//!   dropped is never dropped.

use std::fs::File;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use host::{Pages, errno};
use io_uring::register::Restriction;
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::wire::{self, Descriptor, IoCommand};

/// The user data of the wake-up's completion; all others have their tag's number.
const WAKE: u64 = u64::MAX;
/// A command may name its file by its number in the ring.
const FIXED_FILE: u8 = squeue::Flags::FIXED_FILE.bits();
/// The pause after the kernel had no memory.
const PAUSE: Duration = Duration::from_millis(1);

/// The buffers of a queue.
struct Memory {
    pages: Pages,
    largest: usize,
}

impl Memory {
    /// `depth` buffers of `largest` bytes, a multiple of the system's page, all present.
    fn new(depth: u16, largest: usize) -> io::Result<Memory> {
        let bytes = largest.checked_mul(usize::from(depth)).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Memory { pages: Pages::new(bytes, true)?, largest })
    }
}

/// The right to a request of a queue, and to its buffer.
pub(crate) struct Tag {
    memory: Arc<Memory>,
    number: u16,
}

impl Tag {
    fn address(&self) -> NonNull<u8> {
        let offset = usize::from(self.number) * self.memory.largest;
        // SAFETY: numbers are below the depth for which the memory was allocated.
        unsafe { self.memory.pages.start().add(offset) }
    }

    /// Its whole buffer.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: the range belongs to this tag only, was initialised when it was allocated, and
        // lives as long as the tag. Each number has one tag, the driver does not have this one, and
        // the slice borrows it exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address().as_ptr(), self.memory.largest) }
    }
}

/// The descriptors of a queue's requests, which the driver writes.
struct Descriptors {
    start: NonNull<Descriptor>,
    bytes: usize,
    depth: u16,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(device: &File, queue: u16, depth: u16, page: usize) -> io::Result<Descriptors> {
        let one = size_of::<Descriptor>();
        let bytes = (usize::from(depth) * one).next_multiple_of(page);
        let apart = (usize::from(wire::MOST_DEPTH) * one).next_multiple_of(page);
        let offset = (usize::from(queue) * apart) as u64;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the system chooses.
        let start =
            unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, flags, device, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Descriptors { start, bytes, depth })
    }

    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "request {tag} is none of the queue");
        // SAFETY: it lies within the mapping, which is aligned to pages. The driver wrote it before
        // the end of the command that reports it, and does not change it until the answer. If it
        // writes anyway, any bytes are a valid descriptor.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The owner of a tag.
enum Holder {
    /// The ring; the driver has not had it yet.
    Here(Tag),
    /// The driver; its command answers the request before with this result.
    Driver(ManuallyDrop<Tag>, i32),
    /// The thread that carries out the request.
    Server,
    /// The driver gave it back for good.
    Gone,
}

/// An event of a ring.
pub(crate) enum Event {
    /// A request.
    Request(Tag, Descriptor),
    /// A thread wrote to the wake-up.
    Wake,
}

/// The sizes of a queue.
pub(crate) struct Shape {
    pub(crate) queue: u16,
    pub(crate) depth: u16,
    /// Bytes of one request.
    pub(crate) largest: usize,
    /// Bytes in a page of the system.
    pub(crate) page: usize,
}

/// The ring of one queue. It belongs to the thread that made it.
pub(crate) struct Ring {
    uring: IoUring,
    /// There since [`Ring::begin`].
    descriptors: Option<Descriptors>,
    shape: Shape,
    holders: Box<[Holder]>,
    /// The number of tags that may still get requests.
    left: usize,
    wake: Arc<File>,
    /// The ring's file 0.
    device: Arc<File>,
}

impl Ring {
    /// The ring of a queue of `device`, with all its memory. A write to `wake` wakes its thread.
    pub(crate) fn new(device: Arc<File>, shape: Shape, wake: Arc<File>) -> io::Result<Ring> {
        let Shape { depth, largest, .. } = shape;
        // Linux 6.1 has all of it, and `Control::open` refuses a driver before 6.4.
        let uring = IoUring::builder()
            .dontfork()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(u32::from(depth) + 1)?;
        uring.submitter().register_files(&[device.as_raw_fd()])?;
        restrict(&uring)?;
        let memory = Arc::new(Memory::new(depth, largest)?);
        let tag = |number| Holder::Here(Tag { memory: memory.clone(), number });
        let holders = (0..depth).map(tag).collect();
        let left = usize::from(depth);
        Ok(Ring { uring, descriptors: None, shape, holders, left, wake, device })
    }

    /// Gives all tags to the driver; an error if it refuses. Called once, first.
    ///
    /// The tags go in one system call, which a kill does not cut short, and the descriptors are
    /// mapped after it. In Linux 6.12 a device whose descriptors a process has mapped can only
    /// be recovered from it once it has given a whole queue to the driver.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        for number in 0..self.holders.len() {
            if let Holder::Here(tag) = mem::replace(&mut self.holders[number], Holder::Gone) {
                self.give(tag, wire::FETCH, 0);
            }
        }
        self.rearm();
        self.uring.submit()?;
        // No request comes before the device is started, so a command that has ended has failed.
        match self.uring.completion().next() {
            Some(entry) if entry.result() < 0 => {
                return Err(io::Error::from_raw_os_error(-entry.result()));
            }
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => {}
        }
        let Shape { queue, depth, page, .. } = self.shape;
        self.descriptors = Some(Descriptors::map(&self.device, queue, depth, page)?);
        Ok(())
    }

    /// Answers the request of `tag`. `result` is the number of bytes transferred, or a negative
    /// error number. The driver gets it at the next [`Ring::wait`].
    pub(crate) fn commit(&mut self, tag: Tag, result: i32) {
        self.give(tag, wire::COMMIT_AND_FETCH, result);
    }

    fn give(&mut self, tag: Tag, what: u32, result: i32) {
        let number = tag.number;
        let address = tag.address().as_ptr() as u64;
        let command = IoCommand { queue: self.shape.queue, tag: number, result, address };
        let entry = opcode::UringCmd16::new(types::Fixed(0), what).cmd(command.bytes()).build();
        self.holders[usize::from(number)] = Holder::Driver(ManuallyDrop::new(tag), result);
        // The entry names memory of the tag, which has no other user until the command ends.
        self.push(&entry.user_data(u64::from(number)));
    }

    /// Waits for the next write to the wake-up, once.
    pub(crate) fn rearm(&mut self) {
        let wake = types::Fd(self.wake.as_raw_fd());
        let entry = opcode::PollAdd::new(wake, PollFlags::IN.bits().into()).build().user_data(WAKE);
        self.push(&entry);
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        loop {
            // SAFETY: entries come from `give`, whose memory lives until the end of the command is
            // seen, and from `rearm`, which names no memory. The files are open as long as the
            // ring.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return;
            }
            // Each tag has at most one command, so the ring has room for all.
            let _ = self.uring.submit();
        }
    }

    /// Sends the answers to the driver and waits for the next event.
    pub(crate) fn wait(&mut self) {
        if let Err(error) = self.submit_and_wait()
            && error.raw_os_error() != Some(errno::EINTR)
            && self.uring.completion().is_empty()
        {
            sleep(PAUSE);
        }
    }

    fn submit_and_wait(&self) -> io::Result<usize> {
        // The driver has entries of a thread without a request, too. It waits for no I/O: else an
        // idle machine would show no idle time, and full pressure (Linux 6.15 knows the flag).
        let flags = match self.uring.params().is_feature_no_iowait() {
            true => EnterFlags::NO_IOWAIT,
            false => EnterFlags::empty(),
        };
        let nothing_else = types::SubmitArgs::new();
        self.uring.submitter().submit_with_args_and_flags(1, &nothing_else, flags)
    }

    /// The next event; None if there is no more for now.
    pub(crate) fn next(&mut self) -> Option<Event> {
        loop {
            let entry = self.uring.completion().next()?;
            if entry.user_data() == WAKE {
                return Some(Event::Wake);
            }
            let number = entry.user_data() as u16;
            let holder = &mut self.holders[usize::from(number)];
            let Holder::Driver(tag, result) = mem::replace(holder, Holder::Server) else {
                panic!("request {number} came twice");
            };
            let tag = ManuallyDrop::into_inner(tag);
            match entry.result() {
                0 => {
                    let descriptor = self.descriptors.as_ref()?.get(number);
                    return Some(Event::Request(tag, descriptor));
                }
                error if is_passing(-error) => {
                    // The ring had no memory for the command, so the driver never saw it.
                    sleep(PAUSE);
                    self.give(tag, wire::COMMIT_AND_FETCH, result);
                }
                // ENODEV: the device was stopped. All others: the driver takes no more of this tag.
                _ => {
                    self.holders[usize::from(number)] = Holder::Gone;
                    self.left -= 1;
                }
            }
        }
    }

    /// May another request come? False after the device was stopped.
    pub(crate) fn is_live(&self) -> bool {
        self.left > 0
    }
}

fn is_passing(errno: i32) -> bool {
    matches!(errno, errno::ENOMEM | errno::EAGAIN | errno::EINTR)
}

/// Allows the ring the commands of the driver and the wait for the wake-up alone, for good, and
/// enables it. No filter of system calls sees what a ring is asked for.
fn restrict(uring: &IoUring) -> io::Result<()> {
    let submitter = uring.submitter();
    submitter.register_restrictions(&mut [
        Restriction::sqe_op(opcode::UringCmd16::CODE),
        Restriction::sqe_op(opcode::PollAdd::CODE),
        Restriction::sqe_flags_allowed(FIXED_FILE),
    ])?;
    submitter.register_enable_rings()
}
