//! `rampack up` and `rampack serve`: they start a daemon and run it until its end.

use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use control::ControlError;
use host::{self, Role, Started};
use nbd::{Activated, Stream};
use units::human;

use crate::args::{DeviceOptions, DiskOptions, Serve, Size, Up, absolute};
use crate::beside;
use crate::running::{
    Running, activate, check_frontends, confine, for_file_systems, handed_over, is_inherited,
    listen, served,
};
use crate::terminal::{as_here, as_root, lines, print, program};
use crate::watch::watch;
use service::daemon::{self, Daemon};
use service::engine;
use service::exports::DiskExports;
use service::failure::failed;
use service::filesystem;
use service::notify::{self, Watchdog};
use service::panics;
use service::protocol::{Add, Attribute, ConfiguredDisk, DeviceReport};
use service::root::Root;
use service::transport::Transport;

const NUM_DEVICES: &str = "--num-devices";
/// What a daemon was asked for until all its devices are made: the next one makes the others.
const NOT_ALL: &str = "not all yet";
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
            ("auto", self.auto.map(|on| u8::from(on).to_string())),
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
            snapshot: None,
        }
    }
}

impl DiskOptions {
    /// The disk, with its number if it has one, and what is to be on it.
    #[must_use]
    pub fn configured(&self, number: Option<u32>, force: bool) -> ConfiguredDisk {
        let snapshot = self.snapshot.as_deref().map(absolute);
        let add = Add { number, snapshot, ..self.device.request(Some(&self.size), force) };
        let mount = self.mount.as_deref().map(machine::text_of);
        ConfiguredDisk { add, fs: self.fs.clone(), mount }
    }
}

/// Checks the options of `up` before anything is made.
fn check(root: &Root, up: &Up) -> Result<(), ControlError> {
    check_frontends(&up.frontends)?;
    let (fs, mount) = (up.disk.fs.as_deref(), up.disk.mount.as_deref());
    if up.frontends.transport == Transport::Nbd && (fs.is_some() || mount.is_some()) {
        let message = format!(
            "{} needs a block device or a file, and --transport nbd makes none; leave one of \
             them out",
            if mount.is_some() { "--mount" } else { "--fs" }
        );
        return Err(ControlError::invalid(message));
    }
    filesystem::wanted(fs, mount, root.path()).map(drop)
}

