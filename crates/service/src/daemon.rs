//! A daemon: devices, frontends and the control socket in one root directory.

use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use control::{ControlError, Errno};
use fuse::TreeMount;
use nbd::{Activated, Exports, Server, Tls};
use serde_json::Value;
use sync::Mutex;

use crate::devices::{Devices, write_out};
use crate::engine::Machine;
use crate::events::Event;
use crate::failure::{
    failed, frontend_error, say, sentence, served_without, ublk_error, with_limits,
};
use crate::latency;
use crate::metrics;
use crate::plan::{Asked, Followed, Plan};
use crate::protocol::{Applied, Apply, DaemonReport, Request};
use crate::root::{Root, RootLock};
use crate::server::{ControlServer, Talk};
use crate::state::{Connection, Named, State};
use crate::successor::successor;
use crate::swap::recovery::Taken;
use crate::swap::{self, Swaps};
use crate::takeover;
use crate::transport::{NbdOptions, Transport, VhostOptions};
use crate::tree;
use crate::unfinished;
use crate::zone::ZoneReport;

mod apply;
mod configuration;
mod file_systems;
mod files;
mod hand_over;
mod listen;
mod rehearsed;
mod remains;
mod start;
use configuration::Configuration;
pub use configuration::{DISKS, FILE, PART, SWAPS};
pub use file_systems::FileSystems;
use listen::listen;
pub use rehearsed::rehearse;
use remains::Spared;

/// How a daemon is reached.
pub struct DaemonOptions {
    /// The root directory, which holds its state.
    pub root: Root,
    /// The frontends it opens.
    pub transport: Transport,
    /// How NBD is served, unless the transport excludes it.
    pub nbd: NbdOptions,
    /// How virtual machines are served by vhost-user, if they are.
    pub vhost: Option<VhostOptions>,
    /// What its devices are made with, to compare with what the next daemon is asked for.
    pub asked: Asked,
    /// Where its devices outlive it, with those of the daemon before.
    pub state: Option<Arc<State>>,
    /// Copies of the listening sockets that a service manager handed over, with their names.
    pub sockets: Named,
}

impl DaemonOptions {
    /// A daemon in `root` whose devices end with it, reached by `transport`, and by NBD for its own
    /// user.
    #[must_use]
    pub fn new(root: Root, transport: Transport) -> DaemonOptions {
        let (nbd, asked) = (NbdOptions::default(), Asked::new());
        let (vhost, state, sockets) = (None, None, Vec::new());
        DaemonOptions { root, transport, nbd, vhost, asked, state, sockets }
    }
}

/// A running daemon. A drop takes everything down, by force if need be.
pub struct Daemon {
    devices: Arc<Devices>,
    swaps: Arc<Swaps>,
    machine: Arc<Machine>,
    commands: Option<Arc<Commands>>,
    control: Option<ControlServer>,
    nbd: Mutex<Option<Arc<Server>>>,
    /// How NBD is served, if it is.
    nbd_options: Option<NbdOptions>,
    /// How virtual machines are served, if they are.
    vhost: Option<VhostOptions>,
    /// The sockets of a service manager, for the next program in this process.
    sockets: Named,
    file_systems: Arc<FileSystems>,
    tree: Mutex<Option<TreeMount>>,
    notes: Vec<String>,
    claim: RootLock,
}

/// Says that nobody keeps the devices of the daemon `process` any more.
#[must_use]
pub fn abandoned(process: u32) -> String {
    format!(
        "NOT KEPT: the service manager of the daemon, such as `rampack keep`, is gone with what it \
         kept; the devices end with process {process}, and `rampack upgrade` is refused"
    )
}

/// An NBD server for `exports`. Its clients have at most a sixteenth of the machine's memory.
///
/// # Errors
/// `EINVAL` for certificates that cannot be used; the error of the system call.
pub fn nbd_server(exports: Arc<dyn Exports>, nbd: &NbdOptions) -> Result<Server, ControlError> {
    let mut options = nbd::Options { cpu: host::cpu, ..nbd::Options::default() };
    let part = usize::try_from(host::total_memory() / 16).unwrap_or(usize::MAX);
    options.memory = options.memory.min(part);
    options.tls = tls(nbd)?;
    Server::new(exports, options).map_err(|e| failed("cannot start the NBD server", &e))
}

