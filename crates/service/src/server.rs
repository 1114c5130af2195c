//! The server of the control socket: each client has a thread, so no client delays another.
//!
//! A client may stay connected and silent. But it must complete a line within [`PATIENCE`] of its
//! beginning, and take an answer within [`PATIENCE`]. When there are [`CLIENTS_MAX`] clients, a new
//! one replaces the client that has been silent for longest. [`COMMANDS_MAX`] commands may be under
//! way; status, metrics and stop are answered beside them.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use control::{ControlError, Errno};
use host::errno;
use serde_json::Value;
use sync::Mutex;
use sync::atomic::{AtomicBool, Ordering};

use crate::failure::failed;
use crate::pieces::{self, Pieces};
use crate::protocol::{LINE_MAX, Request, parse_message, reply_line, too_long};

/// The most clients served at a time.
pub const CLIENTS_MAX: usize = 40;

/// The most commands under way at a time. They may wait for a device that never answers, so status,
/// metrics and stop begin beside them.
pub const COMMANDS_MAX: usize = 32;

/// How long a client may take to send one line, or to take an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long the server waits after an error before it accepts again.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take no byte of what it asked for, or send none of what it gives.
const STALLED: Duration = Duration::from_secs(300);

/// Bytes of stack of a client's thread. In a daemon with swap space all of it is in memory.
const STACK: usize = 512 << 10;

/// Answers a request, with the value or the error that the client gets. Many threads call it at
/// once.
pub type Handler = dyn Fn(Request, &mut Talk<'_>) -> Result<Value, ControlError> + Send + Sync;

/// A client whose request is being answered, for commands that send or take more than a line.
pub struct Talk<'a> {
    client: &'a mut BufReader<UnixStream>,
    pieces: Pieces,
    /// The client may go on sending bytes, which are no requests.
    is_last: bool,
}

impl Talk<'_> {
    fn with(client: &mut BufReader<UnixStream>) -> Talk<'_> {
        Talk { client, pieces: Pieces::default(), is_last: false }
    }

    /// Says that the command begins.
    ///
    /// # Errors
    /// The client is gone.
    pub fn begin(&mut self) -> Result<(), ControlError> {
        let stream = self.client.get_mut();
        let limits = stream.set_read_timeout(Some(STALLED));
        let limits = limits.and_then(|()| stream.set_write_timeout(Some(STALLED)));
        let said = limits.and_then(|()| stream.write_all(reply_line(&Ok(Value::Null)).as_bytes()));
        said.map_err(|error| gone(&error))
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The client is gone, or takes nothing. Then this is the end of the connection: the client
    /// would take what follows for the rest of the bytes.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        let stream = self.client.get_mut();
        pieces::put(stream, bytes).map_err(|error| {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            gone(&error)
        })
    }

    /// Says that this was all.
    ///
    /// # Errors
    /// As [`Talk::put`].
    pub fn end(&mut self) -> Result<(), ControlError> {
        pieces::end(self.client.get_mut()).map_err(|error| gone(&error))
    }

    /// Reads bytes that the client sends, as many as there are and fit; 0 at the end.
    ///
    /// # Errors
    /// The client is gone, or sends nothing.
    pub fn take(&mut self, into: &mut [u8]) -> Result<usize, ControlError> {
        self.pieces.take(self.client, into).map_err(|error| gone(&error))
    }

    /// Lets the client know that nothing more is read, if it has not sent all. The answer is then
    /// the end of the connection.
    pub fn stop_taking(&mut self) {
        if !self.pieces.are_over() {
            self.is_last = true;
            let _ = self.client.get_mut().shutdown(std::net::Shutdown::Read);
        }
    }
}

fn gone(error: &io::Error) -> ControlError {
    if error.kind() == io::ErrorKind::WouldBlock {
        let message = format!("the client has stalled for {} seconds", STALLED.as_secs());
        return ControlError::new(Errno(errno::ETIMEDOUT), message);
    }
    failed("the client is gone", error)
}

struct Client {
    number: u64,
    stream: UnixStream,
    heard: Instant,
    working: bool,
}

#[derive(Default)]
struct Clients {
    next: u64,
    present: Vec<Client>,
}

impl Clients {
    fn note(&mut self, number: u64, working: bool) {
        if let Some(client) = self.present.iter_mut().find(|client| client.number == number) {
            client.heard = Instant::now();
            client.working = working;
        }
    }
}

/// The place of a client. A drop gives it back, also when the client's thread panics.
struct Place {
    number: u64,
    clients: Arc<Mutex<Clients>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.lock().present.retain(|client| client.number != self.number);
    }
}

/// A server that accepts clients until it is dropped. The drop waits, up to [`PATIENCE`], until
/// running requests are answered.
pub struct ControlServer {
    listener: UnixListener,
    clients: Arc<Mutex<Clients>>,
    is_over: Arc<AtomicBool>,
    acceptor: Option<thread::JoinHandle<()>>,
}

