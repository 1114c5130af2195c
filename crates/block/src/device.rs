//! The interface of devices, layers and backing stores.

use alloc::sync::Arc;
use core::ops::ControlFlow;

use units::Cpu;

use crate::IoError;

/// What one request asks for. Offsets and lengths are in bytes.
#[derive(Debug)]
pub enum Operation<'a> {
    /// Fill `into` from `offset`.
    Read {
        /// Where on the device.
        offset: u64,
        /// Filled completely, or its contents are undefined on error.
        into: &'a mut [u8],
    },
    /// Store `from` at `offset`. Atomic per page only: on error some pages may hold new data.
    Write {
        /// Where on the device.
        offset: u64,
        /// What to store.
        from: &'a [u8],
    },
    /// The range need not be kept: whole pages of it read as zeroes afterwards, parts of pages
    /// keep their data.
    Discard {
        /// Where on the device.
        offset: u64,
        /// How much.
        length: u64,
    },
    /// The whole range reads as zeroes afterwards.
    WriteZeroes {
        /// Where on the device.
        offset: u64,
        /// How much.
        length: u64,
        /// Whether its pages may become holes.
        mode: ZeroMode,
    },
    /// What was written must be as durable as this device can make it.
    Flush,
}

/// How zeroes are to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroMode {
    /// Whole pages may be given up: they are holes afterwards.
    MayPunch,
    /// Pages stay allocated, as zero-filled ones.
    KeepAllocated,
}

impl Operation<'_> {
    /// Where it begins and how long it is, in bytes; nothing for a flush.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        match self {
            Operation::Read { offset, into } => (*offset, into.len() as u64),
            Operation::Write { offset, from } => (*offset, from.len() as u64),
            Operation::Discard { offset, length }
            | Operation::WriteZeroes { offset, length, .. } => (*offset, *length),
            Operation::Flush => (0, 0),
        }
    }

    /// The same operation, for a while.
    #[must_use]
    pub fn reborrow(&mut self) -> Operation<'_> {
        match self {
            Operation::Read { offset, into } => Operation::Read { offset: *offset, into },
            Operation::Write { offset, from } => Operation::Write { offset: *offset, from },
            Operation::Discard { offset, length } => {
                Operation::Discard { offset: *offset, length: *length }
            }
            Operation::WriteZeroes { offset, length, mode } => {
                Operation::WriteZeroes { offset: *offset, length: *length, mode: *mode }
            }
            Operation::Flush => Operation::Flush,
        }
    }

    /// Does it change the device?
    #[must_use]
    pub const fn changes(&self) -> bool {
        !matches!(self, Operation::Read { .. } | Operation::Flush)
    }
}

/// May a device wait for a slower one below it before it answers?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The calling thread can wait.
    Yes,
    /// The calling thread serves others too: the device answers [`IoError::WouldBlock`] instead.
    No,
}

/// What an operation is carried out with: handed down once, from the frontend to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The CPU the caller runs on, or any number.
    pub cpu: Cpu,
    /// May this take longer than the device's own work?
    pub wait: Wait,
}

impl Context {
    /// On a thread that can wait.
    #[must_use]
    pub const fn waiting(cpu: Cpu) -> Context {
        Context { cpu, wait: Wait::Yes }
    }

    /// On a thread that serves others too.
    #[must_use]
    pub const fn at_once(cpu: Cpu) -> Context {
        Context { cpu, wait: Wait::No }
    }

    /// Nothing if the operation may wait here.
    ///
    /// # Errors
    /// [`IoError::WouldBlock`] if it may not.
    pub const fn may_wait(self) -> Result<(), IoError> {
        match self.wait {
            Wait::Yes => Ok(()),
            Wait::No => Err(IoError::WouldBlock),
        }
    }
}

/// One of several operations that are carried out together.
#[derive(Debug)]
pub struct Job<'a> {
    /// What is asked for.
    pub operation: Operation<'a>,
    /// How it went, afterwards.
    pub result: Result<(), IoError>,
}

impl<'a> Job<'a> {
    /// An operation that has not been carried out.
    #[must_use]
    pub const fn new(operation: Operation<'a>) -> Job<'a> {
        Job { operation, result: Ok(()) }
    }
}

/// How a device is shaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Its size in bytes. Zero while it is not initialised.
    pub bytes: u64,
    /// Offsets and lengths must be multiples of this many bytes; 1 where any range is taken.
    pub minimum_block: u32,
    /// Ranges of multiples of this many bytes are served best.
    pub preferred_block: u32,
}

/// What a device can do beyond reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// It takes no changes.
    pub read_only: bool,
    /// It gives memory back on discard.
    pub discard: bool,
    /// Writing zeroes is faster than writing data.
    pub fast_zero: bool,
    /// A flush does something.
    pub flush: bool,
}

/// What a part of a device holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentKind {
    /// Stored data.
    Data,
    /// Allocated, and known to be all zeroes.
    Zero,
    /// Not allocated; reads as zeroes.
    Hole,
}

/// A part of a device, all of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its length in bytes.
    pub length: u64,
    /// What it holds.
    pub kind: ExtentKind,
}

/// Called with each extent in turn; breaks off when it has seen enough.
pub type Visit<'a> = &'a mut dyn FnMut(Extent) -> ControlFlow<()>;

/// A device, a layer over one, or a backing store. Every method may be called by any number of
/// threads at once.
pub trait BlockDevice: Send + Sync {
    /// Its shape, now: a device may be resized. For those who open or resize it; requests do not
    /// ask.
    fn geometry(&self) -> Geometry;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Carries out one operation, on this thread, before it returns. The device judges the range.
    ///
    /// Under [`Wait::No`] it answers [`IoError::WouldBlock`] rather than wait for a slower device
    /// below. Nothing has changed then, but for the buffer of a read, whose contents are undefined:
    /// the caller repeats the operation on a thread that can wait. A device that has changed
    /// something already goes on and waits.
    ///
    /// # Errors
    /// See [`IoError`]; contents outside the range are never touched.
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError>;

    /// Carries out one operation on a thread that can wait; see [`BlockDevice::perform`].
    ///
    /// # Errors
    /// As of [`BlockDevice::perform`], but never [`IoError::WouldBlock`].
    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        self.perform(Context::waiting(cpu), operation)
    }

    /// Carries out operations that do not depend on each other, in any order and as many at once
    /// as the device can, before it returns; each job tells its own result. Waits if need be.
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        for job in jobs {
            job.result = self.submit(cpu, job.operation.reborrow());
        }
    }

    /// Tells what the range holds, in order and without gaps; neighbouring extents may be of one
    /// kind. The answer is of the moment; others may be writing. It never waits.
    ///
    /// # Errors
    /// [`IoError::OutOfRange`] for a range that passes the end.
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError>;
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    fn abilities(&self) -> Abilities {
        (**self).abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        (**self).perform(context, operation)
    }
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        (**self).submit_all(cpu, jobs);
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        (**self).extents(cpu, offset, length, visit)
    }
}
