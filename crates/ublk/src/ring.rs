//! The ring of one queue, with the memory of its requests.
//!
//! # Why unsafe
//! The driver copies data into and out of the buffers of a queue, and describes requests in memory
//! that it shares, on its own time, which no borrow can say. What makes it sound is kept in this
//! module:
//!
//! - a buffer belongs to its [`Tag`], of which there is one: who has the tag has the buffer;
//! - a tag is given to the driver with the command that names its buffer, and is had again only
//!   when that command has ended;
//! - the memory goes when the last tag does, and a tag that the driver has when the ring is
//!   dropped is never dropped.

use std::alloc::{Layout, alloc, dealloc};
use std::fs::File;
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::wire::{self, Descriptor, IoCommand};

/// What the wake-up's completion is known by; all others by their tag.
const WAKE: u64 = u64::MAX;
/// How long nothing is asked of the system after it had no memory.
const PAUSE: Duration = Duration::from_millis(1);

/// The buffers of a queue.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    largest: usize,
}

// SAFETY: memory belongs to the process, not to a thread.
unsafe impl Send for Memory {}
// SAFETY: nothing is done through a shared reference but to compute addresses.
unsafe impl Sync for Memory {}

impl Memory {
    /// `depth` buffers of `largest` bytes, a multiple of `page`, all of them written to.
    fn new(depth: u16, largest: usize, page: usize) -> io::Result<Memory> {
        let bytes = largest.checked_mul(usize::from(depth)).filter(|bytes| *bytes > 0);
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, page).ok());
        let layout = layout.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        // Zeroes may be allocated without memory behind them; these bytes may not.
        // SAFETY: the range was just allocated, and nobody else knows of it.
        unsafe { ptr::write_bytes(start.as_ptr(), 0xa5, layout.size()) };
        Ok(Memory { start, layout, largest })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout. No tag is left, so nobody uses it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
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
        unsafe { self.memory.start.add(offset) }
    }

    /// Its buffer, all of it.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: the range is this tag's alone, was written to when it was made, and stays while
        // the tag does. There is one tag of each number, the driver does not have it, and the
        // slice borrows it exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address().as_ptr(), self.memory.largest) }
    }
}

/// The descriptions of a queue's requests, which the driver writes.
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
        let offset = (usize::from(queue) * apart) as libc::off_t;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let fd = device.as_raw_fd();
        // SAFETY: a new mapping, of which the system chooses the place.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Descriptors { start, bytes, depth })
    }

    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "request {tag} is none of the queue");
        // SAFETY: it lies within the mapping, which is aligned to pages. The driver wrote it before
        // the command ended that told of it, and leaves it until it is answered; should it write
        // all the same, any bytes are a description.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Who has a tag.
enum Holder {
    /// Nobody yet.
    Here(Tag),
    /// The driver, by the command that answers the request before with this result.
    Driver(ManuallyDrop<Tag>, i32),
    /// Who carries the request out.
    Server,
    /// The driver gave it back for ever.
    Gone,
}

/// What has come.
pub(crate) enum Event {
    /// A request.
    Request(Tag, Descriptor),
    /// Somebody wrote to the wake-up.
    Wake,
}

/// What a queue is made of.
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
    descriptors: Descriptors,
    holders: Box<[Holder]>,
    /// How many requests there may still be.
    left: usize,
    queue: u16,
    wake: Arc<File>,
    device: Arc<File>,
    /// The device is the ring's file 0.
    registered: bool,
}

