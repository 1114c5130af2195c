//! `rampack up` and `rampack serve`: they start a daemon and run it until its end.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rampack::control::{ControlError, Errno};
use rampack::host::{self, Role, effective_user};
use rampack::nbd::{Activated, Stream};
use rampack::units::human;

use crate::args::{DeviceOptions, FrontendOptions, Serve, Size, Up};
use crate::beside;
use crate::sandbox;
use crate::terminal::{print, program};
use crate::watch::watch;
use service::daemon::{self, Daemon, DaemonOptions};
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
        let attribute = |name: &str, value| Attribute { name: name.to_string(), value };
        let mut attributes = Vec::new();
        if self.plain_backing {
            attributes.push(attribute("sealed_backing", "0".to_string()));
        }
        let implied = (!self.remote.is_empty()).then(|| "log".to_string());
        if let Some(layout) = self.backing_layout.clone().or(implied) {
            attributes.push(attribute("backing_layout", layout));
        }
        if !self.remote.is_empty() {
            attributes.push(attribute("backing_remote", self.remote.join(" ")));
        }
        if let Some(path) = &self.backing {
            // The daemon may have another working directory.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            attributes.push(attribute("backing_dev", rampack::text_of(&path)));
        }
        if let Some(policy) = &self.when_full {
            attributes.push(attribute("when_full", policy.clone()));
        }
        if let Some(name) = &self.recompress_with {
            attributes.push(attribute("recomp_algorithm", format!("algo={name} priority=1")));
        }
        if let Some(target) = &self.target {
            attributes.push(attribute("auto_target", target.text.clone()));
        }
        if let Some(percent) = self.auto_cpu {
            attributes.push(attribute("auto_cpu_percent", percent.to_string()));
        }
        if let Some(microseconds) = self.slowest_read {
            attributes.push(attribute("auto_slowest_read", microseconds.to_string()));
        }
        if let Some(bytes) = &self.auto_writeback {
            attributes.push(attribute("auto_writeback", bytes.text.clone()));
        }
        if self.auto == Some(true) {
            attributes.push(attribute("auto", "1".to_string()));
        }
        attributes.extend(self.set.iter().cloned());
        Add {
            attributes,
            size: size.map(|size| size.text.clone()),
            algorithm: self.algorithm.clone(),
            level: self.level,
            mem_limit: self.memory.as_ref().map(|limit| limit.text.clone()),
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
        let name = up.fs.as_deref().or(up.mount.as_ref().map(|_| "ext4"));
        let kind = name.map(filesystem::kind).transpose()?;
        if let Some(kind) = kind {
            let option = if up.mount.is_some() { "--mount" } else { "--fs" };
            if up.frontends.transport == Transport::Nbd {
                let message = format!(
                    "{option} needs a block device or a file, and --transport nbd makes none; leave \
                     one of them out"
                );
                return Err(ControlError::invalid(message));
            }
            if effective_user() != 0 {
                kind.check_for_users()?;
            }
            kind.check_installed()?;
        }
        let target = up.mount.as_deref().map(filesystem::mount_point).transpose()?;
        target.as_deref().map_or(Ok(()), |it| filesystem::check_beside(it, root.path()))?;
        Ok(Plan { kind, target })
    }
}

fn check_frontends(frontends: &FrontendOptions) -> Result<(), ControlError> {
    if let (Transport::Fuse, Some(option)) = (frontends.transport, frontends.nbd.given()) {
        return Err(ControlError::invalid(format!(
            "{option} is for NBD, which --transport fuse does not serve; leave one of them out"
        )));
    }
    frontends.nbd.check_address().map_err(ControlError::invalid)
}

/// `rampack up`. It takes over what a daemon before left, and makes what that did not.
///
/// # Errors
/// The error of the step that failed.
pub fn up(root: &Root, up: &Up) -> Result<(), ControlError> {
    check_frontends(&up.frontends)?;
    let taken = |e| failed("cannot take over the descriptors of LISTEN_FDS", &e);
    let (left, _) = state::split(kept::handed_over().map_err(taken)?);
    // The checks may look into file systems on devices of the daemon before, so those come first.
    let plan = left.is_empty().then(|| Plan::check(root, up)).transpose()?;
    keep_memory_private(up.frontends.lock_memory)?;
    sandbox::choose(up.frontends.sandbox)?;
    let state = begin_state(left, &up.frontends)?;
    let events = listen()?;
    let lasting = (state.clone(), Vec::new());
    let mut asked = up.device.request(Some(&up.size), up.frontends.force).asked();
    let mut frontends = up.frontends.clone();
    if plan.as_ref().is_some_and(|plan| plan.kind.is_some()) && effective_user() != 0 {
        // A user without root has a file.
        frontends.transport = Transport::Fuse;
    }
    if !up.command.is_empty() && state.is_some() {
        let message = "a command ends with its daemon, so nothing can keep them; leave --, or what \
                       keeps it, out";
        return Err(ControlError::invalid(message));
    }
    let file_system =
        [("--mount", up.mount.as_deref().map(rampack::text_of)), ("--fs", up.fs.clone())];
    asked.extend(
        file_system.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))),
    );
    let daemon = start_with(root.clone(), (&frontends, asked), events.sender(), lasting)?;
    say_notes(&daemon);
    let (mut guard, mut code) = (None, 0);
    let result = make(&daemon, up, plan, &events).and_then(|text| {
        let Some(text) = text else { return Ok(()) };
        if effective_user() != 0 && state.is_none() {
            let places = up.mount.as_deref().map(filesystem::mount_point).transpose()?;
            let places = places.iter().map(PathBuf::as_path).chain([root.path()]);
            guard = Some(Guard::start(&places.collect::<Vec<_>>())?);
        }
        match &up.command[..] {
            [] => print(&text),
            command => code = beside::run(command, &events)?,
        }
        watch(&daemon, &events, up.frontends.force, |_| false)
    });
    end_daemon(daemon, events, state, result)?;
    drop(guard);
    if code != 0 {
        process::exit(code);
    }
    Ok(())
}

