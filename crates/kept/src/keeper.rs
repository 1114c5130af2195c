//! Keeps the descriptors of a daemon, and starts it again when it dies.
//!
//! A process that does this must not fail, so it does little. It waits for three things: messages
//! of the daemon, signals, and the daemon's end. After [`Keeper::new`] it does not call the heap,
//! opens no file and takes no part in the daemon's work. Its caller locks its memory.
//!
//! What happens when the daemon ends:
//!
//! | the daemon | the keeper |
//! |---|---|
//! | ended with status 0, or said that it stops (`STOPPING=1`) | ends with the same status |
//! | ended by the signal that the keeper passed on to it, and keeps nothing | ends |
//! | was refused: it never said `READY=1`, and keeps nothing | ends with the same status |
//! | died otherwise | starts it again, after a pause that becomes longer from death to death |
//! | died after SIGTERM, or of a signal | starts it again, and sends SIGTERM once it is ready |
//! | died so often without `READY=1` and keeps nothing | ends with an error |
//!
//! While something is kept, the keeper never gives up: its end would be the end of what is kept. A
//! daemon that a signal killed did not listen yet: the next one is told to end. Once a daemon has
//! died often without `READY=1`, the keeper says so; SIGTERM is its end then.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use host::{For, Signals, receive_message, signal, wait};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt::set_socket_passcred;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::child::{Child, Kept, LEAST, MOST, Text};
use crate::ended::Ended;
use crate::message::{Message, NAMELESS, is_name};
use crate::store::{NAME_MAX, connect};

/// The longest message.
const LONGEST: usize = 4096;
/// More messages than a socket holds (`net.unix.max_dgram_qlen`).
const QUEUED: usize = 4096;
/// Signals that are passed on to the daemon, unless this process was started to ignore them.
const PASSED_ON: [i32; 4] = [signal::SIGTERM, signal::SIGINT, signal::SIGQUIT, signal::SIGTSTP];

/// How often and how fast a daemon that dies is started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The pause after the first death of a daemon that was ready, or of the first one.
    pub first: Duration,
    /// The longest pause. Users wait meanwhile.
    pub longest: Duration,
    /// This many deaths without a `READY=1` between them are the end, if nothing is kept.
    pub tries: u32,
}

impl Default for Backoff {
    fn default() -> Backoff {
        let (first, longest) = (Duration::from_millis(20), Duration::from_secs(1));
        Backoff { first, longest, tries: 5 }
    }
}

/// A process of the daemon.
struct Life {
    process: Pid,
    end: OwnedFd,
    ready: bool,
    stopping: bool,
    passed_on: Option<i32>,
}

/// Keeps the descriptors of a daemon, and starts it again when it dies.
pub struct Keeper {
    program: Child,
    backoff: Backoff,
    socket: UnixDatagram,
    signals: Signals,
    kept: Vec<Kept>,
    above: Option<UnixDatagram>,
    was_ready: bool,
    /// SIGTERM came. A daemon that refuses it while it is used tries again until it ends, so it is
    /// for the next one as well, and for another program in its process; and the signal may have
    /// come to one that was dying.
    is_terminated: bool,
}

impl Keeper {
    /// The descriptors that a keeper and its daemon may have to have, at most.
    pub const DESCRIPTORS: u64 = LEAST as u64 + MOST as u64 + 32;

