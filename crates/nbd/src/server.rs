//! The server: one thread per listener, one thread per connection.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use block::BlockDevice;
use host::{Role, Waiters};

use crate::budget::Budget;
use crate::connection::Host;
use crate::later::Later;
use crate::options::Options;
use crate::stop::Stop;
use crate::sys::{self, For};
use crate::{ExportInfo, Exports, Listener, OpenError, Stream, connection};

struct Shared {
    exports: Arc<dyn Exports>,
    options: Options,
    stop: Stop,
    waiters: Arc<Waiters>,
    budget: Arc<Budget>,
    live: Mutex<Live>,
    /// Signalled when a connection ends and when the server is told to stop.
    changed: Condvar,
}

#[derive(Default)]
struct Live {
    next: u64,
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

impl Live {
    /// The connections in use; with `remote` only those over a network.
    fn count(&self, remote: bool) -> usize {
        let counts = |it: &&Client| !it.gives_way && (!remote || it.stream.is_remote());
        self.clients.values().filter(counts).count()
    }

    /// Cuts off the oldest client that has not chosen an export; with `remote` only one over a
    /// network. False if there is none.
    fn make_way(&mut self, remote: bool) -> bool {
        let may_go = |it: &Client| {
            let is_idle = !it.has_chosen && !it.gives_way;
            is_idle && it.stream.can_be_cut() && (!remote || it.stream.is_remote())
        };
        let oldest =
            self.clients.iter_mut().filter(|(_, it)| may_go(it)).min_by_key(|(id, _)| **id);
        let Some((_, client)) = oldest else { return false };
        client.gives_way = true;
        client.stream.cut();
        true
    }
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        // The map and the counter are valid even if a thread panicked under this lock.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection. None when the server is stopping or full.
    fn register(self: &Arc<Self>, stream: Stream) -> Option<Registered> {
        let stream = Arc::new(stream);
        let most = self.options.max_connections;
        let most_remote = most - self.options.reserved.min(most / 2);
        let mut live = self.live();
        // Clients that give way still have their threads: there are never more than as many again.
        if self.stop.given() || live.clients.len() >= 2 * most {
            return None;
        }
        if stream.is_remote() && live.count(true) >= most_remote && !live.make_way(true) {
            return None;
        }
        if live.count(false) >= most && !live.make_way(false) {
            return None;
        }
        let id = live.next;
        live.next += 1;
        let client =
            Client { stream: stream.clone(), export: None, has_chosen: false, gives_way: false };
        live.clients.insert(id, client);
        drop(live);
        Some(Registered { shared: self.clone(), id, stream })
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
        let later = (shared.options.waiters > 0).then(|| {
            let (waiters, budget) = (shared.waiters.clone(), shared.budget.clone());
            Arc::new(Later::new(self.stream.clone(), waiters, budget, shared.options.cpu))
        });
        let chosen = || {
            if let Some(client) = shared.live().clients.get_mut(&self.id) {
                client.has_chosen = true;
            }
        };
        let host = Host {
            exports: self,
            options: &shared.options,
            stop: &shared.stop,
            budget: &shared.budget,
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
        let waiters = Arc::new(Waiters::new("nbd-wait", options.waiters));
        let budget = Arc::new(Budget::new(options.memory, options.stall));
        let stop = Stop::new()?;
        let shared = Shared { exports, options, stop, waiters, budget, live, changed };
        Ok(Server { shared: Arc::new(shared) })
    }

    /// Serves one client on the calling thread until it leaves or the server is shut down.
    ///
    /// # Errors
    /// The error of receiving or sending; [`io::ErrorKind::ConnectionRefused`] when the server is
    /// shutting down or has [`Options::max_connections`].
    pub fn serve(&self, stream: Stream) -> io::Result<()> {
        match self.shared.register(stream) {
            Some(registered) => registered.serve(),
            None => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    /// Serves one client on a thread of its own.
    ///
    /// # Errors
    /// As [`Server::serve`], and when no thread can be started.
    pub fn spawn(&self, stream: Stream) -> io::Result<()> {
        spawn(&self.shared, stream)
    }

    /// Serves every client that connects to `listener`, each on its own thread. [`Server::join`]
    /// closes the listener.
    ///
    /// # Errors
    /// An error when no thread can be started.
    pub fn listen(&self, listener: Listener) -> io::Result<()> {
        sys::set_nonblocking(listener.as_fd())?;
        let shared = self.shared.clone();
        let accepting = move || {
            // A client that finds a hole in a thread finds nothing to use there.
            if host::enter(Role::NbdAccept).is_ok() {
                accept(&shared, &listener);
            }
            listener
        };
        let thread = thread::Builder::new().name("nbd-accept".into()).spawn(accepting)?;
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
        let end = Instant::now() + self.shared.options.grace;
        let mut live = self.shared.live();
        loop {
            let of_it = |client: &&Client| client.export.as_deref() == Some(name);
            let count = live.clients.values().filter(of_it).count();
            for client in live.clients.values().filter(of_it) {
                client.stream.cut();
            }
            let left = end.saturating_duration_since(Instant::now());
            if count == 0 || left.is_zero() {
                return count;
            }
            let waited = self.shared.changed.wait_timeout(live, left);
            live = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
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
        let shared = &*self.shared;
        let mut live = shared.live();
        while !shared.stop.given() {
            live = shared.changed.wait(live).unwrap_or_else(PoisonError::into_inner);
        }
        let acceptors = std::mem::take(&mut live.acceptors);
        drop(live);
        for thread in acceptors {
            // This closes the listener. The panic hook has reported a panic of the thread.
            drop(thread.join());
        }
        let grace = shared.options.grace;
        if !self.wait_for_clients(grace) {
            for client in shared.live().clients.values() {
                client.stream.cut();
            }
            if !self.wait_for_clients(grace) {
                return false;
            }
        }
        // Each connection has waited for its own requests.
        shared.waiters.close(Some(grace))
    }

    /// Waits until no client is left; false when `limit` has passed.
    fn wait_for_clients(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut live = self.shared.live();
        while !live.clients.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(live, left);
            live = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

fn spawn(shared: &Arc<Shared>, stream: Stream) -> io::Result<()> {
    let Some(registered) = shared.register(stream) else {
        return Err(io::ErrorKind::ConnectionRefused.into());
    };
    let name = format!("nbd-{}", registered.id);
    // The result is not used: the client has seen the same error, or its connection ends at once.
    let serving = move || drop(host::enter(Role::NbdClient).and_then(|()| registered.serve()));
    thread::Builder::new().name(name).spawn(serving).map(drop)
}

/// Accepts clients until the server stops. Sleeps while no client connects.
fn accept(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let ready = sys::wait([listener.as_fd(), shared.stop.fd()], For::Reading, -1);
        if shared.stop.given() {
            return;
        }
        match ready {
            Ok([true, _]) => {}
            Ok(_) => continue,
            // The wait itself found no memory: the thread pauses instead.
            Err(_) => {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        }
        // A client that cannot be served sees its connection closed.
        match listener.accept() {
            Ok(Some(stream)) => drop(spawn(shared, stream)),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // No descriptor or no memory: the connection stays in the queue, and a retry at once
            // would be a busy loop.
            Err(_) => drop(sys::wait([shared.stop.fd()], For::Reading, 100)),
        }
    }
}
