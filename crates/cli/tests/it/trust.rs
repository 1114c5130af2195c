//! Whom a daemon and its clients trust, and how long they wait for each other.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use host::connect_at_once;
use testkit::{Need, met};

use crate::bad_input::{NOBODY, as_nobody};
use crate::common::{Daemon, Place, Said, program, rampack, refused, said, wait_until};

/// What a command says that must not wait.
#[track_caller]
fn said_at_once(command: &mut Command) -> Said {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("its end", || child.try_wait().unwrap().is_some());
    said(&child.wait_with_output().unwrap())
}

#[test]
fn a_socket_that_takes_nobody_holds_up_no_start() {
    let place = Place::new();
    fs::create_dir(place.root()).unwrap();
    for name in ["control.sock", "nbd.sock"] {
        let path = place.root().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        // The usual queue is longer than a process may have descriptors.
        rustix::net::listen(&listener, 4).unwrap();
        let queue: Vec<_> = std::iter::from_fn(|| connect_at_once(&path).ok()).collect();
        fs::write(place.root().join("lock"), "rampack root 1\npid 4242\n").unwrap();
        let mut command = program();
        command.arg("--root").arg(place.root()).args(["serve", "--transport", "nbd"]);
        refused(&said_at_once(&mut command), 1, &[name, "is in use", "EADDRINUSE"]);
        drop((listener, queue));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_stopped_daemon_is_named_and_one_that_goes_on_answers() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0 --transport nbd");
    daemon.signal(libc::SIGSTOP);
    let stat = format!("/proc/{}/stat", daemon.pid());
    wait_until("being stopped", || fs::read_to_string(&stat).unwrap().contains(") T "));
    let process = format!("process {}", daemon.pid());
    for line in ["add", "get zram0 disksize", "stop"] {
        refused(&said_at_once(&mut daemon.command(line)), 1, &["is stopped", &process, "EBUSY"]);
    }
    daemon.signal(libc::SIGCONT);
    daemon.does("status");
    daemon.stop();
    place.is_clean();
}

#[test]
fn root_neither_serves_nor_asks_where_another_user_rules() {
    let name = "root_neither_serves_nor_asks_where_another_user_rules";
    if !met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let home = place.path().join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let root = home.join("r");
    let at = |line: &str| rampack(&format!("--root {} {line}", root.display()));
    refused(&at("serve --transport nbd"), 1, &["user 65534 owns", "not safe", "EACCES"]);
    let mut command = as_nobody(&place);
    command.arg("--root").arg(&root).args(["serve", "--transport", "nbd"]);
    let daemon = Daemon::spawn(&place, &mut command);
    for line in ["status", "set zram0 disksize=1M", "stop", "exec true"] {
        refused(&at(line), 1, &["belongs to user 65534", "neither root nor you", "EACCES"]);
    }
    let mut client = Command::new(command.get_program());
    client.uid(NOBODY).gid(NOBODY).arg("--root").arg(&root).arg("status");
    let said = said(&client.output().unwrap());
    assert_eq!(said.code, 0, "{}", said.err);
    daemon.stop();
    // A daemon of root, behind a link of that user.
    let daemon = Daemon::start(&place, "serve --size 1M");
    symlink(place.root(), home.join("way")).unwrap();
    for root in [home.join("way"), home.join("way/.")] {
        let said = rampack(&format!("--root {} exec true", root.display()));
        refused(&said, 1, &["user 65534 owns", "EACCES"]);
    }
    daemon.stop();
    place.is_clean();
}