fn tls(nbd: &NbdOptions) -> Result<Option<Tls>, ControlError> {
    let read = |directory| Tls::from_directory(directory, nbd.tls_verify_peer);
    let tls = nbd.tls_certificates.as_deref().map(read).transpose();
    tls.map_err(|error| ControlError::invalid(error.to_string()))
}

/// Hands activated sockets to an NBD server.
///
/// # Errors
/// The error of the system call.
pub fn serve_activated(server: &Server, activated: Vec<Activated>) -> Result<(), ControlError> {
    for socket in activated {
        let served = match socket {
            Activated::Listener(listener) => server.listen(listener),
            Activated::Connected(stream) => server.spawn(stream),
        };
        served.map_err(|e| failed("cannot serve a socket of LISTEN_FDS", &e))?;
    }
    Ok(())
}

impl Daemon {
    /// Opens the frontends, by the plan `by`.
    fn open(
        &mut self,
        (by, spared): (&Plan, Spared<'_>),
        left: (Option<takeover::Left>, &mut Option<Taken>),
        transport: Transport,
        events: Sender<Event>,
    ) -> Result<(), ControlError> {
        let (left, swap) = left;
        let state = self.devices.state().cloned();
        let kept = state.as_deref();
        let inherited = kept.is_some_and(State::is_inherited);
        let (root, made) = (self.claim.root().clone(), self.claim.made().clone());
        let opened = made.directory(&root.devices());
        self.go_on_without(inherited, opened)?;
        let (machine, notes) = (&self.machine, &mut self.notes);
        let (mut loops, mut followed) = (None, Followed::default());
        self.devices.reach_by(transport);
        if let Some(files) =
            files::open(&self.claim, machine, (left, spared), transport, kept, notes)?
        {
            loops = files.loops.clone();
            self.devices.serve_files(files);
        }
        if let (Some(state), true) = (kept, loops.as_ref().is_none_or(|loops| loops.are_here())) {
            let (helpers, note) = takeover::loops(state)?;
            loops = Some(Arc::new(helpers));
            notes.extend(note);
        }
        if let Some(loops) = loops {
            self.swaps.change_by(loops.clone());
            self.file_systems.change_by(loops);
        }
        if by.by_driver {
            match swap::served::is_there() {
                Ok(()) => self.devices.serve_by_ublk(made.clone()),
                Err(error) if inherited => self.notes.push(ublk_error(&error).message),
                Err(error) => return Err(ublk_error(&error)),
            }
        }
        // Until here a start that fails leaves them to the next process.
        if let Some(swap) = swap.take() {
            self.notes.extend(self.swaps.adopt(swap));
            if self.machine.disks().is_empty() {
                followed = swap::cache::follow(&self.machine, &by.changes);
            }
        }
        if kept.is_some() {
            self.notes.extend(self.devices.attach_recovered());
            let (said, of_disks) = self.devices.follow(by);
            self.notes.extend(said);
            followed.done.extend(of_disks.done);
            followed.failed.extend(of_disks.failed);
            // A daemon that keeps nothing yet saves nothing: if it fails, it is not started again.
            if !by.changes.is_empty() {
                self.devices.set_asked(followed.asked(by));
                self.devices.save_removal();
            }
            self.notes.extend(followed.notes());
            let disks = self.devices.numbers().into_iter();
            let links = disks.map(|id| root.device(&format!("zram{id}")));
            let swaps = self.swaps.numbers().into_iter();
            let links: Vec<PathBuf> =
                links.chain(swaps.map(|number| root.device(&swap::name(number)))).collect();
            made.keep_links(&root.devices(), &links);
        }
        // The users of block devices do not lose them because of a frontend beside them.
        let opened = self.open_nbd();
        self.go_on_without(inherited, opened)?;
        let opened = self.open_vhost();
        self.go_on_without(inherited, opened)?;
        if let Err(error) = self.open_tree() {
            self.notes.push(format!("no control tree: {}", error.message));
        }
        let commands = Arc::new(Commands {
            root,
            devices: self.devices.clone(),
            swaps: self.swaps.clone(),
            file_systems: self.file_systems.clone(),
            configuration: Configuration { transport, turn: Mutex::new(()) },
            events,
        });
        self.commands = Some(commands.clone());
        let opened = self.open_control(kept, commands);
        self.go_on_without(inherited, opened)
    }

    /// Notes why a frontend could not be opened, if there are devices of the daemon before.
    fn go_on_without(
        &mut self,
        inherited: bool,
        opened: Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        match opened {
            Err(error) if inherited => {
                self.notes.push(served_without(&error));
                Ok(())
            }
            opened => opened,
        }
    }

    /// Serves NBD in the root and on TCP, if this was asked for.
    fn open_nbd(&self) -> Result<(), ControlError> {
        let (state, Some(nbd)) = (self.devices.state(), &self.nbd_options) else { return Ok(()) };
        let exports = Arc::new(self.devices.exports(nbd.read_only));
        let server = Arc::new(nbd_server(exports, nbd)?);
        *self.nbd.lock() = Some(server.clone());
        let mut addresses = Vec::new();
        let state = state.map(|state| &**state);
        let listens = listen(&server, &self.claim, nbd, state, &mut addresses);
        // Where it listens it has clients.
        self.devices.serve_nbd(addresses, Some(server));
        listens
    }

    /// Serves virtual machines, if this was asked for.
    fn open_vhost(&self) -> Result<(), ControlError> {
        let Some(options) = self.vhost.clone() else { return Ok(()) };
        self.devices.serve_vhost(options, self.claim.made().clone())
    }

    fn open_control(
        &mut self,
        state: Option<&State>,
        commands: Arc<Commands>,
    ) -> Result<(), ControlError> {
        let path = self.root().control_socket();
        let what = || format!("cannot listen at {}", path.display());
        let there = state.and_then(|state| takeover::control_socket(state, &path));
        let private = || {
            let mode = Permissions::from_mode(0o600);
            fs::set_permissions(&path, mode).map_err(|e| failed(what(), &e))
        };
        let listener = match there {
            Some(listener) => {
                private()?;
                listener
            }
            None => {
                self.claim.made().socket(&path)?;
                let listener = UnixListener::bind(&path).map_err(|e| failed(what(), &e))?;
                private()?;
                if let Some(state) = state {
                    state.keep(Connection::Control, listener.as_fd())?;
                }
                listener
            }
        };
        let handler = move |request, talk: &mut Talk<'_>| {
            commands.carry_out(request, talk).map_err(with_limits)
        };
        let server = ControlServer::start(listener, Arc::new(handler));
        self.control = Some(server.map_err(|e| failed(what(), &e))?);
        Ok(())
    }

