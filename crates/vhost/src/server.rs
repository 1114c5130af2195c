//! The socket of a device: one thread takes its front end, and does what that asks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use block::BlockDevice;
use host::{For, Role, Waiters, wait};
use units::Cpu;
use vhost_protocol::vhost_user::{BackendReqHandler, Error};

use crate::channel;
use crate::queue::Stop;
use crate::request::{ID, Served};
use crate::session::Session;
use crate::vring::Common;

/// Opens the device for a front end, which has it until it leaves; or says why it cannot be.
pub type Open = Arc<dyn Fn() -> Result<Arc<dyn BlockDevice>, String> + Send + Sync>;

/// A message comes as a whole, and an answer is taken, within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before another front end is taken, when there was no descriptor for one.
const PAUSE: Duration = Duration::from_millis(100);

/// How a device is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name that drivers show as its serial number: the first 20 bytes.
    pub id: String,
    /// The most queues, each with a thread; a front end says how many there are. At most 1024.
    pub queues: u16,
    /// The CPU of the calling thread, for the device; any number is correct.
    pub cpu: fn() -> Cpu,
    /// The most threads for requests that would wait; 0 has the queues wait.
    pub waiters: usize,
    /// How long [`Server::stop`] and [`Server::disconnect`] wait for requests under way.
    pub grace: Duration,
}

impl Default for Options {
    /// No name, 64 queues, CPU 0 for every thread, 4 waiters, five seconds of grace.
    fn default() -> Options {
        let (cpu, grace): (fn() -> Cpu, _) = (|| Cpu(0), Duration::from_secs(5));
        Options { id: String::new(), queues: 64, cpu, waiters: 4, grace }
    }
}

