//! `rampack serve --config` and `rampack swap on --config`: daemons of what is configured in files.

use std::cell::Cell;
use std::env;
use std::path::Path;
use std::process;

use rampack::control::ControlError;
use rampack::host;

use crate::args::SandboxOptions;
use crate::config::{self, Configuration};
use crate::swap::commands::{become_daemon, warn};
use crate::terminal::{answer, print};
use crate::up::{self, Running, activate, check_frontends, confine, handed_over, served};
use crate::watch::watch;
use service::client::{call, report};
use service::daemon::{DISKS, Daemon, SWAPS};
use service::failure::{say, sentence};
use service::notify;
use service::protocol::{Applied, Apply, Request, SwapOn};
use service::root::Root;
use service::state::Named;
use service::swap::report::SwapReport;

/// The exit code of a daemon that had nothing from one before, and could not begin: to start it
/// again at once, as service managers do, would not help.
const NOT_BEGUN: i32 = 3;

/// The configuration of the system, or of `file` alone.
fn load(file: Option<&Path>) -> Result<Configuration, ControlError> {
    config::load(&file.map(Path::to_owned).into_iter().collect::<Vec<_>>())
}

/// Says why nothing is started, to the service manager as well: its unit does not fail.
fn nothing(why: &str) -> Result<(), ControlError> {
    say(&format!("rampack: {why}\n"));
    notify::ready();
    notify::stopping();
    Ok(())
}

/// Does this process begin with nothing, and for itself? What a daemon before `left` is never given
/// up, and a rehearsal answers.
fn is_first(left: &Named) -> bool {
    left.is_empty() && !kept::is_rehearsal()
}

/// Why nothing is to be started, if so.
fn idle(configuration: &Configuration, has_none: bool, kind: &str) -> Option<String> {
    match (configuration.is_off, has_none) {
        (true, _) => Some("rampack=0 is on the kernel's command line: nothing is started".into()),
        (_, true) => Some(format!("no {kind} is configured: nothing is started")),
        _ => None,
    }
}

/// Ends the process if it could not begin.
fn ended(result: Result<(), ControlError>, has_begun: &Cell<bool>) -> Result<(), ControlError> {
    match result {
        Err(error) if !has_begun.get() => {
            say(&format!("rampack: {}\n", sentence(&error)));
            process::exit(NOT_BEGUN);
        }
        result => result,
    }
}

/// `rampack serve --config`. A disk that cannot be made stops no other.
///
/// # Errors
/// `EINVAL` for a configuration with faults; the error of the step that failed; that of the first
/// disk, if none can be made.
pub fn serve(
    root: Option<&Path>,
    file: Option<&Path>,
    sandbox: SandboxOptions,
) -> Result<(), ControlError> {
    let handed = handed_over()?;
    let has_begun = Cell::new(!is_first(&handed.0));
    ended(serve_disks(root, file, sandbox, handed, &has_begun), &has_begun)
}

fn serve_disks(
    root: Option<&Path>,
    file: Option<&Path>,
    sandbox: SandboxOptions,
    (left, others): (Named, Named),
    has_begun: &Cell<bool>,
) -> Result<(), ControlError> {
    let configuration = load(file)?;
    let has_none = configuration.disks.is_empty() && configuration.serve.is_none();
    if let (true, Some(why)) = (is_first(&left), idle(&configuration, has_none, "disk")) {
        return nothing(&why);
    }
    let (activated, sockets) = activate(others)?;
    let mut frontends = configuration.serve.clone().unwrap_or_default();
    if !configuration.says_sandbox() {
        frontends.sandbox = sandbox;
    }
    confine(&frontends)?;
    check_frontends(&frontends)?;
    let asked = configuration.asked(DISKS);
    let running = Running::start(Root::choose(root)?, (&frontends, asked), left, sockets)?;
    let Running { daemon, events, .. } = &running;
    let run = || {
        make_disks(daemon, &configuration)?;
        let is_client = !activated.is_empty();
        daemon.serve_activated(activated)?;
        if !is_client {
            print(&served(daemon));
        }
        has_begun.set(true);
        watch(daemon, events, frontends.force, |_| false)
    };
    let result = run();
    running.end(result)
}

/// Makes the disks that are not there.
fn make_disks(daemon: &Daemon, configuration: &Configuration) -> Result<(), ControlError> {
    let file_systems = daemon.file_systems();
    file_systems.begins_anew();
    file_systems.go_on();
    let (there, mut first) = (daemon.devices().numbers(), Ok(()));
    for disk in configuration.configured_disks() {
        let number = disk.add.number.unwrap_or_default();
        if there.contains(&number) {
            continue;
        }
        if let Err(error) = file_systems.make_disk(&disk, daemon.root().path()) {
            say(&format!("rampack: zram{number} is not made: {}\n", sentence(&error)));
            first = first.and(Err(error));
        }
    }
    if daemon.devices().numbers().is_empty() { first } else { Ok(()) }
}

