//! A ring of io_uring by which the kernel hands the requests of a FUSE file system over (Linux
//! 6.14), with the memory of its entries.
//!
//! The kernel has a queue for each CPU that could exist, and each queue has entries. A request goes
//! to the queue of the CPU where it is made, and into a free entry there, and the answer comes
//! back in the entry. One system call sends all answers of a thread and waits for the next
//! requests.
//!
//! # Why unsafe
//! The kernel copies requests into the memory of an entry, and answers out of it. No borrow shows
//! when it does so. These rules of the module make it sound:
//!
//! - each entry has one [`Entry`]; its owner owns the memory;
//! - the command that names an entry gives it to the kernel, and only the end of that command gives
//!   it back;
//! - the memory is freed with the last entry, and an entry that the kernel still has when the ring
//!   is dropped is never dropped.
//!
//! An entry may go from ring to ring while a server has it: the ring that answers its request gets
//! the next one.

use std::collections::VecDeque;
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
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use units::PAGE_SIZE;

use crate::swapfile::wire::{self, ENTRY};

use self::plan::Part;

pub(crate) mod enabled;
pub(crate) mod plan;
pub(crate) mod serving;

/// The user data of the wake-up's completion; all others have their entry's number.
const WAKE: u64 = u64::MAX;
/// Gives an entry to the kernel for the first time.
const REGISTER: u32 = 1;
/// Gives it back with an answer.
const COMMIT_AND_FETCH: u32 = 2;
/// The pause after the kernel had no memory.
const PAUSE: Duration = Duration::from_millis(1);
/// A thread that has no request for so long gives the memory of its entries' data back.
const IDLE: Duration = Duration::from_millis(100);
/// Bytes from one header to the next, which is behind the list of the entry's two parts. No two
/// headers share a cache line.
const APART: usize = ENTRY + size_of::<[host::iovec; 2]>();

/// The memory of the entries of all rings: headers, then data, each entry's at a page.
struct Memory {
    pages: Pages,
    /// Bytes of the headers.
    headers: usize,
    /// Bytes of the data of one entry.
    largest: usize,
    /// Does it keep its pages?
    present: bool,
}

impl Memory {
    fn new(entries: usize, shape: Shape) -> io::Result<Memory> {
        let Shape { largest, page, present } = shape;
        let headers = (entries * APART).next_multiple_of(page);
        let bytes = largest.checked_mul(entries).and_then(|bytes| bytes.checked_add(headers));
        let bytes = bytes.filter(|bytes| *bytes > 0).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Memory { pages: Pages::new(bytes, present)?, headers, largest, present })
    }
}

/// A request of a ring, or the room for one.
pub(crate) struct Entry {
    memory: Arc<Memory>,
    number: u16,
    queue: u16,
    home: u16,
}

impl Entry {
    /// The number of the part that it was dealt to.
    pub(crate) fn home(&self) -> usize {
        self.home.into()
    }

    fn header_at(&self) -> NonNull<u8> {
        // SAFETY: numbers are below the count for which the memory was allocated.
        unsafe { self.memory.pages.start().add(usize::from(self.number) * APART) }
    }

    fn data_offset(&self) -> usize {
        self.memory.headers + usize::from(self.number) * self.memory.largest
    }

    fn data_at(&self) -> NonNull<u8> {
        // SAFETY: as above.
        unsafe { self.memory.pages.start().add(self.data_offset()) }
    }

    /// May its data have more than a page of memory, which it need not keep?
    fn is_grown(&mut self) -> bool {
        !self.memory.present && wire::entry_data(self.parts().0) > PAGE_SIZE
    }

    /// The header and the data.
    pub(crate) fn parts(&mut self) -> (&mut [u8; ENTRY], &mut [u8]) {
        // SAFETY: both ranges belong to this entry only, do not overlap, were initialised when they
        // were allocated, and live as long as the entry. Each number has one entry, the kernel does
        // not have this one, and the borrows are exclusive. An array of bytes may lie anywhere.
        unsafe {
            let header = self.header_at().cast::<[u8; ENTRY]>().as_mut();
            let largest = self.memory.largest;
            (header, std::slice::from_raw_parts_mut(self.data_at().as_ptr(), largest))
        }
    }
}