/// A server of one device. Every method may be called by any thread. A drop stops it.
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    open: Open,
    options: Options,
    /// Bytes of memory of this machine, which its thread cannot ask for.
    machine: u64,
    stop: Stop,
    state: Mutex<State>,
    /// Signalled when a front end is gone, and when the thread ends.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The front end.
    stream: Option<UnixStream>,
    /// Where it is told of changes, if it wants to know.
    channel: Option<OwnedFd>,
    has_ended: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that panics runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_so`, for the grace at most. Returns whether it is.
    fn settles(&self, is_so: impl Fn(&State) -> bool) -> bool {
        let waits = |state: &mut State| !is_so(state);
        let waited = self.changed.wait_timeout_while(self.state(), self.options.grace, waits);
        is_so(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Ends the connection: its thread finds it at its end.
    fn cut(&self) {
        if let Some(stream) = &self.state().stream {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Server {
    /// Serves what `open` opens to the front end that connects to `listener`, one at a time:
    /// another one is refused. Who may connect, the file of the socket says.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(listener: UnixListener, open: Open, mut options: Options) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        options.queues = options.queues.clamp(1, 1024);
        let (state, changed) = (Mutex::default(), Condvar::new());
        let known = Some(host::machine_memory()).filter(|bytes| *bytes > 0);
        // The kernel has some of the memory that the machine is said to have.
        let machine = known.map_or(u64::MAX, |bytes| bytes + bytes / 8);
        let stop = Stop::new()?;
        let shared = Arc::new(Shared { open, options, machine, stop, state, changed });
        let serving = shared.clone();
        let thread = thread::Builder::new().name("vhost-front".into());
        thread.spawn(move || {
            let _end = End(&serving);
            // It is closed before that is told.
            let listener = listener;
            // A front end that finds a hole in the thread finds nothing to use there.
            match host::enter(Role::VhostFront) {
                Ok(()) => serve(&serving, &listener),
                Err(error) => tracing::error!("no vhost-user: it cannot be confined: {error}"),
            }
        })?;
        Ok(Server { shared })
    }

    /// Is a front end connected?
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.state().stream.is_some()
    }

    /// Tells the front end, if there is one, that the device has another size. It asks for it then,
    /// and so does a later one.
    pub fn has_new_size(&self) {
        if let Some(channel) = &self.shared.state().channel {
            channel::tell(channel);
        }
    }

    /// Cuts the front end off, after the requests under way. False if it still has the device.
    pub fn disconnect(&self) -> bool {
        self.shared.cut();
        self.shared.settles(|state| state.stream.is_none())
    }

    /// Waits for a front end that is just leaving, for `limit` at most.
    pub fn settle(&self, limit: Duration) {
        let state = self.shared.state();
        let waits = |state: &mut State| state.stream.is_some();
        drop(self.shared.changed.wait_timeout_while(state, limit, waits));
    }

    /// Ends the connection, after the requests under way, and closes the socket. False if the
    /// device has not carried them out in time: their threads then keep it.
    pub fn stop(&self) -> bool {
        self.shared.stop.give();
        self.shared.cut();
        self.shared.settles(|state| state.has_ended)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells of the end of the thread, also after a panic.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        *self.0.state() = State { has_ended: true, ..State::default() };
        self.0.changed.notify_all();
    }
}

/// A connected front end.
struct Front {
    handler: BackendReqHandler<Mutex<Session>>,
    /// Its socket, which the handler has too.
    stream: UnixStream,
}

impl Front {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The connection is over once all that is left of it is gone.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        *self.0.state() = State::default();
        self.0.changed.notify_all();
    }
}

fn serve(shared: &Shared, listener: &UnixListener) {
    let waiters = shared.options.waiters;
    let waiters = (waiters > 0).then(|| Arc::new(Waiters::new("vhost-wait", waiters)));
    let (mut front, mut said): (Option<(Front, Gone<'_>)>, String) = (None, String::new());
    while !shared.stop.given() {
        let (stop, accept) = (shared.stop.event(), listener.as_fd());
        let ready = match &front {
            Some((front, _)) => wait([stop, accept, front.fd()], For::Reading, None),
            None => wait([stop, accept], For::Reading, None).map(|[a, b]| [a, b, false]),
        };
        let Ok([_, is_new, is_asked]) = ready else { break };
        // The messages of this front end, and its end, come before another one.
        if let (true, Some((it, _))) = (is_asked, &mut front) {
            if let Err(error) = shared.handle(it) {
                let (it, gone) = front.take().unzip();
                drop((it, gone));
                match error {
                    Error::Disconnected => tracing::info!("{}: a front end left", shared.name()),
                    error => shared.say(&mut said, &format!("its connection ends: {error}")),
                }
            }
            continue;
        }
        if !is_new {
            continue;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => {
                shared.say(&mut said, &format!("it has to wait: {error}"));
                thread::sleep(PAUSE);
                continue;
            }
        };
        if front.is_some() {
            shared.say(&mut said, "it is refused: another front end is connected");
            continue;
        }
        match shared.begin(stream, waiters.clone()) {
            Ok(begun) => {
                said.clear();
                front = Some(begun);
            }
            Err(why) => shared.say(&mut said, &format!("it is refused: {why}")),
        }
    }
}

impl Shared {
    fn name(&self) -> &str {
        &self.options.id
    }

    /// Logs what becomes of a front end, but not again and again: some connect each second.
    fn say(&self, said: &mut String, text: &str) {
        if said != text {
            tracing::warn!("a vhost-user front end of {}: {text}", self.name());
            text.clone_into(said);
        }
    }

    /// Does what the next message asks for.
    fn handle(&self, front: &mut Front) -> Result<(), Error> {
        let channel = channel::brought(&front.stream);
        front.handler.handle_request()?;
        if channel.is_some() {
            self.state().channel = channel;
        }
        Ok(())
    }

    /// Begins with a front end.
    fn begin(
        &self,
        stream: UnixStream,
        waiters: Option<Arc<Waiters>>,
    ) -> Result<(Front, Gone<'_>), String> {
        let text = |error: io::Error| error.to_string();
        stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(text)?;
        let user = host::peer_of(&stream).map_err(text)?.user;
        let is_trusted = user == 0 || user == host::effective_user();
        // Whoever asks for users from now on is told of this one.
        self.state().stream = Some(stream.try_clone().map_err(text)?);
        let gone = Gone(self);
        if self.stop.given() {
            return Err("the server stops".to_owned());
        }
        let device = (self.open)()?;
        let mut id = [0; ID];
        self.name().bytes().zip(&mut id).for_each(|(byte, place)| *place = byte);
        let served = Arc::new(Served { device: device.clone(), cpu: self.options.cpu, id });
        let (memory, inflight) = (None, None);
        let (event_idx, enables) = (false, false);
        let common = Common { served, waiters, memory, inflight, event_idx, enables };
        let most = (!is_trusted).then_some(self.machine);
        let session = Session::new(device, common, self.options.queues, most);
        let socket = stream.try_clone().map_err(text)?;
        let handler = BackendReqHandler::from_stream(socket, Arc::new(Mutex::new(session)));
        tracing::info!("{}: a vhost-user front end of user {user} is connected", self.name());
        Ok((Front { handler, stream }, gone))
    }
}