    /// Serves NBD on sockets that a service manager handed over. Clients may wait there already and
    /// expect their devices, so the devices come first.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn serve_activated(&self, activated: Vec<Activated>) -> Result<(), ControlError> {
        let server = self.nbd.lock().clone();
        server.map_or(Ok(()), |server| serve_activated(&server, activated))
    }

    /// Serves the control tree as files. A daemon also works without it.
    fn open_tree(&self) -> Result<(), ControlError> {
        let path = self.root().tree();
        let made = self.claim.made();
        made.directory(&path)?;
        match TreeMount::new(&path, tree::tree(&self.devices)) {
            Ok(mount) => *self.tree.lock() = Some(mount),
            Err(error) => {
                made.remove(&path);
                return Err(frontend_error(&error));
            }
        }
        tree::zone::link(self.root(), made)
    }

    /// Has it follow a configuration. What takes long ends as soon as `is_over`.
    ///
    /// # Errors
    /// `ENOTSUP` for a daemon that was not started for one; `EIO` as [`State::save`].
    pub fn apply(&self, it: Apply, is_over: &dyn Fn() -> bool) -> Result<Applied, ControlError> {
        let commands = self.commands.as_ref();
        commands.map_or_else(|| Err(gone()), |commands| commands.apply(it, is_over))
    }

    /// Its devices.
    #[must_use]
    pub fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// Its swap devices.
    #[must_use]
    pub fn swaps(&self) -> &Arc<Swaps> {
        &self.swaps
    }

    /// The file systems that it makes for its user.
    #[must_use]
    pub fn file_systems(&self) -> &FileSystems {
        &self.file_systems
    }

    /// The machine the devices belong to.
    #[must_use]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The root directory of the daemon.
    #[must_use]
    pub fn root(&self) -> &Root {
        self.claim.root()
    }

    /// Messages for the user about the start.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Swaps off, unmounts, detaches and removes everything the daemon made, except the control
    /// socket: a client may wait there for the answer. Reading back swapped-out pages may take
    /// minutes. Disks are saved before anything of them is given up.
    ///
    /// # Errors
    /// `EBUSY` with every user, or why a disk cannot be saved, unless `force` is given. Everything
    /// is as before then, except that swap devices may be gone. With `force` I/O of a device is
    /// given up once it makes no progress for some seconds. `ENOMEM` when there is no memory for
    /// swapped-out pages, also with `force`: they would be lost.
    pub fn stop(&self, force: bool) -> Result<(), ControlError> {
        let stop = || {
            self.check_served(force)?;
            if !force {
                self.devices.let_all_clients_go();
                self.check_unused()?;
                self.devices.check_savable()?;
            }
            self.swaps.stop()?;
            // Who came after the next look would lose what it writes.
            let _closed = self.devices.admission().close();
            self.stop_rest(force).inspect_err(|_| self.swaps.start_again())
        };
        stop().inspect_err(|_| self.devices.start_again())
    }

    /// Checks for users before swap devices are drained: a drain may take long, and is wasted if
    /// the stop is refused. Users of the daemon's own mount are found later, by unmounting it.
    fn check_unused(&self) -> Result<(), ControlError> {
        if !self.file_systems.is_mounted() {
            self.devices.check_unused()?;
        }
        let tree = self.tree.lock();
        tree.as_ref().map_or(Ok(()), |tree| tree.check_unused().map_err(|e| frontend_error(&e)))
    }

    fn stop_rest(&self, force: bool) -> Result<(), ControlError> {
        let limit = force.then(|| self.devices.end_waits());
        let mounted = self.file_systems.unmount(force)?;
        if let Err(error) = self.stop_files(force) {
            self.file_systems.mount_again(mounted);
            return Err(error);
        }
        if let Some(server) = &*self.nbd.lock() {
            end_nbd(server);
        }
        self.devices.end_vhost();
        let (root, made) = (self.root(), self.claim.made());
        tree::zone::unlink(root, made);
        for directory in [root.tree(), root.files(), root.devices()] {
            made.remove(&directory);
        }
        // A save may take long.
        drop(limit);
        self.devices.save_by_force();
        Ok(())
    }

    /// Takes down the devices, and then the tree, which has nothing to tell any more: a request to
    /// it that comes late is refused.
    fn stop_files(&self, force: bool) -> Result<(), ControlError> {
        if !force {
            self.devices.check_unused()?;
        }
        self.devices.stop(force)?;
        let tree = self.tree.lock().take();
        if let Some(Err(error)) = tree.map(|mut mount| mount.unmount()) {
            tracing::error!("{error}");
        }
        Ok(())
    }
}

