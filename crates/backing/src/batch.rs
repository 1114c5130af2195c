//! A batch of operations, cut into parts that fit a ring and put together again.
//!
//! Nothing here touches the system: a [`Queue`] does, and a test may be one that cuts transfers
//! short, fails, and answers in any order.

use std::io;

use block::{IoError, Job, Operation};
use units::PAGE_SIZE;

/// How many pages of memory a ring has, and operations it has under way at most: one bit of a word
/// for each.
pub(crate) const DEPTH: usize = u64::BITS as usize;
/// The longest part, in pages: four of them are under way at once.
const LONGEST: usize = DEPTH / 4;
/// Parts that must have finished before more are put in, where more are waiting: a system call for
/// each would cost more than it brings.
const AT_ONCE: usize = DEPTH / 4;
/// How often a part may be begun again because it was interrupted or got nowhere.
const PATIENCE: u32 = 100;

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Read,
    Write,
}

/// What is asked of a queue: to transfer `length` bytes between the file at `offset` and the
/// queue's memory, `skip` bytes into page `first`. Parts under way are known by `first`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) way: Way,
    pub(crate) first: usize,
    pub(crate) skip: usize,
    pub(crate) length: usize,
    pub(crate) offset: u64,
}

/// How a part ended: bytes transferred, or an error number as a negative one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) first: usize,
    pub(crate) result: i32,
}

/// What carries parts out: [`DEPTH`] pages of memory, and parts under way in them.
pub(crate) trait Queue {
    /// `length` bytes from the start of page `first` on.
    ///
    /// # Panics
    /// If a part under way lies there.
    fn memory(&mut self, first: usize, length: usize) -> &mut [u8];

    /// Begins a part; it need not be handed on before [`Queue::submit`].
    ///
    /// # Panics
    /// If its memory lies outside, or a part under way lies there.
    fn start(&mut self, part: Part);

    /// Hands on what was begun and waits until about `least` parts have finished.
    ///
    /// # Errors
    /// The queue is of no use any more; what is under way never ends.
    fn submit(&mut self, least: usize) -> io::Result<()>;

    /// A part that has finished, once each.
    fn finished(&mut self) -> Option<Done>;
}

/// What is carried out as it is met, without the queue.
pub(crate) trait Aside {
    /// The result, or nothing for an operation that has to go through the queue.
    fn carry_out(&self, operation: &Operation<'_>) -> Option<Result<(), IoError>>;
}

/// A part under way.
#[derive(Clone, Copy)]
struct Flight {
    job: usize,
    way: Way,
    /// Where it begins in its job.
    within: usize,
    /// Where it begins in the file.
    offset: u64,
    length: usize,
    done: usize,
    repeats: u32,
}

const NONE: Flight =
    Flight { job: 0, way: Way::Read, within: 0, offset: 0, length: 0, done: 0, repeats: 0 };

struct Batch<'b, 'j, Q> {
    queue: &'b mut Q,
    aside: &'b dyn Aside,
    jobs: &'b mut [Job<'j>],
    /// The job to be cut next, and how much of it was.
    job: usize,
    cut: u64,
    flights: [Flight; DEPTH],
    /// Pages that no part has.
    free: u64,
    under_way: usize,
}

