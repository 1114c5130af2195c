//! A restart by a service manager: SIGUSR1, which gives nothing up.

use std::io::Write;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::common::{NbdClient, Place, noise, program, wait_until};
use crate::keeper::{Keeper, kill};

/// A daemon of a disk with something in it, which its service manager keeps.
fn kept(place: &Place) -> Keeper {
    let keeper = Keeper::start(place, "serve --transport nbd --size 4M");
    assert_eq!(client(&keeper).write(4096, &noise(1)), 0);
    keeper
}

fn client(keeper: &Keeper) -> NbdClient {
    NbdClient::connect(&keeper.nbd(), "zram0").unwrap()
}

/// The next daemon serves what the one before had.
fn goes_on(keeper: Keeper) {
    keeper.says("ended with status 75");
    keeper.wait();
    keeper.serves("zram0");
    assert!(client(&keeper).read(4096, 4096) == noise(1));
    keeper.stop();
}

#[test]
fn clients_of_nbd_wait_for_the_next_daemon() {
    let place = Place::new();
    let mut keeper = kept(&place);
    Keeper::is_there_while(&place.root().join("nbd.sock"), || {
        for _ in 0..3 {
            keeper.kill(libc::SIGUSR1);
            keeper.wait();
            keeper.serves("zram0");
        }
    });
    goes_on(keeper);
    place.is_clean();
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
    let mut keeper = kept(&place);
    let stuck = [Stuck::in_place(&place), Stuck::in_place(&place)];
    wait_until("they are under way", || keeper.ask("status").out.contains("zram2"));
    keeper.kill(libc::SIGUSR1);
    keeper.says("ended with status 75");
    drop(stuck);
    goes_on(keeper);
    place.is_clean();
}

#[test]
fn a_restart_that_is_refused_is_tried_again_and_is_no_stop() {
    let place = Place::new();
    let mut keeper = kept(&place);
    let daemon = keeper.daemon();
    // It has no descriptor left to ask with whether its manager has it all.
    let few = |limit| {
        let limits = Rlimit { current: limit, ..getrlimit(Resource::Nofile) };
        prlimit(Pid::from_raw(daemon), Resource::Nofile, limits).unwrap()
    };
    let before = few(Some(0));
    keeper.kill(libc::SIGUSR1);
    keeper.says("not restarted");
    keeper.says("tried again every second");
    few(before.current);
    goes_on(keeper);
    place.is_clean();
}

#[test]
fn a_stop_behind_a_restart_is_carried_out() {
    let place = Place::new();
    let keeper = kept(&place);
    let daemon = keeper.daemon();
    // A command that is under way holds the restart up.
    let _stuck = Stuck::in_place(&place);
    wait_until("it is under way", || keeper.ask("status").out.contains("zram1"));
    kill(daemon, libc::SIGUSR1);
    kill(daemon, libc::SIGTERM);
    let said = keeper.said();
    assert_eq!(keeper.ended(), 0, "{said}");
    place.is_clean();
}
