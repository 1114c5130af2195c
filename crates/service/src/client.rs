//! The client of the control socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::{Peer, errno, peer_of};
use serde::de::DeserializeOwned;
use units::human;

use crate::failure::{failed, say};
use crate::pieces::{self, Pieces};
use crate::protocol::{
    self, DaemonReport, Metric, Metrics, Request, Status, Taken, parse_reply, request_line,
};
use crate::root::Root;

/// How long a daemon may take to report: it waits for nothing then.
const REPORTING: Duration = Duration::from_secs(10);
/// How often a client that waits looks whether the daemon can still answer.
const LOOK: Duration = Duration::from_secs(1);
/// The bytes that are read or sent at a time.
const ROOM: usize = 256 << 10;
/// The longest answer, in bytes. It may hold every attribute of every device.
const ANSWER_MAX: u64 = 64 << 20;
/// When a client says that it waits.
const TELL: Duration = Duration::from_secs(10);

/// The report of the daemon at `root`.
///
/// # Errors
/// As [`call`]; `ETIMEDOUT` after ten seconds.
pub fn report(root: &Root) -> Result<DaemonReport, ControlError> {
    soon(root, &Request::Status(Status {}))
}

/// What the daemon at `root` counts.
///
/// # Errors
/// As [`report`].
pub fn metrics(root: &Root) -> Result<Vec<Metric>, ControlError> {
    soon(root, &Request::Metrics(Metrics {}))
}

fn soon<T: DeserializeOwned>(root: &Root, request: &Request) -> Result<T, ControlError> {
    let daemon = Connected::to(root)?;
    daemon.check_it_runs()?;
    daemon.ask(request, Some(REPORTING))
}

/// Is the process stopped (proc_pid_stat(5))?
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().next());
    matches!(state, Some("T" | "t"))
}

/// Asks the daemon at `root` and returns its answer, of the type that belongs to the request. It
/// waits for as long as the daemon lives: what it is asked for may take hours.
///
/// # Errors
/// `ENOENT` when no daemon runs there (the message says how to start one), `EACCES` when it belongs
/// to a user who is neither root nor the caller, `EBUSY` when it is stopped (by `SIGSTOP` or a
/// debugger), the daemon's own error, or the error of the system call.
pub fn call<T: DeserializeOwned>(root: &Root, request: &Request) -> Result<T, ControlError> {
    Connected::to(root)?.ask(request, None)
}

/// A connection to a daemon that the caller may trust.
struct Connected<'a> {
    root: &'a Root,
    stream: UnixStream,
    /// The process of the daemon. The socket knows it. A file of the daemon would not do: it may be
    /// in memory that was swapped out to a device that does not answer.
    pid: Option<u32>,
}

impl Connected<'_> {
    fn to(root: &Root) -> Result<Connected<'_>, ControlError> {
        let stream = connect(root)?;
        let Peer { pid, user } = peer_of(&stream)
            .map_err(|e| failed(format!("cannot ask who serves {}", root.path().display()), &e))?;
        root.check_server(user)?;
        Ok(Connected { root, stream, pid })
    }

    fn check_it_runs(&self) -> Result<(), ControlError> {
        let Some(pid) = self.pid.filter(|pid| is_stopped(*pid)) else { return Ok(()) };
        let message = format!(
            "the daemon in {} is stopped (process {pid}, state T); let it go on with `kill -CONT \
             {pid}`",
            self.root.path().display()
        );
        Err(ControlError::new(Errno::EBUSY, message))
    }

    fn ask<T: DeserializeOwned>(
        &self,
        request: &Request,
        limit: Option<Duration>,
    ) -> Result<T, ControlError> {
        self.reply(&mut self.send(request, limit)?)
    }

    /// Begins a command that sends or takes more than lines.
    fn begin(&self, request: &Request) -> Result<Answers<'_>, ControlError> {
        let mut stream = self.send(request, None)?;
        self.reply::<()>(&mut stream)?;
        Ok(stream)
    }

    /// Sends a request. A `limit` is for each read of what comes back.
    fn send(
        &self,
        request: &Request,
        limit: Option<Duration>,
    ) -> Result<Answers<'_>, ControlError> {
        let sent = self.stream.set_read_timeout(Some(LOOK));
        let sent = sent.and_then(|()| (&self.stream).write_all(request_line(request).as_bytes()));
        sent.map_err(|error| self.lost(error))?;
        let patient = Patient { daemon: self, limit, has_told: false };
        Ok(BufReader::with_capacity(ROOM, patient))
    }

    fn reply<T: DeserializeOwned>(&self, stream: &mut Answers<'_>) -> Result<T, ControlError> {
        let mut line = Vec::new();
        let read = stream.take(ANSWER_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| self.lost(error))?;
        match line.last() {
            Some(b'\n') => parse_reply(&line),
            _ if line.len() as u64 == ANSWER_MAX => {
                let (most, files) = (human(ANSWER_MAX), self.root.tree());
                let message = format!(
                    "the daemon's answer is longer than {most}; {} has long attributes as files",
                    files.display()
                );
                Err(ControlError::new(Errno::E2BIG, message))
            }
            _ => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn no_answer(&self) -> String {
        format!("no answer from {}", self.root.control_socket().display())
    }

    fn lost(&self, error: io::Error) -> ControlError {
        error.downcast().unwrap_or_else(|error| failed(self.no_answer(), &error))
    }
}

/// What a daemon sends, for a client that waits for as long as it can answer, or has a limit.
struct Patient<'a> {
    daemon: &'a Connected<'a>,
    limit: Option<Duration>,
    has_told: bool,
}

