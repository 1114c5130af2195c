//! The block device for an open file or block device of the system.

use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Job, Operation, Visit,
    ZeroMode,
};
use host::errno;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, retry_on_intr};
use sync::atomic::{AtomicBool, Ordering};
use units::{Cpu, PAGE_SIZE};

use crate::batch::{self, Aside, io_error};
use crate::pool::Pool;

const P: u64 = PAGE_SIZE as u64;

/// [`block::Checked`] is above it and refuses ranges that pass the end or are not whole pages.
pub(crate) struct BackingFile {
    pub(crate) file: Arc<File>,
    pub(crate) bytes: u64,
    /// A block device, not an ordinary file.
    pub(crate) device: bool,
    /// The file below a loop device, which is locked as a backing file is.
    pub(crate) below: Option<File>,
    pub(crate) pool: Pool,
    /// Punching holes works; false after the first refusal. A punched range reads as zeroes.
    pub(crate) punches: AtomicBool,
}

impl BackingFile {
    /// Punches a hole; false if this file or device does not support it.
    fn punch(&self, offset: u64, length: u64) -> Result<bool, IoError> {
        if length == 0 {
            return Ok(true);
        }
        if !self.punches.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punch = || fallocate(&self.file, mode, offset, length);
        let Err(error) = retry_on_intr(punch) else { return Ok(true) };
        match error {
            // Some drivers answer ENOTTY or EINVAL.
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL => {
                self.punches.store(false, Ordering::Relaxed);
                Ok(false)
            }
            other => Err(io_error(other.raw_os_error())),
        }
    }

    /// A discard is a hint: a device without support does not fail it.
    fn discard(&self, offset: u64, length: u64) -> Result<(), IoError> {
        if !self.punch(offset, length)? && self.device {
            let _ = host::discard(&self.file, offset, length);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), IoError> {
        let synced = self.file.sync_data();
        synced.map_err(|error| io_error(error.raw_os_error().unwrap_or(errno::EIO)))
    }

    /// The kind of the extent at `at` and its end, in whole pages: a page with any data is data.
    fn extent_at(&self, at: u64, end: u64) -> (ExtentKind, u64) {
        if self.device {
            return (ExtentKind::Data, end);
        }
        // If the file system does not know, the answer is data, which is always correct.
        let data = match seek(&*self.file, SeekFrom::Data(at)) {
            Ok(data) => (data - data % P).clamp(at, end),
            // The rest of the file has none.
            Err(Errno::NXIO) => end,
            Err(_) => return (ExtentKind::Data, end),
        };
        if data > at {
            return (ExtentKind::Hole, data);
        }
        let hole = seek(&*self.file, SeekFrom::Hole(at));
        let hole = hole.map_or(end, |hole| hole.next_multiple_of(P));
        (ExtentKind::Data, hole.clamp((at + P - at % P).min(end), end))
    }
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        self.pool.close();
        // Otherwise the kernel unlocks it when the last write has ended. A child may have it open.
        if !self.device && !self.pool.is_lost() {
            let _ = self.file.unlock();
        }
        if let Some(below) = &self.below {
            let _ = below.unlock();
        }
    }
}

impl Aside for BackingFile {
    fn carry_out(&self, operation: &Operation<'_>) -> Option<Result<(), IoError>> {
        // What is on the device can still be read.
        if operation.changes() && self.pool.is_lost() {
            return Some(Err(IoError::Failed));
        }
        match *operation {
            Operation::Flush => Some(self.flush()),
            Operation::Discard { offset, length } => Some(self.discard(offset, length)),
            Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch } => {
                match self.punch(offset, length) {
                    Ok(true) => Some(Ok(())),
                    Ok(false) => None,
                    Err(error) => Some(Err(error)),
                }
            }
            _ => None,
        }
    }
}

impl BlockDevice for BackingFile {
    fn geometry(&self) -> Geometry {
        let page = PAGE_SIZE as u32;
        Geometry { bytes: self.bytes, minimum_block: page, preferred_block: page }
    }

    fn abilities(&self) -> Abilities {
        let discard = self.punches.load(Ordering::Relaxed);
        Abilities { discard, flush: true, ..Abilities::default() }
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        // Every operation waits for the system.
        context.may_wait()?;
        let mut job = [Job::new(operation)];
        self.submit_all(context.cpu, &mut job);
        job[0].result
    }

    fn submit_all(&self, _cpu: Cpu, jobs: &mut [Job<'_>]) {
        let mut lease = self.pool.lease();
        if let Err(error) = batch::run(&mut lease, self, jobs) {
            lease.broken = true;
            tracing::error!("a ring for writing back failed: {error}");
        }
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let (kind, next) = self.extent_at(at, end);
            if let ControlFlow::Break(()) = visit(Extent { length: next - at, kind }) {
                break;
            }
            at = next;
        }
        Ok(())
    }
}
