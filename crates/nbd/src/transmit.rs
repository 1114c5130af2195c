//! Requests and their replies.

use std::io;
use std::sync::Arc;

use block::{BlockDevice, Context, Wait};
use units::Cpu;

use crate::MAX_PAYLOAD;
use crate::buffer::Output;
use crate::errors::EINVAL;
use crate::later::{Later, Room};
use crate::outcome::{Answer, Discarding, Outcome, Progress};
use crate::wire::{self, REQUEST_HEADER, Request, cmd, parse_request};

mod pieces;
mod reply;
mod runs;
mod served;

use pieces::Pieces;
use runs::Runs;
use served::{Answered, Served, check_flags};

/// A refused WRITE longer than this, in bytes, ends the connection; a shorter one is discarded.
const MAX_DISCARDED: u32 = 4 * MAX_PAYLOAD;

/// A request of so many bytes is under way alone.
const ALONE: usize = MAX_PAYLOAD as usize + 1;

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
    /// A request that is carried out in pieces.
    pieces: Option<Pieces>,
}

impl Transmission {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        structured: bool,
        contexts: bool,
    ) -> Transmission {
        let served = Arc::new(Served::new(device, structured));
        let runs = Runs::default();
        Transmission { served, contexts, runs, later: None, wait: Wait::Yes, pieces: None }
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
        if let Some(pieces) = self.pieces {
            let context = Context::waiting(cpu);
            let (outcome, left) =
                pieces.next(&self.served, &mut self.runs, (input, output), context)?;
            self.pieces = left;
            return Ok(outcome);
        }
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
                if output.len() > 0 {
                    return Ok(Outcome::Progress(Progress::Send));
                }
                // A simple reply is one whole: no other one may come between its pieces.
                let is_alone = self.later.as_ref().is_none_or(|later| later.is_idle());
                if !self.served.structured && !is_alone {
                    return Ok(Outcome::Progress(Progress::Full(ALONE)));
                }
                self.pieces = Pieces::of_read(request, &self.served, output)?;
                return Ok(Outcome::Progress(Progress::Consumed(REQUEST_HEADER)));
            }
            cmd::READ => self.served.read(request, &mut self.runs, output, context)?,
            cmd::BLOCK_STATUS => self.block_status(request, output, cpu)?,
            _ => self.served.answer(request, &[], output, context)?,
        };
        self.progress(answered, request, &[], output, cpu)
    }

    /// Begins the WRITE at the start of `input`, for the rest of which there is no memory.
    #[cold]
    pub(crate) fn write_in_pieces(&mut self, input: &[u8]) -> Outcome {
        let request = match parse_request(input) {
            Ok(Some(request)) if request.command == cmd::WRITE => request,
            _ => return Outcome::Progress(Progress::Close),
        };
        match Pieces::of_write(request, &self.served) {
            Ok(pieces) => self.pieces = Some(pieces),
            Err(refused) => return refused,
        }
        Outcome::Progress(Progress::Consumed(REQUEST_HEADER))
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
            Answered::Now | Answered::Failed => {
                Ok(Outcome::Progress(Progress::Consumed(REQUEST_HEADER + from.len())))
            }
            Answered::WouldBlock => self.put_off(request, from, output, cpu),
        }
    }

    /// Hands a request to a thread that may wait. If there is no thread or no memory for this, it
    /// is carried out here.
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
        let mut data = Vec::new();
        let permit = match later.room(payload) {
            Room::None => return Ok(Outcome::Progress(Progress::Full(payload))),
            Room::Here => None,
            Room::There(permit) => data.try_reserve_exact(from.len()).is_ok().then_some(permit),
        };
        let Some(permit) = permit else {
            // Answers do not wait for it.
            if output.len() > 0 {
                return Ok(Outcome::Progress(Progress::Send));
            }
            self.served.carry_out(request, from, output, cpu)?;
            return used;
        };
        data.extend_from_slice(from);
        let served = self.served.clone();
        later.begin(permit, move |output, cpu| served.carry_out(request, &data, output, cpu));
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
        let answered = self.served.answer(request, from, output, context)?;
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
            Err(failed) => reply::device_error(output, request, failed)?,
        }
        Ok(Answered::Now)
    }
}
