//! The device of a client, and how its requests are answered.

use std::io;
use std::sync::Arc;

use block::{BlockDevice, Context, IoError, Operation, Wait, ZeroMode};
use units::Cpu;

use super::reply;
use super::runs::Runs;
use crate::MAX_PAYLOAD;
use crate::buffer::Output;
use crate::errors::{EINVAL, ENOMEM, ENOTSUP, EOVERFLOW, EPERM, on_the_wire};
use crate::wire::{self, Request, SIMPLE_HEADER, cmd};

/// Whether a request was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// Its reply is in the output.
    Now,
    /// Likewise; the reply is an error.
    Failed,
    /// The request would have to wait. Nothing is in the output. The request can be repeated: a
    /// repetition makes the same changes.
    WouldBlock,
}

/// Why a request failed.
pub(super) enum Failure {
    /// An error of the protocol.
    Protocol(u32),
    Device(IoError),
}

impl From<u32> for Failure {
    fn from(error: u32) -> Failure {
        Failure::Protocol(error)
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Failure {
        Failure::Device(error)
    }
}

/// The device of a client, and how replies are sent. Any thread may carry out requests with it.
pub(super) struct Served {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) structured: bool,
    read_only: bool,
    fast_zero: bool,
}

/// An error if a flag is set that this command does not know.
#[inline]
pub(super) fn check_flags(request: Request, known: u16) -> Result<(), u32> {
    if request.flags & !(known | cmd::FLAG_FUA) != 0 { Err(EINVAL) } else { Ok(()) }
}

impl Served {
    /// Serves `device`, with structured replies or without.
    pub(super) fn new(device: Arc<dyn BlockDevice>, structured: bool) -> Served {
        let abilities = device.abilities();
        let (read_only, fast_zero) = (abilities.read_only, abilities.fast_zero);
        Served { device, structured, read_only, fast_zero }
    }

    /// Lets the device carry out an operation. The device checks the range; an empty range is
    /// checked here.
    #[inline]
    pub(super) fn ask(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        if let (offset, 0) = operation.range()
            && !matches!(operation, Operation::Flush)
        {
            return self.lies_within(offset, 0);
        }
        match self.device.perform(context, operation) {
            // The device was allowed to wait.
            Err(IoError::WouldBlock) if context.wait == Wait::Yes => Err(IoError::Failed),
            done => done,
        }
    }

