//! The interface of devices, layers and backing stores.

use alloc::sync::Arc;
use core::ops::ControlFlow;

use units::Cpu;

use crate::{IoError, PackedPages};

/// The operation of one request. Offsets and lengths are in bytes.
#[derive(Debug)]
pub enum Operation<'a> {
    /// Fill `into` from `offset`.
    Read {
        /// The offset on the device.
        offset: u64,
        /// The buffer to fill completely; its contents are undefined on error.
        into: &'a mut [u8],
    },
    /// Store `from` at `offset`. It is atomic per page only: on error some pages may hold new data.
    Write {
        /// The offset on the device.
        offset: u64,
        /// The data to store.
        from: &'a [u8],
    },
    /// Free a range: its whole pages read as zeroes afterwards, parts of pages keep their data.
    Discard {
        /// The offset on the device.
        offset: u64,
        /// The length.
        length: u64,
    },
    /// Make the whole range read as zeroes.
    WriteZeroes {
        /// The offset on the device.
        offset: u64,
        /// The length.
        length: u64,
        /// Whether its pages may become holes.
        mode: ZeroMode,
    },
    /// Make all written data as durable as this device can.
    Flush,
}

/// How to write zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroMode {
    /// Whole pages may be freed: they are holes afterwards.
    MayPunch,
    /// Pages stay allocated, as zero-filled ones.
    KeepAllocated,
}

impl Operation<'_> {
    /// Its offset and its length in bytes; 0 and 0 for a flush.
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

    /// Its offset on the device; `None` of a flush.
    pub fn offset_mut(&mut self) -> Option<&mut u64> {
        match self {
            Operation::Read { offset, .. }
            | Operation::Write { offset, .. }
            | Operation::Discard { offset, .. }
            | Operation::WriteZeroes { offset, .. } => Some(offset),
            Operation::Flush => None,
        }
    }

    /// Borrows the operation for one call.
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

/// May a device wait for a slower device below it?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The calling thread may wait.
    Yes,
    /// The calling thread serves other requests too: the device returns [`IoError::WouldBlock`]
    /// instead.
    No,
}

/// The CPU and the wait mode of an operation; the frontend passes it down to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The CPU of the calling thread; any number is correct.
    pub cpu: Cpu,
    /// May the operation wait for a slower device?
    pub wait: Wait,
}

impl Context {
    /// The context of a thread that may wait.
    #[must_use]
    pub const fn waiting(cpu: Cpu) -> Context {
        Context { cpu, wait: Wait::Yes }
    }

    /// The context of a thread that serves other requests too.
    #[must_use]
    pub const fn at_once(cpu: Cpu) -> Context {
        Context { cpu, wait: Wait::No }
    }

    /// Checks that the operation may wait.
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
    /// The operation.
    pub operation: Operation<'a>,
    /// Its result, set when the job is done.
    pub result: Result<(), IoError>,
}

impl<'a> Job<'a> {
    /// Makes a job of an operation that is not carried out yet.
    #[must_use]
    pub const fn new(operation: Operation<'a>) -> Job<'a> {
        Job { operation, result: Ok(()) }
    }
}

/// The size and the block sizes of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Its size in bytes. Zero while it is not initialised.
    pub bytes: u64,
    /// Offsets and lengths must be multiples of this many bytes; 1 if any range is accepted.
    pub minimum_block: u32,
    /// Ranges in multiples of this many bytes are fastest.
    pub preferred_block: u32,
}

/// The abilities of a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Abilities {
    /// It takes no changes.
    pub read_only: bool,
    /// A discard frees memory.
    pub discard: bool,
    /// Writing zeroes is faster than writing data.
    pub fast_zero: bool,
    /// A flush does something.
    pub flush: bool,
    /// A read fails if what is there differs from what was written.
    pub checked: bool,
    /// A discard frees room at once: it needs no I/O and never waits.
    pub quick_discard: bool,
}

/// The kind of an extent.
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
    /// Its kind.
    pub kind: ExtentKind,
}

/// What a device has at remote stores, and what it has asked of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RemoteStats {
    /// Bytes, in whole chunks, that only the stores have.
    pub remote_bytes: u64,
    /// Bytes, in whole chunks, that hold something and are on the device below.
    pub local_bytes: u64,
    /// Bytes written to stores; those of each store count.
    pub uploaded_bytes: u64,
    /// Bytes read from stores.
    pub downloaded_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Requests of these that failed.
    pub failed_requests: u64,
    /// Reads of these that returned something else than was written.
    pub wrong_answers: u64,
    /// The stores.
    pub stores: u64,
    /// Stores of these that are left alone because they failed, or that have lost what was read of
    /// them last.
    pub lost_stores: u64,
}

/// Asks a device what it has at remote stores. It keeps the device open.
pub type AskRemote = Arc<dyn Fn() -> RemoteStats + Send + Sync>;

/// Called with each extent in turn. The callback returns `Break` to stop.
pub type Visit<'a> = &'a mut dyn FnMut(Extent) -> ControlFlow<()>;

/// A device, a layer over one, or a backing store. Any number of threads may call every method at
/// once.
pub trait BlockDevice: Send + Sync {
    /// Its size and block sizes now; a device may be resized. Callers that open or resize the
    /// device use it; requests do not.
    fn geometry(&self) -> Geometry;

    /// Its abilities.
    fn abilities(&self) -> Abilities;

    /// Carries out one operation on this thread, before it returns. The device checks the range.
    ///
    /// Under [`Wait::No`] it returns [`IoError::WouldBlock`] instead of waiting for a slower device
    /// below. The caller repeats the operation on a thread that may wait, before it answers its
    /// client. Until then a page of a change has its old or its new contents, and the buffer of a
    /// read is undefined.
    ///
    /// # Errors
    /// See [`IoError`]; data outside the range never changes.
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError>;

    /// Carries out one operation on a thread that may wait; see [`BlockDevice::perform`].
    ///
    /// # Errors
    /// As [`BlockDevice::perform`], but never [`IoError::WouldBlock`].
    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        self.perform(Context::waiting(cpu), operation)
    }

    /// Carries out independent operations before it returns, in any order, as many at once as the
    /// device can. Sets the result of each job. May wait.
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        for job in jobs {
            job.result = self.submit(cpu, job.operation.reborrow());
        }
    }

    /// Reports the extents of the range, in order and without gaps; neighbouring extents may have
    /// the same kind. Other threads may write meanwhile, so the answer may be old. It never waits.
    ///
    /// # Errors
    /// [`IoError::OutOfRange`] for a range that passes the end.
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError>;

    /// The device as one that takes pages as they were compressed, if it is one.
    fn packed(&self) -> Option<&dyn PackedPages> {
        None
    }
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
    fn packed(&self) -> Option<&dyn PackedPages> {
        (**self).packed()
    }
}
