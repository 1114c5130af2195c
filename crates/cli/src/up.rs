//! `rampack up` and `rampack serve`: they start a daemon and run it until its end.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rampack::control::{ControlError, Errno};
use rampack::host::{self, Role, effective_user, in_user_namespace};
use rampack::nbd::{Activated, Stream};
use rampack::units::human;

use crate::args::{DeviceOptions, FrontendOptions, Serve, Size, Up, absolute};
use crate::beside;
use crate::sandbox;
use crate::terminal::{lines, print, program};
use crate::watch::watch;
use service::daemon::{self, Daemon, DaemonOptions, PART, SWAPS};
use service::events::{Event, Events};
use service::exports::DiskExports;
use service::failure::{failed, say, with_limits};
use service::filesystem::{self, Kind};
use service::guard::Guard;
use service::machine;
use service::notify::{self, Watchdog};
use service::panics;
use service::plan::Asked;
use service::protocol::{Add, Attribute, DeviceReport};
use service::rehearsal::Answer;
use service::root::Root;
use service::state::{self, Named, State};
use service::swap::protections;
use service::transport::Transport;

/// The size of a device for NBD alone, when the user gives none.
const SIZE_OF_STDIO: &str = "1G";

impl DeviceOptions {
    /// The request for a device of `size`. With `force` a backing file that others may open is
    /// written to as it is.
    #[must_use]
    pub fn request(&self, size: Option<&Size>, force: bool) -> Add {
        let text = |size: &Option<Size>| size.as_ref().map(|size| size.text.clone());
        let is_remote = !self.remote.is_empty();
        let layout = self.backing_layout.clone().or(is_remote.then(|| "log".to_string()));
        let second = |name: &String| format!("algo={name} priority=1");
        let set = [
            ("sealed_backing", self.plain_backing.then(|| "0".to_string())),
            ("backing_layout", layout),
            ("backing_remote", is_remote.then(|| self.remote.join(" "))),
            ("backing_dev", self.backing.as_deref().map(absolute)),
            ("when_full", self.when_full.clone()),
            ("recomp_algorithm", self.recompress_with.as_ref().map(second)),
            ("auto_target", text(&self.target)),
            ("auto_cpu_percent", self.auto_cpu.map(|it| it.to_string())),
            ("auto_slowest_read", self.slowest_read.map(|it| it.to_string())),
            ("auto_writeback", text(&self.auto_writeback)),
            ("auto", (self.auto == Some(true)).then(|| "1".to_string())),
        ];
        let set = set.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?)));
        let set = set.map(|(name, value)| Attribute { name, value });
        let attributes = set.chain(self.set.iter().cloned()).collect();
        Add {
            number: None,
            attributes,
            size: size.map(|size| size.text.clone()),
            algorithm: self.algorithm.clone(),
            level: self.level,
            mem_limit: text(&self.memory),
            force,
        }
    }
}

/// The steps of `up` after it has made the device.
struct Plan {
    kind: Option<&'static Kind>,
    target: Option<PathBuf>,
}

impl Plan {
    /// Checks the options before anything is made.
    fn check(root: &Root, up: &Up) -> Result<Plan, ControlError> {
        check_frontends(&up.frontends)?;
        let name = up.disk.fs.as_deref().or(up.disk.mount.as_ref().map(|_| "ext4"));
        let kind = name.map(filesystem::kind).transpose()?;
        if let Some(kind) = kind {
            let option = if up.disk.mount.is_some() { "--mount" } else { "--fs" };
            if up.frontends.transport == Transport::Nbd {
                let message = format!(
                    "{option} needs a block device or a file, and --transport nbd makes none; \
                     leave one of them out"
                );
                return Err(ControlError::invalid(message));
            }
            if effective_user() != 0 {
                kind.check_for_users()?;
            }
            kind.check_installed()?;
        }
        let target = up.disk.mount.as_deref().map(filesystem::mount_point).transpose()?;
        target.as_deref().map_or(Ok(()), |it| filesystem::check_beside(it, root.path()))?;
        Ok(Plan { kind, target })
    }
}

