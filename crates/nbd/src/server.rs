//! The server: one thread per listener, one thread per connection.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block::BlockDevice;
use host::{For, Role, Waiters, errno, wait};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::connection::Host;
use crate::later::{Common, Later};
use crate::options::Options;
use crate::peer::Peer;
use crate::refusal::{Refusal, Refusals};
use crate::shares::{Allowance, Held};
use crate::stop::Stop;
use crate::{ExportInfo, Exports, Listener, OpenError, Stream, connection};

struct Shared {
    exports: Arc<dyn Exports>,
    options: Options,
    stop: Stop,
    common: Common,
    refusals: Refusals,
    live: Mutex<Live>,
    /// Signalled when a connection ends and when the server is told to stop.
    changed: Condvar,
}

#[derive(Default)]
struct Live {
    next: u64,
    /// In the order in which they came, by their numbers.
    clients: HashMap<u64, Client>,
    /// Each returns its listener, whose files only a thread with privileges can remove.
    acceptors: Vec<JoinHandle<Listener>>,
}

struct Client {
    stream: Arc<Stream>,
    /// The export that the client has or asked for last.
    export: Option<String>,
    /// Negotiation is over.
    has_chosen: bool,
    /// It had to give way to another one; its thread ends soon.
    gives_way: bool,
}

impl Client {
    /// Has it the export `name`, or does it ask for it?
    fn has(&self, name: &str) -> bool {
        self.export.as_deref() == Some(name)
    }
}

impl Live {
    /// The places that peers have, of `all`.
    fn held(&self, all: usize) -> Held {
        let mut held = Held::new(all);
        for client in self.clients.values().filter(|client| !client.gives_way) {
            held.add(client.stream.peer(), 1);
        }
        held
    }

    /// Gives `peer` one of `all` places. If it may have none, a client that has not chosen an
    /// export is cut off for it: one of its own, or one of a peer with more places.
    fn admit(&mut self, all: usize, peer: Peer) -> Result<(), Refusal> {
        let held = self.held(all);
        if held.grants(peer, 1) {
            return Ok(());
        }
        let helps = |other: Peer| {
            let mut without = held.clone();
            without.remove(other, 1);
            without.grants(peer, 1)
        };
        let may_go = |it: &Client| {
            let other = it.stream.peer();
            let is_idle = !it.has_chosen && !it.gives_way && it.stream.can_be_cut();
            is_idle && other.rank() >= peer.rank() && helps(other)
        };
        // The oldest of those of whom there are most; its own first.
        let order = |id: u64, other: Peer| (other == peer, held.of(other), Reverse(id));
        let idle = self.clients.iter_mut().filter(|(_, it)| may_go(it));
        let Some((_, client)) = idle.max_by_key(|(id, it)| order(**id, it.stream.peer())) else {
            let has = held.of(peer);
            let is_full = peer == Peer::Own || has == 0;
            return Err(if is_full { Refusal::Full(peer, all) } else { Refusal::Share(peer, has) });
        };
        client.gives_way = true;
        client.stream.cut();
        Ok(())
    }
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        // The map and the counter are valid even if a thread panicked under this lock.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection.
    fn register(self: &Arc<Self>, stream: Stream) -> Result<Registered, Refusal> {
        let stream = Arc::new(stream);
        let (most, peer) = (self.options.max_connections, stream.peer());
        let mut live = self.live();
        if self.stop.given() {
            return Err(Refusal::Stopping);
        }
        // Clients that give way still have their threads: there are never more than as many again.
        if live.clients.len() >= 2 * most {
            return Err(Refusal::Full(peer, most));
        }
        live.admit(most, peer)?;
        let id = live.next;
        live.next += 1;
        let client =
            Client { stream: stream.clone(), export: None, has_chosen: false, gives_way: false };
        live.clients.insert(id, client);
        drop(live);
        Ok(Registered { shared: self.clone(), id, stream })
    }
}

/// A registered connection. Dropping it ends the connection, also after a panic of its device.
struct Registered {
    shared: Arc<Shared>,
    id: u64,
    stream: Arc<Stream>,
}

