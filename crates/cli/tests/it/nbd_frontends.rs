//! The ways in which NBD clients reach the program.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use testkit::{Need, met};

use crate::common::{Daemon, NbdClient, Place, program, wait_until};

const NBDINFO: Need = Need::program("nbdinfo", "libnbd-bin");
const NBDCOPY: Need = Need::program("nbdcopy", "libnbd-bin");

fn run(command: &mut Command) -> String {
    testkit::run(command).stdout
}

#[test]
fn exports_bear_the_names_of_devices() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2 --transport nbd --size 4M");
    daemon.does("add --size 12M");
    for (name, bytes) in [("zram0", 4 << 20), ("zram1", 4 << 20), ("zram2", 12 << 20)] {
        assert_eq!(NbdClient::connect(&daemon.nbd(), name).unwrap().bytes, bytes);
    }
    // The first is what clients get who do not know a name.
    assert_eq!(NbdClient::connect(&daemon.nbd(), "").unwrap().bytes, 4 << 20);
    daemon.does("add");
    assert!(NbdClient::connect(&daemon.nbd(), "zram3").is_err(), "it has no size");
    assert!(NbdClient::connect(&daemon.nbd(), "zram9").is_err());
    daemon.stop();
    place.is_clean();
}

#[test]
fn one_connection_on_standard_input_and_output() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let copy = theirs.try_clone().unwrap();
    let mut child = program()
        .args(["serve", "--size", "64M", "--stdio"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(OwnedFd::from(copy)))
        .spawn()
        .unwrap();
    drop(ours);
    wait_until("the end with the connection", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

#[test]
fn nbdinfo_launches_us() {
    if !met("nbdinfo_launches_us", &[NBDINFO]) {
        return;
    }
    let rampack = program().get_program().to_owned();
    let mut command = Command::new("nbdinfo");
    command.args(["--size", "--", "["]).arg(&rampack);
    command.args(["serve", "--size", "64M", "--stdio", "]"]);
    assert_eq!(run(&mut command).trim(), "67108864");
    // The same by socket activation alone.
    let mut command = Command::new("nbdinfo");
    command.args(["--list", "--", "["]).arg(&rampack);
    command.args(["serve", "--size", "8M", "--num-devices", "2", "]"]);
    let list = run(&mut command);
    assert!(list.contains("zram0") && list.contains("zram1"), "{list}");
}

#[test]
fn an_activated_daemon_can_have_a_root() {
    if !met("an_activated_daemon_can_have_a_root", &[NBDINFO]) {
        return;
    }
    let place = Place::new();
    let mut command = Command::new("nbdinfo");
    command.args(["--size", "--", "["]).arg(program().get_program());
    command.arg("--root").arg(place.root());
    command.args(["serve", "--size", "8M", "--transport", "nbd", "]"]);
    assert_eq!(run(&mut command).trim(), "8388608");
    // It was told to end by its client, who does not wait for it.
    wait_until("the end of the daemon", || !place.root().exists());
    place.is_clean();
}

#[test]
fn nbdcopy_there_and_back() {
    if !met("nbdcopy_there_and_back", &[NBDCOPY]) {
        return;
    }
    let place = Place::new();
    let source = place.path().join("source");
    let target = place.path().join("target");
    let data: Vec<u8> = (0..1 << 20).map(|n: u32| (n / 4096 * 7 + n % 251) as u8).collect();
    std::fs::write(&source, &data).unwrap();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let uri = format!("nbd+unix:///zram0?socket={}", daemon.nbd().display());
    assert!(daemon.greeting.contains(&uri), "{}", daemon.greeting);
    run(Command::new("nbdcopy").arg(&source).arg(&uri));
    run(Command::new("nbdcopy").arg(&uri).arg(&target));
    assert!(std::fs::read(&target).unwrap() == data);
    daemon.stop();
    place.is_clean();
}

#[test]
fn tcp_only_when_asked_and_on_loopback() {
    if !met("tcp_only_when_asked_and_on_loopback", &[NBDINFO]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M --nbd-tcp 0");
    let uri = daemon.greeting.split_whitespace().find(|word| word.starts_with("nbd://"));
    let uri = uri.expect(&daemon.greeting);
    assert!(uri.starts_with("nbd://127.0.0.1:"), "{uri}");
    assert_eq!(run(Command::new("nbdinfo").args(["--size", uri])).trim(), "8388608");
    daemon.stop();
}
