//! Long requests for which there is no memory: they are carried out in pieces.
//!
//! A piece needs no more than the first buffers of a connection. All of them wait for the device on
//! the thread of the connection. A READ with a simple reply has said that it is good when its first
//! piece is sent: if a later one fails, the connection ends, as the document wants it. It begins
//! when no other request of the connection is under way.

use std::io;

use block::{Context, IoError, Operation};

use super::reply;
use super::runs::Runs;
use super::served::{Answered, Served};
use crate::buffer::{FIRST, Output};
use crate::errors::{EOVERFLOW, on_the_wire};
use crate::outcome::{Answer, Discarding, Outcome, Progress};
use crate::wire::{self, REQUEST_HEADER, Request, cmd};

/// Pieces end at multiples of this, in bytes, so that no page is touched twice.
const UNIT: u64 = 4096;

/// A READ or a WRITE of which a part is done. Its header is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    left: Request,
    /// Nothing is done yet.
    is_whole: bool,
}

/// The first piece of `left`, and the rest.
fn split(left: Request) -> (Request, Option<Request>) {
    let length = left.length.min(FIRST as u32 - (left.offset % UNIT) as u32);
    let rest = left.length - length;
    let offset = left.offset + u64::from(length);
    let rest = (rest > 0).then_some(Request { offset, length: rest, ..left });
    (Request { length, ..left }, rest)
}

impl Pieces {
    /// Begins a READ for whose reply there is no memory. None if it is refused; that is in the
    /// output then.
    #[cold]
    pub(super) fn of_read(
        request: Request,
        served: &Served,
        output: &mut Output,
    ) -> io::Result<Option<Pieces>> {
        if let Err(error) = served.may_read(request) {
            served.refuse_read(request, error, output)?;
        } else if served.structured && request.flags & cmd::FLAG_DF != 0 {
            let why = format_args!("there is no memory for one chunk of this length now");
            reply::error(output, request, EOVERFLOW, why)?;
        } else if let Err(failed) = served.lies_within(request.offset, request.length.into()) {
            refuse(request, failed, served, output)?;
        } else {
            return Ok(Some(Pieces { left: request, is_whole: true }));
        }
        Ok(None)
    }

    /// Begins a WRITE, or refuses it.
    #[cold]
    pub(super) fn of_write(request: Request, served: &Served) -> Result<Pieces, Outcome> {
        match served.lies_within(request.offset, request.length.into()) {
            Ok(()) => Ok(Pieces { left: request, is_whole: true }),
            Err(failed) => Err(refuse_rest(REQUEST_HEADER, request, request.length, failed)),
        }
    }

    /// Carries out the next piece, and returns what is left then.
    #[cold]
    pub(super) fn next(
        self,
        served: &Served,
        runs: &mut Runs,
        (input, output): (&[u8], &mut Output),
        context: Context,
    ) -> io::Result<(Outcome, Option<Pieces>)> {
        let (piece, rest) = split(self.left);
        let mut used = 0;
        let answered = if piece.command == cmd::WRITE {
            used = piece.length as usize;
            let Some(from) = input.get(..used) else {
                return Ok((Outcome::Progress(Progress::Need(used)), Some(self)));
            };
            let operation = Operation::Write { offset: piece.offset, from };
            if let Err(failed) = served.ask(context, operation) {
                let left = rest.map_or(0, |rest| rest.length);
                return Ok((refuse_rest(used, piece, left, failed), None));
            }
            if rest.is_none() {
                Served::reply(piece, served.force(piece, context), output)?;
            }
            Answered::Now
        } else if served.structured {
            served.read_structured(piece, runs, output, context, rest.is_none())?
        } else if self.is_whole {
            served.read_simple(piece, output, context)?
        } else {
            read_more(piece, served, output, context)?
        };
        let rest = rest.filter(|_| answered == Answered::Now);
        let rest = rest.map(|left| Pieces { left, is_whole: false });
        Ok((Outcome::Progress(Progress::Consumed(used)), rest))
    }
}

/// Uses `used` bytes, throws away the `left` bytes that still come, and then answers with an error.
fn refuse_rest(used: usize, request: Request, left: u32, failed: IoError) -> Outcome {
    let error = on_the_wire(request.command, failed);
    let then = Answer::Request { cookie: request.cookie, error };
    Outcome::Discard(used, Discarding { left: left.into(), then })
}

/// Answers a READ as a whole with an error of the device.
fn refuse(
    request: Request,
    failed: IoError,
    served: &Served,
    output: &mut Output,
) -> io::Result<()> {
    if served.structured {
        return reply::device_error(output, request, failed);
    }
    output.put(&wire::simple_reply(request.cookie, on_the_wire(request.command, failed)))
}

/// Puts one more piece of a simple reply. An error ends the connection.
fn read_more(
    piece: Request,
    served: &Served,
    output: &mut Output,
    context: Context,
) -> io::Result<Answered> {
    let length = piece.length as usize;
    let into = output.room(length)?;
    let read = served.ask(context, Operation::Read { offset: piece.offset, into });
    read.map_err(|_| io::ErrorKind::BrokenPipe)?;
    output.keep(length);
    Ok(Answered::Now)
}
