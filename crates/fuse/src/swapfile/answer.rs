//! Answers requests to the file with operations of its device.
//!
//! The file behaves as the files of [`Mount`](crate::Mount) do. Its size is the size of the device.
//! A read or a write that passes the end is cut off there. A write that begins at the end gets
//! ENOSPC. O_TRUNC changes nothing. This code does not allocate and takes no lock.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use block::{BlockDevice, Context, IoError, Operation, Wait};
use host::{errno, flags};
use sync::atomic::{AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE};

use super::reply::{Attributes, Reply};
use super::wire::{Call, Request, SET_OPEN, SET_RIGHTS, SET_SIZE};
use crate::ranges;

/// The file: one device, and its attributes from the beginning.
pub(crate) struct File {
    device: Arc<dyn BlockDevice>,
    attributes: Attributes,
    read_only: bool,
    flush: bool,
    cpu: fn() -> Cpu,
    opens: AtomicU64,
}

/// An answer, and the number of bytes of the data that follow it.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) data: usize,
}

/// What a request comes to.
pub(crate) enum Outcome {
    Answer(Answer),
    /// It has no answer.
    Silent,
    /// It would have to wait under `Wait::No`: it is to be carried out again.
    WouldWait,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Answer {
        Answer { reply, data: 0 }
    }
}

impl File {
    /// A file that belongs to `owner`, a user and a group. The device keeps its size.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, cpu: fn() -> Cpu, owner: (u32, u32)) -> File {
        let abilities = device.abilities();
        let rights = if abilities.read_only { 0o400 } else { 0o600 };
        let attributes = Attributes {
            size: device.geometry().bytes,
            mode: flags::S_IFREG | rights,
            owner,
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            block: PAGE_SIZE as u32,
        };
        let (read_only, flush) = (abilities.read_only, abilities.flush);
        File { device, attributes, read_only, flush, cpu, opens: AtomicU64::new(0) }
    }

    /// How many of the opens that it answered are not closed. The close of a file that an earlier
    /// process opened takes one away.
    pub(crate) fn open_count(&self) -> u64 {
        self.opens.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned()
    }

    /// Carries out `request`. `data` has the data of a write, and gets those of a read.
    pub(crate) fn answer(&self, request: &Request, data: &mut [u8], wait: Wait) -> Outcome {
        let unique = request.unique;
        let answer = match &request.call {
            Call::Silent => return Outcome::Silent,
            Call::Read { offset, length } => self
                .read(*offset, *length, data, wait)
                .map(|length| Answer { reply: Reply::data(unique, length), data: length }),
            other => self.answer_without_data(unique, other, data, wait).map(Answer::from),
        };
        match answer {
            Err(errno::EAGAIN) if wait == Wait::No => Outcome::WouldWait,
            answer => Outcome::Answer(answer.unwrap_or_else(|it| Reply::error(unique, it).into())),
        }
    }

    fn answer_without_data(
        &self,
        unique: u64,
        call: &Call,
        data: &[u8],
        wait: Wait,
    ) -> Result<Reply, i32> {
        match call {
            Call::Write { offset, length } => {
                let data = data.get(..*length).ok_or(errno::EIO)?;
                self.write(*offset, data, wait).map(|written| Reply::written(unique, written))
            }
            Call::Allocate { offset, length, mode } => {
                self.allocate((*offset, *length), *mode, wait).map(|()| Reply::done(unique))
            }
            Call::Sync => self.flush(wait).map(|()| Reply::done(unique)),
            Call::GetAttr => Ok(Reply::attributes(unique, &self.attributes)),
            Call::SetAttr { valid, size } => self.set(*valid, *size).map(|()| {
                // Nothing changed; the answer holds the attributes.
                Reply::attributes(unique, &self.attributes)
            }),
            Call::Open { flags } => self.open(*flags).map(|()| Reply::opened(unique)),
            Call::Release => {
                self.opens.fetch_sub(1, Ordering::Relaxed);
                Ok(Reply::done(unique))
            }
            Call::StatFs => {
                let blocks = units::pages_for(self.attributes.size);
                Ok(Reply::statistics(unique, blocks, PAGE_SIZE as u32))
            }
            // Only a kernel without `FOPEN_NOFLUSH` sends a flush.
            Call::Flush | Call::Destroy => Ok(Reply::done(unique)),
            // INIT comes once, before the file exists.
            Call::Init { .. } => Err(errno::EIO),
            // The kernel remembers this and does not ask again.
            Call::Unknown => Err(errno::ENOSYS),
            // These are `answer`'s.
            Call::Read { .. } | Call::Silent => Err(errno::EIO),
        }
    }

    fn read(&self, offset: u64, length: u32, data: &mut [u8], wait: Wait) -> Result<usize, i32> {
        let left = self.attributes.size.saturating_sub(offset);
        let length = (length as usize).min(usize::try_from(left).unwrap_or(usize::MAX));
        // The kernel knows the longest read.
        let into = data.get_mut(..length).ok_or(errno::EIO)?;
        if length > 0 {
            self.submit(Operation::Read { offset, into }, wait)?;
        }
        Ok(length)
    }

    fn write(&self, offset: u64, data: &[u8], wait: Wait) -> Result<usize, i32> {
        let room = self.attributes.size.saturating_sub(offset);
        if data.is_empty() {
            return Ok(0);
        }
        if room == 0 {
            return Err(errno::ENOSPC);
        }
        let from = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        self.submit(Operation::Write { offset, from }, wait)?;
        Ok(from.len())
    }

    fn allocate(&self, (offset, length): (u64, u64), mode: i32, wait: Wait) -> Result<(), i32> {
        let kept = self.attributes.size.saturating_sub(offset).min(length);
        let discard = self.device.abilities().discard;
        match ranges::operation(mode, (offset, length), kept, discard)? {
            Some(operation) => self.submit(operation, wait),
            None => Ok(()),
        }
    }

    fn flush(&self, wait: Wait) -> Result<(), i32> {
        if self.flush { self.submit(Operation::Flush, wait) } else { Ok(()) }
    }

    fn set(&self, valid: u32, size: u64) -> Result<(), i32> {
        if valid & SET_RIGHTS != 0 {
            return Err(errno::EPERM);
        }
        // O_TRUNC arrives as a change of size to 0 without an open file; a disk ignores it.
        let ignored = size == self.attributes.size || size == 0 && valid & SET_OPEN == 0;
        if valid & SET_SIZE != 0 && !ignored { Err(errno::EINVAL) } else { Ok(()) }
    }

    fn open(&self, flags: i32) -> Result<(), i32> {
        if flags & flags::O_ACCMODE != flags::O_RDONLY && self.read_only {
            return Err(errno::EROFS);
        }
        self.opens.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn submit(&self, operation: Operation<'_>, wait: Wait) -> Result<(), i32> {
        let context = Context { cpu: (self.cpu)(), wait };
        ranges::perform(&*self.device, context, operation).map_err(IoError::errno)
    }
}
