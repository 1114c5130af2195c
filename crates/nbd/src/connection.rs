//! Serves one connection on one thread.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::Exports;
use crate::buffer::{Input, Output};
use crate::later::Later;
use crate::options::Options;
use crate::outcome::Progress;
use crate::session::Session;
use crate::spin::Spinner;
use crate::stop::Stop;
use crate::stream::Stream;

/// When this many bytes of replies wait, they are sent before the next request.
const ENOUGH: usize = 256 << 10;

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
        match &self.later {
            Some(later) => later.send(output),
            None => output.send(self.stream),
        }
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

/// Serves `stream` until the client leaves or breaks the protocol. After `stop` is given, it
/// answers every received request and ends. A request that would wait goes to `later`.
pub(crate) fn serve(
    stream: &Stream,
    exports: &dyn Exports,
    options: &Options,
    stop: &Stop,
    later: Option<Arc<Later>>,
) -> io::Result<()> {
    let mut output = Output::new();
    let session = Session::new(exports, &mut output, later.clone());
    let mut outlet = Outlet { stream, later, ended: false };
    let served = exchange(&outlet, session, output, options, stop);
    outlet.ended = served.is_ok();
    served
}

fn exchange(
    outlet: &Outlet<'_>,
    mut session: Session<'_>,
    mut output: Output,
    options: &Options,
    stop: &Stop,
) -> io::Result<()> {
    let stream = outlet.stream;
    let mut input = Input::new();
    let mut spinner = Spinner::new(options.spin);
    let mut cpu = (options.cpu)();
    let handshake = Instant::now() + options.handshake;
    loop {
        match session.advance(input.filled(), &mut output, cpu) {
            Progress::Consumed(bytes) => {
                input.consume(bytes);
                if output.len() >= ENOUGH {
                    outlet.send(&mut output)?;
                }
            }
            Progress::Full(bytes) => {
                outlet.send(&mut output)?;
                if let Some(later) = &outlet.later {
                    later.wait_for_room(bytes)?;
                }
            }
            Progress::Need(bytes) => {
                outlet.send(&mut output)?;
                if stop.given() || stream.stopped(stop.fd())? {
                    return Ok(());
                }
                if !session.is_transmitting() {
                    stream.wait_until(handshake)?;
                }
                if !input.receive(stream, &mut spinner, bytes)? {
                    return Ok(());
                }
                // The thread may have been moved while it waited.
                cpu = (options.cpu)();
            }
            Progress::Close => return outlet.send(&mut output),
        }
    }
}
