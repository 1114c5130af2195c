//! Signals to a daemon, with and without swap devices.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use host::swaps;
use testkit::{Need, met};

use crate::common::{Daemon, Place, wait_until};
use crate::swap::device;

const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Loop, Need::Swap];

/// All that stop or end a program that did not ask for them, but for those that nobody can.
fn harmful() -> Vec<i32> {
    let named = [
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGPIPE,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGXCPU,
        libc::SIGXFSZ,
    ];
    named.into_iter().chain(34..=64).collect()
}

/// The signals of a line of `/proc/PID/status`.
fn set(daemon: &Daemon, name: &str) -> u64 {
    u64::from_str_radix(&daemon.status(name), 16).unwrap()
}

fn is_stopped(daemon: &Daemon) -> bool {
    daemon.status("State").starts_with('T')
}

#[test]
fn no_signal_stops_or_ends_a_daemon_that_serves_swap_space() {
    let name = "no_signal_stops_or_ends_a_daemon_that_serves_swap_space";
    if !met(name, &NEEDS) {
        return;
    }
    let place = Place::new();
    let mut daemon = Daemon::start(&place, "serve --num-devices 0");
    let before = (set(&daemon, "SigIgn"), set(&daemon, "SigCgt"));
    daemon.does("swap on --size 16M");
    let path = swaps::find(&std::fs::read_link(place.root().join("dev/swap0")).unwrap());
    let path = path.unwrap().path;
    for signal in harmful() {
        daemon.signal(signal);
        thread::sleep(Duration::from_millis(2));
        assert!(daemon.is_alive(), "signal {signal} ended it");
        assert!(!is_stopped(&daemon), "signal {signal} stopped it");
    }
    let handled = set(&daemon, "SigIgn") | set(&daemon, "SigCgt");
    for signal in harmful().into_iter().chain([libc::SIGQUIT]) {
        assert_ne!(handled & (1 << (signal - 1)), 0, "signal {signal} does what it usually does");
    }
    daemon.lines_until(&["not suspended"]);
    daemon.does("status");
    assert!(swaps::find(&path).is_some());
    // Afterwards all is as before.
    daemon.does("swap off");
    assert_eq!((set(&daemon, "SigIgn"), set(&daemon, "SigCgt")), before);
    daemon.signal(libc::SIGTSTP);
    wait_until("being suspended", || is_stopped(&daemon));
    daemon.signal(libc::SIGCONT);
    daemon.does("swap on --size 16M");
    daemon.does("swap off");
    daemon.signal(libc::SIGUSR2);
    assert_eq!(daemon.ended().signal(), Some(libc::SIGUSR2));
    Daemon::start(&place, "serve --num-devices 0").stop();
    place.is_clean();
}

#[test]
fn ctrl_backslash_asks_a_daemon_that_serves_swap_space_to_end() {
    let name = "ctrl_backslash_asks_a_daemon_that_serves_swap_space_to_end";
    if !met(name, &NEEDS) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "swap on --size 16M --priority 9");
    let path = std::fs::read_link(place.root().join("dev/swap0")).unwrap();
    daemon.signal(libc::SIGQUIT);
    assert!(daemon.ended().success());
    // Another test may have its number by now.
    assert_eq!(swaps::find(&path).filter(|active| active.priority == 9), None);
    place.is_clean();
    // Without swap space it does what it usually does.
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    daemon.signal(libc::SIGQUIT);
    assert_eq!(daemon.ended().signal(), Some(libc::SIGQUIT));
    Daemon::start(&place, "up --transport nbd --size 8M").stop();
    place.is_clean();
}

#[test]
fn a_stop_by_a_signal_that_was_refused_is_tried_again() {
    if !met("a_stop_by_a_signal_that_was_refused_is_tried_again", &NEEDS) {
        return;
    }
    let place = Place::new();
    let mut daemon = Daemon::start(&place, "swap on --size 16M");
    let open = File::open(device(&place, "swap0")).unwrap();
    daemon.signal(libc::SIGTERM);
    daemon.lines_until(&["not stopped"]);
    daemon.lines_until(&["tried again every 10 seconds"]);
    assert!(daemon.is_alive());
    drop(open);
    assert!(daemon.ended().success());
    place.is_clean();
}
