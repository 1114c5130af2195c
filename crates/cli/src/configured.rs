//! `rampack serve --config` and `rampack swap on --config`: daemons of what is configured in files.

use std::env;
use std::path::Path;
use std::process;
use std::sync::Arc;

use control::ControlError;

use crate::args::{FrontendOptions, SandboxOptions, absolute};
use crate::config::{self, Configuration};
use crate::running::{
    Running, activate, check_frontends, confine, for_file_systems, handed_over, is_inherited,
    served,
};
use crate::swap::commands::{become_daemon, warn};
use crate::terminal::answer;
use service::client::{call, report};
use service::daemon::{DISKS, Daemon, FILE, PART, SWAPS};
use service::events::Events;
use service::failure::{say, sentence};
use service::notify;
use service::plan::{Asked, of_device};
use service::protocol::{Applied, Request, SwapOn};
use service::root::Root;
use service::state::{Named, State};
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

/// Does this process begin with nothing, and for itself? What a daemon before left is never given
/// up, and a rehearsal answers.
fn is_first(state: Option<&Arc<State>>) -> bool {
    !is_inherited(state) && !kept::is_rehearsal()
}

/// What a daemon of `part` is asked for: what is configured, or else what the one before was.
fn asked(
    configuration: Option<&Configuration>,
    state: Option<&Arc<State>>,
    part: &str,
    file: Option<&Path>,
) -> Asked {
    let before = || state.and_then(|state| state.kept().asked).unwrap_or_default();
    let mut asked = configuration.map_or_else(before, |it| it.apply().asked(part));
    asked.insert(PART.to_owned(), part.to_owned());
    asked.remove(FILE);
    asked.extend(file.map(|file| (FILE.to_owned(), absolute(file))));
    asked
}

/// Why nothing is to be started, if so.
fn idle(configuration: &Configuration, has_none: bool, kind: &str) -> Option<String> {
    match (configuration.is_off, has_none) {
        (true, _) => Some("rampack=0 is on the kernel's command line: nothing is started".into()),
        (_, true) => Some(format!("no {kind} is configured: nothing is started")),
        _ => None,
    }
}