    /// Carries out and answers a request, and waits for the device.
    pub(super) fn carry_out(
        &self,
        request: Request,
        from: &[u8],
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<()> {
        let context = Context::waiting(cpu);
        match request.command {
            cmd::READ => self.read(request, &mut Runs::default(), output, context),
            _ => self.answer(request, from, output, context),
        }
        .map(drop)
    }

    /// Checks that the range lies within the device now, for a range that the device does not
    /// check.
    #[cold]
    pub(super) fn lies_within(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let end = offset.checked_add(length);
        let bytes = self.device.geometry().bytes;
        if end.is_none_or(|end| end > bytes) { Err(IoError::OutOfRange) } else { Ok(()) }
    }

    /// Puts a reply without data.
    #[inline]
    pub(super) fn reply(
        request: Request,
        done: Result<(), impl Into<Failure>>,
        output: &mut Output,
    ) -> io::Result<Answered> {
        let (error, answered) = match done.map_err(Into::into) {
            Ok(()) => (0, Answered::Now),
            Err(Failure::Device(IoError::WouldBlock)) => return Ok(Answered::WouldBlock),
            Err(Failure::Device(error)) => (on_the_wire(request.command, error), Answered::Failed),
            Err(Failure::Protocol(error)) => (error, Answered::Failed),
        };
        output.put(&wire::simple_reply(request.cookie, error))?;
        Ok(answered)
    }

    #[inline]
    pub(super) fn may_write(&self, request: Request) -> Result<(), u32> {
        if self.read_only {
            return Err(EPERM);
        }
        if request.length > MAX_PAYLOAD {
            return Err(EINVAL);
        }
        check_flags(request, 0)
    }

    /// Flushes the device if the request has FUA.
    #[inline]
    pub(super) fn force(&self, request: Request, context: Context) -> Result<(), IoError> {
        if request.flags & cmd::FLAG_FUA == 0 {
            return Ok(());
        }
        self.ask(context, Operation::Flush)
    }

    /// Carries out and answers any request but a READ. `from` are the data of a WRITE, which
    /// [`Served::may_write`] has let through.
    #[inline]
    pub(super) fn answer(
        &self,
        request: Request,
        from: &[u8],
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        Served::reply(request, self.change(request, from, context), output)
    }

    #[inline]
    fn change(&self, request: Request, from: &[u8], context: Context) -> Result<(), Failure> {
        let (offset, length) = (request.offset, u64::from(request.length));
        match request.command {
            cmd::WRITE => self.ask(context, Operation::Write { offset, from })?,
            cmd::FLUSH => {
                if request.flags & !cmd::FLAG_FUA != 0 || offset != 0 || length != 0 {
                    return Err(EINVAL.into());
                }
                return Ok(self.ask(context, Operation::Flush)?);
            }
            cmd::TRIM => {
                if self.read_only {
                    return Err(EPERM.into());
                }
                check_flags(request, 0)?;
                self.ask(context, Operation::Discard { offset, length })?;
            }
            cmd::WRITE_ZEROES => {
                if self.read_only {
                    return Err(EPERM.into());
                }
                check_flags(request, cmd::FLAG_NO_HOLE | cmd::FLAG_FAST_ZERO)?;
                if request.flags & cmd::FLAG_FAST_ZERO != 0 && !self.fast_zero {
                    return Err(ENOTSUP.into());
                }
                let keep = request.flags & cmd::FLAG_NO_HOLE != 0;
                let mode = if keep { ZeroMode::KeepAllocated } else { ZeroMode::MayPunch };
                let operation = Operation::WriteZeroes { offset, length, mode };
                self.ask(context, operation)?;
            }
            // A prefetch does nothing: the data is in memory already.
            cmd::CACHE => {
                check_flags(request, 0)?;
                return Ok(self.lies_within(offset, length)?);
            }
            _ => return Err(EINVAL.into()),
        }
        Ok(self.force(request, context)?)
    }

    #[inline]
    pub(super) fn may_read(&self, request: Request) -> Result<(), u32> {
        if request.length > MAX_PAYLOAD {
            // Older clients know no EOVERFLOW; those that ask for structured replies do.
            return Err(if self.structured { EOVERFLOW } else { EINVAL });
        }
        check_flags(request, if self.structured { cmd::FLAG_DF } else { 0 })
    }

    #[cold]
    pub(super) fn refuse_read(
        &self,
        request: Request,
        error: u32,
        output: &mut Output,
    ) -> io::Result<()> {
        if !self.structured {
            return output.put(&wire::simple_reply(request.cookie, error));
        }
        let why = match error {
            EOVERFLOW => "a READ is at most 32 MiB long",
            _ => "an unknown flag is set",
        };
        reply::error(output, request, error, format_args!("{why}"))
    }

    #[inline]
    pub(super) fn read(
        &self,
        request: Request,
        runs: &mut Runs,
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        if let Err(error) = self.may_read(request) {
            self.refuse_read(request, error, output)?;
            return Ok(Answered::Failed);
        }
        if !self.structured {
            return self.read_simple(request, output, context);
        }
        let before = output.len();
        let answered = self.read_structured(request, runs, output, context, true)?;
        if answered == Answered::WouldBlock {
            output.cut(before);
        }
        Ok(answered)
    }

    #[inline]
    pub(super) fn read_simple(
        &self,
        request: Request,
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        let whole = SIMPLE_HEADER + request.length as usize;
        let Ok(room) = output.room(whole) else {
            return Served::reply(request, Err(ENOMEM), output);
        };
        let (header, into) = room.split_at_mut(SIMPLE_HEADER);
        let operation = Operation::Read { offset: request.offset, into };
        match self.ask(context, operation) {
            Ok(()) => {
                header.copy_from_slice(&wire::simple_reply(request.cookie, 0));
                output.keep(whole);
                Ok(Answered::Now)
            }
            failed => Served::reply(request, failed, output),
        }
    }

    /// With `last` the reply ends here; otherwise more of it comes.
    pub(super) fn read_structured(
        &self,
        request: Request,
        runs: &mut Runs,
        output: &mut Output,
        context: Context,
        last: bool,
    ) -> io::Result<Answered> {
        let refuse = |failed: IoError, output: &mut Output| {
            reply::device_error(output, request, failed).map(|()| Answered::Failed)
        };
        if request.length == 0 {
            let operation = Operation::Read { offset: request.offset, into: &mut [] };
            return match self.ask(context, operation) {
                Ok(()) => reply::none(output, request).map(|()| Answered::Now),
                Err(IoError::WouldBlock) => Ok(Answered::WouldBlock),
                Err(failed) => refuse(failed, output),
            };
        }
        if request.flags & cmd::FLAG_DF != 0 {
            runs.set_one(request.length);
        } else {
            match runs.of_zeroes(&*self.device, context.cpu, request) {
                Ok(()) => {}
                Err(failed @ (IoError::OutOfRange | IoError::NotReady)) => {
                    return refuse(failed, output);
                }
                Err(_) => runs.set_one(request.length),
            }
        }
        let mut offset = request.offset;
        let mut left = request.length;
        for run in runs.iter() {
            left -= run.length;
            if run.state != 0 {
                reply::hole(output, request, offset, run.length, last && left == 0)?;
            } else {
                let read = |into: &mut [u8]| self.ask(context, Operation::Read { offset, into });
                let ends = last && left == 0;
                match reply::data(output, request, (offset, run.length), ends, read)? {
                    Ok(()) => {}
                    Err(IoError::WouldBlock) => return Ok(Answered::WouldBlock),
                    Err(_) => return Ok(Answered::Failed),
                }
            }
            offset += u64::from(run.length);
        }
        Ok(Answered::Now)
    }
}
