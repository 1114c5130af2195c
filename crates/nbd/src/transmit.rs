//! Requests and their replies.

use std::io;
use std::sync::Arc;

use block::{BlockDevice, Context, IoError, Operation, Wait, ZeroMode};
use units::Cpu;

use crate::MAX_PAYLOAD;
use crate::buffer::Output;
use crate::errors::{
    EINVAL, ENOMEM, ENOTSUP, EOVERFLOW, EPERM, on_the_wire, on_the_wire_for_write,
};
use crate::later::Later;
use crate::outcome::{Answer, Discarding, Outcome, Progress};
use crate::wire::{self, REQUEST_HEADER, Request, SIMPLE_HEADER, cmd, parse_request};

mod reply;
mod runs;

use runs::Runs;

/// A refused WRITE longer than this, in bytes, ends the connection; a shorter one is discarded.
const MAX_DISCARDED: u32 = 4 * MAX_PAYLOAD;

/// A connection after negotiation.
pub(crate) struct Transmission {
    served: Arc<Served>,
    /// `base:allocation` was chosen.
    contexts: bool,
    /// The runs of a range; the memory is kept so that a request allocates nothing.
    runs: Runs,
    later: Option<Arc<Later>>,
    /// Requests wait on this thread only if there are no waiters.
    wait: Wait,
}

/// Whether a request was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answered {
    /// Its reply is in the output.
    Now,
    /// The request would have to wait. Nothing is in the output. The request can be repeated: a
    /// repetition makes the same changes.
    WouldBlock,
}

/// Why a request failed.
enum Failure {
    /// An error of the protocol.
    Error(u32),
    WouldBlock,
}

impl From<u32> for Failure {
    fn from(error: u32) -> Failure {
        Failure::Error(error)
    }
}

/// The device of a client, and how replies are sent. Any thread may carry out requests with it.
struct Served {
    device: Arc<dyn BlockDevice>,
    structured: bool,
    read_only: bool,
    fast_zero: bool,
}

