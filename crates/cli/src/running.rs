//! A daemon in this process: what it takes over, how it runs, and its end.

use std::fmt::Write;
use std::io;
use std::process;
use std::sync::Arc;

use control::ControlError;
use host::{self, effective_user, in_user_namespace};
use nbd::Activated;

use crate::args::FrontendOptions;
use crate::sandbox;
use crate::terminal::print;
use crate::watch::watch;
use service::daemon::{self, Daemon, DaemonOptions};
use service::events::Events;
use service::failure::{failed, say, with_limits};
use service::guard::Guard;
use service::panics;
use service::plan::Asked;
use service::rehearsal::Answer;
use service::root::Root;
use service::state::{self, Named, State};
use service::swap::protections;
use service::transport::Transport;

/// The sockets of NBD among `others`, and copies of those that listen: another program in this
/// process may take over a listening socket, not a connection.
pub(crate) fn activate(others: Named) -> Result<(Vec<Activated>, Named), ControlError> {
    let (mut activated, mut sockets) = (Vec::new(), Vec::new());
    for (name, fd) in others {
        let copy = fd.try_clone().map_err(not_taken)?;
        activated.push(Activated::of(fd).map_err(not_taken)?);
        if let Some(Activated::Listener(_)) = activated.last() {
            sockets.push((name, copy));
        }
    }
    Ok((activated, sockets))
}

/// A daemon in this process, and what its end needs.
pub(crate) struct Running {
    pub(crate) daemon: Daemon,
    pub(crate) events: Events,
    pub(crate) state: Option<Arc<State>>,
}

impl Running {
    /// Starts a daemon with `state`, and says what there is to say. In a rehearsal the process ends
    /// here.
    pub(crate) fn start(
        root: Root,
        (frontends, asked): (&FrontendOptions, Asked),
        state: Option<Arc<State>>,
        sockets: Named,
    ) -> Result<Running, ControlError> {
        if state.is_some() && !frontends.lock_memory && !kept::is_rehearsal() {
            lock_for_users(frontends.transport);
        }
        panics::report(state.is_some());
        let events = listen()?;
        let (transport, nbd) = (frontends.transport, frontends.nbd.options());
        let (vhost, kept) = (frontends.vhost.options(), state.clone());
        let options = DaemonOptions { root, transport, nbd, vhost, asked, state: kept, sockets };
        if kept::is_rehearsal() {
            daemon::rehearse(&options)?;
            print(&Answer::default().text());
            process::exit(0);
        }
        let daemon = Daemon::start(options, events.sender())?;
        for note in daemon.notes() {
            say(&format!("rampack: {note}\n"));
        }
        Ok(Running { daemon, events, state })
    }

    /// Has `make` make what is served, by the daemon and events that it has not looked at, prints
    /// what it returns for the user, and serves until the daemon is told to end and can, or
    /// `is_done`.
    pub(crate) fn run(
        self,
        force: bool,
        is_done: impl Fn(&Daemon) -> bool,
        make: impl FnOnce(&Daemon, &Events) -> Result<String, ControlError>,
    ) -> Result<(), ControlError> {
        let mut guard = None;
        let run = || {
            let text = make(&self.daemon, &self.events)?;
            guard = self.guard()?;
            print(&text);
            watch(&self.daemon, &self.events, force, is_done)
        };
        let result = run();
        let result = self.end(result);
        drop(guard);
        result
    }

    /// What unmounts, after a kill, the mounts of an ordinary user's daemon that nobody keeps.
    pub(crate) fn guard(&self) -> Result<Option<Guard>, ControlError> {
        if self.state.is_some() || effective_user() == 0 && !in_user_namespace() {
            return Ok(None);
        }
        let targets = self.daemon.file_systems().targets();
        Guard::start(targets.iter().map(|it| &**it).chain([self.daemon.root().path()]))
    }

    /// Ends the daemon, after `result`.
    pub(crate) fn end(self, result: Result<(), ControlError>) -> Result<(), ControlError> {
        let Running { daemon, events, state } = self;
        let result = result.map_err(with_limits);
        // A client that asked for a stop meanwhile has its answer, and holds on to nothing.
        drop(events);
        match (&result, state) {
            // The next process tries again, with all that this one would remove.
            (Err(_), Some(state)) if state.is_inherited() => daemon.leave(),
            (_, state) => {
                // The devices go first.
                drop(daemon);
                if let Some(state) = state {
                    state.end();
                }
            }
        }
        result
    }
}