impl Registered {
    fn serve(&self) -> io::Result<()> {
        let shared = &*self.shared;
        let common = shared.common.of(self.stream.peer());
        let memory = common.memory.clone();
        let has_waiters = shared.options.waiters > 0;
        let later = has_waiters.then(|| Arc::new(Later::new(self.stream.clone(), common)));
        let chosen = || {
            if let Some(client) = shared.live().clients.get_mut(&self.id) {
                client.has_chosen = true;
            }
        };
        let host = Host {
            exports: self,
            options: &shared.options,
            stop: &shared.stop,
            memory,
            later,
            chosen: &chosen,
        };
        connection::serve(&self.stream, &host)
    }
}

/// The server's exports; records the name of the export before the client has it.
impl Exports for Registered {
    fn list(&self) -> Vec<ExportInfo> {
        self.shared.exports.list()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, OpenError> {
        if let Some(client) = self.shared.live().clients.get_mut(&self.id) {
            client.export = Some(name.to_string());
        }
        self.shared.exports.open(name)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.stream.say_goodbye();
        self.stream.cut();
        self.shared.live().clients.remove(&self.id);
        self.shared.changed.notify_all();
    }
}

/// An NBD server. Every method may be called by any thread.
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// Makes a server for `exports`; it listens nowhere yet.
    ///
    /// # Errors
    /// An error when the process has no descriptor left.
    pub fn new(exports: Arc<dyn Exports>, options: Options) -> io::Result<Server> {
        let (live, changed) = (Mutex::default(), Condvar::new());
        let common = Common {
            waiters: Arc::new(Waiters::new("nbd-wait", options.waiters)),
            turns: Allowance::new(options.waiters),
            memory: Allowance::new(options.memory),
            cpu: options.cpu,
        };
        let (stop, refusals) = (Stop::new()?, Refusals::default());
        let shared = Shared { exports, options, stop, common, refusals, live, changed };
        Ok(Server { shared: Arc::new(shared) })
    }

    /// Serves one client on the calling thread until it leaves or the server is shut down.
    ///
    /// # Errors
    /// The error of receiving or sending; [`io::ErrorKind::ConnectionRefused`] when the server is
    /// shutting down or has no place for it ([`Options::max_connections`]).
    pub fn serve(&self, stream: Stream) -> io::Result<()> {
        self.shared.register(stream)?.serve()
    }

    /// Serves one client on a thread of its own.
    ///
    /// # Errors
    /// As [`Server::serve`], and when no thread can be started.
    pub fn spawn(&self, stream: Stream) -> io::Result<()> {
        Ok(spawn(&self.shared, stream)?)
    }

    /// Serves every client that connects to `listener`, each on its own thread. [`Server::join`]
    /// closes the listener.
    ///
    /// # Errors
    /// An error when no thread can be started.
    pub fn listen(&self, listener: Listener) -> io::Result<()> {
        fcntl_setfl(&listener, fcntl_getfl(&listener)? | OFlags::NONBLOCK)?;
        let shared = self.shared.clone();
        let accepting = move || {
            // A client that finds a hole in a thread finds nothing to use there.
            if host::enter(Role::NbdAccept).is_ok() {
                accept(&shared, &listener);
            }
            listener
        };
        let thread = thread::Builder::new().name("nbd-accept".into()).stack_size(STACK);
        let thread = thread.spawn(accepting)?;
        self.shared.live().acceptors.push(thread);
        Ok(())
    }

