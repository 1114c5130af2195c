//! Serves an uncompressed RAM disk whose contents and socket outlive the process, under a service
//! manager that keeps descriptors: `serve_kept_nbd SOCKET SIZE`.

use std::error::Error;
use std::os::fd::AsFd;
use std::sync::Arc;

use nbd::{Listener, One, Options, Server};
use sim::kept::Life;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut life, device) = Life::begin()?;
    let listener = match life.take("socket") {
        Some(socket) => Listener::unix_kept(socket, &life.socket, &[])?,
        None => {
            let listener = Listener::unix(&life.socket)?;
            life.keep("socket", listener.as_fd())?;
            listener
        }
    };
    let exports = Arc::new(One::new("disk", "it outlives its server", device));
    let server = Server::new(exports, Options::default())?;
    server.listen(listener)?;
    life.live()?;
    server.shutdown();
    server.join();
    Ok(())
}
