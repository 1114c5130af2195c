//! Runs a daemon until it is told to end, and can.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use control::ControlError;

use crate::live::Live;
use crate::swap::progress::Progress;
use crate::terminal::program;
use service::client::call;
use service::daemon::{Daemon, abandoned};
use service::devices::swapped_to;
use service::events::{Event, Events};
use service::failure::{failed, say, sentence};
use service::notify::{self, Watchdog};
use service::protocol::{DaemonReport, Request, Status};
use service::restart::{self, Job};

/// How often the statistics are drawn.
const REDRAW: Duration = Duration::from_secs(1);

/// The time before a refused stop is tried again. A service manager sends one signal, and then
/// waits for as long as it takes.
const AGAIN: Duration = Duration::from_secs(1);
/// The same after swap devices could not be drained: a try takes memory and time.
const AGAIN_DRAINED: Duration = Duration::from_secs(10);
/// The time before the reason of a stop that is refused again and again is said anew.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// Runs until the daemon is told to end and its devices are unused, or `force` is given; or until
/// `is_done` is true. The daemon is ready.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn watch(
    daemon: &Daemon,
    events: &Events,
    force: bool,
    is_done: impl Fn(&Daemon) -> bool,
) -> Result<(), ControlError> {
    let root = daemon.root().clone();
    let answers = move || call::<DaemonReport>(&root, &Request::Status(Status {})).is_ok();
    let _watchdog = Watchdog::start(answers).map_err(|e| failed("cannot start a thread", &e))?;
    notify::ready();
    let mut live = Live::new();
    let mut refused = Refused::default();
    let (mut warned, mut is_abandoned) = (BTreeSet::new(), false);
    // An upgrade or a restart, after which devices may be left.
    let mut has_failed = false;
    loop {
        // What it could not serve on. Whoever asked for the upgrade was told why.
        has_failed = has_failed && daemon.serve_on(Duration::ZERO).is_err();
        live.update(daemon.machine());
        warn_of_swap(daemon, &live, &mut warned);
        if daemon.devices().is_abandoned() && !is_abandoned {
            live.aside(|| tracing::warn!("{}", abandoned(std::process::id())));
            is_abandoned = true;
        }
        let (force, reply) = match events.wait(REDRAW) {
            None if is_done(daemon) => {
                refused.told = None;
                (false, None)
            }
            None if refused.is_time() => (force, None),
            None => continue,
            Some(event @ (Event::Signal | Event::Terminated | Event::Restart)) => {
                refused.told = match event {
                    Event::Restart => Some(Job::Restart),
                    Event::Terminated => Some(Job::Stop),
                    _ => None,
                };
                refused.is_terminated |= refused.told.is_some();
                (force, None)
            }
            Some(Event::Asked { force: asked, reply }) => (force || asked, Some(reply)),
            Some(Event::Upgrade { program, reply }) => {
                let is_told_to_end = || refused.again.is_some() || events.has_signal();
                let _ = reply.send(daemon.hand_over(&program, is_told_to_end));
                has_failed = true;
                continue;
            }
        };
        let told = if reply.is_none() { refused.told } else { None };
        refused.is_restart = told.is_some_and(|told| is_restart(daemon, told));
        let result = if refused.is_restart {
            has_failed = true;
            Err(daemon.leave_to_the_next(|| events.is_to_end()))
        } else {
            let _progress = Progress::begin(daemon.swaps().devices());
            daemon.stop(force)
        };
        match &result {
            Ok(()) => {
                live.clear();
                notify::stopping();
            }
            Err(error) => {
                let text = refused.note(daemon, error, reply.is_none());
                live.aside(|| say(&text));
            }
        }
        let ended = result.is_ok();
        if let Some(reply) = reply {
            let _ = reply.send(result);
        }
        if ended {
            return Ok(());
        }
    }
}

/// Is the end that a service manager has `told` the daemon of half of a restart? It may have turned
/// a restart into a stop since then.
fn is_restart(daemon: &Daemon, told: Job) -> bool {
    outlives(daemon) && restart::job().unwrap_or(told) == Job::Restart
}