/// Makes the device of `up` and what is on it, as far as a daemon before did not. Returns what the
/// user can do with it; None if the daemon was told to end meanwhile.
fn make(
    daemon: &Daemon,
    up: &Up,
    plan: Option<Plan>,
    events: &Events,
) -> Result<Option<String>, ControlError> {
    let (root, devices) = (daemon.root(), daemon.devices());
    let file_systems = daemon.file_systems();
    if !file_systems.begins_anew()? {
        let Some((disk, kind)) = file_systems.go_on()? else { return Ok(Some(served(daemon))) };
        return Ok(Some(welcome(root, &devices.report(&disk), Some(kind))));
    }
    let plan = plan.map_or_else(|| Plan::check(root, up), Ok)?;
    // Checked after the start: a killed daemon may have left its mount there, and the start clears
    // it.
    plan.target.as_deref().map_or(Ok(()), filesystem::check_free)?;
    let (request, target) =
        (up.device.request(Some(&up.size), up.frontends.force), plan.target.as_deref());
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
    let taken = |e| failed("cannot take over the descriptors of LISTEN_FDS", &e);
    let (left, handed_over) = state::split(kept::handed_over().map_err(taken)?);
    let (mut activated, mut sockets) = (Vec::new(), Vec::new());
    for (name, fd) in handed_over {
        let copy = fd.try_clone().map_err(taken)?;
        activated.push(Activated::of(fd).map_err(taken)?);
        // Another program in this process may take over a listening socket, not a connection.
        if let Some(Activated::Listener(_)) = activated.last() {
            sockets.push((name, copy));
        }
    }
    let handed_over = !activated.is_empty();
    keep_memory_private(serve.frontends.lock_memory)?;
    sandbox::choose(serve.frontends.sandbox)?;
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
    let state = begin_state(left, &serve.frontends)?;
    let events = listen()?;
    let lasting = (state.clone(), sockets);
    let mut asked = serve.device.request(serve.size.as_ref(), serve.frontends.force).asked();
    asked.insert("--num-devices".to_owned(), serve.num_devices.to_string());
    let daemon = start_with(root, (&serve.frontends, asked), events.sender(), lasting)?;
    let result = serve_in(&daemon, serve, activated, &events);
    end_daemon(daemon, events, state, result)
}

/// The state of a daemon that a service manager keeps, with what the daemon before `left`.
fn begin_state(
    left: Named,
    frontends: &FrontendOptions,
) -> Result<Option<Arc<State>>, ControlError> {
    let state = State::begin(left)?.map(Arc::new);
    if state.is_some() && !frontends.lock_memory && !kept::is_rehearsal() {
        lock_for_users(frontends.transport);
    }
    panics::report(state.is_some());
    Ok(state)
}