impl ControlServer {
    /// Serves `listener` on threads of its own.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(listener: UnixListener, handler: Arc<Handler>) -> io::Result<ControlServer> {
        let clients = Arc::new(Mutex::new(Clients::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let acceptor = {
            let (listener, clients) = (listener.try_clone()?, clients.clone());
            let is_over = is_over.clone();
            thread::Builder::new()
                .name("control".into())
                .spawn(move || accept(&listener, &clients, &handler, &is_over))?
        };
        Ok(ControlServer { listener, clients, is_over, acceptor: Some(acceptor) })
    }

    /// The number of clients whose requests are being answered.
    #[must_use]
    pub fn working(&self) -> usize {
        self.clients.lock().present.iter().filter(|client| client.working).count()
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits in accept.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for client in &self.clients.lock().present {
            let _ = client.stream.shutdown(std::net::Shutdown::Read);
        }
        // Clients with a running request get their answers.
        let end = Instant::now() + PATIENCE;
        while !self.clients.lock().present.is_empty() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn accept(
    listener: &UnixListener,
    clients: &Arc<Mutex<Clients>>,
    handler: &Arc<Handler>,
    is_over: &AtomicBool,
) {
    let mut was_told = false;
    loop {
        let accepted = listener.accept();
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !matches!(error.raw_os_error(), Some(errno::EINTR | errno::ECONNABORTED)) {
                    // Clients may wait for a descriptor for long, and nothing else has changed.
                    if !was_told {
                        tracing::warn!("control socket: {error}; clients wait");
                    }
                    was_told = true;
                    thread::sleep(PAUSE);
                }
                continue;
            }
        };
        was_told = false;
        let Some(place) = admit(clients, &stream) else { continue };
        let handler = handler.clone();
        let thread = thread::Builder::new().name("control-client".into()).stack_size(STACK);
        let started = thread.spawn(move || {
            if let Err(error) = converse(stream, &place, &*handler) {
                tracing::debug!("control client: {error}");
            }
        });
        if let Err(error) = started {
            tracing::warn!("control socket: no thread for a client: {error}");
        }
    }
}

fn admit(all: &Arc<Mutex<Clients>>, stream: &UnixStream) -> Option<Place> {
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let copy = stream.try_clone().ok()?;
    let mut clients = all.lock();
    if clients.present.len() >= CLIENTS_MAX {
        let silent = (0..clients.present.len())
            .filter(|n| !clients.present[*n].working)
            .min_by_key(|n| clients.present[*n].heard);
        let Some(silent) = silent else {
            drop(clients);
            let error = ControlError::new(
                Errno::EAGAIN,
                format!("{CLIENTS_MAX} clients are being served already; try again"),
            );
            let _ = (&*stream).write_all(reply_line(&Err(error)).as_bytes());
            return None;
        };
        let evicted = clients.present.swap_remove(silent);
        let _ = evicted.stream.shutdown(std::net::Shutdown::Both);
    }
    let number = clients.next;
    clients.next += 1;
    clients.present.push(Client { number, stream: copy, heard: Instant::now(), working: false });
    Some(Place { number, clients: all.clone() })
}

impl Place {
    /// Begins a request.
    ///
    /// # Errors
    /// `EAGAIN` for a command beside too many others.
    fn begin(&self, request: &Request) -> Result<(), ControlError> {
        let mut clients = self.clients.lock();
        let working = clients.present.iter().filter(|client| client.working).count();
        let is_free =
            matches!(request, Request::Status(_) | Request::Metrics(_) | Request::Stop(_));
        if working >= COMMANDS_MAX && !is_free {
            let message = format!(
                "{working} commands are under way; until one ends, only status, metrics and stop \
                 are answered"
            );
            return Err(ControlError::new(Errno::EAGAIN, message));
        }
        clients.note(self.number, true);
        Ok(())
    }
}

fn converse(stream: UnixStream, place: &Place, handler: &Handler) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (result, is_last) = match read_line(&mut reader)? {
            Line::End => return Ok(()),
            Line::TooLong => {
                // The rest of the line is not worth reading.
                let line = reply_line(&Err(too_long()));
                return reader.get_mut().write_all(line.as_bytes());
            }
            Line::Complete(line) => {
                let talk = &mut Talk::with(&mut reader);
                let result = parse_message(&line).and_then(|request| {
                    place.begin(&request)?;
                    handler(request, talk)
                });
                (result, talk.is_last)
            }
        };
        // A client that does not take its answer counts as silent and may be disconnected.
        place.clients.lock().note(place.number, false);
        reader.get_mut().set_write_timeout(Some(PATIENCE))?;
        reader.get_mut().write_all(reply_line(&result).as_bytes())?;
        if is_last {
            return Ok(());
        }
    }
}

enum Line {
    Complete(Vec<u8>),
    TooLong,
    End,
}

/// Reads a line of at most [`LINE_MAX`] bytes. The first byte may take any time; the rest must come
/// within [`PATIENCE`].
fn read_line(reader: &mut BufReader<UnixStream>) -> io::Result<Line> {
    reader.get_ref().set_read_timeout(None)?;
    let mut line = Vec::new();
    let mut deadline = None;
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(Line::End);
        }
        let (taken, complete) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (buffer.len(), false),
        };
        line.extend_from_slice(&buffer[..taken]);
        reader.consume(taken);
        if line.len() - usize::from(complete) > LINE_MAX {
            return Ok(Line::TooLong);
        }
        if complete {
            return Ok(Line::Complete(line));
        }
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        reader.get_ref().set_read_timeout(Some(left))?;
    }
}

#[cfg(test)]
mod tests;