/// Ends the process if the first daemon could not begin.
fn ended(result: Result<(), ControlError>, is_first: bool) -> Result<(), ControlError> {
    match result {
        Err(error) if is_first => {
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
    let (state, others) = handed_over()?;
    let is_first = is_first(state.as_ref());
    ended(serve_disks(root, file, sandbox, (state, others)), is_first)
}

/// A daemon before may have left what others wait for: it is served whatever is wrong in a file, as
/// it was before. A file may even be on a swap device of that daemon, and is read afterwards then.
fn serve_disks(
    root: Option<&Path>,
    file: Option<&Path>,
    sandbox: SandboxOptions,
    (state, others): (Option<Arc<State>>, Named),
) -> Result<(), ControlError> {
    let (is_first, is_rehearsal) = (is_first(state.as_ref()), kept::is_rehearsal());
    let has_swap = state.as_ref().is_some_and(|state| !state.kept().areas.is_empty());
    let loaded = if has_swap && !is_rehearsal { None } else { Some(load(file)) };
    let mut configuration = match loaded {
        Some(Err(error)) if is_first || is_rehearsal => return Err(error),
        loaded => loaded.and_then(Result::ok),
    };
    if let (true, Some(it)) = (is_first, &configuration)
        && let Some(why) = idle(it, it.disks.is_empty() && it.serve.is_none(), "disk")
    {
        return nothing(&why);
    }
    let (activated, sockets) = activate(others)?;
    let frontends = |asked: Asked| -> Result<(FrontendOptions, Asked), ControlError> {
        let by = config::serving(&asked);
        let has_file_system = asked.keys().any(|name| ["mount", "fs"].contains(&of_device(name).1));
        let mut frontends = for_file_systems(by.serve.clone().unwrap_or_default(), has_file_system);
        if !by.says_sandbox() {
            frontends.sandbox = sandbox;
        }
        check_frontends(&frontends)?;
        confine(&frontends)?;
        Ok((frontends, asked))
    };
    let of = |it: Option<&Configuration>| asked(it, state.as_ref(), DISKS, file);
    let (frontends, asked) = match frontends(of(configuration.as_ref())) {
        // Loading a file does not see all that may be wrong in it.
        Err(error) if !is_first && !is_rehearsal && configuration.is_some() => {
            say(&format!("rampack: [serve] is not followed: {}\n", sentence(&error)));
            configuration = None;
            frontends(of(None))?
        }
        served => served?,
    };
    let running = Running::start(Root::choose(root)?, (&frontends, asked), state, sockets)?;
    running.run(
        frontends.force,
        |_| false,
        |daemon, events| {
            daemon.file_systems().begins_anew();
            daemon.file_systems().go_on();
            match &configuration {
                Some(configuration) => make_disks(daemon, configuration)?,
                None => follow(daemon, events, file),
            }
            let is_client = !activated.is_empty();
            daemon.serve_activated(activated)?;
            Ok(if is_client { String::new() } else { served(daemon) })
        },
    )
}

/// Makes the disks that are not there.
///
/// # Errors
/// That of the first, if there is none in the end.
fn make_disks(daemon: &Daemon, configuration: &Configuration) -> Result<(), ControlError> {
    let (there, mut first) = (daemon.devices().numbers(), Ok(()));
    let mut disks = configuration.apply().disks;
    // One may be mounted below another.
    disks.sort_by(|a, b| a.mount.cmp(&b.mount));
    for disk in disks {
        if disk.add.number.is_some_and(|number| there.contains(&number)) {
            continue;
        }
        if let Err(error) = daemon.file_systems().make_configured(&disk, daemon.root().path()) {
            say(&format!("rampack: {} is not made: {}\n", disk.name(), sentence(&error)));
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
    let (state, _) = handed_over()?;
    let is_first = is_first(state.as_ref());
    ended(swap_to_devices(root, file, sandbox, state), is_first)
}

/// A file may be in swapped memory, as all below /run, so none is read before swap devices of a
/// daemon before are served; and whoever has pages there waits for this process, whatever is wrong
/// in a file.
fn swap_to_devices(
    root: Root,
    file: Option<&Path>,
    sandbox: SandboxOptions,
    state: Option<Arc<State>>,
) -> Result<(), ControlError> {
    let is_first = is_first(state.as_ref());
    let is_again = !is_first && !kept::is_rehearsal();
    let configuration = if is_again { None } else { Some(load(file)?) };
    if let (true, Some(it)) = (is_first, &configuration) {
        if let Some(why) = idle(it, it.swaps.is_empty(), "swap device") {
            return nothing(&why);
        }
        if root.has_daemon() {
            let there: Vec<String> = report(&root)?.swaps.into_iter().map(|it| it.name).collect();
            return make_swaps(it, &there, |request| {
                let report: SwapReport = call(&root, &Request::SwapOn(request))?;
                answer(format!("{}  {}\n", report.name, report.block_device))?;
                Ok(report)
            });
        }
    }
    let frontends = become_daemon(sandbox)?;
    confine(&frontends)?;
    let asked = asked(configuration.as_ref(), state.as_ref(), SWAPS, file);
    let running = Running::start(root, (&frontends, asked), state, Vec::new())?;
    running.run(
        false,
        |daemon| daemon.swaps().end_if_empty(),
        |daemon, events| {
            match &configuration {
                Some(it) => {
                    let is_over = || events.is_to_end();
                    let made = make_swaps(it, &[], |request| daemon.swaps().on(&request, &is_over));
                    // Whoever asks for the end has the answer of an ordinary one.
                    if !is_over() {
                        made?;
                    }
                }
                None => follow(daemon, events, file),
            }
            let line = |(name, path): (String, std::path::PathBuf)| {
                format!("{name}  {}\n", path.display())
            };
            let lines: String = daemon.swaps().devices().into_iter().map(line).collect();
            Ok(format!("{lines}serving in {}\n", daemon.root().path().display()))
        },
    )
}

/// Follows what is configured, and says what becomes of it.
fn follow(daemon: &Daemon, events: &Events, file: Option<&Path>) {
    let followed = load(file).and_then(|it| match it.is_off {
        true => Ok(Applied::default()),
        false => daemon.apply(it.apply(), &|| events.is_to_end()),
    });
    match followed {
        Ok(Applied { changed, not_followed, failed }) => {
            for line in not_followed.iter().chain(&changed).chain(&failed) {
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
    for request in configuration.apply().swaps {
        let name = request.name();
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
