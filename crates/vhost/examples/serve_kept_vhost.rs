//! Serves an uncompressed RAM disk whose contents outlive the process by vhost-user, under a service
//! manager that keeps descriptors: `serve_kept_vhost SOCKET SIZE`. A later process makes the socket
//! anew.
//!
//! Each process adds a line with its number to SOCKET.lives when it listens, and ends by itself when
//! SOCKET.stop is there.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use block::{
    Abilities, BlockDevice, Checked, Context, Extent, ExtentKind, Geometry, IoError, Operation,
    Visit,
};
use kept::Store;
use units::{Cpu, PAGE_SIZE};
use vhost::{Options, Server};

/// A RAM disk in a file in memory.
struct Disk {
    file: File,
    bytes: u64,
}

impl Disk {
    fn carry_out(&self, operation: Operation<'_>) -> io::Result<()> {
        let (offset, length) = operation.range();
        match operation {
            Operation::Read { into, .. } => self.file.read_exact_at(into, offset),
            // In two halves, so that a kill may come between them.
            Operation::Write { from, .. } => {
                let (first, second) = from.split_at(from.len() / 2);
                self.file.write_all_at(first, offset)?;
                sleep(Duration::from_micros(300));
                self.file.write_all_at(second, offset + first.len() as u64)
            }
            Operation::Discard { .. } | Operation::WriteZeroes { .. } => {
                self.file.write_all_at(&vec![0; length as usize], offset)
            }
            Operation::Flush => Ok(()),
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        let preferred_block = PAGE_SIZE as u32;
        Geometry { bytes: self.bytes, minimum_block: 1, preferred_block }
    }

    fn abilities(&self) -> Abilities {
        Abilities { flush: true, ..Abilities::default() }
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.carry_out(operation).map_err(|_| IoError::Failed)
    }

    fn extents(&self, _: Cpu, _: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let _ = visit(Extent { length, kind: ExtentKind::Data });
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut handed_over = kept::handed_over()?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, size] = &arguments[..] else {
        return Err("usage: serve_kept_vhost SOCKET SIZE".into());
    };
    let bytes = units::parse_size(size)?;
    let at = Path::new(path);
    let store = Store::of_environment()?.ok_or("no service manager keeps descriptors")?;
    let mut take = |name: &str| {
        let place = handed_over.iter().position(|(other, _)| other == name);
        place.map(|place| handed_over.swap_remove(place).1)
    };
    let file: File = match take("disk") {
        Some(file) => file.into(),
        None => {
            let file = host::Memfds::new().file(bytes)?;
            store.keep("disk", file.as_fd())?;
            store.settle(Duration::from_secs(30))?;
            file
        }
    };
    let _ = std::fs::remove_file(at);
    let listener = UnixListener::bind(at)?;
    let device = Arc::new(Checked::new(Disk { file, bytes }));
    let server = Server::new(listener, Arc::new(move || Ok(device.clone())), Options::default())?;
    store.tell("READY=1")?;
    let log = OpenOptions::new().append(true).create(true).open(format!("{path}.lives"));
    writeln!(log?, "{}", std::process::id())?;
    let keeper = parent_id();
    while !Path::new(&format!("{path}.stop")).exists() {
        if parent_id() != keeper {
            return Err("the keeper is gone".into());
        }
        sleep(Duration::from_millis(2));
    }
    server.stop();
    Ok(())
}