impl Daemon {
    /// Ends without taking anything down: the next process takes it over.
    pub fn leave(self) {
        unfinished::leave(self);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.stop(true) {
            say(&format!("rampack: something is left behind: {}\n", sentence(&error)));
        }
        // The control socket goes last, so that clients get their last answers.
        if self.control.take().is_some() {
            self.claim.made().remove(&self.root().control_socket());
        }
    }
}

/// Handles the requests of the control socket.
struct Commands {
    root: Root,
    devices: Arc<Devices>,
    swaps: Arc<Swaps>,
    file_systems: Arc<FileSystems>,
    configuration: Configuration,
    events: Sender<Event>,
}

impl Commands {
    fn report(&self) -> DaemonReport {
        let devices = &self.devices;
        let (disks, swaps) = (devices.reports(), self.swaps.reports());
        let names = disks.iter().map(|it| &*it.name).chain(swaps.iter().map(|it| &*it.name));
        let latencies = latency::of(&names.collect::<Vec<_>>());
        DaemonReport {
            rampack: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            root: machine::text_of(self.root.path()),
            file: devices.asked().remove(FILE),
            nbd: devices.nbd(),
            block_devices: devices.makes_block_devices(),
            by_io_uring: devices.is_by_ring(),
            is_abandoned: devices.is_abandoned(),
            devices: disks,
            swaps,
            swap_cache: self.swaps.pool(),
            zone: ZoneReport::of(devices.machine()),
            latencies,
            is_timed: latency::is_on(),
        }
    }

