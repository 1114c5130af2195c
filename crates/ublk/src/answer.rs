//! Requests of the driver, and how the device answers them. Nothing here allocates or locks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use block::{BlockDevice, Context, IoError, Operation, Wait, ZeroMode};
use units::Cpu;

use crate::wire::{self, Descriptor, SECTOR_SHIFT};

/// What is asked. Offsets and lengths are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Read { offset: u64, length: usize },
    Write { offset: u64, length: usize },
    Discard { offset: u64, length: u64 },
    WriteZeroes { offset: u64, length: u64, mode: ZeroMode },
    Flush,
}

/// Reads a request to a device, in which one buffer holds `largest` bytes. The device judges the
/// range.
///
/// The error is a Linux error number.
pub(crate) fn parse(request: &Descriptor, largest: usize) -> Result<Request, i32> {
    let operation = request.what & 0xff;
    if operation == wire::FLUSH {
        return Ok(Request::Flush);
    }
    let length = u64::from(request.sectors) << SECTOR_SHIFT;
    let offset = request.start.checked_mul(1 << SECTOR_SHIFT).ok_or(libc::EINVAL)?;
    let data = usize::try_from(length).ok().filter(|length| *length <= largest);
    match operation {
        wire::READ => Ok(Request::Read { offset, length: data.ok_or(libc::EINVAL)? }),
        wire::WRITE => Ok(Request::Write { offset, length: data.ok_or(libc::EINVAL)? }),
        wire::DISCARDED => Ok(Request::Discard { offset, length }),
        wire::ZEROED => {
            let stays = request.what & wire::NO_UNMAP != 0;
            let mode = if stays { ZeroMode::KeepAllocated } else { ZeroMode::MayPunch };
            Ok(Request::WriteZeroes { offset, length, mode })
        }
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// The device, and what is known of it from the beginning.
pub(crate) struct Served {
    device: Arc<dyn BlockDevice>,
    cpu: fn() -> Cpu,
    largest: usize,
}

impl Served {
    /// Serves `device` with buffers of `largest` bytes.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, cpu: fn() -> Cpu, largest: usize) -> Served {
        Served { device, cpu, largest }
    }

    /// Reads what is asked; the error is what the driver is told.
    pub(crate) fn parse(&self, request: &Descriptor) -> Result<Request, i32> {
        parse(request, self.largest).map_err(|errno| -errno)
    }

    /// Carries `request` out, whose data is or will be in `buffer`. What the driver is told: how
    /// many bytes were moved, or a negative Linux error number. A device that panics has failed.
    /// Nothing if the device would have to wait, and was not to; nothing has changed then.
    pub(crate) fn answer(&self, request: Request, buffer: &mut [u8], wait: Wait) -> Option<i32> {
        let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(request, buffer, wait)));
        Some(match done {
            Ok(Ok(moved)) => i32::try_from(moved).unwrap_or(-libc::EIO),
            Ok(Err(IoError::WouldBlock)) if wait == Wait::No => return None,
            Ok(Err(IoError::WouldBlock)) => -libc::EIO,
            Ok(Err(error)) => -error.errno(),
            Err(_) => -libc::EIO,
        })
    }

    fn carry_out(&self, request: Request, buffer: &mut [u8], wait: Wait) -> Result<usize, IoError> {
        let (operation, moved) = match request {
            Request::Read { offset, length } => {
                let into = buffer.get_mut(..length).ok_or(IoError::OutOfRange)?;
                (Operation::Read { offset, into }, length)
            }
            Request::Write { offset, length } => {
                let from = buffer.get(..length).ok_or(IoError::OutOfRange)?;
                (Operation::Write { offset, from }, length)
            }
            Request::Discard { offset, length } => (Operation::Discard { offset, length }, 0),
            Request::WriteZeroes { offset, length, mode } => {
                (Operation::WriteZeroes { offset, length, mode }, 0)
            }
            Request::Flush => (Operation::Flush, 0),
        };
        let context = Context { cpu: (self.cpu)(), wait };
        self.device.perform(context, operation).map(|()| moved)
    }
}
