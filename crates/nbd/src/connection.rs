//! Serves one connection on one thread.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::Exports;
use crate::buffer::{FIRST, Input, Output};
use crate::later::Later;
use crate::negotiate::Security;
use crate::options::Options;
use crate::outcome::Progress;
use crate::session::Session;
use crate::shares::Allowance;
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
    /// For long requests.
    pub(crate) memory: Allowance,
    /// Takes the requests that would wait.
    pub(crate) later: Option<Arc<Later>>,
    /// Called when the client has chosen an export.
    pub(crate) chosen: &'h dyn Fn(),
}

/// The sending side of a connection.
struct Outlet<'s> {
    stream: &'s Stream,
    later: Option<Arc<Later>>,
    /// The connection ended without an error.
    ended: bool,
}

impl Outlet<'_> {
    #[inline]
    fn send(&self, output: &mut Output) -> io::Result<()> {
        if let Some(later) = &self.later {
            return later.send(output);
        }
        let sent = self.stream.send_all(output.filled(), None);
        output.sent();
        sent
    }

    /// Sends what belongs to negotiation, until `end`.
    fn send_until(&self, output: &mut Output, end: Instant) -> io::Result<()> {
        let sent = self.stream.send_all(output.filled(), Some(end));
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
    let mut output = Output::new(Some(host.memory.clone()));
    let is_secure = stream.is_remote() && host.options.tls.is_some();
    let security = if is_secure { Security::Required } else { Security::Plain };
    let session = Session::new(host.exports, &mut output, host.later.clone(), security);
    let mut outlet = Outlet { stream, later: host.later.clone(), ended: false };
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
            // Who has the answer is cut off for nobody.
            (host.chosen)();
            // Other threads send replies from the first request on, and a client may send requests
            // before it has the end of the negotiation.
            outlet.send_until(&mut output, handshake)?;
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
            Progress::Send => outlet.send(&mut output)?,
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
                if !input.try_share(&host.memory, bytes) {
                    match session.begin_in_pieces(input.filled()) {
                        Progress::Consumed(used) => input.consume(used),
                        _ => return Ok(()),
                    }
                    continue;
                }
                if input.has_share() || output.has_share() {
                    give_back(stream, &mut input, &mut output, bytes)?;
                }
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

/// Waits a moment for the client, and gives back memory that it does not use now. The output is
/// empty.
#[cold]
fn give_back(
    stream: &Stream,
    input: &mut Input,
    output: &mut Output,
    need: usize,
) -> io::Result<()> {
    if stream.is_ready_soon()? {
        return Ok(());
    }
    output.shrink();
    // A longer request is on its way.
    if need <= FIRST {
        input.shrink();
    }
    Ok(())
}