/// Is there something that outlives the daemon, for the next one? Swap devices alone that do not
/// are read back, and made anew.
fn outlives(daemon: &Daemon) -> bool {
    let has_disks = !daemon.devices().numbers().is_empty();
    let outlives = has_disks || daemon.swaps().check_handed_over().is_ok();
    daemon.devices().state().is_some() && outlives
}

/// Warns once of each device that the kernel swaps to: only swap devices are safe for that.
fn warn_of_swap(daemon: &Daemon, live: &Live, warned: &mut BTreeSet<String>) {
    for name in daemon.devices().swapped_to() {
        if !warned.contains(&name) {
            live.aside(|| tracing::warn!("{}", swapped_to(&name)));
            warned.insert(name);
        }
    }
}

/// The refused stops of a daemon.
#[derive(Default)]
struct Refused {
    /// What the last signal means, if a service manager has sent it.
    told: Option<Job>,
    /// What was refused last is no stop: the next daemon is to have it all, so nothing is given up.
    is_restart: bool,
    times: u32,
    said: String,
    said_at: Option<Instant>,
    /// A service manager waits for the end. After Ctrl-C the user may go on with a disk.
    is_terminated: bool,
    /// When the next try is due, and the time between two.
    again: Option<(Instant, Duration)>,
}

impl Refused {
    /// Is it time to try again?
    fn is_time(&self) -> bool {
        self.again.is_some_and(|(at, _)| at <= Instant::now())
    }

    /// Notes that `error` refused a stop. Returns the text for the user; it is empty where it would
    /// say what was said less than a minute ago. Whoever asked on the control socket got an answer
    /// and can ask again, but a signal has none: `by_signal` says that the daemon itself must try
    /// again.
    fn note(&mut self, daemon: &Daemon, error: &ControlError, by_signal: bool) -> String {
        let is_recent = self.said_at.is_some_and(|at| at.elapsed() < SAID_AGAIN);
        let is_repeated =
            by_signal && self.again.is_some() && is_recent && self.said == error.message;
        self.times += 1;
        self.said.clone_from(&error.message);
        if by_signal {
            let has_swap = !daemon.swaps().is_empty();
            let is_needed = self.is_terminated || has_swap;
            // Users of a disk refuse it before anything is read back or saved.
            let is_costly = has_swap || daemon.devices().has_to_save();
            let is_cheap =
                self.is_restart || !is_costly || daemon.devices().check_unused().is_err();
            // Each try stops all devices for as long as one of them does not answer.
            let hangs = self.is_restart && error.errno.0 == host::errno::ETIMEDOUT;
            let pause = match hangs {
                true => SAID_AGAIN,
                false if is_cheap => AGAIN,
                false => AGAIN_DRAINED,
            };
            self.again = is_needed.then(|| (Instant::now() + pause, pause));
        }
        if is_repeated {
            return String::new();
        }
        self.said_at = Some(Instant::now());
        self.text(daemon, error, by_signal && self.is_restart)
    }

    fn text(&self, daemon: &Daemon, error: &ControlError, is_restart: bool) -> String {
        let root = daemon.root();
        let still = if self.times > 1 { "still " } else { "" };
        let what = if is_restart { "restarted" } else { "stopped" };
        let mut text = format!("rampack: {still}not {what}: {}\n", sentence(error));
        if is_restart {
            let _ = writeln!(
                text,
                "  Nothing is given up for a restart; `{} stop` ends the daemon without one.",
                program(root)
            );
        } else if !daemon.swaps().is_empty() {
            let killing = match daemon.swaps().check_handed_over() {
                Ok(()) => "After a kill the\n  next daemon serves it on.",
                Err(_) => {
                    "Killing the daemon would end\n  the programs whose pages are there (SIGBUS)."
                }
            };
            let _ = writeln!(
                text,
                "  What is swapped out is never given up, not with --force either. {killing}"
            );
        } else {
            let _ = writeln!(
                text,
                "  End that use and stop again, or take the devices from their users with\n    \
                 {} stop --force\n  What they have not written elsewhere is lost then.",
                program(root)
            );
        }
        if let Some((_, pause)) = self.again {
            let often = match pause.as_secs() {
                1 => "second".to_string(),
                60 => "minute".to_string(),
                seconds => format!("{seconds} seconds"),
            };
            let _ = writeln!(
                text,
                "  It is tried again every {often}, and the daemon ends once it can."
            );
        }
        text
    }
}
