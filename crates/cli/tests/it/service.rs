//! The daemon as a service: what a service manager is told, and what the memory of the process is
//! kept from.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::{Daemon, NbdClient, Place, program};
use testkit::{Need, TempDir, met};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The next message.
fn message(socket: &UnixDatagram) -> String {
    let mut text = [0; 256];
    let length = socket.recv(&mut text).unwrap();
    String::from_utf8_lossy(&text[..length]).trim().to_string()
}

#[test]
fn a_service_manager_is_told_once_the_devices_are_there_and_at_the_end() {
    let name = format!("rampack-it-{}", std::process::id());
    for is_abstract in [false, true] {
        let place = Place::new();
        let path: PathBuf = place.path().join("notify");
        let (socket, address) = match is_abstract {
            false => (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
            true => {
                let address = SocketAddr::from_abstract_name(&name).unwrap();
                (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}"))
            }
        };
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let export = place.root().join("nbd.sock");
        let told = thread::spawn(move || {
            let first = message(&socket);
            let sizes = ["zram0", "zram1"]
                .map(|name| NbdClient::connect(&export, name).map(|client| client.bytes));
            (first, sizes, socket)
        });
        let mut command = program();
        command.arg("--root").arg(place.root()).env("NOTIFY_SOCKET", &address);
        command.args(["serve", "--transport", "nbd", "--num-devices", "2", "--size", "8M"]);
        let daemon = Daemon::spawn(&place, &mut command);
        let (first, sizes, socket) = told.join().unwrap();
        assert_eq!((first.as_str(), sizes), ("READY=1", [Ok(8 << 20); 2]));
        daemon.stop();
        assert_eq!(message(&socket), "STOPPING=1");
    }
}

/// A daemon that is to give signs of life, and the socket where its service manager hears them.
fn watched(place: &Place) -> (Daemon, UnixDatagram) {
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = program();
    command.arg("--root").arg(place.root()).env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", "20000");
    command.args(["up", "--transport", "nbd", "--size", "8M"]);
    (Daemon::spawn(place, &mut command), socket)
}

#[test]
fn a_service_manager_that_wants_signs_of_life_gets_them_from_a_daemon_that_answers() {
    let place = Place::new();
    let (daemon, socket) = watched(&place);
    // The signs of life may come before the other.
    let mut told = BTreeMap::new();
    while told.get("READY=1") != Some(&1) || told.get("WATCHDOG=1").is_none_or(|it| *it < 3) {
        *told.entry(message(&socket)).or_insert(0) += 1;
    }
    assert_eq!(told.len(), 2, "{told:?}");
    daemon.stop();
}

#[test]
fn a_service_manager_that_does_not_read_holds_up_no_end() {
    let place = Place::new();
    let (daemon, socket) = watched(&place);
    while message(&socket) != "READY=1" {}
    let others = UnixDatagram::unbound().unwrap();
    others.set_nonblocking(true).unwrap();
    let path = place.path().join("notify");
    while others.send_to(b"STATUS=full", &path).is_ok() {}
    daemon.stop();
}

#[test]
fn what_is_stored_is_kept_out_of_core_dumps() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(0, &crate::common::noise(1)), 0);
    let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", daemon.pid()));
    let limits = read("limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    // The hard limit stays for a command of the user.
    assert_eq!(line.split_whitespace().nth(4), Some("0"), "{line}");
    // Only root may look into it.
    let name = "what_is_stored_is_kept_out_of_core_dumps";
    if met(name, &[Need::Root]) {
        let maps = read("smaps").unwrap();
        // The tables of the pool. The C library maps as much at a time, but only a little of it can
        // be written.
        let is_large = |line: &str| {
            let ends = line.split(' ').next()?.split_once('-')?;
            let end = |text| u64::from_str_radix(text, 16).ok();
            let name = line.split_whitespace().nth(5);
            Some(name.is_none() && end(ends.1)? - end(ends.0)? >= 64 << 20)
        };
        let (mut large, mut count) = (false, 0);
        for line in maps.lines() {
            if let Some(is_large) = is_large(line) {
                large = is_large;
            }
            if let (true, Some(flags)) = (large, line.strip_prefix("VmFlags:"))
                && flags.contains(" wr")
            {
                count += 1;
                assert!(flags.contains(" dd"), "{flags}");
            }
        }
        assert!(count > 0, "no region: {maps}");
    }
    drop(client);
    daemon.stop();
}

