//! Serves an uncompressed RAM disk whose contents outlive the process by vhost-user, under a service
//! manager that keeps descriptors: `serve_kept_vhost SOCKET SIZE`. A later process makes the socket
//! anew.

use std::error::Error;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use sim::kept::Life;
use vhost::{Options, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let (life, device) = Life::begin()?;
    let _ = std::fs::remove_file(&life.socket);
    let listener = UnixListener::bind(&life.socket)?;
    let server = Server::new(listener, Arc::new(move || Ok(device.clone())), Options::default())?;
    life.live()?;
    server.stop();
    Ok(())
}
