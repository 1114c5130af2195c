//! `rampack snapshot`, `rampack restore` and `rampack clone`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use control::ControlError;
use seal::{STREAM_LETTERS, StreamOpener, StreamSealer};
use service::client;
use service::failure::{failed, say};
use service::protocol::{self, DeviceReport, Request};
use service::root::Root;
use units::human;

use crate::args::{Cloning, Restore, Snapshot};
use crate::terminal::answer;

/// How often the progress is told.
const TELL: Duration = Duration::from_secs(2);
/// The fewest bytes of a key, and the most.
const LEAST: usize = 8;
const MOST: usize = 1 << 20;

/// Bytes that came by, and when that was told.
struct Progress {
    what: &'static str,
    bytes: u64,
    told: Instant,
}

impl Progress {
    fn new(what: &'static str) -> Progress {
        Progress { what, bytes: 0, told: Instant::now() }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.told.elapsed() >= TELL {
            say(&format!("rampack: {} {}\n", human(self.bytes), self.what));
            self.told = Instant::now();
        }
    }
}

/// The secret in a file.
fn secret(path: &Path) -> Result<Vec<u8>, ControlError> {
    let mut secret = Vec::new();
    let file = File::open(path).map(|file| file.take(MOST as u64 + 1));
    let read = file.and_then(|mut file| file.read_to_end(&mut secret));
    read.map_err(|e| failed(format!("cannot read {}", path.display()), &e))?;
    match secret.len() {
        // /dev/urandom has no end.
        more if more > MOST => {
            let (most, path) = (human(MOST as u64), path.display());
            Err(ControlError::invalid(format!("a key has {most} at most, and {path} has more")))
        }
        ..LEAST => {
            let message = format!(
                "a key has {LEAST} bytes at least, and {} has {}; make one with `head -c 32 \
                 /dev/urandom`",
                path.display(),
                secret.len()
            );
            Err(ControlError::invalid(message))
        }
        _ => Ok(secret),
    }
}

/// `rampack snapshot`.
///
/// # Errors
/// `EINVAL` if standard output is a terminal; as [`client::snapshot`]; the error of standard
/// output.
pub(crate) fn take(root: &Root, options: &Snapshot) -> Result<(), ControlError> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        let message = format!(
            "a snapshot is not for a terminal; write `rampack snapshot {} > FILE`",
            options.name
        );
        return Err(ControlError::invalid(message));
    }
    let lost = |error: io::Error| failed("the snapshot cannot be written", &error);
    let secret = options.key.as_deref().map(secret).transpose()?;
    let mut out: Box<dyn Write> = Box::new(BufWriter::with_capacity(256 << 10, stdout.lock()));
    let mut progress = Progress::new("of the snapshot are written");
    let Some(secret) = secret else {
        client::snapshot(root, &options.name, &mut |bytes| {
            progress.add(bytes.len());
            out.write_all(bytes).map_err(lost)
        })?;
        return out.flush().map_err(lost);
    };
    let mut sealer = StreamSealer::new(out, &secret).map_err(lost)?;
    client::snapshot(root, &options.name, &mut |bytes| {
        progress.add(bytes.len());
        sealer.write_all(bytes).map_err(lost)
    })?;
    sealer.finish().map(drop).map_err(lost)
}

/// `rampack restore`.
///
/// # Errors
/// `EINVAL` if standard input is a terminal, or for a key that is not the right one; as
/// [`client::restore`]; the error of standard input.
pub(crate) fn restore(root: &Root, options: &Restore) -> Result<(), ControlError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let message = "write `rampack restore NAME < FILE`, with a file of `rampack snapshot`";
        return Err(ControlError::invalid(message));
    }
    let lost = |error: io::Error| failed("the snapshot cannot be read", &error);
    let mut input = BufReader::with_capacity(256 << 10, stdin.lock());
    let is_sealed = input.fill_buf().map_err(lost)?.starts_with(STREAM_LETTERS);
    let mut input: Box<dyn Read> = match (&options.key, is_sealed) {
        (Some(key), true) => {
            let opener = StreamOpener::new(input, &secret(key)?);
            Box::new(opener.map_err(lost)?)
        }
        (None, true) => {
            let message = "the snapshot is sealed; name the file of its key with --key FILE";
            return Err(ControlError::invalid(message));
        }
        (Some(_), false) => {
            let message = "the snapshot is not sealed; leave --key out";
            return Err(ControlError::invalid(message));
        }
        (None, false) => Box::new(input),
    };
    let mut progress = Progress::new("of the snapshot are read");
    let name = client::restore(root, options.name.as_deref(), &mut |into| {
        let count = input.read(into).map_err(lost)?;
        progress.add(count);
        Ok(count)
    })?;
    answer(format!("{name}\n"))
}

/// `rampack clone`.
///
/// # Errors
/// As [`client::call`]; the error of standard output.
pub(crate) fn clone(root: &Root, options: &Cloning) -> Result<(), ControlError> {
    let request = protocol::Snapshot { device: options.name.clone() };
    let device: DeviceReport = client::call(root, &Request::Clone(request))?;
    answer(format!("{}\n", device.name))
}
