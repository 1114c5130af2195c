//! The requests of a driver (virtio 1.2, 5.2.6), and how they are carried out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use block::{BlockDevice, Context, IoError, Operation, Wait, ZeroMode};
use units::{Cpu, PAGE_SIZE};

use crate::chain::{Chain, Outside};
use crate::config::{RANGE_SECTORS, RANGES, SECTOR};
use crate::memory::Guest;

/// A longer request is carried out in pieces of this many bytes: so much is copied at once.
pub(crate) const PIECE: usize = 128 << 10;
/// Bytes of the header.
const HEADER: u64 = 16;
/// Bytes of a range of a discard or of a write of zeroes.
const RANGE: usize = 16;
/// Bytes of the name of a device.
pub(crate) const ID: usize = 20;

/// The last byte of what the device writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Ok = 0,
    Failed = 1,
    Unsupported = 2,
}

impl From<Outside> for Status {
    fn from(_: Outside) -> Status {
        Status::Failed
    }
}

impl From<IoError> for Status {
    fn from(error: IoError) -> Status {
        match error {
            IoError::Unsupported => Status::Unsupported,
            _ => Status::Failed,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Offset and length in bytes.
    Read(u64, u64),
    Write(u64, u64),
    Flush,
    Id,
    /// The number of ranges.
    Discard(u32),
    WriteZeroes(u32),
}

/// A request, and how far it is carried out.
#[derive(Default, Debug)]
pub(crate) struct Request {
    pub(crate) head: u16,
    pub(crate) chain: Chain,
    kind: Option<Kind>,
    /// Bytes of a read or a write, ranges of the others.
    done: u64,
}

impl Request {
    /// Parses the header of the chain that was just read.
    ///
    /// # Errors
    /// The status of a request that cannot be carried out.
    pub(crate) fn parse(&mut self, memory: &Guest) -> Result<(), Status> {
        self.kind = None;
        self.done = 0;
        let mut header = [0; HEADER as usize];
        self.chain.readable.read(memory, 0, &mut header)?;
        let [kind, sector] = [&header[..4], &header[8..]].map(number);
        // The checks of the lengths: there is a status, as the caller knows.
        let out = self.chain.readable.length() - HEADER;
        let data = self.chain.writable.length() - 1;
        let offset = sector.checked_mul(SECTOR).ok_or(Status::Failed);
        let ranges = || match u32::try_from(out / RANGE as u64) {
            Ok(count @ 1..=RANGES) if out.is_multiple_of(RANGE as u64) => Ok(count),
            _ => Err(Status::Failed),
        };
        // Buffers may lie one above the other, so a small machine could ask for any length.
        let most = u64::from(RANGE_SECTORS) * SECTOR;
        let whole = |length: u64| match length.is_multiple_of(SECTOR) && length <= most {
            true => Ok(length),
            false => Err(Status::Failed),
        };
        self.kind = Some(match kind {
            0 => Kind::Read(offset?, whole(data)?),
            1 => Kind::Write(offset?, whole(out)?),
            4 => Kind::Flush,
            8 => Kind::Id,
            11 => Kind::Discard(ranges()?),
            13 => Kind::WriteZeroes(ranges()?),
            _ => return Err(Status::Unsupported),
        });
        Ok(())
    }

    /// The bytes that a piece of it needs at once.
    pub(crate) fn buffer(&self) -> usize {
        match self.kind {
            Some(Kind::Read(_, length) | Kind::Write(_, length)) => {
                (length - self.done).min(PIECE as u64) as usize
            }
            _ => 0,
        }
    }
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The device, and how it is served.
pub(crate) struct Served {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) cpu: fn() -> Cpu,
    /// The name that drivers show, filled up with zeroes.
    pub(crate) id: [u8; ID],
}

impl Served {
    /// Carries `request` out, or goes on with it; `buffer` is as long as [`Request::buffer`] says.
    /// A panic of the device is a failure too. None if the device would have to wait under
    /// `Wait::No`.
    pub(crate) fn carry_out(
        &self,
        request: &mut Request,
        memory: &Guest,
        buffer: &mut [u8],
        wait: Wait,
    ) -> Option<Status> {
        let go_on = || self.go_on(request, memory, buffer, wait);
        match catch_unwind(AssertUnwindSafe(go_on)) {
            Ok(Ok(())) => Some(Status::Ok),
            Ok(Err(Stopped::WouldBlock)) => None,
            Ok(Err(Stopped::By(status))) => Some(status),
            Err(_) => Some(Status::Failed),
        }
    }

    fn go_on(
        &self,
        request: &mut Request,
        memory: &Guest,
        buffer: &mut [u8],
        wait: Wait,
    ) -> Result<(), Stopped> {
        let Request { chain, kind, done, .. } = request;
        let Chain { readable, writable } = chain;
        match *kind {
            None => return Err(Status::Unsupported.into()),
            Some(Kind::Flush) => self.ask(wait, Operation::Flush)?,
            Some(Kind::Id) => {
                let room = (writable.length() - 1).min(ID as u64) as usize;
                writable.write(memory, 0, &self.id[..room])?;
            }
            Some(Kind::Read(offset, length)) => {
                while *done < length {
                    let (at, bytes) = piece(offset, *done, length, buffer.len())?;
                    let into = &mut buffer[..bytes];
                    self.ask(wait, Operation::Read { offset: at, into: &mut *into })?;
                    writable.write(memory, *done, into)?;
                    *done += bytes as u64;
                }
            }
            Some(Kind::Write(offset, length)) => {
                while *done < length {
                    let (at, bytes) = piece(offset, *done, length, buffer.len())?;
                    let from = &mut buffer[..bytes];
                    readable.read(memory, HEADER + *done, from)?;
                    self.ask(wait, Operation::Write { offset: at, from })?;
                    *done += bytes as u64;
                }
            }
            Some(kind @ (Kind::Discard(count) | Kind::WriteZeroes(count))) => {
                while *done < u64::from(count) {
                    let mut range = [0; RANGE];
                    readable.read(memory, HEADER + *done * RANGE as u64, &mut range)?;
                    self.ask(wait, free(kind, &range)?)?;
                    *done += 1;
                }
            }
        }
        Ok(())
    }

    fn ask(&self, wait: Wait, operation: Operation<'_>) -> Result<(), Stopped> {
        let context = Context { cpu: (self.cpu)(), wait };
        match self.device.perform(context, operation) {
            Err(IoError::WouldBlock) if wait == Wait::No => Err(Stopped::WouldBlock),
            result => result.map_err(|error| Status::from(error).into()),
        }
    }
}

/// Why a request is not done.
enum Stopped {
    WouldBlock,
    By(Status),
}

impl<S: Into<Status>> From<S> for Stopped {
    fn from(status: S) -> Stopped {
        Stopped::By(status.into())
    }
}

/// The offset and length of the next piece of a request of `length` bytes at `offset`, of which
/// `done` are done. It ends with a page, for a page is written as a whole or not at all.
fn piece(offset: u64, done: u64, length: u64, room: usize) -> Result<(u64, usize), Status> {
    let at = offset.checked_add(done).ok_or(Status::Failed)?;
    let left = length - done;
    if left <= room as u64 {
        return Ok((at, left as usize));
    }
    // `room` is a whole number of pages here.
    Ok((at, room - (at % PAGE_SIZE as u64) as usize))
}

/// The operation of a range of a discard or of a write of zeroes.
fn free(kind: Kind, range: &[u8; RANGE]) -> Result<Operation<'static>, Status> {
    let [sector, sectors, flags] = [&range[..8], &range[8..12], &range[12..]].map(number);
    if sectors > u64::from(RANGE_SECTORS) {
        return Err(Status::Failed);
    }
    let offset = sector.checked_mul(SECTOR).ok_or(Status::Failed)?;
    let length = sectors * SECTOR;
    match (kind, flags) {
        (Kind::Discard(_), 0) => Ok(Operation::Discard { offset, length }),
        (Kind::WriteZeroes(_), 0) => {
            Ok(Operation::WriteZeroes { offset, length, mode: ZeroMode::KeepAllocated })
        }
        (Kind::WriteZeroes(_), 1) => {
            Ok(Operation::WriteZeroes { offset, length, mode: ZeroMode::MayPunch })
        }
        _ => Err(Status::Unsupported),
    }
}