/// The entries of each part, with all their memory.
///
/// # Errors
/// There is no memory, or more entries than have numbers.
pub(crate) fn deal(parts: &[Part], shape: Shape) -> io::Result<Vec<Vec<Entry>>> {
    let count = parts.iter().map(|part| part.queues.len()).sum::<usize>();
    u16::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?;
    let memory = Arc::new(Memory::new(count, shape)?);
    let mut numbers = 0u16..;
    let entries = parts.iter().zip(0u16..).map(|(part, home)| {
        let dealt = part.queues.iter().zip(&mut numbers);
        let entry = |(&queue, number)| Entry { memory: memory.clone(), number, queue, home };
        dealt.map(entry).collect()
    });
    Ok(entries.collect())
}

/// The owner of an entry.
enum Holder {
    /// The ring; the kernel has not had it yet.
    Here(Entry),
    /// The kernel.
    Kernel(ManuallyDrop<Entry>),
    /// The thread that carries out its request.
    Server,
    /// Another ring, or nobody: the kernel gave it back for good.
    Elsewhere,
}

/// An event of a ring.
pub(crate) enum Event {
    /// A request.
    Request(Entry),
    /// The wake-up is readable.
    Wake,
}

/// The memory of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The most bytes of data in one request: a multiple of `page`.
    pub(crate) largest: usize,
    /// Bytes in a page of the system.
    pub(crate) page: usize,
    /// Does it have its pages before they are used?
    pub(crate) present: bool,
}

/// The ring of one thread. It belongs to the thread that calls [`Ring::begin`].
pub(crate) struct Ring {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Of each entry there is.
    holders: Vec<Holder>,
    /// Requests that came while others were given to the kernel.
    early: VecDeque<Entry>,
    /// The number of its entries that may still get requests.
    left: usize,
    /// May entries that the kernel has, have memory for data?
    is_grown: bool,
    wake: Arc<File>,
    /// The connection, which is the ring's file 0.
    channel: Option<Arc<File>>,
}

