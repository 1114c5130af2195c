//! Signals to a daemon without swap devices, and a stop that a service manager waits for.

use crate::common::{Daemon, NbdClient, Place, noise, rampack};
use crate::keeper::daemon_of;
use crate::limits::after;

/// The signals of a line of `/proc/PID/status`.
fn set(daemon: &Daemon, name: &str) -> u64 {
    u64::from_str_radix(&daemon.status(name), 16).unwrap()
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The shell may have been started by nohup.
const DEFAULT: &str = "set -- env --default-signal \"$@\"";
const UP: &str = "up --transport nbd --size 8M";

#[test]
fn a_terminal_that_is_gone_takes_no_data_with_it() {
    for line in [UP.to_owned(), format!("keep {UP}")] {
        let place = Place::new();
        let daemon = Daemon::spawn(&place, &mut after(&place, DEFAULT, &line));
        let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
        let page = noise(1);
        assert_eq!(client.write(4096, &page), 0);
        let of_keeper = daemon_of(daemon.pid());
        daemon.signal(libc::SIGHUP);
        assert_ne!(set(&daemon, "SigIgn") & bit(libc::SIGHUP), 0, "{line}");
        if let Some(kept) = of_keeper {
            crate::keeper::kill(kept, libc::SIGHUP);
        }
        assert_eq!(client.read(4096, 4096), page, "{line}");
        assert_eq!(daemon_of(daemon.pid()), of_keeper);
        drop(client);
        daemon.does("stop");
        assert!(daemon.ended().success());
        place.is_clean();
    }
}

#[test]
fn a_signal_that_the_daemon_was_started_to_ignore_stays_ignored() {
    let place = Place::new();
    let ignore = "trap '' HUP INT TERM";
    let daemon = Daemon::spawn(&place, &mut after(&place, ignore, UP));
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        daemon.signal(signal);
        assert_ne!(set(&daemon, "SigIgn") & bit(signal), 0, "{signal}");
        assert_eq!(set(&daemon, "SigCgt") & bit(signal), 0, "{signal}");
    }
    daemon.does("status");
    daemon.does("stop");
    assert!(daemon.ended().success());
    place.is_clean();
}

#[test]
fn a_stop_of_a_service_manager_that_was_refused_is_tried_again() {
    let place = Place::new();
    let daemon = Daemon::start(&place, UP);
    let client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    // After Ctrl-C the user may go on.
    daemon.signal(libc::SIGINT);
    let said = daemon.lines_until(&["is lost then"]);
    daemon.signal(libc::SIGTERM);
    let again = daemon.lines_until(&["tried again every second"]);
    assert!(!said.contains("tried again") && again.contains("still not stopped"), "{said}{again}");
    assert_eq!(rampack(&format!("--root {} status", place.root().display())).code, 0);
    drop(client);
    assert!(daemon.ended().success());
    place.is_clean();
}