    /// The number of connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.live().clients.len()
    }

    /// Cuts off every client of the export `name` and waits until they release it, for
    /// [`Options::grace`] at most. Requests under way are carried out, but not answered. Returns
    /// how many clients still have the export. It does not stop new clients, nor clients on pipes.
    pub fn disconnect(&self, name: &str) -> usize {
        self.wait_for(self.shared.live(), self.shared.options.grace, |client| {
            let has_it = client.has(name);
            if has_it {
                client.stream.cut();
            }
            has_it
        })
    }

    /// Waits until no client has the export `name`, or any export, for `limit` at most: a client
    /// that has just gone has it a moment longer. Returns how many clients are left.
    pub fn settle(&self, name: Option<&str>, limit: Duration) -> usize {
        let has = |it: &Client| name.map_or(it.export.is_some(), |name| it.has(name));
        self.wait_for(self.shared.live(), limit, has)
    }

    /// Stops the server: it accepts no client, answers the requests already received, then closes
    /// their connections. Returns at once; [`Server::join`] waits.
    pub fn shutdown(&self) {
        let live = self.shared.live();
        self.shared.stop.give();
        for client in live.clients.values() {
            client.stream.stop_receiving();
        }
        drop(live);
        self.shared.changed.notify_all();
    }

    /// Waits until the server is shut down and every connection has ended. A client that does not
    /// receive its replies within [`Options::grace`] is cut off. False if a device has not carried
    /// out its requests after twice that time: their threads then keep the device.
    pub fn join(&self) -> bool {
        self.end(drop)
    }

    /// As [`Server::join`], and leaves the files of its unix sockets: somebody has copies of the
    /// sockets and goes on listening there ([`Listener::unix_kept`]).
    pub fn leave(&self) -> bool {
        self.end(Listener::leave)
    }

    fn end(&self, close: impl Fn(Listener)) -> bool {
        let shared = &*self.shared;
        let mut live = shared.live();
        while !shared.stop.given() {
            live = shared.changed.wait(live).unwrap_or_else(PoisonError::into_inner);
        }
        let acceptors = std::mem::take(&mut live.acceptors);
        drop(live);
        for thread in acceptors {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join().map(&close);
        }
        let grace = shared.options.grace;
        if self.wait_for(shared.live(), grace, |_| true) > 0 {
            let live = shared.live();
            live.clients.values().for_each(|client| client.stream.cut());
            if self.wait_for(live, grace, |_| true) > 0 {
                return false;
            }
        }
        // Each connection has waited for its own requests.
        shared.common.waiters.close(Some(grace))
    }

    /// Waits until no client is left of those that `of` names, for `limit` at most. Returns how
    /// many are left.
    fn wait_for(
        &self,
        live: MutexGuard<'_, Live>,
        limit: Duration,
        of: impl Fn(&Client) -> bool,
    ) -> usize {
        let left = |live: &Live| live.clients.values().filter(|client| of(client)).count();
        let changed = &self.shared.changed;
        let waited = changed.wait_timeout_while(live, limit, |live| left(live) > 0);
        left(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

fn spawn(shared: &Arc<Shared>, stream: Stream) -> Result<(), Refusal> {
    let registered = shared.register(stream)?;
    let name = format!("nbd-{}", registered.id);
    // The result is not used: the client has seen the same error, or its connection ends at once.
    let serving = move || drop(host::enter(Role::NbdClient).and_then(|()| registered.serve()));
    let thread = thread::Builder::new().name(name).stack_size(STACK);
    thread.spawn(serving).map(drop).map_err(Refusal::NoThread)
}

/// Bytes of the stack of a client's thread: all of it is memory where the process locks its memory.
const STACK: usize = 512 << 10;

/// The pause before another client is taken, when there was no memory or descriptor for one.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts clients until the server stops. Sleeps while no client connects.
fn accept(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let ready = wait([listener.as_fd(), shared.stop.fd()], For::Reading, None);
        if shared.stop.given() {
            return;
        }
        match ready {
            Ok([true, _]) => {}
            Ok(_) => continue,
            // The wait itself found no memory: the thread pauses instead.
            Err(_) => {
                thread::sleep(PAUSE);
                continue;
            }
        }
        // A client that cannot be served sees its connection closed.
        let refused = match listener.accept() {
            Ok(accepted) => accepted.and_then(|stream| spawn(shared, stream)).err(),
            Err(error) if waits_in_queue(&error) => Some(Refusal::NotTaken(error)),
            // There is none any more, or it had an error of its own.
            Err(_) => None,
        };
        if let Some(refusal) = refused {
            shared.refusals.log(&refusal);
            // A retry at once would be a busy loop.
            if matches!(refusal, Refusal::NotTaken(_)) {
                drop(wait([shared.stop.fd()], For::Reading, Some(PAUSE)));
            }
        }
    }
}

/// Is this the error of a connection that stays in the queue, for want of descriptors or memory?
fn waits_in_queue(error: &io::Error) -> bool {
    const WANT: [i32; 4] = [errno::EMFILE, errno::ENFILE, errno::ENOBUFS, errno::ENOMEM];
    error.raw_os_error().is_some_and(|number| WANT.contains(&number))
}
