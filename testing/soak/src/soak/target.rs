//! The ways in which a worker reaches its device: calls of the library, a file or block device of
//! the system, and NBD (`nbd_client`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use block::{BlockDevice, IoError, Operation};
use rustix::fs::{FallocateFlags, OFlags, fallocate};

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads into the data.
    Read,
    /// Writes the data.
    Write,
    /// Drops the contents; the pages read as zeroes.
    Discard,
}

/// Why a request has no effect, or none that is certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The error number of the device.
    Errno(i32),
    /// What was stored is not what comes back.
    Corrupt,
}

/// A request of whole pages.
pub struct Request<'a> {
    pub kind: Kind,
    /// The first byte.
    pub offset: u64,
    /// The bytes; for a discard only their number counts.
    pub data: &'a mut [u8],
    pub result: Result<(), Refusal>,
}

/// A way to a device.
pub trait Target: Send {
    /// Carries out requests on different pages and sets their results.
    ///
    /// # Errors
    /// The way is closed: nothing is known of the requests.
    fn carry_out(&mut self, batch: &mut [Request<'_>]) -> Result<()>;
}

/// Calls of the library.
pub struct Library(pub Arc<dyn BlockDevice>);

impl Target for Library {
    fn carry_out(&mut self, batch: &mut [Request<'_>]) -> Result<()> {
        for request in batch {
            let (offset, length) = (request.offset, request.data.len() as u64);
            let operation = match request.kind {
                Kind::Read => Operation::Read { offset, into: request.data },
                Kind::Write => Operation::Write { offset, from: request.data },
                Kind::Discard => Operation::Discard { offset, length },
            };
            let done = self.0.submit(host::cpu(), operation);
            request.result = done.map_err(|error| match error {
                IoError::Corrupt => Refusal::Corrupt,
                error => Refusal::Errno(error.errno()),
            });
        }
        Ok(())
    }
}

/// A file, or a block device past the page cache.
pub struct OpenFile(File);

impl OpenFile {
    /// Opens `path`; `direct` for a block device.
    ///
    /// # Errors
    /// The error of the system; it names the path.
    pub fn new(path: &Path, direct: bool) -> Result<OpenFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        Ok(OpenFile(options.open(path).with_context(|| path.display().to_string())?))
    }
}

/// Drops bytes of a file or block device; they read as zeroes.
fn punch(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, mode, offset, length)?)
}

impl Target for OpenFile {
    fn carry_out(&mut self, batch: &mut [Request<'_>]) -> Result<()> {
        for request in batch {
            let done: io::Result<()> = match request.kind {
                Kind::Read => self.0.read_exact_at(request.data, request.offset),
                Kind::Write => self.0.write_all_at(request.data, request.offset),
                Kind::Discard => punch(&self.0, request.offset, request.data.len() as u64),
            };
            request.result = match done {
                Ok(()) => Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(errno) => Err(Refusal::Errno(errno)),
                    None => return Err(error).context("a file that ends early"),
                },
            };
        }
        Ok(())
    }
}
