//! Serves a compressed RAM disk over NBD from this process, on a Unix socket.
//!
//! ```sh
//! cargo run --release -p rampack --example serve_nbd -- /tmp/disk.sock &
//! nbdinfo 'nbd+unix:///?socket=/tmp/disk.sock'
//! qemu-io -f raw -c 'write -P 7 0 1M' -c 'read -P 7 0 1M' 'nbd+unix:///?socket=/tmp/disk.sock'
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use nbd::{Listener, One, Options, Server};
use rampack::{DiskOptions, Rampack};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve_nbd SOCKET")?;
    let server = serve(Path::new(&path))?;
    println!("serving at {path}; Ctrl-C ends it, and the disk with it");
    server.join();
    Ok(())
}

fn serve(socket: &Path) -> Result<Server, Box<dyn Error>> {
    let disk = Rampack::new()?.disk(DiskOptions { size: 1 << 30, ..DiskOptions::default() })?;
    let export = One::new("disk", "compressed RAM disk", Arc::new(disk));
    let server = Server::new(Arc::new(export), Options::default())?;
    server.listen(Listener::unix(socket)?)?;
    Ok(server)
}

#[test]
fn it_serves() {
    let directory = testkit::TempDir::new();
    let socket = directory.join("disk.sock");
    let server = serve(&socket).unwrap();
    std::os::unix::net::UnixStream::connect(&socket).unwrap();
    server.shutdown();
    server.join();
}