/// Carries out `jobs`; each tells its own result. Offsets and lengths are multiples of a page.
///
/// # Errors
/// As [`Queue::submit`]; jobs that did not come to an end have failed then.
pub(crate) fn run<Q: Queue>(
    queue: &mut Q,
    aside: &dyn Aside,
    jobs: &mut [Job<'_>],
) -> io::Result<()> {
    jobs.iter_mut().for_each(|job| job.result = Ok(()));
    let flights = [NONE; DEPTH];
    let free = u64::MAX;
    let mut batch = Batch { queue, aside, jobs, job: 0, cut: 0, flights, free, under_way: 0 };
    batch.run()
}

/// The lowest of `count` neighbouring bits that are all set.
pub(crate) fn run_of_ones(word: u64, count: usize) -> Option<usize> {
    let mut starts = word;
    // A bit of `starts` that stays has `count - 1` set bits above it.
    for n in 1..count {
        starts &= word >> n;
    }
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// The bits of the pages that `length` bytes from page `first` on take.
pub(crate) const fn pages(first: usize, length: usize) -> u64 {
    let count = length.div_ceil(PAGE_SIZE);
    let ones = if count >= DEPTH { u64::MAX } else { (1 << count) - 1 };
    ones << first
}

/// What an error number of the system means to the user of a device.
pub(crate) const fn io_error(errno: i32) -> IoError {
    match errno {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoError::NoSpace,
        libc::ENOMEM | libc::ENOBUFS => IoError::NoMemory,
        libc::EROFS | libc::EPERM => IoError::ReadOnly,
        libc::EOPNOTSUPP => IoError::Unsupported,
        _ => IoError::Failed,
    }
}

/// How many bytes go through the queue for an operation, and which way; the first is where.
fn transfer(operation: &Operation<'_>) -> (u64, u64, Way) {
    let (offset, length) = operation.range();
    let way = if matches!(operation, Operation::Read { .. }) { Way::Read } else { Way::Write };
    (offset, length, way)
}

impl<Q: Queue> Batch<'_, '_, Q> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            while self.begin_next() {}
            if self.under_way == 0 {
                return Ok(());
            }
            let more = self.job < self.jobs.len();
            let least = if more { self.under_way.min(AT_ONCE) } else { self.under_way };
            if let Err(error) = self.queue.submit(least) {
                self.give_up();
                return Err(error);
            }
            while let Some(done) = self.queue.finished() {
                self.answered(done);
            }
        }
    }

    /// Begins one part. False when there is none, or no room for it.
    fn begin_next(&mut self) -> bool {
        let Some(job) = self.jobs.get(self.job) else { return false };
        let (start, whole, way) = transfer(&job.operation);
        if self.cut == 0
            && let Some(result) = self.aside.carry_out(&job.operation)
        {
            self.jobs[self.job].result = result;
            self.job += 1;
            return true;
        }
        let left = whole - self.cut;
        if left == 0 || job.result.is_err() {
            (self.job, self.cut) = (self.job + 1, 0);
            return true;
        }
        let length = left.min((LONGEST * PAGE_SIZE) as u64) as usize;
        let Some(first) = run_of_ones(self.free, length.div_ceil(PAGE_SIZE)) else { return false };
        let within = self.cut as usize;
        match &job.operation {
            Operation::Write { from, .. } => {
                self.queue.memory(first, length).copy_from_slice(&from[within..within + length]);
            }
            Operation::Read { .. } => {}
            _ => self.queue.memory(first, length).fill(0),
        }
        let offset = start + self.cut;
        self.queue.start(Part { way, first, skip: 0, length, offset });
        self.free &= !pages(first, length);
        self.flights[first] =
            Flight { job: self.job, way, within, offset, length, done: 0, repeats: 0 };
        self.under_way += 1;
        self.cut += length as u64;
        true
    }

    fn answered(&mut self, Done { first, result }: Done) {
        let flight = &mut self.flights[first];
        match usize::try_from(result) {
            Ok(got) => {
                let done = flight.done + got;
                if done >= flight.length {
                    return self.complete(first);
                }
                // Direct I/O goes on at a whole page only.
                let kept = done - done % PAGE_SIZE;
                // Nothing at all is the end of a file that somebody cut off.
                if got == 0 {
                    return self.fail(first, IoError::Failed);
                }
                if kept == flight.done {
                    flight.repeats += 1;
                }
                flight.done = kept;
            }
            Err(_) if result == -libc::EINTR || result == -libc::EAGAIN => flight.repeats += 1,
            Err(_) => return self.fail(first, io_error(-result)),
        }
        let Flight { way, offset, length, done, repeats, .. } = *flight;
        if repeats > PATIENCE {
            return self.fail(first, IoError::Failed);
        }
        let (offset, length) = (offset + done as u64, length - done);
        self.queue.start(Part { way, first, skip: done, length, offset });
    }

    fn complete(&mut self, first: usize) {
        let Flight { job, within, length, .. } = self.flights[first];
        if let Operation::Read { into, .. } = &mut self.jobs[job].operation {
            into[within..within + length].copy_from_slice(self.queue.memory(first, length));
        }
        self.end(first);
    }

    fn fail(&mut self, first: usize, error: IoError) {
        let job = &mut self.jobs[self.flights[first].job];
        job.result = job.result.and(Err(error));
        self.end(first);
    }

    fn end(&mut self, first: usize) {
        self.free |= pages(first, self.flights[first].length);
        self.flights[first] = NONE;
        self.under_way -= 1;
    }

    /// Fails what is under way and what was not begun.
    fn give_up(&mut self) {
        let under_way = self.flights.iter().filter(|flight| flight.length > 0);
        for job in under_way.map(|flight| flight.job).chain(self.job..self.jobs.len()) {
            self.jobs[job].result = Err(IoError::Failed);
        }
    }
}