    /// Prepares the daemon at `program`, with its arguments, its name first. Descriptors that
    /// another service manager handed over to this process (`kept`) are the first that are kept.
    /// Messages of the daemon are passed on to the service manager `above`, a socket as in
    /// `NOTIFY_SOCKET`. SIGTERM and the like are blocked for the calling thread, which must be the
    /// one that calls [`Keeper::run`]. SIGHUP is ignored from now on, and by the daemon from its
    /// start: a terminal that is gone ends neither.
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` for a text with a zero in it.
    pub fn new(
        program: &Path,
        arguments: Vec<OsString>,
        backoff: Backoff,
        above: Option<OsString>,
    ) -> io::Result<Keeper> {
        // Without a name: only who has the other end can send.
        let (socket, other) = UnixDatagram::pair()?;
        set_socket_passcred(&socket, true)?;
        // The numbers below are for what the daemon is handed over.
        let other = fcntl_dupfd_cloexec(&other, LEAST)?;
        let program = Child::new(program, arguments, env::vars_os(), other)?;
        let above = above.map(|address| connect(&address)).transpose()?;
        if let Some(above) = &above {
            above.set_nonblocking(true)?;
        }
        host::ignore(signal::SIGHUP)?;
        let signals = Signals::listen(&PASSED_ON)?;
        let kept = Vec::with_capacity(MOST);
        let (was_ready, is_terminated) = (false, false);
        Ok(Keeper { program, backoff, socket, signals, kept, above, was_ready, is_terminated })
    }

    /// Keeps a descriptor that another service manager handed over to this process.
    ///
    /// # Errors
    /// `InvalidInput` for a name that cannot be, `QuotaExceeded` if there is no room.
    pub fn keep(&mut self, name: &str, fd: OwnedFd) -> io::Result<()> {
        if !is_name(name, NAME_MAX) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if self.kept.len() == MOST {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        // The numbers below are for the copies that a new process gets.
        let fd = fcntl_dupfd_cloexec(&fd, LEAST)?;
        self.kept.push(Kept { name: Text::of(name), fd });
        Ok(())
    }

    /// Starts the daemon, and again whenever it dies, until it ends on purpose. Does not call the
    /// heap.
    ///
    /// # Errors
    /// The error of the system if the daemon cannot be started at first.
    pub fn run(&mut self) -> io::Result<Ended> {
        // What this process was given takes room, too.
        self.program.allow(MOST - self.kept.len());
        let mut deaths = 0;
        loop {
            let began = Instant::now();
            let life = match self.start() {
                Ok(life) => Some(life),
                Err(error) if !self.was_ready && self.kept.is_empty() => return Err(error),
                Err(error) => {
                    say(format_args!("the daemon cannot be started now: {}", Code(&error)));
                    None
                }
            };
            let mut how = Ended::Exited(127);
            if let Some(mut life) = life {
                how = self.watch(&mut life)?;
                if self.is_the_end(&life, how) {
                    return Ok(how);
                }
                self.was_ready |= life.ready;
                self.is_terminated |= life.passed_on.map(Ended::Killed) == Some(how);
                deaths = if life.ready { 0 } else { deaths };
            }
            deaths += 1;
            if self.kept.is_empty() && deaths >= self.backoff.tries {
                say(format_args!("the daemon {how}; that was death {deaths}, and it is given up"));
                return Ok(how);
            }
            if self.is_terminated && deaths >= self.backoff.tries {
                let signal = signal::SIGTERM;
                say(format_args!("signal {signal}: the daemon is not started again"));
                return Ok(how);
            }
            let shift = (deaths - 1).min(16);
            let pause = self.backoff.first.saturating_mul(1 << shift).min(self.backoff.longest);
            let (lived, kept) = (began.elapsed(), self.kept.len());
            say(format_args!(
                "the daemon {how} after {lived:.1?}; it is started again in {pause:?}, with \
                 {kept} descriptors"
            ));
            if deaths == self.backoff.tries {
                say(format_args!(
                    "that was death {deaths} without a READY=1; what the daemon had stays with \
                     this process, and its users wait; a signal such as SIGTERM gives it up"
                ));
            }
            let Some(signal) = self.pause(pause)? else { continue };
            self.is_terminated = true;
            if self.kept.is_empty() || deaths >= self.backoff.tries {
                say(format_args!("signal {signal}: the daemon is not started again"));
                return Ok(how);
            }
        }
    }

    fn start(&mut self) -> io::Result<Life> {
        let process = self.program.start(&self.kept, &self.signals)?;
        let end = pidfd_open(process, PidfdFlags::empty()).inspect_err(|_| {
            let _ = kill_process(process, Signal::KILL);
            let _ = host::ended(process);
        })?;
        Ok(Life { process, end, ready: false, stopping: false, passed_on: None })
    }

    /// Serves the daemon until its end.
    fn watch(&mut self, life: &mut Life) -> io::Result<Ended> {
        loop {
            let fds = [life.end.as_fd(), self.signals.as_fd(), self.socket.as_fd()];
            let [ended, signalled, _] = wait(fds, For::Reading, None)?;
            // The messages of a daemon that has died since count, too.
            let _ = (0..QUEUED).find(|_| !self.take_message(life));
            if signalled {
                self.pass_on(life);
            }
            if ended {
                return host::ended(life.process).map(Ended::of);
            }
        }
    }

    /// Waits between two starts. Returns a signal that asks for the end.
    fn pause(&self, time: Duration) -> io::Result<Option<i32>> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if wait([self.signals.as_fd()], For::Reading, Some(left))? == [true]
                && let Some((signal, _)) = self.signals.next()
                && signal != signal::SIGTSTP
            {
                return Ok(Some(signal));
            }
        }
    }

    fn pass_on(&mut self, life: &mut Life) {
        while let Some((signal, of_terminal)) = self.signals.next() {
            life.passed_on = Some(signal);
            self.is_terminated |= signal == signal::SIGTERM;
            // A terminal has sent it to the daemon as well.
            if let (false, Some(signal)) = (of_terminal, Signal::from_named_raw(signal)) {
                let _ = kill_process(life.process, signal);
            }
        }
    }

    fn is_the_end(&self, life: &Life, how: Ended) -> bool {
        let refused = !life.ready && !self.was_ready && self.kept.is_empty();
        match how {
            Ended::Exited(0) => true,
            _ if life.stopping => true,
            Ended::Exited(_) => refused,
            Ended::Killed(signal) => life.passed_on == Some(signal) && self.kept.is_empty(),
        }
    }

    /// Takes one message; false if there is none.
    fn take_message(&mut self, life: &mut Life) -> bool {
        let mut text = [0; LONGEST];
        let received = match receive_message(&self.socket, &mut text) {
            Ok(received) => received,
            Err(error) => return error.kind() == ErrorKind::Interrupted,
        };
        let text = &text[..received.length];
        let parsed = Message::parse(text);
        // Programs of the daemon may have the socket, too; the kernel says who sent it.
        let (Some(message), true) =
            (parsed, received.sender == Some(life.process.as_raw_pid().unsigned_abs()))
        else {
            return true;
        };
        if message.ready && self.is_terminated {
            life.passed_on = Some(signal::SIGTERM);
            let _ = kill_process(life.process, Signal::TERM);
        }
        life.ready |= message.ready;
        life.stopping |= message.stopping;
        if message.remove {
            let name = message.name.unwrap_or(NAMELESS).as_bytes();
            self.kept.retain(|kept| kept.name.bytes() != name);
        }
        // The descriptor of a barrier is closed here, as is one that nobody asked to keep.
        for fd in received.fds.into_iter().flatten().filter(|_| message.store) {
            let name = message.name.unwrap_or(NAMELESS);
            if let Err(error) = self.keep(name, fd) {
                let name = Text::<NAME_MAX>::of(name);
                say(format_args!(
                    "the daemon's descriptor {name} cannot be kept: {}",
                    Code(&error)
                ));
            }
        }
        if let (Some(above), false) = (&self.above, message.is_of_descriptors()) {
            // Without it the daemon works as well.
            let _ = above.send(text);
        }
        true
    }
}

/// An error as text. The texts of the system would take memory.
struct Code<'a>(&'a io::Error);

impl fmt::Display for Code<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.raw_os_error() {
            Some(number) => write!(f, "error {number}"),
            None => write!(f, "{}", self.0.kind()),
        }
    }
}

/// Writes a line to standard error, if that does not wait.
fn say(text: fmt::Arguments<'_>) {
    let stderr = rustix::stdio::stderr();
    if matches!(wait([stderr], For::Writing, Some(Duration::ZERO)), Ok([true])) {
        let text = Text::<512>::of(format_args!("rampack keep: {text}\n"));
        let _ = rustix::io::write(stderr, text.bytes());
    }
}