impl Ring {
    /// The ring of a queue of `device`, with all its memory. What is written to `wake` wakes its
    /// thread.
    pub(crate) fn new(device: Arc<File>, shape: &Shape, wake: Arc<File>) -> io::Result<Ring> {
        let Shape { queue, depth, largest, page } = *shape;
        let uring = build(u32::from(depth) + 1)?;
        let registered = uring.submitter().register_files(&[device.as_raw_fd()]).is_ok();
        let memory = Arc::new(Memory::new(depth, largest, page)?);
        let tag = |number| Holder::Here(Tag { memory: memory.clone(), number });
        let holders = (0..depth).map(tag).collect();
        let descriptors = Descriptors::map(&device, queue, depth, page)?;
        let left = usize::from(depth);
        Ok(Ring { uring, descriptors, holders, left, queue, wake, device, registered })
    }

    /// Gives all tags to the driver, and tells how that went. To be called once, first.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        for number in 0..self.holders.len() {
            if let Holder::Here(tag) = mem::replace(&mut self.holders[number], Holder::Gone) {
                self.give(tag, wire::FETCH, 0);
            }
        }
        self.rearm();
        self.uring.submit()?;
        // No request comes before the device is started: what has ended has failed.
        match self.uring.completion().next() {
            Some(entry) if entry.result() < 0 => Err(io::Error::from_raw_os_error(-entry.result())),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Ok(()),
        }
    }

    /// Answers the request of `tag`: `result` is what was moved in bytes, or a negative error
    /// number. The driver is told at the next [`Ring::wait`].
    pub(crate) fn commit(&mut self, tag: Tag, result: i32) {
        self.give(tag, wire::COMMIT_AND_FETCH, result);
    }

    fn give(&mut self, tag: Tag, what: u32, result: i32) {
        let number = tag.number;
        let address = tag.address().as_ptr() as u64;
        let command = IoCommand { queue: self.queue, tag: number, result, address };
        let entry = if self.registered {
            opcode::UringCmd16::new(types::Fixed(0), what).cmd(command.bytes()).build()
        } else {
            let device = types::Fd(self.device.as_raw_fd());
            opcode::UringCmd16::new(device, what).cmd(command.bytes()).build()
        };
        self.holders[usize::from(number)] = Holder::Driver(ManuallyDrop::new(tag), result);
        // The entry names memory of the tag, which nobody has until the command ends.
        self.push(&entry.user_data(u64::from(number)));
    }

    /// Waits for the next write to the wake-up, once.
    pub(crate) fn rearm(&mut self) {
        let wake = types::Fd(self.wake.as_raw_fd());
        let entry = opcode::PollAdd::new(wake, libc::POLLIN as u32).build().user_data(WAKE);
        self.push(&entry);
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        loop {
            // SAFETY: entries come from `give`, whose memory stays until the command was seen to
            // end, and from `rearm`, which names none. The files are open while the ring is.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return;
            }
            // Each tag has one command at most, so there is always room.
            let _ = self.uring.submit();
        }
    }

    /// Tells the driver what was answered, and waits until something has come.
    pub(crate) fn wait(&mut self) {
        if let Err(error) = self.uring.submit_and_wait(1)
            && error.raw_os_error() != Some(libc::EINTR)
            && self.uring.completion().is_empty()
        {
            sleep(PAUSE);
        }
    }

    /// What has come next; nothing if that was all for now.
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
                0 => return Some(Event::Request(tag, self.descriptors.get(number))),
                error if is_passing(-error) => {
                    // The ring had no memory for the command, and the driver never saw it.
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

    /// May there be another request? Not after the device was stopped.
    pub(crate) fn is_live(&self) -> bool {
        self.left > 0
    }
}

fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::ENOMEM | libc::EAGAIN | libc::EINTR)
}

/// A ring that runs what comes to it only while its thread waits in it (Linux 6.1); without that,
/// one that at least does not interrupt its thread (Linux 5.19).
fn build(entries: u32) -> io::Result<IoUring> {
    let built =
        IoUring::builder().dontfork().setup_single_issuer().setup_defer_taskrun().build(entries);
    match built {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        built => return built,
    }
    match IoUring::builder().dontfork().setup_coop_taskrun().build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().dontfork().build(entries)
        }
        built => built,
    }
}
