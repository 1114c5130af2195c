//! Runs a daemon until it is told to end, and can.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rampack::control::ControlError;

use crate::client::call;
use crate::daemon::Daemon;
use crate::devices::swapped_to;
use crate::events::{Event, Events};
use crate::failure::{failed, say, sentence};
use crate::live::Live;
use crate::notify::{self, Watchdog};
use crate::protocol::{DaemonReport, Request, Status};
use crate::restart;
use crate::swap::progress::Progress;
use crate::terminal::program;

/// How often the statistics are drawn.
const REDRAW: Duration = Duration::from_secs(1);

/// The time before a refused stop is tried again while there is swap space. A service manager sends
/// one signal, and then waits for as long as it takes.
const AGAIN: Duration = Duration::from_secs(10);

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
    let mut warned = BTreeSet::new();
    loop {
        live.update(daemon.machine());
        warn_of_swap(daemon, &live, &mut warned);
        let (force, reply) = match events.wait(REDRAW) {
            None if is_done(daemon) => (false, None),
            None if refused.is_time() => (force, None),
            None => continue,
            Some(Event::Signal) => {
                if daemon.is_kept() && restart::is_under_way() {
                    let error = daemon.leave_to_the_next();
                    let why = sentence(&error);
                    live.aside(|| say(&format!("rampack: nothing outlives this restart: {why}\n")));
                }
                (force, None)
            }
            Some(Event::Asked { force: asked, reply }) => (force || asked, Some(reply)),
            Some(Event::Upgrade { program, reply }) => {
                let _ = reply.send(daemon.hand_over(&program));
                continue;
            }
        };
        let progress = Progress::begin(daemon.swaps().devices());
        let result = daemon.stop(force);
        drop(progress);
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
    times: u32,
    said: String,
    /// When the next try is due.
    again: Option<Instant>,
}

impl Refused {
    /// Is it time to try again?
    fn is_time(&self) -> bool {
        self.again.is_some_and(|at| at <= Instant::now())
    }

    /// Notes that `error` refused a stop. Returns the text for the user; it is empty where it would
    /// say what was said before. Whoever asked on the control socket got an answer and can ask
    /// again, but a signal has none: `by_signal` says that the daemon itself must try again.
    fn note(&mut self, daemon: &Daemon, error: &ControlError, by_signal: bool) -> String {
        let is_repeated = by_signal && self.again.is_some() && self.said == error.message;
        self.times += 1;
        self.said.clone_from(&error.message);
        if by_signal {
            let is_needed = !daemon.swaps().is_empty();
            self.again = is_needed.then(|| Instant::now() + AGAIN);
        }
        match is_repeated {
            true => String::new(),
            false => self.text(daemon, error),
        }
    }

    fn text(&self, daemon: &Daemon, error: &ControlError) -> String {
        let root = daemon.root();
        let still = if self.times > 1 { "still " } else { "" };
        let mut text = format!("rampack: {still}not stopped: {}\n", sentence(error));
        if !daemon.swaps().is_empty() {
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
            if self.again.is_some() {
                let seconds = AGAIN.as_secs();
                let _ = writeln!(
                    text,
                    "  It is tried again every {seconds} seconds, and the daemon ends once it can."
                );
            }
            return text;
        }
        let _ = writeln!(
            text,
            "  End that use and stop again, or take the devices from their users with\n    \
             {} stop --force\n  What they have not written elsewhere is lost then.",
            program(root)
        );
        text
    }
}
