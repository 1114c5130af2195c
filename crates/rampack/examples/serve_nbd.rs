//! Serves a compressed RAM disk over NBD from this process, on a Unix socket.
//!
//! ```sh
//! cargo run --release -p rampack --features serve --example serve_nbd -- /tmp/disk.sock &
//! nbdinfo 'nbd+unix:///?socket=/tmp/disk.sock'
//! qemu-io -f raw -c 'write -P 7 0 1M' -c 'read -P 7 0 1M' 'nbd+unix:///?socket=/tmp/disk.sock'
//! ```

use std::path::Path;

use rampack::{Address, Error, NbdServer, Rampack};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve_nbd SOCKET")?;
    let server = serve(Path::new(&path))?;
    println!("serving at {path}; Ctrl-C ends it, and the disk with it");
    server.join();
    Ok(())
}

fn serve(socket: &Path) -> Result<NbdServer, Error> {
    Rampack::new()?.disk(1 << 30)?.serve_nbd("disk", &Address::Unix(socket.into()))
}

#[test]
fn it_serves() {
    let socket = std::env::temp_dir().join(format!("rampack-serve-{}", std::process::id()));
    let server = serve(&socket).unwrap();
    std::os::unix::net::UnixStream::connect(&socket).unwrap();
    drop(server);
    assert!(!socket.exists());
}