/// The frontends of `up`. A file system needs a block device; a user without root has a file.
fn frontends_of(up: &Up) -> FrontendOptions {
    let mut frontends = up.frontends.clone();
    let has_file_system = up.disk.mount.is_some() || up.disk.fs.is_some();
    if has_file_system && effective_user() != 0 && frontends.transport == Transport::Auto {
        frontends.transport = Transport::Fuse;
    }
    frontends
}

pub(crate) fn check_frontends(frontends: &FrontendOptions) -> Result<(), ControlError> {
    if let (Transport::Fuse, Some(option)) = (frontends.transport, frontends.nbd.given()) {
        return Err(ControlError::invalid(format!(
            "{option} is for NBD, which is not served with --transport fuse, nor with --mount or \
             --fs without root; leave one of them out"
        )));
    }
    frontends.nbd.check_address().map_err(ControlError::invalid)
}

/// `rampack up`. It takes over what a daemon before left, and makes what that did not.
///
/// # Errors
/// The error of the step that failed.
pub fn up(root: &Root, up: &Up) -> Result<(), ControlError> {
    let frontends = frontends_of(up);
    check_frontends(&frontends)?;
    let (left, _) = handed_over()?;
    // The checks may look into file systems on devices of the daemon before, so those come first.
    let plan = left.is_empty().then(|| Plan::check(root, up)).transpose()?;
    let mut asked = up.disk.device.request(Some(&up.disk.size), up.frontends.force).asked();
    let file_system =
        [("--mount", up.disk.mount.as_deref().map(rampack::text_of)), ("--fs", up.disk.fs.clone())];
    asked.extend(
        file_system.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))),
    );
    confine(&frontends)?;
    let running = Running::start(root.clone(), (&frontends, asked), left, Vec::new())?;
    let Running { daemon, events, state } = &running;
    let (mut guard, mut code) = (None, 0);
    let run = || -> Result<(), ControlError> {
        if !up.command.is_empty() && state.is_some() {
            let message = "a command ends with its daemon, so nothing can keep them; leave --, or \
                           what keeps it, out";
            return Err(ControlError::invalid(message));
        }
        let Some(text) = make(daemon, up, plan, events)? else { return Ok(()) };
        if (effective_user() != 0 || in_user_namespace()) && state.is_none() {
            guard = Guard::start(up.disk.mount.as_deref().into_iter().chain([root.path()]))?;
        }
        match &up.command[..] {
            [] => print(&text),
            command => code = beside::run(command, events)?,
        }
        watch(daemon, events, frontends.force, |_| false)
    };
    let result = run();
    running.end(result)?;
    drop(guard);
    if code != 0 {
        process::exit(code);
    }
    Ok(())
}

/// Makes the device of `up` and what is on it, or the rest of that if a daemon before began it.
/// Returns what the user can do with it; None if the daemon was told to end meanwhile.
fn make(
    daemon: &Daemon,
    up: &Up,
    plan: Option<Plan>,
    events: &Events,
) -> Result<Option<String>, ControlError> {
    let (root, devices) = (daemon.root(), daemon.devices());
    let file_systems = daemon.file_systems();
    if !file_systems.begins_anew() {
        let made = file_systems.go_on().into_iter().next();
        let Some((disk, kind)) = made else { return Ok(Some(served(daemon))) };
        return Ok(Some(welcome(root, &devices.report(&disk), Some(kind))));
    }
    let plan = plan.map_or_else(|| Plan::check(root, up), Ok)?;
    // Checked after the start: a killed daemon may have left its mount there, and the start clears
    // it.
    plan.target.as_deref().map_or(Ok(()), filesystem::check_free)?;
    let (request, target) =
        (up.disk.device.request(Some(&up.disk.size), up.frontends.force), plan.target.as_deref());
    let Some(kind) = plan.kind else {
        let disk = devices.add(&request)?;
        return Ok(Some(welcome(root, &devices.report(&disk), None)));
    };
    let disk = file_systems.add_for(&request, kind, target)?;
    if interrupted(events) {
        return Ok(None);
    }
    file_systems.make(&disk, kind, target)?;
    Ok(Some(welcome(root, &devices.report(&disk), Some(kind))))
}