impl Transmission {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        structured: bool,
        contexts: bool,
    ) -> Transmission {
        let abilities = device.abilities();
        let (read_only, fast_zero) = (abilities.read_only, abilities.fast_zero);
        let served = Arc::new(Served { device, structured, read_only, fast_zero });
        Transmission { served, contexts, runs: Runs::default(), later: None, wait: Wait::Yes }
    }

    /// Sends requests that would wait to `later` from now on.
    pub(crate) fn put_off_to(&mut self, later: Option<Arc<Later>>) {
        self.wait = if later.is_some() { Wait::No } else { Wait::Yes };
        self.later = later;
    }

    /// Carries out the request at the start of `input`.
    #[inline]
    pub(crate) fn request(
        &mut self,
        input: &[u8],
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<Outcome> {
        let request = match parse_request(input) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(Outcome::Progress(Progress::Need(REQUEST_HEADER))),
            Err(_) => return Ok(Outcome::Progress(Progress::Close)),
        };
        let context = Context { cpu, wait: self.wait };
        let answered = match request.command {
            cmd::WRITE => return self.write(request, input, output, context),
            cmd::DISC => return Ok(Outcome::Progress(Progress::Close)),
            cmd::READ if !Transmission::may_answer(request, output) => {
                return Ok(Outcome::Progress(Progress::Short(request.length as usize)));
            }
            cmd::READ => self.served.read(request, &mut self.runs, output, context)?,
            cmd::BLOCK_STATUS => self.block_status(request, output, cpu)?,
            _ => self.served.simple(request, output, context)?,
        };
        self.progress(answered, request, &[], output, cpu)
    }

    /// Is there memory for the reply to a READ? A READ that is too long has a short reply.
    #[inline]
    fn may_answer(request: Request, output: &mut Output) -> bool {
        request.length > MAX_PAYLOAD || output.try_share(request.length as usize)
    }

    #[inline]
    fn progress(
        &self,
        answered: Answered,
        request: Request,
        from: &[u8],
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<Outcome> {
        match answered {
            Answered::Now => Ok(Outcome::Progress(Progress::Consumed(REQUEST_HEADER + from.len()))),
            Answered::WouldBlock => self.put_off(request, from, output, cpu),
        }
    }

    /// Hands a request to a thread that may wait. If there is no memory for this, it is carried out
    /// here.
    #[cold]
    fn put_off(
        &self,
        request: Request,
        from: &[u8],
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<Outcome> {
        let used = Ok(Outcome::Progress(Progress::Consumed(REQUEST_HEADER + from.len())));
        let Some(later) = &self.later else { return used };
        let payload =
            if request.command == cmd::READ { request.length as usize } else { from.len() };
        if !later.has_room(payload) {
            return Ok(Outcome::Progress(Progress::Full(payload)));
        }
        let mut data = Vec::new();
        let share = later.try_share(payload);
        let Some(share) = share.filter(|_| data.try_reserve_exact(from.len()).is_ok()) else {
            self.served.carry_out(request, from, output, cpu)?;
            return used;
        };
        data.extend_from_slice(from);
        let served = self.served.clone();
        later.begin(payload, share, move |output, cpu| {
            served.carry_out(request, &data, output, cpu)
        });
        used
    }

    #[inline]
    fn write(
        &self,
        request: Request,
        input: &[u8],
        output: &mut Output,
        context: Context,
    ) -> io::Result<Outcome> {
        if let Err(error) = self.served.may_write(request) {
            if request.length > MAX_DISCARDED {
                return Ok(Outcome::Progress(Progress::Close));
            }
            let then = Answer::Request { cookie: request.cookie, error };
            let discarding = Discarding { left: u64::from(request.length), then };
            return Ok(Outcome::Discard(REQUEST_HEADER, discarding));
        }
        let used = REQUEST_HEADER + request.length as usize;
        let Some(from) = input.get(REQUEST_HEADER..used) else {
            return Ok(Outcome::Progress(Progress::Need(used)));
        };
        let answered = self.served.write(request, from, output, context)?;
        self.progress(answered, request, from, output, context.cpu)
    }

    fn block_status(
        &mut self,
        request: Request,
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<Answered> {
        let refused = if !self.contexts {
            Some("no metadata context was negotiated")
        } else if request.length == 0 {
            Some("the range is empty")
        } else if check_flags(request, cmd::FLAG_REQ_ONE).is_err() {
            Some("an unknown flag is set")
        } else {
            None
        };
        if let Some(why) = refused {
            if self.served.structured {
                reply::error(output, request, EINVAL, format_args!("{why}"))?;
            } else {
                output.put(&wire::simple_reply(request.cookie, EINVAL))?;
            }
            return Ok(Answered::Now);
        }
        match self.runs.of_allocation(&*self.served.device, cpu, request) {
            Ok(()) => reply::block_status(output, request, self.runs.iter())?,
            Err(failed) => {
                reply::error(output, request, on_the_wire(failed), format_args!("{failed}"))?;
            }
        }
        Ok(Answered::Now)
    }
}

/// An error if a flag is set that this command does not know.
#[inline]
fn check_flags(request: Request, known: u16) -> Result<(), u32> {
    if request.flags & !(known | cmd::FLAG_FUA) != 0 { Err(EINVAL) } else { Ok(()) }
}

impl Served {
    /// Lets the device carry out an operation. The device checks the range; an empty range is
    /// checked here.
    #[inline]
    fn ask(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
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
    fn carry_out(
        &self,
        request: Request,
        from: &[u8],
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<()> {
        let context = Context::waiting(cpu);
        match request.command {
            cmd::READ => self.read(request, &mut Runs::default(), output, context),
            cmd::WRITE => self.write(request, from, output, context),
            _ => self.simple(request, output, context),
        }
        .map(drop)
    }

    /// As `ask`; `on_the_wire` converts the error to one of the protocol.
    #[inline]
    fn perform(
        &self,
        context: Context,
        operation: Operation<'_>,
        on_the_wire: impl Fn(IoError) -> u32,
    ) -> Result<(), Failure> {
        match self.ask(context, operation) {
            Ok(()) => Ok(()),
            Err(IoError::WouldBlock) => Err(Failure::WouldBlock),
            Err(error) => Err(Failure::Error(on_the_wire(error))),
        }
    }

    /// Checks that the range lies within the device now, for a range that the device does not
    /// check.
    #[cold]
    fn lies_within(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let end = offset.checked_add(length);
        let bytes = self.device.geometry().bytes;
        if end.is_none_or(|end| end > bytes) { Err(IoError::OutOfRange) } else { Ok(()) }
    }

    /// Puts a reply without data.
    #[inline]
    fn reply(
        request: Request,
        done: Result<(), Failure>,
        output: &mut Output,
    ) -> io::Result<Answered> {
        let error = match done {
            Ok(()) => 0,
            Err(Failure::Error(error)) => error,
            Err(Failure::WouldBlock) => return Ok(Answered::WouldBlock),
        };
        output.put(&wire::simple_reply(request.cookie, error))?;
        Ok(Answered::Now)
    }

    #[inline]
    fn write(
        &self,
        request: Request,
        from: &[u8],
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        let operation = Operation::Write { offset: request.offset, from };
        let written = self.perform(context, operation, on_the_wire_for_write);
        let done = written.and_then(|()| self.force(request, context));
        Served::reply(request, done, output)
    }

    #[inline]
    fn may_write(&self, request: Request) -> Result<(), u32> {
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
    fn force(&self, request: Request, context: Context) -> Result<(), Failure> {
        if request.flags & cmd::FLAG_FUA == 0 {
            return Ok(());
        }
        self.perform(context, Operation::Flush, on_the_wire)
    }

    /// Carries out the commands without a payload in either direction.
    fn simple(
        &self,
        request: Request,
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        Served::reply(request, self.change(request, context), output)
    }

    fn change(&self, request: Request, context: Context) -> Result<(), Failure> {
        let (offset, length) = (request.offset, u64::from(request.length));
        match request.command {
            cmd::FLUSH => {
                if request.flags & !cmd::FLAG_FUA != 0 || offset != 0 || length != 0 {
                    return Err(EINVAL.into());
                }
                self.perform(context, Operation::Flush, on_the_wire)
            }
            cmd::TRIM => {
                if self.read_only {
                    return Err(EPERM.into());
                }
                check_flags(request, 0)?;
                self.perform(context, Operation::Discard { offset, length }, on_the_wire)?;
                self.force(request, context)
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
                self.perform(context, operation, on_the_wire_for_write)?;
                self.force(request, context)
            }
            // A prefetch does nothing: the data is in memory already.
            cmd::CACHE => {
                check_flags(request, 0)?;
                self.lies_within(offset, length).map_err(|error| on_the_wire(error).into())
            }
            _ => Err(EINVAL.into()),
        }
    }

    #[inline]
    fn may_read(&self, request: Request) -> Result<(), u32> {
        if request.length > MAX_PAYLOAD {
            // Older clients know no EOVERFLOW; those that ask for structured replies do.
            return Err(if self.structured { EOVERFLOW } else { EINVAL });
        }
        check_flags(request, if self.structured { cmd::FLAG_DF } else { 0 })
    }

    #[cold]
    fn refuse_read(&self, request: Request, error: u32, output: &mut Output) -> io::Result<()> {
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
    fn read(
        &self,
        request: Request,
        runs: &mut Runs,
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        if let Err(error) = self.may_read(request) {
            self.refuse_read(request, error, output)?;
            return Ok(Answered::Now);
        }
        if !self.structured {
            return self.read_simple(request, output, context);
        }
        let before = output.len();
        let answered = self.read_structured(request, runs, output, context)?;
        if answered == Answered::WouldBlock {
            output.cut(before);
        }
        Ok(answered)
    }

    #[inline]
    fn read_simple(
        &self,
        request: Request,
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        let whole = SIMPLE_HEADER + request.length as usize;
        let Ok(room) = output.room(whole) else {
            return Served::reply(request, Err(ENOMEM.into()), output);
        };
        let (header, into) = room.split_at_mut(SIMPLE_HEADER);
        let operation = Operation::Read { offset: request.offset, into };
        match self.perform(context, operation, on_the_wire) {
            Ok(()) => {
                header.copy_from_slice(&wire::simple_reply(request.cookie, 0));
                output.keep(whole);
                Ok(Answered::Now)
            }
            failed => Served::reply(request, failed, output),
        }
    }

    fn read_structured(
        &self,
        request: Request,
        runs: &mut Runs,
        output: &mut Output,
        context: Context,
    ) -> io::Result<Answered> {
        let refuse = |failed: IoError, output: &mut Output| {
            reply::error(output, request, on_the_wire(failed), format_args!("{failed}"))
                .map(|()| Answered::Now)
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
                reply::hole(output, request, offset, run.length, left == 0)?;
            } else {
                let read = |into: &mut [u8]| self.ask(context, Operation::Read { offset, into });
                match reply::data(output, request, (offset, run.length), left == 0, read)? {
                    Ok(()) => {}
                    Err(IoError::WouldBlock) => return Ok(Answered::WouldBlock),
                    Err(_) => return Ok(Answered::Now),
                }
            }
            offset += u64::from(run.length);
        }
        Ok(Answered::Now)
    }
}