impl Ring {
    /// A ring with these entries of the `all` there are, and with its memory. A write to `wake`
    /// wakes its thread.
    pub(crate) fn new(own: Vec<Entry>, all: usize, wake: Arc<File>) -> io::Result<Ring> {
        let commands = u32::try_from(own.len() + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
        let uring = IoUring::builder()
            .dontfork()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(commands)?;
        let mut holders: Vec<Holder> = (0..all).map(|_| Holder::Elsewhere).collect();
        let (early, left) = (VecDeque::with_capacity(own.len()), own.len());
        for entry in own {
            let number = usize::from(entry.number);
            holders[number] = Holder::Here(entry);
        }
        Ok(Ring { uring, holders, early, left, is_grown: false, wake, channel: None })
    }

    /// Gives all entries to the kernel, for the connection of `channel`; an error if it refuses
    /// one. Called once, first. The ring may do nothing but serve it, for good: no filter of system
    /// calls sees what a ring is asked for.
    pub(crate) fn begin(&mut self, channel: Arc<File>) -> io::Result<()> {
        let submitter = self.uring.submitter();
        submitter.register_files(&[channel.as_raw_fd()])?;
        submitter.register_restrictions(&mut [
            Restriction::sqe_op(opcode::UringCmd80::CODE),
            Restriction::sqe_op(opcode::PollAdd::CODE),
            Restriction::sqe_flags_allowed(squeue::Flags::FIXED_FILE.bits()),
        ])?;
        submitter.register_enable_rings()?;
        self.channel = Some(channel);
        for number in 0..self.holders.len() {
            if let Holder::Here(entry) = mem::replace(&mut self.holders[number], Holder::Elsewhere)
            {
                self.register(entry);
            }
        }
        self.uring.submit()?;
        loop {
            let completed = self.uring.completion().next();
            let Some(completed) = completed else { break };
            if completed.result() < 0 {
                return Err(io::Error::from_raw_os_error(-completed.result()));
            }
            if let Some(Event::Request(entry)) = self.take(completed.user_data()) {
                self.early.push_back(entry);
            }
        }
        self.rearm();
        Ok(())
    }

    fn register(&mut self, entry: Entry) {
        let (header, data) = (entry.header_at().as_ptr(), entry.data_at().as_ptr());
        let parts = [
            host::iovec { iov_base: header.cast(), iov_len: ENTRY },
            host::iovec { iov_base: data.cast(), iov_len: entry.memory.largest },
        ];
        // SAFETY: the room behind the header is there for it, and belongs to this entry only.
        let list = unsafe {
            let list = header.add(ENTRY).cast::<[host::iovec; 2]>();
            list.write_unaligned(parts);
            list as u64
        };
        let number = entry.number;
        let command = command(&entry, 0);
        let built = opcode::UringCmd80::new(types::Fixed(0), REGISTER).cmd(command);
        let mut built = built.addr(Some(list)).build().user_data(u64::from(number));
        say_parts(&mut built, parts.len() as u32);
        self.holders[usize::from(number)] = Holder::Kernel(ManuallyDrop::new(entry));
        self.push(&built);
    }

    /// Answers the request of `entry`, whose answer is in it. The kernel gets it at the next
    /// [`Ring::wait`].
    pub(crate) fn commit(&mut self, mut entry: Entry) {
        // It says the length of the data that is read.
        self.is_grown |= entry.is_grown();
        let request = wire::entry_id(entry.parts().0);
        let command = command(&entry, request);
        let built = opcode::UringCmd80::new(types::Fixed(0), COMMIT_AND_FETCH).cmd(command);
        let built = built.build().user_data(u64::from(entry.number));
        let number = usize::from(entry.number);
        self.holders[number] = Holder::Kernel(ManuallyDrop::new(entry));
        self.push(&built);
    }

    /// Leaves a request, with its entry, to another ring.
    pub(crate) fn give(&mut self, entry: &Entry) {
        self.holders[usize::from(entry.number)] = Holder::Elsewhere;
        self.left -= 1;
    }

    /// Takes a request, with its entry, that another thread had. Was it another ring's?
    pub(crate) fn accept(&mut self, entry: &Entry) -> bool {
        let holder = &mut self.holders[usize::from(entry.number)];
        let is_new = matches!(mem::replace(holder, Holder::Server), Holder::Elsewhere);
        self.left += usize::from(is_new);
        // Its request may have had data of which the answer says nothing.
        self.is_grown |= !entry.memory.present;
        is_new
    }

    /// Waits for the next write to the wake-up, once.
    pub(crate) fn rearm(&mut self) {
        let wake = types::Fd(self.wake.as_raw_fd());
        let built = opcode::PollAdd::new(wake, PollFlags::IN.bits().into()).build();
        self.push(&built.user_data(WAKE).into());
    }

    fn push(&mut self, built: &squeue::Entry128) {
        loop {
            // SAFETY: they come from `register` and `commit`, whose memory lives until the end of
            // the command is seen, and from `rearm`, which names no memory. The files are open as
            // long as the ring.
            if unsafe { self.uring.submission().push(built) }.is_ok() {
                return;
            }
            // Entries that were another ring's took the room of its own.
            if self.uring.submit().is_err() {
                sleep(PAUSE);
            }
        }
    }

    /// Sends the answers to the kernel and waits for the next event.
    pub(crate) fn wait(&mut self) {
        if self.early.is_empty()
            && let Err(error) = self.submit_and_wait()
            && self.uring.completion().is_empty()
        {
            match error.raw_os_error() {
                Some(errno::EINTR) => {}
                Some(errno::ETIME) => self.give_memory_back(),
                _ => sleep(PAUSE),
            }
        }
    }

    /// Gives back the memory for data of the entries that the kernel has. It copies a request into
    /// an entry, and an answer out of it, only in a call of the thread that gave it the entry
    /// (`IORING_SETUP_DEFER_TASKRUN`), which is this one: so it has taken all answers when none is
    /// left to be sent, and no request has come when there is no event.
    fn give_memory_back(&mut self) {
        if !self.uring.submission().is_empty() {
            return;
        }
        for holder in &self.holders {
            if let Holder::Kernel(entry) = holder {
                entry.memory.pages.release(entry.data_offset(), entry.memory.largest);
            }
        }
        self.is_grown = false;
    }

    fn submit_and_wait(&self) -> io::Result<usize> {
        // A thread without a request waits for no I/O, but the kernel has entries of it: else an
        // idle machine would show no idle time, and full pressure (Linux 6.15 knows the flag).
        let flags = match self.uring.params().is_feature_no_iowait() {
            true => EnterFlags::NO_IOWAIT,
            false => EnterFlags::empty(),
        };
        let idle = types::Timespec::from(IDLE);
        let limit = match self.is_grown {
            true => types::SubmitArgs::new().timespec(&idle),
            false => types::SubmitArgs::new(),
        };
        self.uring.submitter().submit_with_args_and_flags(1, &limit, flags)
    }

    /// The next event; None if there is no more for now.
    pub(crate) fn next(&mut self) -> Option<Event> {
        if let Some(entry) = self.early.pop_front() {
            return Some(Event::Request(entry));
        }
        loop {
            let completed = self.uring.completion().next()?;
            let event = self.take(completed.user_data());
            let (result, Some(Event::Request(mut entry))) = (completed.result(), event) else {
                return Some(Event::Wake);
            };
            match result {
                0 => {
                    // It says the length of the data to write.
                    self.is_grown |= entry.is_grown();
                    return Some(Event::Request(entry));
                }
                error if is_passing(-error) => {
                    // The ring had no memory for the command, so the kernel's FUSE never saw it.
                    sleep(PAUSE);
                    self.commit(entry);
                }
                // ENOTCONN: it was unmounted. All others: the kernel takes no more of this entry.
                _ => {
                    self.holders[usize::from(entry.number)] = Holder::Elsewhere;
                    self.left -= 1;
                }
            }
        }
    }

    /// The event of a command that has ended, whatever its result.
    fn take(&mut self, user_data: u64) -> Option<Event> {
        if user_data == WAKE {
            return Some(Event::Wake);
        }
        let holder = self.holders.get_mut(usize::try_from(user_data).ok()?)?;
        match mem::replace(holder, Holder::Server) {
            Holder::Kernel(entry) => Some(Event::Request(ManuallyDrop::into_inner(entry))),
            _ => panic!("request {user_data} came twice"),
        }
    }

    /// The number of events that have come, and that [`Ring::next`] has not returned.
    pub(crate) fn waiting(&mut self) -> usize {
        self.early.len() + self.uring.completion().len()
    }

    /// May another request come? False after it was unmounted.
    pub(crate) fn is_live(&self) -> bool {
        self.left > 0
    }
}

/// What a command says (`fuse_uring_cmd_req`): flags, the number of a request, and a queue.
fn command(entry: &Entry, request: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&request.to_ne_bytes());
    bytes[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
    bytes
}

/// Says in a submission that its address is one of so many parts. The crate has no word for it.
fn say_parts(built: &mut squeue::Entry128, parts: u32) {
    const LENGTH: usize = 24;
    // SAFETY: the type is `repr(C)` of 128 bytes, which are those of `struct io_uring_sqe`; four
    // of them lie at this offset, whatever they are.
    unsafe {
        let bytes = ptr::from_mut(built).cast::<u8>();
        bytes.add(LENGTH).cast::<u32>().write_unaligned(parts);
    }
}

#[cfg(test)]
mod tests;

fn is_passing(errno: i32) -> bool {
    matches!(errno, errno::ENOMEM | errno::EAGAIN | errno::EINTR)
}
