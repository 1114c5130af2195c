//! A restart by a service manager: SIGUSR1, which gives nothing up.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use kept::{Backoff, Ended};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::common::{NbdClient, PATIENCE, Place, noise, program, rampack, wait_until};
use crate::keeper::{Keeper, kill};

/// A service manager: as systemd does, it keeps what the daemon gave it over an end that is the
/// first half of a restart, and starts the next one. The first one is told of at its end.
fn manager(place: &Place) -> Receiver<io::Result<Ended>> {
    let words = ["rampack", "--root"].map(OsString::from).into_iter();
    let words = words.chain([place.root().into_os_string()]);
    let line = ["serve", "--transport", "nbd", "--size", "4M"].map(OsString::from);
    let arguments = words.chain(line).collect();
    let (ended, ends) = channel();
    thread::spawn(move || {
        let path = Path::new(env!("CARGO_BIN_EXE_rampack"));
        let mut keeper = kept::Keeper::new(path, arguments, Backoff::default(), None).unwrap();
        let _ = ended.send(keeper.run());
        let _ = ended.send(keeper.run());
    });
    ends
}

/// The daemon in a place, which a test that fails ends.
struct InPlace<'a>(&'a Place);

impl InPlace<'_> {
    fn ask(&self, line: &str) -> crate::common::Said {
        rampack(&format!("--root {} {line}", self.0.root().display()))
    }

    fn process(&self) -> i32 {
        let status = self.ask("status --json").out;
        let value: serde_json::Value = serde_json::from_str(&status).unwrap();
        value["pid"].as_i64().unwrap() as i32
    }

    fn client(&self) -> NbdClient {
        let socket = self.0.root().join("nbd.sock");
        wait_until("a daemon serves", || NbdClient::is_served(&socket, "zram0"));
        NbdClient::connect(&socket, "zram0").unwrap()
    }
}

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        self.ask("stop --force");
    }
}

/// A command that goes on until its client ends.
struct Stuck(Child);

impl Stuck {
    /// It waits for the first bytes of a snapshot.
    fn in_place(place: &Place) -> Stuck {
        let mut command = program();
        command.arg("--root").arg(place.root()).arg("restore");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"some").unwrap();
        Stuck(child)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_restart_gives_nothing_up_for_commands_that_hang() {
    let place = Place::new();
    let ends = manager(&place);
    let daemon = InPlace(&place);
    assert_eq!(daemon.client().write(4096, &noise(1)), 0);
    let first = daemon.process();
    let _stuck = [Stuck::in_place(&place), Stuck::in_place(&place)];
    wait_until("they are under way", || daemon.ask("status").out.contains("zram2"));
    kill(first, libc::SIGUSR1);
    assert_eq!(ends.recv_timeout(PATIENCE).unwrap().unwrap(), Ended::Exited(0));
    assert!(daemon.client().read(4096, 4096) == noise(1));
    assert_ne!(daemon.process(), first);
    wait_until("the daemon stops", || daemon.ask("stop").code == 0);
    assert_eq!(ends.recv_timeout(PATIENCE).unwrap().unwrap(), Ended::Exited(0));
    place.is_clean();
}

#[test]
fn a_restart_that_is_refused_is_tried_again_and_is_no_stop() {
    let place = Place::new();
    let keeper = Keeper::start(&place, "serve --transport nbd --size 4M");
    let daemon = keeper.daemon();
    // It has no descriptor left to ask with whether its manager has it all.
    let few = |limit| {
        let limits = Rlimit { current: limit, ..getrlimit(Resource::Nofile) };
        prlimit(Pid::from_raw(daemon), Resource::Nofile, limits).unwrap()
    };
    let before = few(Some(0));
    kill(daemon, libc::SIGUSR1);
    keeper.says("not restarted");
    keeper.says("tried again every second");
    few(before.current);
    assert_eq!(keeper.ended(), 0);
    // What a stop takes away is there for the next one.
    let left = crate::common::listing(&place.root());
    assert!(left.contains(&place.root().join("control.sock")), "{left:?}");
}
