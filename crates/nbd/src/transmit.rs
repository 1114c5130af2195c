//! Requests and their replies.

use std::io;
use std::sync::Arc;

use block::{BlockDevice, Operation, ZeroMode};
use units::{Cpu, PAGE_SIZE};

use crate::MAX_PAYLOAD;
use crate::buffer::Output;
use crate::errors::{
    EINVAL, ENOMEM, ENOSPC, ENOTSUP, EOVERFLOW, EPERM, on_the_wire, on_the_wire_for_write,
};
use crate::later::Later;
use crate::session::{Answer, Discarding, Outcome, Progress};
use crate::wire::{self, REQUEST_HEADER, Request, SIMPLE_HEADER, cmd, parse_request};

mod reply;
mod runs;

use runs::Runs;

/// A WRITE above this is not even thrown away: the connection is dropped.
const MAX_DISCARDED: u32 = 4 * MAX_PAYLOAD;

/// A connection after negotiation.
pub(crate) struct Transmission {
    served: Arc<Served>,
    /// `base:allocation` was chosen.
    contexts: bool,
    /// Memory for what a range holds, kept so that a request allocates nothing.
    runs: Runs,
    later: Option<Arc<Later>>,
}

/// A device as a client has it: what requests are carried out with, on any thread.
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
        Transmission { served, contexts, runs: Runs::default(), later: None }
    }

    /// Requests that may have to wait go there from now on.
    pub(crate) fn put_off_to(&mut self, later: Option<Arc<Later>>) {
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
        match request.command {
            cmd::WRITE => return self.write(request, input, output, cpu),
            cmd::DISC => return Ok(Outcome::Progress(Progress::Close)),
            cmd::READ => {
                if let Err(error) = self.served.may_read(request) {
                    self.served.refuse_read(request, error, output)?;
                } else if self.may_wait(request) {
                    return self.put_off(request, &[], output);
                } else {
                    self.served.read(request, &mut self.runs, output, cpu)?;
                }
            }
            cmd::BLOCK_STATUS => self.block_status(request, output)?,
            cmd::TRIM | cmd::WRITE_ZEROES if self.edges_may_wait(request) => {
                return self.put_off(request, &[], output);
            }
            _ => self.served.simple(request, output, cpu)?,
        }
        Ok(Outcome::Progress(Progress::Consumed(REQUEST_HEADER)))
    }

    #[inline]
    fn may_wait(&self, request: Request) -> bool {
        let length = u64::from(request.length);
        self.later.is_some() && length > 0 && self.served.device.may_wait(request.offset, length)
    }

    /// Whole pages are given up without a look at them; parts of pages may have to be fetched.
    fn edges_may_wait(&self, request: Request) -> bool {
        let device = &*self.served.device;
        let (start, length) = (request.offset, u64::from(request.length));
        let end = start.saturating_add(length);
        if self.later.is_none() || length == 0 || end > device.geometry().bytes {
            return false;
        }
        let part = |at: u64| !at.is_multiple_of(PAGE_SIZE as u64);
        (part(start) && device.may_wait(start, 1)) || (part(end) && device.may_wait(end - 1, 1))
    }

    /// Has a request carried out on a thread that may wait.
    #[cold]
    fn put_off(&self, request: Request, from: &[u8], output: &mut Output) -> io::Result<Outcome> {
        let used = Ok(Outcome::Progress(Progress::Consumed(REQUEST_HEADER + from.len())));
        let Some(later) = &self.later else { return used };
        let payload =
            if request.command == cmd::READ { request.length as usize } else { from.len() };
        if !later.has_room(payload) {
            return Ok(Outcome::Progress(Progress::Full(payload)));
        }
        let mut data = Vec::new();
        if data.try_reserve_exact(from.len()).is_err() {
            output.put(&wire::simple_reply(request.cookie, ENOMEM))?;
            return used;
        }
        data.extend_from_slice(from);
        let served = self.served.clone();
        later.begin(payload, move |output, cpu| match request.command {
            cmd::READ => served.read(request, &mut Runs::default(), output, cpu),
            cmd::WRITE => served.write(request, &data, output, cpu),
            _ => served.simple(request, output, cpu),
        });
        used
    }

    #[inline]
    fn write(
        &self,
        request: Request,
        input: &[u8],
        output: &mut Output,
        cpu: Cpu,
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
        if self.may_wait(request) {
            return self.put_off(request, from, output);
        }
        self.served.write(request, from, output, cpu)?;
        Ok(Outcome::Progress(Progress::Consumed(used)))
    }

    fn block_status(&mut self, request: Request, output: &mut Output) -> io::Result<()> {
        let refused = if !self.contexts {
            Some("no metadata context was negotiated")
        } else if request.length == 0 {
            Some("the range is empty")
        } else if self.served.check(request, cmd::FLAG_REQ_ONE, EINVAL).is_err() {
            Some("the range passes the end of the device, or an unknown flag is set")
        } else {
            None
        };
        if let Some(why) = refused {
            if self.served.structured {
                return reply::error(output, request, EINVAL, format_args!("{why}"));
            }
            return output.put(&wire::simple_reply(request.cookie, EINVAL));
        }
        match self.runs.of_allocation(&*self.served.device, request) {
            Ok(()) => reply::block_status(output, request, self.runs.iter()),
            Err(failed) => {
                reply::error(output, request, on_the_wire(failed), format_args!("{failed}"))
            }
        }
    }
}