/// `rampack swap on --config`. A running daemon gets the swap devices; without one, this process
/// becomes the daemon. A device that cannot be made stops no other.
///
/// # Errors
/// As [`serve`].
pub fn swap_on(
    root: Root,
    file: Option<&Path>,
    sandbox: SandboxOptions,
) -> Result<(), ControlError> {
    if env::var_os("FDSTORE").is_some() {
        // As of `swap on`.
        host::mark_as_storage_daemon();
    }
    let (left, _) = handed_over()?;
    if !left.is_empty() && !kept::is_rehearsal() {
        return swap_again((root, left), file, sandbox);
    }
    let has_begun = Cell::new(!is_first(&left));
    ended(swap_to_devices(root, file, sandbox, left, &has_begun), &has_begun)
}

fn swap_to_devices(
    root: Root,
    file: Option<&Path>,
    sandbox: SandboxOptions,
    left: Named,
    has_begun: &Cell<bool>,
) -> Result<(), ControlError> {
    let configuration = load(file)?;
    let has_none = configuration.swaps.is_empty();
    if let (true, Some(why)) = (is_first(&left), idle(&configuration, has_none, "swap device")) {
        return nothing(&why);
    }
    if is_first(&left) && root.is_claimed() {
        let there: Vec<String> = report(&root)?.swaps.into_iter().map(|it| it.name).collect();
        return make_swaps(&configuration, &there, |request| {
            let report: SwapReport = call(&root, &Request::SwapOn(request))?;
            answer(format!("{}  {}\n", report.name, report.block_device))?;
            Ok(report)
        });
    }
    let frontends = become_daemon(sandbox)?;
    let asked = configuration.asked(SWAPS);
    up::run_daemon(root, (&frontends, asked), left, |daemon| {
        make_swaps(&configuration, &[], |request| daemon.swaps().on(&request))?;
        has_begun.set(true);
        Ok(served_swaps(daemon))
    })
}

/// Serves the swap devices of the daemon before, and then follows what is configured. A file may
/// be in swapped memory, as all below /run, so none is read before they are served; and whoever has
/// pages there waits for this process, whatever is wrong in a file.
fn swap_again(
    (root, left): (Root, Named),
    file: Option<&Path>,
    sandbox: SandboxOptions,
) -> Result<(), ControlError> {
    let frontends = become_daemon(sandbox)?;
    let asked = Configuration::default().asked(SWAPS);
    up::run_daemon(root, (&frontends, asked), left, |daemon| {
        follow(daemon, file);
        Ok(served_swaps(daemon))
    })
}

/// Follows what is configured, and says what becomes of it.
fn follow(daemon: &Daemon, file: Option<&Path>) {
    let followed = load(file).and_then(|configuration| {
        let (asked, swaps) = (configuration.asked(SWAPS), configuration.swap_requests());
        let apply = Apply { asked, swaps, ..Apply::default() };
        match configuration.is_off {
            true => Ok(Applied::default()),
            false => call::<Applied>(daemon.root(), &Request::Apply(apply)),
        }
    });
    match followed {
        Ok(Applied { changed, not_followed }) => {
            for line in not_followed.iter().chain(&changed) {
                say(&format!("rampack: {line}\n"));
            }
        }
        Err(error) => {
            say(&format!("rampack: the configuration is not followed: {}\n", sentence(&error)));
        }
    }
}

/// Makes the swap devices whose names are not among `there`, by `on`. One that cannot be made stops
/// no other.
///
/// # Errors
/// That of the first, if there is none in the end.
fn make_swaps(
    configuration: &Configuration,
    there: &[String],
    on: impl Fn(SwapOn) -> Result<SwapReport, ControlError>,
) -> Result<(), ControlError> {
    let (mut has_any, mut first) = (!there.is_empty(), Ok(()));
    for request in configuration.swap_requests() {
        let name = service::swap::name(request.number.unwrap_or_default() as usize);
        if there.contains(&name) {
            continue;
        }
        match on(request) {
            Ok(report) => {
                warn(&report);
                has_any = true;
            }
            Err(error) => {
                say(&format!("rampack: {name} is not made: {}\n", sentence(&error)));
                first = first.and(Err(error));
            }
        }
    }
    if has_any { Ok(()) } else { first }
}

/// The swap devices of a daemon, in lines for the user.
fn served_swaps(daemon: &Daemon) -> String {
    let line = |(name, path): (String, std::path::PathBuf)| format!("{name}  {}\n", path.display());
    let lines: String = daemon.swaps().devices().into_iter().map(line).collect();
    format!("{lines}serving in {}\n", daemon.root().path().display())
}
