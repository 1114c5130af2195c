//! Cuts a batch of operations into parts that fit a ring, and collects their results.
//!
//! Only a [`Queue`] makes system calls. A test can pass its own queue, which cuts transfers short,
//! fails, and answers in any order.

use std::io;
use std::thread;
use std::time::Duration;

use block::{IoError, Job, Operation};
use host::errno;
use units::PAGE_SIZE;

/// The pages of memory of a ring, and its most operations under way: one bit of a word for each.
pub(crate) const DEPTH: usize = u64::BITS as usize;
/// The longest part, in pages: four such parts fit a ring.
const LONGEST: usize = DEPTH / 4;
/// While more parts wait, this many must finish before the next ones begin: a system call for each
/// would cost more than it saves.
const AT_ONCE: usize = DEPTH / 4;
/// A batch that gets nowhere pauses so often, which takes half a minute. Then it has failed.
const PATIENCE: u32 = 30_000;

/// The direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Read,
    Write,
}

/// One transfer of a queue: `length` bytes between the file at `offset` and the queue's memory at
/// byte `skip` of page `first`. `first` identifies a part under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) way: Way,
    pub(crate) first: usize,
    pub(crate) skip: usize,
    pub(crate) length: usize,
    pub(crate) offset: u64,
}

/// The result of a part: the bytes transferred, or a negative error number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) first: usize,
    pub(crate) result: i32,
}

/// Carries out parts. It has [`DEPTH`] pages of memory, and the parts under way use them.
pub(crate) trait Queue {
    /// The memory of `length` bytes from the start of page `first` on.
    ///
    /// # Panics
    /// If a part under way lies there.
    fn memory(&mut self, first: usize, length: usize) -> &mut [u8];

    /// Begins a part. The system may get it only at [`Queue::submit`].
    ///
    /// # Panics
    /// If its memory lies outside the queue's, or a part under way lies there.
    fn start(&mut self, part: Part);

    /// Passes the begun parts to the system and waits until about `least` parts have finished.
    ///
    /// # Errors
    /// After an error the queue cannot be used any more; the parts under way never end.
    fn submit(&mut self, least: usize) -> io::Result<()>;

    /// The next part that has finished; it returns each once.
    fn finished(&mut self) -> Option<Done>;

    /// Waits for a millisecond: the system cannot do yet what it was asked for.
    fn pause(&mut self) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Carries out operations at once, without the queue.
pub(crate) trait Aside {
    /// The result, or None for an operation that must go through the queue.
    fn carry_out(&self, operation: &Operation<'_>) -> Option<Result<(), IoError>>;
}

/// A part under way.
#[derive(Clone, Copy)]
struct Flight {
    job: usize,
    way: Way,
    /// Its offset in the job, in bytes.
    within: usize,
    /// Its offset in the file, in bytes.
    offset: u64,
    length: usize,
    done: usize,
}

const NONE: Flight = Flight { job: 0, way: Way::Read, within: 0, offset: 0, length: 0, done: 0 };

struct Batch<'b, 'j, Q> {
    queue: &'b mut Q,
    aside: &'b dyn Aside,
    jobs: &'b mut [Job<'j>],
    /// The job to cut next, and the bytes of it that are cut already.
    job: usize,
    cut: u64,
    flights: [Flight; DEPTH],
    /// The pages without a part, one bit each.
    free: u64,
    under_way: usize,
    /// Counts the steps forward: pages that were transferred, and parts that ended.
    steps: u64,
    /// Pauses since the last step forward.
    pauses: u32,
}

/// Carries out `jobs` and sets the result of each. Offsets and lengths are multiples of a page.
///
/// # Errors
/// As [`Queue::submit`]; jobs that did not finish have failed then.
pub(crate) fn run<Q: Queue>(
    queue: &mut Q,
    aside: &dyn Aside,
    jobs: &mut [Job<'_>],
) -> io::Result<()> {
    jobs.iter_mut().for_each(|job| job.result = Ok(()));
    let flights = [NONE; DEPTH];
    let free = u64::MAX;
    let (job, cut, under_way, steps, pauses) = (0, 0, 0, 0, 0);
    Batch { queue, aside, jobs, job, cut, flights, free, under_way, steps, pauses }.run()
}

/// The lowest bit of a run of `count` set bits.
pub(crate) fn run_of_ones(word: u64, count: usize) -> Option<usize> {
    let mut starts = word;
    // A bit that stays in `starts` has `count - 1` set bits above it.
    for n in 1..count {
        starts &= word >> n;
    }
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// The bits of the pages of `length` bytes from page `first` on.
pub(crate) const fn pages(first: usize, length: usize) -> u64 {
    let count = length.div_ceil(PAGE_SIZE);
    let ones = if count >= DEPTH { u64::MAX } else { (1 << count) - 1 };
    ones << first
}

/// Converts an error number of the system to a device's error.
pub(crate) const fn io_error(errno: i32) -> IoError {
    match errno {
        errno::ENOSPC | errno::EDQUOT | errno::EFBIG => IoError::NoSpace,
        errno::ENOMEM | errno::ENOBUFS => IoError::NoMemory,
        errno::EROFS | errno::EPERM => IoError::ReadOnly,
        errno::EOPNOTSUPP => IoError::Unsupported,
        _ => IoError::Failed,
    }
}

/// The offset, the length in bytes and the direction of an operation in the queue.
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
            let (before, mut again) = (self.steps, false);
            while let Some(done) = self.queue.finished() {
                again |= self.answered(done);
            }
            if self.steps != before {
                self.pauses = 0;
            } else if again {
                self.queue.pause();
                self.pauses += 1;
            }
        }
    }

    /// Begins one part. False when no part is left, or no memory is free.
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
        self.flights[first] = Flight { job: self.job, way, within, offset, length, done: 0 };
        self.under_way += 1;
        self.cut += length as u64;
        true
    }

    /// A part has finished. Returns whether it was begun again.
    fn answered(&mut self, Done { first, result }: Done) -> bool {
        let flight = &mut self.flights[first];
        match usize::try_from(result) {
            Ok(got) => {
                let done = flight.done + got;
                if done >= flight.length {
                    self.complete(first);
                    return false;
                }
                // No bytes at all: another process has truncated the file.
                if got == 0 {
                    self.fail(first, IoError::Failed);
                    return false;
                }
                // Direct I/O can continue only at a page boundary.
                let kept = done - done % PAGE_SIZE;
                self.steps += u64::from(kept > flight.done);
                flight.done = kept;
            }
            Err(_) if result == -errno::EINTR || result == -errno::EAGAIN => {}
            Err(_) => {
                self.fail(first, io_error(-result));
                return false;
            }
        }
        if self.pauses >= PATIENCE {
            self.fail(first, IoError::Failed);
            return false;
        }
        let Flight { way, offset, length, done, .. } = self.flights[first];
        let (offset, length) = (offset + done as u64, length - done);
        self.queue.start(Part { way, first, skip: done, length, offset });
        true
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
        self.steps += 1;
    }

    /// Fails the parts under way and the jobs that have not begun.
    fn give_up(&mut self) {
        let under_way = self.flights.iter().filter(|flight| flight.length > 0);
        for job in under_way.map(|flight| flight.job).chain(self.job..self.jobs.len()) {
            self.jobs[job].result = Err(IoError::Failed);
        }
    }
}
