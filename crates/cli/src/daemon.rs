//! A daemon: devices, frontends and the control socket in one root directory.

use std::fs::{self, Permissions};
use std::mem::{self, ManuallyDrop};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use rampack::control::{ControlError, Errno};
use rampack::fuse::TreeMount;
use rampack::nbd::{Activated, Exports, Server, Tls};
use rampack::sync::Mutex;
use serde_json::Value;

use crate::args::NbdOptions;
use crate::devices::Devices;
use crate::events::Event;
use crate::exports::DiskExports;
use crate::failure::{failed, frontend_error, say, sentence, ublk_error};
use crate::machine::{self, Machine};
use crate::protocol::{DaemonReport, Request};
use crate::root::{Root, RootLock};
use crate::server::{ControlServer, Handler};
use crate::state::{Connection, Named, State};
use crate::successor::successor;
use crate::swap::recovery::{self, Taken};
use crate::swap::{self, Swaps};
use crate::sys;
use crate::takeover;
use crate::transport::Transport;
use crate::tree;
use crate::zone::ZoneReport;

mod file_systems;
mod files;
mod hand_over;
mod listen;
mod remains;
pub use file_systems::FileSystems;
use listen::listen;
use remains::{Kept, clear_leftovers};

/// How long a stop waits for NBD clients that are leaving, before it is refused because of them.
const LEAVING: Duration = Duration::from_millis(500);

/// How a daemon is reached.
pub struct DaemonOptions {
    /// The root directory, which holds its state.
    pub root: Root,
    /// The frontends it opens.
    pub transport: Transport,
    /// How NBD is served, unless the transport excludes it.
    pub nbd: NbdOptions,
    /// Where its devices outlive it, with those of the daemon before.
    pub state: Option<Arc<State>>,
    /// Copies of the listening sockets that a service manager handed over, with their names.
    pub sockets: Named,
}

/// What the next program in this process needs.
struct Handing {
    state: Option<Arc<State>>,
    /// How NBD is served, if it is.
    nbd: Option<NbdOptions>,
    sockets: Named,
}

/// A running daemon. A drop takes everything down, by force if need be.
pub struct Daemon {
    devices: Arc<Devices>,
    swaps: Arc<Swaps>,
    machine: Arc<Machine>,
    control: Option<ControlServer>,
    nbd: Mutex<Option<Arc<Server>>>,
    handing: Handing,
    file_systems: FileSystems,
    tree: Mutex<Option<TreeMount>>,
    notes: Vec<String>,
    claim: RootLock,
}