#[test]
fn memory_is_locked_where_it_is_asked_for() {
    if !met("memory_is_locked_where_it_is_asked_for", &[Need::Root]) {
        return;
    }
    let locked = |daemon: &Daemon| -> u64 {
        daemon.status("VmLck").trim_end_matches(" kB").parse().unwrap()
    };
    for command in ["up --transport nbd --size 8M", "serve --transport nbd --num-devices 1"] {
        let place = Place::new();
        let daemon = Daemon::start(&place, command);
        assert_eq!(locked(&daemon), 0);
        daemon.stop();
        let daemon = Daemon::start(&place, &format!("{command} --lock-memory"));
        assert!(locked(&daemon) > 1024, "{} kB", locked(&daemon));
        daemon.stop();
    }
}

#[test]
fn memory_stays_locked_when_swap_goes() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Swap];
    if !met("memory_stays_locked_when_swap_goes", &needs) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0 --lock-memory");
    daemon.does("swap on --size 16M");
    daemon.does("swap off");
    assert_ne!(daemon.status("VmLck"), "0 kB");
    daemon.stop();
    place.is_clean();
}

#[test]
fn memory_that_cannot_be_locked_is_an_error_that_says_what_it_needs() {
    let name = "memory_that_cannot_be_locked_is_an_error_that_says_what_it_needs";
    let setpriv = Need::program("setpriv", "util-linux");
    let prlimit = Need::program("prlimit", "util-linux");
    if !met(name, &[Need::Root, setpriv, prlimit]) {
        return;
    }
    let place = Place::new();
    let mut command = std::process::Command::new("prlimit");
    command.args(["--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock"]);
    command.args(["--inh-caps=-ipc_lock", env!("CARGO_BIN_EXE_rampack"), "--root"]);
    command.arg(place.root()).args(["up", "--transport", "nbd", "--size", "8M", "--lock-memory"]);
    let said = crate::common::said(&command.output().unwrap());
    let words = ["--lock-memory", "CAP_IPC_LOCK", "LimitMEMLOCK", "ENOMEM"];
    crate::common::refused(&said, 1, &words);
    assert!(!place.root().exists());
}

#[test]
fn a_server_of_swap_space_is_marked_for_systemd() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Swap];
    if !met("a_server_of_swap_space_is_marked_for_systemd", &needs) {
        return;
    }
    let first = |daemon: &Daemon| fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap()[0];
    let place = Place::new();
    let daemon = Daemon::start(&place, "swap on --size 16M");
    assert_eq!(first(&daemon), b'@');
    let comm = fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).unwrap();
    assert_eq!(comm.trim(), "rampack");
    daemon.stop();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    assert_ne!(first(&daemon), b'@', "it may be killed in the end");
    daemon.stop();
    place.is_clean();
}

/// The check of the units, with a container in the place of systemd's.
#[test]
fn the_check_of_the_units_ends_by_name_if_its_container_does_not() {
    let name = "the_check_of_the_units_ends_by_name_if_its_container_does_not";
    if !met(name, &[Need::Root]) {
        return;
    }
    // It is not begun where another test swaps.
    let _alone = crate::swap_selftest::alone();
    let dir = TempDir::new();
    let container = dir.join("systemd-nspawn");
    let text = "#!/bin/sh\ntrap '' TERM\necho the console\nwhile :; do sleep 0.1; done\n";
    testkit::script(&container, text);
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd/check");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(check).arg("/bin/true");
    let output = command.env("PATH", path).env("CHECK_SECONDS", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let words = "FAILED: the container did not end in time; the last that it did:\nthe console\n";
    assert!(said.contains(words), "{said}");
}