/// Ends a daemon, after `result`.
fn end_daemon(
    daemon: Daemon,
    events: Events,
    state: Option<Arc<State>>,
    result: Result<(), ControlError>,
) -> Result<(), ControlError> {
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
    daemon: &Daemon,
    serve: &Serve,
    activated: Vec<Activated>,
    events: &Events,
) -> Result<(), ControlError> {
    let handed_over = !activated.is_empty();
    say_notes(daemon);
    if daemon.machine().disks().is_empty() && !daemon.goes_on() {
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
/// takes over what a daemon before `left`. `make` makes its devices if there are none, and returns
/// the text to print.
///
/// # Errors
/// The error of the step that failed. Everything made before it is removed again.
pub(crate) fn run_daemon(
    root: Root,
    (frontends, asked): (&FrontendOptions, Asked),
    left: Named,
    make: impl FnOnce(&Daemon) -> Result<String, ControlError>,
) -> Result<(), ControlError> {
    keep_memory_private(frontends.lock_memory)?;
    sandbox::choose(frontends.sandbox)?;
    let state = begin_state(left, frontends)?;
    let events = listen()?;
    let lasting = (state.clone(), Vec::new());
    let daemon = start_with(root, (frontends, asked), events.sender(), lasting)?;
    say_notes(&daemon);
    // The daemon was started for a swap device, and ends with it.
    let is_done =
        |daemon: &Daemon| daemon.swaps().is_empty() && daemon.machine().disks().is_empty();
    let made = if is_done(&daemon) { make(&daemon).map(|text| print(&text)) } else { Ok(()) };
    let result = made.and_then(|()| watch(&daemon, &events, frontends.force, is_done));
    end_daemon(daemon, events, state, result)
}

fn served(daemon: &Daemon) -> String {
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
fn sockets_only(
    options: &Serve,
    activated: Vec<rampack::nbd::Activated>,
) -> Result<(), ControlError> {
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
fn private_machine(
    options: &Serve,
    count: u32,
) -> Result<std::sync::Arc<DiskExports>, ControlError> {
    let machine = machine::new()?;
    let mut request = options.device.request(options.size.as_ref(), options.frontends.force);
    request.size.get_or_insert_with(|| SIZE_OF_STDIO.into());
    for _ in 0..count.max(1) {
        service::devices::configure(&machine.add()?, &request)?;
    }
    Ok(std::sync::Arc::new(DiskExports::new(machine, options.frontends.nbd.nbd_read_only)))
}

/// Keeps what users store out of core dumps, and with `lock` out of other swap space. Call it
/// before anything is stored, and before the first thread is started.
fn keep_memory_private(lock: bool) -> Result<(), ControlError> {
    if let Err(error) = host::no_core_dumps() {
        tracing::warn!("a core dump of this process would have what is stored in it: {error}");
    }
    if !lock {
        return Ok(());
    }
    rampack::host::lock_memory().map_err(|error| {
        let error = failed("--lock-memory: memory cannot be locked", &error);
        let needs = "it needs CAP_IPC_LOCK, or no limit on locked memory \
                     (LimitMEMLOCK=infinity, `ulimit -l unlimited`)";
        ControlError::new(error.errno, format!("{}; {needs}", error.message))
    })
}

fn listen() -> Result<Events, ControlError> {
    // A thread inherits the protections of the thread that starts it, so they begin before the
    // first start.
    protections::begin();
    Events::listen().map_err(|e| failed("cannot listen for signals", &e))
}

/// Starts a daemon. In a rehearsal the process ends here.
fn start_with(
    root: Root,
    (frontends, asked): (&FrontendOptions, Asked),
    events: Sender<Event>,
    (state, sockets): (Option<Arc<State>>, Named),
) -> Result<Daemon, ControlError> {
    let (transport, nbd) = (frontends.transport, frontends.nbd.options());
    let options = DaemonOptions { root, transport, nbd, asked, state, sockets };
    if kept::is_rehearsal() {
        daemon::rehearse(options)?;
        print(&Answer::default().text());
        process::exit(0);
    }
    Daemon::start(options, events)
}

fn say_notes(daemon: &Daemon) {
    for note in daemon.notes() {
        say(&format!("rampack: {note}\n"));
    }
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
    let mut text = format!(
        "{} is ready: {}, compressed with {algorithm}, {limit}.\n\n",
        device.name,
        human(size)
    );
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "  {what:<13} {value}");
    };
    if let Some(path) = &device.block_device {
        line("block device", path);
    }
    if let (Some(link), true) = (&device.link, device.block_device.is_some()) {
        line("same, by name", link);
    }
    if let (Some(path), None) = (&device.file, &device.block_device) {
        line("file", path);
    }
    for place in &device.mountpoints {
        line("mounted at", place);
    }
    for uri in &device.nbd {
        line("NBD", uri);
    }
    text.push('\n');
    let mut line = |what: &str, value: &str| {
        let _ = writeln!(text, "  {what:<13} {value}");
    };
    match (&device.block_device, kind, device.nbd.first()) {
        (Some(path), None, _) => {
            line(
                "use it",
                &format!("mkfs.ext4 -E nodiscard {path} && mount -o discard {path} DIR"),
            );
        }
        (Some(path), Some(_), _) if device.mountpoints.is_empty() => {
            line("use it", &format!("mount -o discard {path} DIR"));
        }
        (Some(_), ..) => {}
        (None, _, Some(uri)) => {
            line("look at it", &format!("nbdinfo '{uri}'"));
            line("use it", &format!("qemu-system-x86_64 -drive file='{uri}',format=raw …"));
            if let Some(socket) = uri.split_once("?socket=").map(|(_, socket)| socket) {
                let command =
                    format!("sudo nbd-client -unix {socket} /dev/nbd0 -N {} -b 4096", device.name);
                line("", &command);
            }
        }
        (None, _, None) => {}
    }
    let program = program(root);
    line("watch it", &format!("{program} status"));
    line("change it", &format!("{program} set {} mem_limit=512M", device.name));
    line("end it", &format!("Ctrl-C, or {program} stop; everything in it is lost then"));
    text.push('\n');
    text
}