type Answers<'a> = BufReader<Patient<'a>>;

impl Patient<'_> {
    /// Checks whether a client that has waited for so long may go on.
    fn may_wait(&mut self, waited: Duration) -> Result<(), ControlError> {
        let Connected { pid, .. } = self.daemon;
        self.daemon.check_it_runs()?;
        if let Some(limit) = self.limit.filter(|limit| waited >= *limit) {
            let seconds = limit.as_secs();
            let message = format!("{} within {seconds} seconds", self.daemon.no_answer());
            return Err(ControlError::new(Errno(errno::ETIMEDOUT), message));
        }
        if waited >= TELL && !self.has_told {
            self.has_told = true;
            let who = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            say(&format!("rampack: the daemon{who} is at work; waiting for its answer\n"));
        }
        Ok(())
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let begin = Instant::now();
        loop {
            match (&self.daemon.stream).read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.may_wait(begin.elapsed()).map_err(io::Error::other)?;
                }
                read => return read,
            }
        }
    }
}

/// Takes a snapshot of `device`, and passes its bytes to `put`.
///
/// # Errors
/// As [`call`]; those of `put`. What was passed is no snapshot then.
pub fn snapshot(
    root: &Root,
    device: &str,
    put: &mut dyn FnMut(&[u8]) -> Result<(), ControlError>,
) -> Result<Taken, ControlError> {
    let daemon = Connected::to(root)?;
    let request = Request::Snapshot(protocol::Snapshot { device: device.to_owned() });
    let mut stream = daemon.begin(&request)?;
    let (mut pieces, mut room) = (Pieces::default(), vec![0; ROOM]);
    loop {
        match pieces.take(&mut stream, &mut room).map_err(|error| daemon.lost(error))? {
            0 => break,
            count => put(&room[..count])?,
        }
    }
    daemon.reply(&mut stream)
}

/// Restores a device from what `take` reads: one without a size, or a new one. Returns its name.
///
/// # Errors
/// As [`call`]; those of `take`. The device has no size then.
pub fn restore(
    root: &Root,
    device: Option<&str>,
    take: &mut dyn FnMut(&mut [u8]) -> Result<usize, ControlError>,
) -> Result<String, ControlError> {
    let daemon = Connected::to(root)?;
    let request = Request::Restore(protocol::Restore { device: device.map(str::to_owned) });
    let mut stream = daemon.begin(&request)?;
    let mut room = vec![0; ROOM];
    loop {
        let count = take(&mut room)?;
        let sent = match count {
            0 => pieces::end(&mut &daemon.stream),
            count => pieces::put(&mut &daemon.stream, &room[..count]),
        };
        // The daemon may have seen enough. Its answer says why.
        if count == 0 || sent.is_err() {
            return daemon.reply(&mut stream);
        }
    }
}

/// Where a daemon of root or of a service is, for a user who named no root. A socket that a dead
/// one left is not enough.
fn elsewhere(root: &Root) -> Option<&'static str> {
    let is_default = Root::choose(None).is_ok_and(|default| default == *root);
    let mut places = ["/run/rampack", "/run/rampack-swap"].into_iter().filter(|_| is_default);
    let answers = |place: &str| {
        let path = Path::new(place).join("control.sock");
        // One of another user cannot be asked.
        let dead = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
        let asked = host::connect_at_once(&path);
        path.exists() && !asked.is_err_and(|error| dead.contains(&error.kind()))
    };
    places.find(|it| Path::new(it) != root.path() && answers(it))
}

fn connect(root: &Root) -> Result<UnixStream, ControlError> {
    let path = root.control_socket();
    host::connect_at_once(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            let none = format!("no rampack daemon runs in {}", root.path().display());
            let message = match elsewhere(root) {
                Some(there) => {
                    let sudo = if host::effective_user() == 0 { "" } else { "sudo " };
                    format!("{none}, but in {there}: `{sudo}rampack --root {there} …` asks it")
                }
                None => format!(
                    "{none}; start one with `rampack up`, `rampack serve` or `rampack swap on`, or \
                     name another with --root DIR"
                ),
            };
            ControlError::new(Errno::ENOENT, message)
        }
        io::ErrorKind::PermissionDenied => {
            let message = format!(
                "no permission for {}; the daemon answers only the user who started it",
                path.display()
            );
            ControlError::new(Errno::EACCES, message)
        }
        io::ErrorKind::WouldBlock => {
            let message = format!(
                "the daemon at {} takes no more requests: too many wait for its answer",
                path.display()
            );
            ControlError::new(Errno::EBUSY, message)
        }
        _ => failed(format!("cannot reach {}", path.display()), &error),
    })
}

#[cfg(test)]
mod tests;
