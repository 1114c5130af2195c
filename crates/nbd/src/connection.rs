//! One connection on one thread.

use std::io;

use crate::Exports;
use crate::buffer::{Input, Output};
use crate::server::{Options, Stop};
use crate::session::{Progress, Session};
use crate::spin::Spinner;
use crate::stream::Stream;

/// Replies of this many bytes are sent although more requests are there.
const ENOUGH: usize = 256 << 10;

/// Serves `stream` until its client leaves, misbehaves, or `stop` is given and every request
/// received has been answered.
pub(crate) fn serve(
    stream: &Stream,
    exports: &dyn Exports,
    options: &Options,
    stop: &Stop,
) -> io::Result<()> {
    let mut input = Input::new();
    let mut output = Output::new();
    let mut spinner = Spinner::new(options.spin);
    let mut session = Session::new(exports, &mut output);
    let mut lane = (options.lane)();
    loop {
        match session.advance(input.filled(), &mut output, lane) {
            Progress::Consumed(bytes) => {
                input.consume(bytes);
                if output.len() >= ENOUGH {
                    output.send(stream)?;
                }
            }
            Progress::Need(bytes) => {
                output.send(stream)?;
                if stop.given() || stream.stopped(stop.fd())? {
                    return Ok(());
                }
                if !input.receive(stream, &mut spinner, bytes)? {
                    return Ok(());
                }
                // The thread may have been moved while it waited.
                lane = (options.lane)();
            }
            Progress::Close => return output.send(stream),
        }
    }
}