/// `rampack up`. It takes over what a daemon before left, and makes what that did not.
///
/// # Errors
/// The error of the step that failed.
pub fn up(root: &Root, up: &Up) -> Result<(), ControlError> {
    let started = Started::now();
    let disk = up.disk.configured(None, up.frontends.force);
    let has_file_system = disk.mount.is_some() || disk.fs.is_some();
    let frontends = for_file_systems(up.frontends.clone(), has_file_system);
    check_frontends(&frontends)?;
    let (state, _) = handed_over()?;
    // The checks may look into file systems on devices of the daemon before, so those come first.
    if !is_inherited(state.as_ref()) {
        check(root, up)?;
    }
    let mut asked = disk.add.asked();
    let file_system = [("--mount", &disk.mount), ("--fs", &disk.fs)].into_iter();
    asked.extend(file_system.filter_map(|(name, it)| Some((name.to_owned(), it.clone()?))));
    confine(&frontends)?;
    let running = Running::start(root.clone(), (&frontends, asked), state, Vec::new())?;
    let Running { daemon, events, state } = &running;
    let (mut guard, mut code) = (None, 0);
    let mut run = || -> Result<(), ControlError> {
        if !up.command.is_empty() && state.is_some() {
            let message = "a command ends with its daemon, so nothing can keep them; leave --, or \
                           what keeps it, out";
            return Err(ControlError::invalid(message));
        }
        let text = make(daemon, up, &disk)?;
        guard = running.guard()?;
        match &up.command[..] {
            // The watch gets it too, and ends the daemon.
            [] if events.has_signal() => {}
            [] => print(&text),
            // As a shell says of a command that Ctrl-C ended: it was not run.
            _ if events.has_signal() => code = 130,
            command => code = beside::run(command, started, events)?,
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
/// Returns what the user can do with it.
fn make(daemon: &Daemon, up: &Up, wanted: &ConfiguredDisk) -> Result<String, ControlError> {
    let (root, file_systems) = (daemon.root(), daemon.file_systems());
    let (disk, has_file_system) = if file_systems.begins_anew() {
        let disk = file_systems.make_disk(wanted, root.path())?;
        (disk, wanted.fs.is_some() || wanted.mount.is_some())
    } else {
        let Some(disk) = file_systems.go_on().into_iter().next() else {
            return Ok(served(daemon));
        };
        (disk, true)
    };
    Ok(welcome(up, root, &daemon.devices().report(&disk), has_file_system))
}

/// `rampack serve`.
///
/// # Errors
/// The error of the step that failed.
pub fn serve(root: Option<PathBuf>, serve: &Serve) -> Result<(), ControlError> {
    let (state, others) = handed_over()?;
    let (activated, sockets) = activate(others)?;
    let handed_over = !activated.is_empty();
    confine(&serve.frontends)?;
    if serve.stdio && !handed_over {
        panics::report(false);
        return stdio(serve);
    }
    check_frontends(&serve.frontends)?;
    if handed_over && (root.is_none() || serve.stdio) {
        if serve.frontends.vhost.vhost_user {
            let message = "--vhost-user makes sockets in a root directory, and there is none: name \
                           one with --root";
            return Err(ControlError::invalid(message));
        }
        panics::report(false);
        return sockets_only(serve, activated);
    }
    let root = Root::choose(root.as_deref())?;
    let mut asked = serve.device.request(serve.size.as_ref(), serve.frontends.force).asked();
    // A user may have removed some, once all were made.
    let before = state.as_ref().and_then(|state| state.kept().asked);
    let is_whole = before.is_some_and(|it| it.get(NUM_DEVICES).is_none_or(|it| it != NOT_ALL));
    let number = serve.num_devices.to_string();
    let now = if is_whole { number.clone() } else { NOT_ALL.to_owned() };
    asked.insert(NUM_DEVICES.to_owned(), now);
    let running = Running::start(root, (&serve.frontends, asked), state, sockets)?;
    running.run(
        serve.frontends.force,
        |_| false,
        |daemon, _| {
            let devices = daemon.devices();
            if !is_whole {
                for _ in devices.numbers().len()..serve.num_devices as usize {
                    let force = serve.frontends.force;
                    devices.add(&serve.device.request(serve.size.as_ref(), force))?;
                }
                let mut asked = devices.asked();
                asked.insert(NUM_DEVICES.to_owned(), number);
                devices.set_asked(asked);
                // One that keeps nothing yet saves nothing.
                if serve.num_devices > 0 {
                    devices.save()?;
                }
            }
            daemon.serve_activated(activated)?;
            // With handed-over sockets, standard output belongs to the client that started this
            // process.
            Ok(if handed_over { String::new() } else { served(daemon) })
        },
    )
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

/// Serves NBD on handed-over sockets, without a root directory. Where all of them are connections,
/// nobody else can come: it ends with them.
fn sockets_only(options: &Serve, activated: Vec<Activated>) -> Result<(), ControlError> {
    let events = listen()?;
    let machine = private_machine(options, options.num_devices)?;
    let server = daemon::nbd_server(machine, &options.frontends.nbd.options())?;
    let listens = activated.iter().any(|it| matches!(it, Activated::Listener(_)));
    daemon::serve_activated(&server, activated)?;
    // There is no control socket to ask for an answer.
    let _watchdog = Watchdog::start(|| true).map_err(|e| failed("cannot start a thread", &e))?;
    notify::ready();
    let look = Duration::from_secs(if listens { 3600 } else { 1 });
    while events.wait(look).is_none() && (listens || server.connections() > 0) {}
    notify::stopping();
    daemon::end_nbd(&server);
    Ok(())
}

/// Makes devices that only NBD clients can reach. They need a size from the start.
fn private_machine(options: &Serve, count: u32) -> Result<Arc<DiskExports>, ControlError> {
    let machine = engine::new()?;
    let mut request = options.device.request(options.size.as_ref(), options.frontends.force);
    request.size.get_or_insert_with(|| SIZE_OF_STDIO.into());
    for _ in 0..count.max(1) {
        service::devices::configure(&machine.add()?, &request)?;
    }
    Ok(Arc::new(DiskExports::new(machine, options.frontends.nbd.nbd_read_only, None)))
}

/// The text that tells a user what to do with the new device.
fn welcome(up: &Up, root: &Root, device: &DeviceReport, has_file_system: bool) -> String {
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
    ways.extend(way("vhost-user", &device.vhost_user));
    let (sudo, mut uses) = (as_root(), Vec::new());
    match (&device.block_device, has_file_system, device.nbd.first()) {
        (Some(path), false, _) => uses.push((
            "use it",
            format!("{sudo}mkfs.ext4 -E nodiscard {path} && {sudo}mount -o discard {path} DIR"),
        )),
        (Some(path), true, _) if device.mountpoints.is_empty() => {
            uses.push(("use it", format!("{sudo}mount -o discard {path} DIR")));
        }
        (Some(_), ..) => {}
        (None, _, Some(uri)) => {
            let here = as_here();
            uses.push(("look at it", format!("{here}nbdinfo '{uri}'")));
            let drive = format!("{here}qemu-system-x86_64 -drive file='{uri}',format=raw …");
            uses.push(("use it", drive));
            uses.extend(uri.split_once("?socket=").map(|(_, socket)| {
                let name = &device.name;
                ("", format!("{sudo}nbd-client -unix {socket} /dev/nbd0 -N {name} -b 4096"))
            }));
        }
        (None, _, None) => {}
    }
    let program = program(root);
    let then = match &up.disk.snapshot {
        Some(path) => format!("it is saved to {} then", path.display()),
        None => "everything in it is lost then".to_owned(),
    };
    let end = format!("Ctrl-C, or {program} stop; {then}");
    uses.extend([
        ("watch it", format!("{program} status")),
        ("change it", format!("{program} set {} mem_limit=512M", device.name)),
        ("end it", end),
    ]);
    text + &lines(&ways) + &lines(&uses)
}