/// An NBD server for `exports`. Its clients have at most a sixteenth of the machine's memory.
///
/// # Errors
/// `EINVAL` for certificates that cannot be used; the error of the system call.
pub fn nbd_server(exports: Arc<dyn Exports>, nbd: &NbdOptions) -> Result<Server, ControlError> {
    let mut options =
        rampack::nbd::Options { cpu: rampack::host::cpu, ..rampack::nbd::Options::default() };
    let part = usize::try_from(rampack::host::total_memory() / 16).unwrap_or(usize::MAX);
    options.memory = options.memory.min(part);
    if let Some(directory) = &nbd.tls_certificates {
        let tls = Tls::from_directory(directory, nbd.tls_verify_peer);
        options.tls = Some(tls.map_err(|error| ControlError::invalid(error.to_string()))?);
    }
    Server::new(exports, options).map_err(|e| failed("cannot start the NBD server", &e))
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
    /// Starts a daemon without devices, after clearing what a killed one left in its root.
    ///
    /// # Errors
    /// The error of the step that failed. Everything made before it is removed again.
    ///
    /// Where it has devices of a daemon before, nothing is removed: that daemon's successor may be
    /// another one, and the users of the devices wait for it. The process must end then.
    pub fn start(options: DaemonOptions, events: Sender<Event>) -> Result<Daemon, ControlError> {
        let DaemonOptions { root, transport, nbd, state, sockets } = options;
        sys::private_files();
        let is_inherited = state.as_ref().is_some_and(|state| state.is_inherited());
        let held = state.as_ref().map(|state| state.sockets()).unwrap_or_default();
        // Whatever is read or said before they are served may wait for them.
        let swap = state.as_deref().map(State::take_swap).transpose();
        let swap = swap.map_err(|error| failed("cannot take over swap devices", &error))?.flatten();
        let (mut early, mut taken) = (None, None);
        let mut told = Vec::new();
        if let (Some(state), Some(swap)) = (&state, swap) {
            recovery::be_ready();
            let (machine, disks) = machine::lasting(state, false)?;
            // A drop would take the devices away from their users.
            let machine = ManuallyDrop::new(machine);
            let (served, said) = recovery::take_over((&machine, &root, state), swap)?;
            told.extend(said.into_iter().chain(disks));
            (early, taken) = (Some(machine), Some(served));
        }
        let claim = root.claim_with(&held)?;
        let left = match &state {
            Some(state) if [Transport::Auto, Transport::Fuse].contains(&transport) => {
                state.take_mount()
            }
            _ => None,
        };
        let keeps_ublk = state.as_deref().filter(|_| transport == Transport::Ublk);
        let mut ublks = keeps_ublk.map(State::ublks).unwrap_or_default();
        let (swap_files, swap_ublks) = taken.as_ref().map(|it| it.devices()).unwrap_or_default();
        ublks.extend(swap_ublks);
        let kept =
            Kept { sockets: &held, files: left.is_some(), swaps: &swap_files, ublks: &ublks };
        let mut notes = clear_leftovers(&claim, kept);
        notes.extend(told);
        let machine = match (&state, early) {
            (None, _) => machine::new()?,
            (_, Some(machine)) => ManuallyDrop::into_inner(machine),
            (Some(state), None) => {
                let recovered = machine::lasting(state, true);
                let (machine, told) = match recovered {
                    Err(error) if is_inherited => {
                        mem::forget(claim);
                        return Err(error);
                    }
                    recovered => recovered?,
                };
                notes.extend(told);
                machine.forget_swap(state.memory());
                machine
            }
        };
        let nbd = (transport != Transport::Fuse).then_some(nbd);
        let handing = Handing { state: state.clone(), nbd, sockets };
        let devices = Arc::new(Devices::new(root, machine.clone(), state));
        // From here on a drop of the daemon removes what was made.
        let mut daemon = Daemon {
            swaps: Arc::new(Swaps::new(devices.clone())),
            file_systems: FileSystems::new(devices.clone()),
            devices,
            machine,
            control: None,
            nbd: Mutex::new(None),
            handing,
            tree: Mutex::new(None),
            notes,
            claim,
        };
        match daemon.open((left, kept), taken, transport, events) {
            Err(error) if is_inherited => {
                mem::forget(daemon);
                Err(error)
            }
            opened => opened.map(|()| daemon),
        }
    }

    /// Opens the frontends.
    fn open(
        &mut self,
        left: (Option<takeover::Left>, Kept<'_>),
        swap: Option<ManuallyDrop<Taken>>,
        transport: Transport,
        events: Sender<Event>,
    ) -> Result<(), ControlError> {
        let state = self.handing.state.clone();
        let kept = state.as_deref();
        let (root, made) = (self.claim.root().clone(), self.claim.made().clone());
        made.directory(&root.devices())?;
        let (machine, notes) = (&self.machine, &mut self.notes);
        let mut loops = None;
        if let Some(files) = files::open(&self.claim, machine, left, transport, kept, notes)? {
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
        if transport == Transport::Ublk {
            swap::served::is_there().map_err(|error| ublk_error(&error))?;
            self.devices.serve_by_ublk(made.clone());
        }
        if let Some(swap) = swap {
            self.swaps.adopt(ManuallyDrop::into_inner(swap))?;
        }
        if kept.is_some() {
            self.devices.attach_recovered()?;
            let disks = self.machine.disks();
            let links = disks.iter().map(|disk| root.device(&disk.name()));
            let swaps = self.swaps.devices();
            let links: Vec<PathBuf> =
                links.chain(swaps.iter().map(|(name, _)| root.device(name))).collect();
            made.keep_links(&root.devices(), &links);
        }
        self.open_nbd()?;
        if let Err(error) = self.open_tree() {
            self.notes.push(format!("no control tree: {}", error.message));
        }
        self.open_control(kept, events)
    }

    /// Serves NBD in the root and on TCP, as far as this was asked for.
    fn open_nbd(&self) -> Result<(), ControlError> {
        let Handing { state, nbd: Some(nbd), .. } = &self.handing else { return Ok(()) };
        let (machine, read_only) = (self.machine.clone(), nbd.nbd_read_only);
        let exports = Arc::new(match state.clone() {
            None => DiskExports::new(machine, read_only),
            Some(state) => DiskExports::lasting(machine, read_only, state),
        });
        let server = Arc::new(nbd_server(exports, nbd)?);
        *self.nbd.lock() = Some(server.clone());
        let addresses = listen(&server, self.root(), self.claim.made(), nbd, state.as_deref())?;
        self.devices.serve_nbd(addresses, Some(server));
        Ok(())
    }

    fn open_control(
        &mut self,
        state: Option<&State>,
        events: Sender<Event>,
    ) -> Result<(), ControlError> {
        let root = self.claim.root().clone();
        let path = root.control_socket();
        let what = || format!("cannot listen at {}", path.display());
        let there = state.and_then(|state| takeover::control_socket(state, &path));
        let listener = match there {
            Some(listener) => listener,
            None => {
                self.claim.made().socket(&path)?;
                let listener = UnixListener::bind(&path).map_err(|e| failed(what(), &e))?;
                let mode = Permissions::from_mode(0o600);
                fs::set_permissions(&path, mode).map_err(|e| failed(what(), &e))?;
                if let Some(state) = state {
                    state.keep(Connection::Control, listener.as_fd())?;
                }
                listener
            }
        };
        let (devices, swaps) = (self.devices.clone(), self.swaps.clone());
        let state = self.handing.state.clone();
        let commands = Commands { root, devices, swaps, state, events };
        let server = ControlServer::start(listener, Arc::new(commands));
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

    /// The file system that it makes for its user.
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
    /// minutes.
    ///
    /// # Errors
    /// `EBUSY` with every user unless `force` is given. Everything is as before then, except that
    /// swap devices may be gone. With `force` I/O of a device that hangs is given up after some
    /// seconds. `ENOMEM` when there is no memory for swapped-out pages, also with
    /// `force`: they would be lost.
    pub fn stop(&self, force: bool) -> Result<(), ControlError> {
        if !force {
            self.wait_for_clients();
            self.check_unused()?;
        }
        self.swaps.stop()?;
        self.stop_rest(force).inspect_err(|_| self.swaps.start_again())
    }

    /// Checks for users before swap devices are drained: a drain may take long, and is wasted if
    /// the stop is refused. Users of the daemon's own mount are found later, by unmounting it.
    fn check_unused(&self) -> Result<(), ControlError> {
        match self.swaps.is_empty() || self.file_systems.is_mounted() {
            true => Ok(()),
            false => self.devices.check_unused(),
        }
    }

    fn stop_rest(&self, force: bool) -> Result<(), ControlError> {
        let _limit = force.then(|| self.devices.end_waits());
        let mounted = self.file_systems.unmount(force)?;
        if let Err(error) = self.stop_files(force) {
            mounted.into_iter().for_each(|it| self.file_systems.mount_again(it));
            return Err(error);
        }
        if let Some(server) = &*self.nbd.lock() {
            end_nbd(server);
        }
        let (root, made) = (self.root(), self.claim.made());
        tree::zone::unlink(root, made);
        for directory in [root.tree(), root.files(), root.devices()] {
            made.remove(&directory);
        }
        Ok(())
    }

    /// Takes down the tree and the devices. The tree goes first: a request to it may wait for a
    /// device.
    fn stop_files(&self, force: bool) -> Result<(), ControlError> {
        if !force {
            self.devices.check_unused()?;
        }
        let mut tree = self.tree.lock();
        let was = tree.is_some();
        if let Some(mount) = &mut *tree {
            mount.unmount(force).map_err(|e| frontend_error(&e))?;
        }
        *tree = None;
        drop(tree);
        self.devices.stop(force).inspect_err(|_| {
            if was && let Err(error) = self.open_tree() {
                tracing::error!("there is no control tree any more: {error}");
            }
        })
    }

    /// Waits for NBD clients: the server may not have noticed yet that they closed their socket.
    fn wait_for_clients(&self) {
        let step = Duration::from_millis(10);
        let server = self.nbd.lock().clone();
        for _ in 0..LEAVING.as_millis() / step.as_millis() {
            match &server {
                Some(server) if server.connections() > 0 => thread::sleep(step),
                _ => return,
            }
        }
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
    state: Option<Arc<State>>,
    events: Sender<Event>,
}

impl Handler for Commands {
    fn handle(&self, request: Request) -> Result<Value, ControlError> {
        let devices = &self.devices;
        match request {
            Request::Status(_) => json(&DaemonReport {
                rampack: env!("CARGO_PKG_VERSION").into(),
                pid: std::process::id(),
                root: self.root.path().display().to_string(),
                nbd: devices.nbd(),
                block_devices: devices.makes_block_devices(),
                devices: devices.reports(),
                swaps: self.swaps.reports(),
                swap_cache: self.swaps.pool(),
                zone: ZoneReport::of(devices.machine()),
            }),
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
            Request::Describe(it) => json(&devices.describe(&it.device)?),
            Request::Tree(it) => json(&tree::listing(devices, it.values)),
            Request::SwapOn(it) => json(&self.swaps.on(&it)?),
            Request::SwapOff(it) => json(&match it.name {
                Some(name) => self.swaps.off(&name)?,
                None => self.swaps.off_all()?,
            }),
            Request::Upgrade(it) => {
                let layouts =
                    self.state.as_deref().map(|state| state.layouts(self.devices.machine()));
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
    server.shutdown();
    let done = server.join();
    if !done {
        tracing::error!("NBD requests are left undone: their device does not answer");
    }
    done
}

#[cfg(test)]
mod tests;
