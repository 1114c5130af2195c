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
//! | ended by the signal that the keeper passed on to it | ends |
//! | was refused: it never said `READY=1`, and keeps nothing | ends with the same status |
//! | died otherwise | starts it again, after a pause that becomes longer from death to death |
//! | died so often without `READY=1` and keeps nothing | ends with an error |
//!
//! While something is kept, the keeper never gives up: its end would be the end of what is kept. It
//! says so once a daemon has died often without `READY=1`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::child::{Kept, LEAST, MOST, Program, Text};
use crate::ended::Ended;
use crate::message::{Message, NAMELESS, is_name};
use crate::store::NAME_MAX;
use crate::sys::{self, Signals};

/// The longest message.
const LONGEST: usize = 4096;
/// More messages than a socket holds (`net.unix.max_dgram_qlen`). Others may send some, too.
const QUEUED: usize = 4096;
/// Signals that are passed on to the daemon.
const PASSED_ON: [i32; 5] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP];

/// How often and how fast a daemon that dies is started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// The pause after the first death of a daemon that was ready, or of the first one.
    pub first: Duration,
    /// The longest pause. Users wait meanwhile.
    pub longest: Duration,
    /// So many deaths without a `READY=1` between them are the end, if nothing is kept.
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
    process: libc::pid_t,
    end: OwnedFd,
    ready: bool,
    stopping: bool,
    passed_on: Option<i32>,
}

/// Keeps the descriptors of a daemon, and starts it again when it dies.
pub struct Keeper {
    program: Program,
    backoff: Backoff,
    socket: UnixDatagram,
    signals: Signals,
    kept: Vec<Kept>,
    above: Option<UnixDatagram>,
    was_ready: bool,
}

impl Keeper {
    /// Prepares the daemon at `program`, with its arguments, its name first. Descriptors that
    /// another service manager handed over to this process (`kept`) are the first that are kept.
    /// Messages of the daemon are passed on to the service manager `above`, a socket as in
    /// `NOTIFY_SOCKET`. SIGTERM and the like are blocked for the calling thread, which must be the
    /// one that calls [`Keeper::run`].
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` for a text with a zero in it.
    pub fn new(
        program: &Path,
        arguments: Vec<OsString>,
        backoff: Backoff,
        above: Option<OsString>,
    ) -> io::Result<Keeper> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("rampack-keep-{}-{}", std::process::id(), since.as_nanos());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        sys::ask_for_senders(socket.as_fd())?;
        let program = Program::new(program, arguments, env::vars_os(), &name)?;
        let above = above.map(|address| connect(&address)).transpose()?;
        let signals = Signals::listen(&PASSED_ON)?;
        let kept = Vec::with_capacity(MOST);
        Ok(Keeper { program, backoff, socket, signals, kept, above, was_ready: false })
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
        let fd = sys::copy_above(fd.as_fd(), LEAST)?;
        self.kept.push(Kept { name: Text::of(name), fd });
        Ok(())
    }

    /// Starts the daemon, and again whenever it dies, until it ends on purpose. Does not call the
    /// heap.
    ///
    /// # Errors
    /// The error of the system if the daemon cannot be started at first.
    pub fn run(&mut self) -> io::Result<Ended> {
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
                deaths = if life.ready { 0 } else { deaths };
            }
            deaths += 1;
            if self.kept.is_empty() && deaths >= self.backoff.tries {
                say(format_args!("the daemon {how}; that was death {deaths}, and it is given up"));
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
            if let Some(signal) = self.pause(pause)? {
                say(format_args!("signal {signal}: the daemon is not started again"));
                return Ok(how);
            }
        }
    }

    fn start(&mut self) -> io::Result<Life> {
        let process = self.program.start(&self.kept, &self.signals)?;
        let end = sys::end_of(process).inspect_err(|_| {
            sys::signal(process, libc::SIGKILL);
            let _ = sys::reap(process);
        })?;
        Ok(Life { process, end, ready: false, stopping: false, passed_on: None })
    }

    /// Serves the daemon until its end.
    fn watch(&mut self, life: &mut Life) -> io::Result<Ended> {
        loop {
            let fds = [life.end.as_fd(), self.signals.fd(), self.socket.as_fd()];
            let [ended, signalled, _] = sys::wait(fds, None)?;
            // The messages of a daemon that has died since count, too.
            let _ = (0..QUEUED).find(|_| !self.take_message(life));
            if signalled {
                self.pass_on(life);
            }
            if ended {
                return sys::reap(life.process).map(Ended::of);
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
            let left = left + Duration::from_millis(1);
            if sys::wait([self.signals.fd()], Some(left))? == [true]
                && let Some((signal, _)) = self.signals.next()
                && signal != libc::SIGTSTP
            {
                return Ok(Some(signal));
            }
        }
    }

    fn pass_on(&self, life: &mut Life) {
        while let Some((signal, of_terminal)) = self.signals.next() {
            life.passed_on = Some(signal);
            // A terminal has sent it to the daemon as well.
            if !of_terminal {
                sys::signal(life.process, signal);
            }
        }
    }

    fn is_the_end(&self, life: &Life, how: Ended) -> bool {
        let refused = !life.ready && !self.was_ready && self.kept.is_empty();
        match how {
            Ended::Exited(0) => true,
            _ if life.stopping => true,
            Ended::Exited(_) => refused,
            Ended::Killed(signal) => life.passed_on == Some(signal),
        }
    }

    /// Takes one message; false if there is none.
    fn take_message(&mut self, life: &mut Life) -> bool {
        let mut text = [0; LONGEST];
        let received = match sys::receive(self.socket.as_fd(), &mut text) {
            Ok(received) => received,
            Err(error) => return error.kind() == ErrorKind::Interrupted,
        };
        let text = &text[..received.length];
        let parsed = Message::parse(text);
        // Anybody can write to the socket; the kernel says who did.
        let (Some(message), true) = (parsed, received.sender == Some(life.process)) else {
            return true;
        };
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

fn connect(address: &OsString) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Writes a line to standard error, if that does not wait.
fn say(text: fmt::Arguments<'_>) {
    sys::say(Text::<512>::of(format_args!("rampack keep: {text}\n")).bytes());
}