/// `rampack serve`.
///
/// # Errors
/// The error of the step that failed.
pub fn serve(root: Option<PathBuf>, serve: &Serve) -> Result<(), ControlError> {
    let (left, others) = handed_over()?;
    let (activated, sockets) = activate(others)?;
    let handed_over = !activated.is_empty();
    confine(&serve.frontends)?;
    if serve.stdio && !handed_over {
        panics::report(false);
        return stdio(serve);
    }
    check_frontends(&serve.frontends)?;
    if handed_over && (root.is_none() || serve.stdio) {
        panics::report(false);
        return sockets_only(serve, activated);
    }
    let root = Root::choose(root.as_deref())?;
    let mut asked = serve.device.request(serve.size.as_ref(), serve.frontends.force).asked();
    asked.insert("--num-devices".to_owned(), serve.num_devices.to_string());
    let running = Running::start(root, (&serve.frontends, asked), left, sockets)?;
    let result = serve_in(&running, serve, activated);
    running.end(result)
}

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
    state: Option<Arc<State>>,
}

impl Running {
    /// Starts a daemon with what the daemon before `left`, and says what there is to say. In a
    /// rehearsal the process ends here.
    pub(crate) fn start(
        root: Root,
        (frontends, asked): (&FrontendOptions, Asked),
        left: Named,
        sockets: Named,
    ) -> Result<Running, ControlError> {
        let state = State::begin(left)?.map(Arc::new);
        let before = state.as_ref().and_then(|state| state.kept().asked).unwrap_or_default();
        let asked = match asked.get(PART).is_some_and(|part| part == SWAPS) && asked.len() == 1 {
            // What is configured is followed once the swap devices are served.
            true => before.into_iter().chain(asked).collect(),
            false => asked,
        };
        if state.is_some() && !frontends.lock_memory && !kept::is_rehearsal() {
            lock_for_users(frontends.transport);
        }
        panics::report(state.is_some());
        let events = listen()?;
        let (transport, nbd) = (frontends.transport, frontends.nbd.options());
        let options = DaemonOptions { root, transport, nbd, asked, state: state.clone(), sockets };
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

/// What a service manager handed over: what a daemon before left, and other sockets.
///
/// # Errors
/// The error of the system.
pub(crate) fn handed_over() -> Result<(Named, Named), ControlError> {
    kept::handed_over().map(state::split).map_err(not_taken)
}

fn not_taken(error: io::Error) -> ControlError {
    failed("cannot take over the descriptors of LISTEN_FDS", &error)
}

/// Locks the memory of a daemon whose mount outlives it. The kernel copies a request to memory of
/// the reader; where it finds no page while the daemon is being killed, the request fails.
fn lock_for_users(transport: Transport) {
    let has_files = match transport {
        Transport::Fuse | Transport::Ublk => true,
        Transport::Auto => effective_user() == 0,
        Transport::Nbd => false,
    };
    if has_files && let Err(error) = host::lock_memory() {
        tracing::warn!(
            "memory cannot be locked ({error}), so a user of a block device may get an error when \
             this daemon is killed; it needs CAP_IPC_LOCK, or no limit on locked memory \
             (LimitMEMLOCK=infinity)"
        );
    }
}

/// Makes the devices of a daemon, unless it has those of the daemon before, and serves them.
fn serve_in(
    Running { daemon, events, state }: &Running,
    serve: &Serve,
    activated: Vec<Activated>,
) -> Result<(), ControlError> {
    let handed_over = !activated.is_empty();
    // A daemon before may have removed them all.
    let goes_on = state.as_ref().is_some_and(|state| state.is_inherited());
    if daemon.machine().disks().is_empty() && !goes_on {
        for _ in 0..serve.num_devices {
            let force = serve.frontends.force;
            daemon.devices().add(&serve.device.request(serve.size.as_ref(), force))?;
        }
    }
    daemon.serve_activated(activated)?;
    // With handed-over sockets, standard output belongs to the client that started this process.
    if !handed_over {
        print(&served(daemon));
    }
    watch(daemon, events, serve.frontends.force, |_| false)
}

/// Runs a daemon until it is told to end, or until it has no device and no swap device left. It
/// takes over what a daemon before `left`. `make` makes its devices, and returns the text to print.
///
/// # Errors
/// The error of the step that failed. Everything made before it is removed again.
pub(crate) fn run_daemon(
    root: Root,
    (frontends, asked): (&FrontendOptions, Asked),
    left: Named,
    make: impl FnOnce(&Daemon) -> Result<String, ControlError>,
) -> Result<(), ControlError> {
    confine(frontends)?;
    let running = Running::start(root, (frontends, asked), left, Vec::new())?;
    let Running { daemon, events, .. } = &running;
    let made = make(daemon).map(|text| print(&text));
    // The daemon was started for a swap device, and ends with it.
    let result = made.and_then(|()| watch(daemon, events, frontends.force, has_no_device));
    running.end(result)
}

/// Has it neither a disk nor a swap device?
pub(crate) fn has_no_device(daemon: &Daemon) -> bool {
    daemon.swaps().is_empty() && daemon.machine().disks().is_empty()
}

pub(crate) fn served(daemon: &Daemon) -> String {
    let mut text = String::new();
    for device in daemon.devices().reports() {
        let places: Vec<String> = device.link.iter().chain(&device.nbd).cloned().collect();
        let _ = writeln!(text, "{}  {}", device.name, places.join("  "));
    }
    // A device without a size has no address yet, and port 0 is another one by now.
    for address in daemon.devices().nbd().iter().filter(|address| address.starts_with("nbd://")) {
        let _ = writeln!(text, "NBD over TCP at {address}");
    }
    let _ = writeln!(text, "serving in {}", daemon.root().path().display());
    text
}

/// Serves one NBD connection on standard input and output.
fn stdio(options: &Serve) -> Result<(), ControlError> {
    let machine = private_machine(options, 1)?;
    let server = daemon::nbd_server(machine, &options.frontends.nbd.options())?;
    let stream = Stream::stdio().map_err(|e| failed("standard input and output", &e))?;
    let serve = || host::enter(Role::NbdClient).and_then(|()| server.serve(stream));
    // A thread of its own: this one keeps its privileges, and takes no bytes of the client.
    let served = thread::scope(|scope| {
        let thread = thread::Builder::new().name("nbd-stdio".into()).spawn_scoped(scope, serve);
        thread.map(|thread| thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    });
    // A client may close the connection without a disconnect request: that is a normal end too.
    if let Err(error) = served.map_err(|e| failed("cannot start a thread", &e))? {
        tracing::info!("the connection ended: {error}");
    }
    Ok(())
}

/// Serves NBD on handed-over sockets, without a root directory.
fn sockets_only(options: &Serve, activated: Vec<Activated>) -> Result<(), ControlError> {
    let events = listen()?;
    let machine = private_machine(options, options.num_devices)?;
    let server = daemon::nbd_server(machine, &options.frontends.nbd.options())?;
    daemon::serve_activated(&server, activated)?;
    // There is no control socket to ask for an answer.
    let _watchdog = Watchdog::start(|| true).map_err(|e| failed("cannot start a thread", &e))?;
    notify::ready();
    while events.wait(Duration::from_secs(3600)).is_none() {}
    notify::stopping();
    daemon::end_nbd(&server);
    Ok(())
}

/// Makes devices that only NBD clients can reach. They need a size from the start.
fn private_machine(options: &Serve, count: u32) -> Result<Arc<DiskExports>, ControlError> {
    let machine = machine::new()?;
    let mut request = options.device.request(options.size.as_ref(), options.frontends.force);
    request.size.get_or_insert_with(|| SIZE_OF_STDIO.into());
    for _ in 0..count.max(1) {
        service::devices::configure(&machine.add()?, &request)?;
    }
    Ok(Arc::new(DiskExports::new(machine, options.frontends.nbd.nbd_read_only, None)))
}

/// Keeps what users store out of core dumps, and out of other swap space if that is wanted; chooses
/// what threads that serve may do. Call it before anything is stored, and before the first thread
/// is started.
pub(crate) fn confine(frontends: &FrontendOptions) -> Result<(), ControlError> {
    if let Err(error) = host::no_core_dumps() {
        tracing::warn!("a core dump of this process would have what is stored in it: {error}");
    }
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

fn listen() -> Result<Events, ControlError> {
    // A thread inherits the protections of the thread that starts it, so they begin before the
    // first start.
    protections::begin();
    Events::listen().map_err(|e| failed("cannot listen for signals", &e))
}

/// Was the daemon told to end while it started?
fn interrupted(events: &Events) -> bool {
    match events.wait(Duration::ZERO) {
        Some(Event::Asked { reply, .. }) => {
            let _ = reply.send(Ok(()));
            true
        }
        Some(Event::Upgrade { reply, .. }) => {
            let _ = reply.send(ControlError::new(Errno::EAGAIN, "the daemon is starting"));
            false
        }
        event => event.is_some(),
    }
}

/// The text that tells a user what to do with the new device.
fn welcome(root: &Root, device: &DeviceReport, kind: Option<&Kind>) -> String {
    let attribute = |name: &str| device.attributes.get(name).map_or("", |text| text.trim());
    let algorithm = attribute("comp_algorithm");
    let algorithm = algorithm.split(['[', ']']).nth(1).unwrap_or(algorithm);
    let size = attribute("disksize").parse().unwrap_or(0);
    let limit = attribute("mm_stat").split_ascii_whitespace().nth(3).unwrap_or("0");
    let limit = match limit.parse().unwrap_or(0) {
        0 => "no memory limit".to_string(),
        limit => format!("at most {} of memory", human(limit)),
    };
    let text = format!(
        "{} is ready: {}, compressed with {algorithm}, {limit}.\n\n",
        device.name,
        human(size)
    );
    let way = |what, path: &Option<String>| path.clone().map(|path| (what, path));
    let mut ways = Vec::from_iter(way("block device", &device.block_device));
    match device.block_device {
        Some(_) => ways.extend(way("same, by name", &device.link)),
        None => ways.extend(way("file", &device.file)),
    }
    ways.extend(device.mountpoints.iter().map(|place| ("mounted at", place.clone())));
    ways.extend(device.nbd.iter().map(|uri| ("NBD", uri.clone())));
    let mut uses = Vec::new();
    match (&device.block_device, kind, device.nbd.first()) {
        (Some(path), None, _) => uses.push((
            "use it",
            format!("mkfs.ext4 -E nodiscard {path} && mount -o discard {path} DIR"),
        )),
        (Some(path), Some(_), _) if device.mountpoints.is_empty() => {
            uses.push(("use it", format!("mount -o discard {path} DIR")));
        }
        (Some(_), ..) => {}
        (None, _, Some(uri)) => {
            uses.push(("look at it", format!("nbdinfo '{uri}'")));
            let drive = format!("qemu-system-x86_64 -drive file='{uri}',format=raw …");
            uses.push(("use it", drive));
            uses.extend(uri.split_once("?socket=").map(|(_, socket)| {
                let name = &device.name;
                ("", format!("sudo nbd-client -unix {socket} /dev/nbd0 -N {name} -b 4096"))
            }));
        }
        (None, _, None) => {}
    }
    let program = program(root);
    let end = format!("Ctrl-C, or {program} stop; everything in it is lost then");
    uses.extend([
        ("watch it", format!("{program} status")),
        ("change it", format!("{program} set {} mem_limit=512M", device.name)),
        ("end it", end),
    ]);
    text + &lines(&ways) + &lines(&uses)
}
