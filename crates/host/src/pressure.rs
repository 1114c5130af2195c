//! Waits until memory is short, and measures how long programs waited for memory.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::memory::{Available, machine_memory};

const PSI: &str = "/proc/pressure/memory";
/// The trigger: some task waited for memory for a tenth of a second within one second (kernel
/// document `accounting/psi.rst`).
const TRIGGER: &[u8] = b"some 100000 1000000\0";
/// Without PSI, memory is short when less than one part in this many is available.
const SHORT: u64 = 16;

/// The reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Memory is short.
    Short,
    /// The time is over.
    Quiet,
    /// A thread called [`PressureEnd::end`].
    Ended,
}

/// Detects that memory is short: by PSI, when tasks wait for memory, or without PSI by little
/// available memory.
#[derive(Debug)]
pub struct Pressure {
    psi: Option<File>,
    /// The fallback, open from the start: the thread that waits may be one that opens no file.
    available: Option<Available>,
    /// Available memory below this is short, in bytes.
    short: u64,
    ended: PipeReader,
}

/// Ends the wait of a [`Pressure`]; dropping it does so too.
#[derive(Debug)]
pub struct PressureEnd(PipeWriter);

impl PressureEnd {
    /// Ends the wait of now, and every later one.
    pub fn end(&self) {
        let _ = (&self.0).write_all(b"e");
    }
}

impl Pressure {
    /// Begins to watch.
    ///
    /// # Errors
    /// An error when the process has no descriptor left.
    pub fn new() -> io::Result<(Pressure, PressureEnd)> {
        let (ended, end) = io::pipe()?;
        let psi = || -> io::Result<File> {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(PSI)?;
            file.write_all(TRIGGER)?;
            Ok(file)
        };
        let (available, short) = (Available::open().ok(), machine_memory() / SHORT);
        Ok((Pressure { psi: psi().ok(), available, short, ended }, PressureEnd(end)))
    }

    /// Does the kernel report pressure (PSI)? Otherwise a wait checks the available memory at its
    /// end.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.psi.is_some()
    }

    /// Waits for at most `time`.
    #[must_use]
    pub fn wait(&mut self, time: Duration) -> Waited {
        let ended = PollFd::new(&self.ended, PollFlags::IN);
        // Without PSI the end is asked for twice.
        let mut wanted = match &self.psi {
            Some(psi) => [ended, PollFd::new(psi, PollFlags::PRI)],
            None => [ended.clone(), ended],
        };
        let time = Timespec::try_from(time).ok();
        // After an error nothing is told, as after the time.
        let ready = poll(&mut wanted, time.as_ref()).unwrap_or(0);
        let [ended, psi] = wanted.map(|fd| fd.revents());
        if ready > 0 && !ended.is_empty() {
            return Waited::Ended;
        }
        if ready > 0 && psi.intersects(PollFlags::ERR | PollFlags::NVAL) {
            // The kernel has ended the trigger: a poll would return at once for ever.
            self.psi = None;
        } else if ready > 0 && psi.contains(PollFlags::PRI) {
            return Waited::Short;
        }
        let is_short =
            || self.available.as_ref().is_some_and(|available| available.bytes() < self.short);
        match self.psi.is_none() && is_short() {
            true => Waited::Short,
            false => Waited::Quiet,
        }
    }
}

/// The time that tasks have waited for memory.
#[derive(Debug)]
pub struct MemoryStall(File);

impl MemoryStall {
    /// Opens the kernel's file and reads it once, so that the kernel has allocated its buffer.
    ///
    /// # Errors
    /// The error of the system, for example on a kernel without PSI or with `psi=0`.
    pub fn open() -> io::Result<MemoryStall> {
        let stall = MemoryStall(File::open(PSI)?);
        stall.total().map(|_| stall).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// How long at least one task has waited for memory since the machine started. None on an
    /// error.
    #[must_use]
    pub fn total(&self) -> Option<Duration> {
        let mut text = [0; 256];
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse_stall(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Parses the microseconds of the line `some avg10=… avg60=… avg300=… total=N`.
pub(crate) fn parse_stall(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}
