//! Serves an uncompressed RAM disk: the baseline of transports.
//!
//! `serve_plain SOCKET SIZE` listens at a unix socket, `serve_plain --stdio SIZE` talks over
//! standard input and output, `serve_plain --activated SIZE` takes the sockets of `LISTEN_FDS`.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use block::{Checked, Plain};
use nbd::{Activated, Listener, One, Options, Server, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, size] = &arguments[..] else {
        return Err("usage: serve_plain SOCKET|--stdio|--activated SIZE".into());
    };
    let size = usize::try_from(units::parse_size(size)?)?;
    let device = Arc::new(Checked::new(Plain::new(size)));
    let exports = Arc::new(One::new("disk", "uncompressed RAM disk", device));
    let server = Server::new(exports, Options::default())?;
    match place.as_str() {
        "--stdio" => return Ok(server.serve(Stream::stdio()?)?),
        "--activated" => {
            for (_, socket) in kept::handed_over()? {
                match Activated::of(socket)? {
                    Activated::Listener(listener) => server.listen(listener)?,
                    Activated::Connected(stream) => return Ok(server.serve(stream)?),
                }
            }
        }
        path => server.listen(Listener::unix(Path::new(path))?)?,
    }
    server.join();
    Ok(())
}