impl Served {
    /// Does the range pass the end, and are only flags set that this command knows?
    #[inline]
    fn check(&self, request: Request, flags: u16, beyond: u32) -> Result<(), u32> {
        if request.flags & !(flags | cmd::FLAG_FUA) != 0 {
            return Err(EINVAL);
        }
        let end = request.offset.checked_add(u64::from(request.length));
        // Of this moment: the device may have been resized since the client was told its size.
        let bytes = self.device.geometry().bytes;
        if end.is_none_or(|end| end > bytes) { Err(beyond) } else { Ok(()) }
    }

    #[inline]
    fn write(
        &self,
        request: Request,
        from: &[u8],
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<()> {
        let mut error = 0;
        if !from.is_empty() {
            let operation = Operation::Write { offset: request.offset, from };
            if let Err(failed) = self.device.submit(cpu, operation) {
                error = on_the_wire_for_write(failed);
            }
        }
        if error == 0 {
            error = self.force(request, cpu).err().unwrap_or(0);
        }
        output.put(&wire::simple_reply(request.cookie, error))
    }

    #[inline]
    fn may_write(&self, request: Request) -> Result<(), u32> {
        if self.read_only {
            return Err(EPERM);
        }
        if request.length > MAX_PAYLOAD {
            return Err(EINVAL);
        }
        self.check(request, 0, ENOSPC)
    }

    /// Makes what a request changed durable if it asks for that.
    #[inline]
    fn force(&self, request: Request, cpu: Cpu) -> Result<(), u32> {
        if request.flags & cmd::FLAG_FUA == 0 {
            return Ok(());
        }
        self.device.submit(cpu, Operation::Flush).map_err(on_the_wire)
    }

    /// The commands without a payload either way.
    fn simple(&self, request: Request, output: &mut Output, cpu: Cpu) -> io::Result<()> {
        let error = self.change(request, cpu).err().unwrap_or(0);
        output.put(&wire::simple_reply(request.cookie, error))
    }

    fn change(&self, request: Request, cpu: Cpu) -> Result<(), u32> {
        let (offset, length) = (request.offset, u64::from(request.length));
        match request.command {
            cmd::FLUSH => {
                if request.flags & !cmd::FLAG_FUA != 0 || offset != 0 || length != 0 {
                    return Err(EINVAL);
                }
                self.device.submit(cpu, Operation::Flush).map_err(on_the_wire)
            }
            cmd::TRIM => {
                if self.read_only {
                    return Err(EPERM);
                }
                self.check(request, 0, EINVAL)?;
                if length > 0 {
                    let operation = Operation::Discard { offset, length };
                    self.device.submit(cpu, operation).map_err(on_the_wire)?;
                }
                self.force(request, cpu)
            }
            cmd::WRITE_ZEROES => {
                if self.read_only {
                    return Err(EPERM);
                }
                self.check(request, cmd::FLAG_NO_HOLE | cmd::FLAG_FAST_ZERO, ENOSPC)?;
                if request.flags & cmd::FLAG_FAST_ZERO != 0 && !self.fast_zero {
                    return Err(ENOTSUP);
                }
                if length > 0 {
                    let keep = request.flags & cmd::FLAG_NO_HOLE != 0;
                    let mode = if keep { ZeroMode::KeepAllocated } else { ZeroMode::MayPunch };
                    let operation = Operation::WriteZeroes { offset, length, mode };
                    self.device.submit(cpu, operation).map_err(on_the_wire_for_write)?;
                }
                self.force(request, cpu)
            }
            // There is nothing nearer than memory to bring it to.
            cmd::CACHE => self.check(request, 0, EINVAL),
            _ => Err(EINVAL),
        }
    }

    #[inline]
    fn may_read(&self, request: Request) -> Result<(), u32> {
        if request.length > MAX_PAYLOAD {
            // Older clients know no EOVERFLOW; those that ask for structured replies do.
            return Err(if self.structured { EOVERFLOW } else { EINVAL });
        }
        self.check(request, if self.structured { cmd::FLAG_DF } else { 0 }, EINVAL)
    }

    #[cold]
    fn refuse_read(&self, request: Request, error: u32, output: &mut Output) -> io::Result<()> {
        if !self.structured {
            return output.put(&wire::simple_reply(request.cookie, error));
        }
        let why = match error {
            EOVERFLOW => "a READ is at most 32 MiB long",
            _ => "the range passes the end of the device, or an unknown flag is set",
        };
        reply::error(output, request, error, format_args!("{why}"))
    }

    /// A READ that may be.
    #[inline]
    fn read(
        &self,
        request: Request,
        runs: &mut Runs,
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<()> {
        if self.structured {
            self.read_structured(request, runs, output, cpu)
        } else {
            self.read_simple(request, output, cpu)
        }
    }

    #[inline]
    fn read_simple(&self, request: Request, output: &mut Output, cpu: Cpu) -> io::Result<()> {
        let whole = SIMPLE_HEADER + request.length as usize;
        let Ok(room) = output.room(whole) else {
            return output.put(&wire::simple_reply(request.cookie, ENOMEM));
        };
        let (header, into) = room.split_at_mut(SIMPLE_HEADER);
        let mut error = 0;
        if !into.is_empty() {
            let operation = Operation::Read { offset: request.offset, into };
            error = self.device.submit(cpu, operation).map_or_else(on_the_wire, |()| 0);
        }
        header.copy_from_slice(&wire::simple_reply(request.cookie, error));
        output.keep(if error == 0 { whole } else { SIMPLE_HEADER });
        Ok(())
    }

    fn read_structured(
        &self,
        request: Request,
        runs: &mut Runs,
        output: &mut Output,
        cpu: Cpu,
    ) -> io::Result<()> {
        if request.length == 0 {
            return reply::none(output, request);
        }
        let whole = request.flags & cmd::FLAG_DF != 0;
        if whole || runs.of_zeroes(&*self.device, request).is_err() {
            runs.set_one(request.length);
        }
        let mut offset = request.offset;
        let mut left = request.length;
        for run in runs.iter() {
            left -= run.length;
            if run.state != 0 {
                reply::hole(output, request, offset, run.length, left == 0)?;
            } else if !reply::data(output, request, (offset, run.length), left == 0, |into| {
                self.device.submit(cpu, Operation::Read { offset, into })
            })? {
                return Ok(());
            }
            offset += u64::from(run.length);
        }
        Ok(())
    }
}
