//! Serves one connection on one thread.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::Exports;
use crate::budget::{Budget, FIRST};
use crate::buffer::{Input, Output};
use crate::later::Later;
use crate::negotiate::Security;
use crate::options::Options;
use crate::outcome::Progress;
use crate::session::Session;
use crate::spin::Spinner;
use crate::stop::Stop;
use crate::stream::Stream;

/// When this many bytes of replies wait, they are sent before the next request.
const ENOUGH: usize = 256 << 10;

/// What a connection is told and has to tell.
pub(crate) struct Host<'h> {
    pub(crate) exports: &'h dyn Exports,
    pub(crate) options: &'h Options,
    pub(crate) stop: &'h Stop,
    pub(crate) budget: &'h Arc<Budget>,
    /// Takes the requests that would wait.
    pub(crate) later: Option<Arc<Later>>,
    /// Called when the client has chosen an export.
    pub(crate) chosen: &'h dyn Fn(),
}

/// The sending side of a connection.
struct Outlet<'s> {
    stream: &'s Stream,
    later: Option<Arc<Later>>,
    budget: &'s Arc<Budget>,
    /// The connection ended without an error.
    ended: bool,
}

impl Outlet<'_> {
    #[inline]
    fn send(&self, output: &mut Output) -> io::Result<()> {
        if let Some(later) = &self.later {
            return later.send(output);
        }
        let shared = output.has_share();
        let sent =
            self.stream.send_all(output.filled(), |stalled| !shared || self.budget.bears(stalled));
        output.sent();
        sent
    }

    /// Sends what belongs to negotiation, until `end`.
    fn send_until(&self, output: &mut Output, end: Instant) -> io::Result<()> {
        let sent = self.stream.send_all(output.filled(), |_| Instant::now() < end);
        output.sent();
        sent
    }
}

impl Drop for Outlet<'_> {
    /// Waits for every request of the connection: they use the device.
    fn drop(&mut self) {
        let Some(later) = &self.later else { return };
        if !self.ended {
            later.give_up();
        }
        later.finish();
    }
}

/// Serves `stream` until the client leaves or breaks the protocol. After the stop is given, it
/// answers every received request and ends.
pub(crate) fn serve(stream: &Stream, host: &Host<'_>) -> io::Result<()> {
    let mut output = Output::new(Some(host.budget.clone()));
    let is_secure = stream.is_remote() && host.options.tls.is_some();
    let security = if is_secure { Security::Required } else { Security::Plain };
    let session = Session::new(host.exports, &mut output, host.later.clone(), security);
    let (later, budget) = (host.later.clone(), host.budget);
    let mut outlet = Outlet { stream, later, budget, ended: false };
    let served = exchange(&outlet, session, output, host);
    outlet.ended = served.is_ok();
    served
}

fn exchange(
    outlet: &Outlet<'_>,
    mut session: Session<'_>,
    mut output: Output,
    host: &Host<'_>,
) -> io::Result<()> {
    let (stream, options) = (outlet.stream, host.options);
    let mut input = Input::new();
    let mut spinner = Spinner::new(options.spin);
    let mut cpu = (options.cpu)();
    let handshake = Instant::now() + options.handshake;
    let mut has_chosen = false;
    loop {
        let progress = session.advance(input.filled(), &mut output, cpu);
        if !has_chosen && session.is_transmitting() {
            has_chosen = true;
            // Other threads send replies from the first request on, and a client may send requests
            // before it has the end of the negotiation.
            outlet.send_until(&mut output, handshake)?;
            (host.chosen)();
        }
        match progress {
            Progress::Consumed(bytes) => {
                input.consume(bytes);
                if output.len() >= ENOUGH {
                    match has_chosen {
                        true => outlet.send(&mut output)?,
                        false => outlet.send_until(&mut output, handshake)?,
                    }
                }
            }
            Progress::Full(bytes) => {
                outlet.send(&mut output)?;
                if let Some(later) = &outlet.later {
                    later.wait_for_room(bytes)?;
                }
            }
            Progress::Short(bytes) => {
                outlet.send(&mut output)?;
                input.shrink();
                output.wait_for_share(bytes, || stream.is_dead())?;
            }
            Progress::StartTls(bytes) => {
                input.consume(bytes);
                outlet.send_until(&mut output, handshake)?;
                // What came in the clear is nobody's: it could be from somebody on the way.
                let tls = options.tls.as_ref().filter(|_| input.filled().is_empty());
                stream.start_tls(tls.ok_or(io::ErrorKind::InvalidData)?, handshake)?;
            }
            Progress::Need(bytes) => {
                if has_chosen {
                    outlet.send(&mut output)?;
                } else {
                    outlet.send_until(&mut output, handshake)?;
                }
                if host.stop.given() || stream.stopped(host.stop.fd())? {
                    return Ok(());
                }
                if !has_chosen {
                    stream.wait_until(handshake)?;
                }
                have_memory(stream, host.budget, &mut input, &mut output, bytes)?;
                if !input.receive(stream, &mut spinner, bytes)? {
                    return Ok(());
                }
                // The thread may have been moved while it waited.
                cpu = (options.cpu)();
            }
            Progress::Close if has_chosen => return outlet.send(&mut output),
            Progress::Close => return outlet.send_until(&mut output, handshake),
        }
    }
}

/// Sees that the input may grow to a message of `need` bytes, and that no share is kept in vain: a
/// client that pauses or others that wait for memory take it away. The output is empty.
#[inline]
fn have_memory(
    stream: &Stream,
    budget: &Arc<Budget>,
    input: &mut Input,
    output: &mut Output,
    need: usize,
) -> io::Result<()> {
    if !input.try_share(budget, need) {
        output.shrink();
        input.wait_for_share(budget, need, || stream.is_dead())?;
    }
    if input.has_share() || output.has_share() {
        give_back(stream, budget, input, output, need)?;
    }
    Ok(())
}

/// Waits for the client, and gives back memory that it does not use now.
#[cold]
fn give_back(
    stream: &Stream,
    budget: &Budget,
    input: &mut Input,
    output: &mut Output,
    need: usize,
) -> io::Result<()> {
    let since = Instant::now();
    let mut is_vain = budget.is_short();
    loop {
        if is_vain {
            output.shrink();
            if need <= FIRST {
                input.shrink();
                return Ok(());
            }
        }
        if stream.is_ready_soon()? {
            return Ok(());
        }
        is_vain = true;
        // It is in the middle of a long request.
        if need > FIRST && !budget.bears(since.elapsed()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}