/// What a service manager handed over: the state of a daemon, with what the one before left, and
/// other sockets.
///
/// # Errors
/// As [`State::begin`].
pub(crate) fn handed_over() -> Result<(Option<Arc<State>>, Named), ControlError> {
    let (left, others) = kept::handed_over().map(state::split).map_err(not_taken)?;
    Ok((State::begin(left)?.map(Arc::new), others))
}

/// Did a daemon before leave anything?
pub(crate) fn is_inherited(state: Option<&Arc<State>>) -> bool {
    state.is_some_and(|state| state.is_inherited())
}

fn not_taken(error: io::Error) -> ControlError {
    failed("cannot take over the descriptors of LISTEN_FDS", &error)
}

/// Locks the memory of a daemon whose mount outlives it. The kernel copies a request to memory of
/// the reader; where it finds no page while the daemon is being killed, the request fails.
fn lock_for_users(transport: Transport) {
    let has_files = match transport {
        Transport::Ublk => true,
        Transport::Auto => effective_user() == 0,
        Transport::Nbd => false,
        fuse => fuse.is_fuse(),
    };
    if has_files && let Err(error) = host::lock_memory() {
        tracing::warn!(
            "memory cannot be locked ({error}), so a user of a block device may get an error when \
             this daemon is killed; it needs CAP_IPC_LOCK, or no limit on locked memory \
             (LimitMEMLOCK=infinity)"
        );
    }
}

/// The frontends for disks, of which one may have a file system: that needs a block device, and a
/// user without root has a file.
pub(crate) fn for_file_systems(
    mut frontends: FrontendOptions,
    has_file_system: bool,
) -> FrontendOptions {
    if has_file_system && effective_user() != 0 && frontends.transport == Transport::Auto {
        frontends.transport = Transport::Fuse;
    }
    frontends
}

pub(crate) fn check_frontends(frontends: &FrontendOptions) -> Result<(), ControlError> {
    if let (true, Some(option)) = (frontends.transport.is_fuse(), frontends.nbd.given()) {
        return Err(ControlError::invalid(format!(
            "{option} is for NBD, which is not served with --transport fuse, nor with --mount or \
             --fs without root; leave one of them out"
        )));
    }
    frontends.nbd.check_address().map_err(ControlError::invalid)?;
    frontends.vhost.check()
}

/// Has it neither a disk nor a swap device? One that could not be taken over is one: the end of the
/// daemon would be the end of what it has.
pub(crate) fn has_no_device(daemon: &Daemon) -> bool {
    daemon.swaps().is_empty() && daemon.devices().numbers().is_empty()
}

pub(crate) fn served(daemon: &Daemon) -> String {
    let mut text = String::new();
    for device in daemon.devices().reports() {
        let places = device.link.iter().chain(&device.nbd).chain(&device.vhost_user);
        let places: Vec<String> = places.cloned().collect();
        let _ = writeln!(text, "{}  {}", device.name, places.join("  "));
    }
    // A device without a size has no address yet, and port 0 is another one by now.
    let is_by_tcp = |it: &&String| it.starts_with("nbd://") || it.starts_with("nbds://");
    for address in daemon.devices().nbd().iter().filter(is_by_tcp) {
        let _ = writeln!(text, "NBD over TCP at {address}");
    }
    let _ = writeln!(text, "serving in {}", daemon.root().path().display());
    text
}

/// Keeps what users store out of core dumps, and out of other swap space if that is wanted; allows
/// descriptors for many devices; chooses what threads that serve may do. Call it before anything is
/// stored, and before the first thread is started.
pub(crate) fn confine(frontends: &FrontendOptions) -> Result<(), ControlError> {
    if let Err(error) = host::no_core_dumps() {
        tracing::warn!("a core dump of this process would have what is stored in it: {error}");
    }
    // What is missing is told when a device needs it.
    let _ = host::allow_descriptors(0);
    if frontends.lock_memory {
        host::lock_memory().map_err(|error| {
            let error = failed("--lock-memory: memory cannot be locked", &error);
            let needs = "it needs CAP_IPC_LOCK, or no limit on locked memory \
                         (LimitMEMLOCK=infinity, `ulimit -l unlimited`)";
            ControlError::new(error.errno, format!("{}; {needs}", error.message))
        })?;
    }
    sandbox::choose(frontends.sandbox)
}

pub(crate) fn listen() -> Result<Events, ControlError> {
    // A thread inherits the protections of the thread that starts it, so they begin before the
    // first start.
    protections::begin();
    Events::listen().map_err(|e| failed("cannot listen for signals", &e))
}