    fn carry_out(&self, request: Request, talk: &mut Talk<'_>) -> Result<Value, ControlError> {
        use Request::{Describe, Get, Metrics, Status, Stop, Tree, Upgrade};
        let devices = &self.devices;
        let is_change = !matches!(
            request,
            Describe(_) | Get(_) | Metrics(_) | Status(_) | Stop(_) | Tree(_) | Upgrade(_)
        );
        let _under_way = is_change.then(|| devices.changes().begin()).transpose()?;
        match request {
            Request::Status(_) => json(&self.report()),
            Request::Metrics(_) => json(&metrics::of(devices, &self.report())),
            Request::Add(options) => {
                let disk = devices.add(&options)?;
                json(&devices.report(&disk))
            }
            Request::Remove(it) => json(&devices.remove(&it.device, it.force)?),
            Request::Reset(it) => json(&devices.reset(&it.device, "1", it.force)?),
            Request::Get(it) => json(&tree::values(devices, &it.device, &it.attributes)?),
            Request::Set(it) => {
                json(&tree::attribute(devices, &it.device, &it.attribute)?.store(&it.value)?)
            }
            Request::Describe(it) => json(&tree::descriptions(devices, &it.device)?),
            Request::Tree(it) => json(&tree::listing(devices, it.values)),
            Request::SwapOn(it) => json(&self.swaps.on(&it, &|| false)?),
            Request::SwapOff(it) => json(&match it.name {
                Some(name) => self.swaps.off(&name)?,
                None => self.swaps.off_all()?,
            }),
            Request::Snapshot(it) => {
                let snapshot = devices.snapshot(&it.device)?;
                talk.begin()?;
                let taken = write_out(snapshot, &mut |bytes| talk.put(bytes));
                let _ = talk.end();
                json(&taken?)
            }
            Request::Restore(it) => {
                devices.check_restorable(it.device.as_deref())?;
                talk.begin()?;
                let source = &mut |into: &mut [u8]| talk.take(into);
                let restored = devices.restore(it.device.as_deref(), source);
                talk.stop_taking();
                json(&restored?)
            }
            Request::Clone(it) => {
                let disk = devices.clone_device(&it.device)?;
                json(&devices.report(&disk))
            }
            Request::Apply(it) => json(&self.apply(it, &|| false)?),
            Request::Upgrade(it) => {
                let layouts = devices.state().map(|state| state.layouts(devices.machine()));
                let program = successor(it.program.as_deref(), layouts)?;
                let (reply, answer) = channel();
                let asked = Event::Upgrade { program, reply };
                self.events.send(asked).map_err(|_| gone())?;
                Err(answer.recv().unwrap_or_else(|_| gone()))
            }
            Request::Stop(it) => {
                let (reply, answer) = channel();
                let asked = Event::Asked { force: it.force, reply };
                self.events.send(asked).map_err(|_| gone())?;
                json(&answer.recv().map_err(|_| gone())??)
            }
        }
    }
}

/// The answer to a request that comes too late.
fn gone() -> ControlError {
    ControlError::new(Errno::ENODEV, "the daemon is stopping already")
}

fn json(value: &impl serde::Serialize) -> Result<Value, ControlError> {
    let failed = |e| ControlError::new(Errno::EIO, format!("the answer cannot be written: {e}"));
    serde_json::to_value(value).map_err(failed)
}

/// Stops an NBD server. A device that hangs does not keep it; false if there is one.
pub fn end_nbd(server: &Server) -> bool {
    end_nbd_by(server, Server::join)
}

fn end_nbd_by(server: &Server, end: fn(&Server) -> bool) -> bool {
    server.shutdown();
    let done = end(server);
    if !done {
        tracing::error!("NBD requests are left undone: their device does not answer");
    }
    done
}

#[cfg(test)]
mod tests;
