//! Parses the driver's requests and answers them. This code does not allocate and takes no lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use block::{BlockDevice, Context, IoError, Operation, Wait, ZeroMode};
use host::errno;
use units::Cpu;

use crate::wire::{self, Descriptor, SECTOR_SHIFT};

/// A request. Offsets and lengths are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Read { offset: u64, length: usize },
    Write { offset: u64, length: usize },
    Discard { offset: u64, length: u64 },
    WriteZeroes { offset: u64, length: u64, mode: ZeroMode },
    Flush,
}

/// Parses a request to a device whose buffers hold `largest` bytes. The device checks the range.
///
/// The error is a Linux error number.
pub(crate) fn parse(request: &Descriptor, largest: usize) -> Result<Request, i32> {
    let operation = request.what & 0xff;
    if operation == wire::FLUSH {
        return Ok(Request::Flush);
    }
    let length = u64::from(request.sectors) << SECTOR_SHIFT;
    let offset = request.start.checked_mul(1 << SECTOR_SHIFT).ok_or(errno::EINVAL)?;
    let data = usize::try_from(length).ok().filter(|length| *length <= largest);
    match operation {
        wire::READ => Ok(Request::Read { offset, length: data.ok_or(errno::EINVAL)? }),
        wire::WRITE => Ok(Request::Write { offset, length: data.ok_or(errno::EINVAL)? }),
        wire::DISCARDED => Ok(Request::Discard { offset, length }),
        wire::ZEROED => {
            let stays = request.what & wire::NO_UNMAP != 0;
            let mode = if stays { ZeroMode::KeepAllocated } else { ZeroMode::MayPunch };
            Ok(Request::WriteZeroes { offset, length, mode })
        }
        _ => Err(errno::EOPNOTSUPP),
    }
}

/// The device, and how it is served.
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

    /// Parses a request; the error is the result for the driver.
    pub(crate) fn parse(&self, request: &Descriptor) -> Result<Request, i32> {
        parse(request, self.largest).map_err(|errno| -errno)
    }

    /// Carries out `request`; its data is in `buffer`, or is read into it. Returns the result for
    /// the driver: the bytes transferred, or a negative Linux error number. A panic of the device
    /// is an error too. None if the device would have to wait under `Wait::No`: the request is to
    /// be answered again then, by a thread that may wait.
    pub(crate) fn answer(&self, request: Request, buffer: &mut [u8], wait: Wait) -> Option<i32> {
        let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(request, buffer, wait)));
        Some(match done {
            Ok(Ok(moved)) => i32::try_from(moved).unwrap_or(-errno::EIO),
            Ok(Err(IoError::WouldBlock)) if wait == Wait::No => return None,
            Ok(Err(IoError::WouldBlock)) => -errno::EIO,
            Ok(Err(error)) => -error.errno(),
            Err(_) => -errno::EIO,
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
