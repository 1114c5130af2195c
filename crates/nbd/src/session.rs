//! The protocol of one connection, without its I/O.
//!
//! [`Session::advance`] takes the received bytes that are not used yet. It consumes one message, or
//! a part of discarded data, and appends the bytes to send.

use std::io;
use std::sync::Arc;

use units::Cpu;

use crate::Exports;
use crate::buffer::Output;
use crate::later::Later;
use crate::negotiate::{Negotiation, Security, Step};
use crate::outcome::{Answer, Discarding, Outcome, Progress};
use crate::transmit::Transmission;
use crate::wire::{
    self, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_MAGIC, OPTION_MAGIC, parse_client_flags,
};

enum Phase {
    /// The greeting is sent; the client's flags come next.
    Greeted,
    Negotiating(Negotiation),
    Transmitting(Box<Transmission>),
}

pub(crate) struct Session<'e> {
    exports: &'e dyn Exports,
    /// Takes the requests that would wait; without it they wait on this thread.
    later: Option<Arc<Later>>,
    /// At the beginning.
    security: Security,
    phase: Phase,
    discarding: Option<Discarding>,
}

impl<'e> Session<'e> {
    /// Begins a new connection and puts the greeting.
    pub(crate) fn new(
        exports: &'e dyn Exports,
        output: &mut Output,
        later: Option<Arc<Later>>,
        security: Security,
    ) -> Session<'e> {
        // The buffer is new and has room for these 18 bytes.
        let flags = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
        let _ = output.put(&GREETING_MAGIC.to_be_bytes());
        let _ = output.put(&OPTION_MAGIC.to_be_bytes());
        let _ = output.put(&flags.to_be_bytes());
        Session { exports, later, security, phase: Phase::Greeted, discarding: None }
    }

    /// Is negotiation over?
    pub(crate) fn is_transmitting(&self) -> bool {
        matches!(self.phase, Phase::Transmitting(_))
    }

    /// Consumes the first message of `input`, if it is complete. It never panics and never waits.
    #[inline]
    pub(crate) fn advance(&mut self, input: &[u8], output: &mut Output, cpu: Cpu) -> Progress {
        if self.discarding.is_some() {
            return self.discard(input, output).unwrap_or(Progress::Close);
        }
        let outcome = match &mut self.phase {
            Phase::Transmitting(transmission) => transmission.request(input, output, cpu),
            Phase::Negotiating(negotiation) => {
                match negotiation.option(self.exports, input, output) {
                    Ok(Step::Go(outcome)) => Ok(outcome),
                    Ok(Step::Begin(used, mut transmission)) => {
                        transmission.put_off_to(self.later.take());
                        self.phase = Phase::Transmitting(transmission);
                        return Progress::Consumed(used);
                    }
                    Ok(Step::StartTls(used)) => return Progress::StartTls(used),
                    Err(error) => Err(error),
                }
            }
            Phase::Greeted => Ok(self.client_flags(input)),
        };
        self.progress(outcome)
    }

    /// Begins the request at the start of `input`, for the rest of which there is no memory.
    #[cold]
    pub(crate) fn begin_in_pieces(&mut self, input: &[u8]) -> Progress {
        let Phase::Transmitting(transmission) = &mut self.phase else { return Progress::Close };
        let outcome = transmission.write_in_pieces(input);
        self.progress(Ok(outcome))
    }

    #[inline]
    fn progress(&mut self, outcome: io::Result<Outcome>) -> Progress {
        match outcome {
            Ok(Outcome::Progress(progress)) => progress,
            Ok(Outcome::Discard(used, discarding)) => {
                self.discarding = Some(discarding);
                Progress::Consumed(used)
            }
            Err(_) => Progress::Close,
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> Outcome {
        let Some(flags) = parse_client_flags(input) else {
            return Outcome::Progress(Progress::Need(4));
        };
        // "The server MUST drop the connection if the client sets an unknown flag".
        if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
            return Outcome::Progress(Progress::Close);
        }
        let no_zeroes = flags & u32::from(FLAG_NO_ZEROES) != 0;
        self.phase = Phase::Negotiating(Negotiation::new(no_zeroes, self.security));
        Outcome::Progress(Progress::Consumed(4))
    }

    #[cold]
    fn discard(&mut self, input: &[u8], output: &mut Output) -> io::Result<Progress> {
        let Some(discarding) = &mut self.discarding else { return Ok(Progress::Consumed(0)) };
        let used = discarding.left.min(input.len() as u64) as usize;
        discarding.left -= used as u64;
        if discarding.left > 0 {
            return Ok(if used > 0 { Progress::Consumed(used) } else { Progress::Need(1) });
        }
        match discarding.then {
            Answer::Request { cookie, error } => output.put(&wire::simple_reply(cookie, error))?,
            Answer::Option { option, kind, message } => {
                output.put(&wire::option_reply(option, kind, message.len() as u32))?;
                output.put(message.as_bytes())?;
            }
        }
        self.discarding = None;
        Ok(Progress::Consumed(used))
    }
}
