//! A keeper that does not answer while a daemon takes over: the daemon gives up, and the users of
//! its devices wait for the next one.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{met, run};

use crate::common::{Place, wait_until};
use crate::keep_users::NEEDS;
use crate::keeper::{Keeper, daemon_of, has_resend, kill};

/// Longer than a daemon waits for its keeper.
const PATIENCE: Duration = Duration::from_secs(20);
/// A daemon may have taken over before the keeper stops.
const TRIES: usize = 8;

/// Has the process ended? Its parent has not asked for that.
fn has_ended(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Kills the daemon, and stops the keeper once it has started the next one, until such a daemon
/// gives up. Then `look` is called, and the keeper goes on.
fn give_up(keeper: &mut Keeper, look: impl FnOnce()) {
    for _ in 0..TRIES {
        keeper.kill(libc::SIGKILL);
        let next = keeper.daemon();
        kill(keeper.process(), libc::SIGSTOP);
        let end = Instant::now() + PATIENCE;
        while !has_ended(next) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        if has_ended(next) {
            look();
            kill(keeper.process(), libc::SIGCONT);
            keeper.says("does not keep rampack.helpers");
            let keeper_id = keeper.process() as u32;
            wait_until("the next daemon is started", || {
                daemon_of(keeper_id).is_some_and(|it| it != next)
            });
            return keeper.wait();
        }
        kill(keeper.process(), libc::SIGCONT);
        keeper.wait();
    }
    panic!("no daemon gave up:\n{}", keeper.said());
}

/// Reads past every cache.
fn read(device: &Path) -> Command {
    let mut read = Command::new("dd");
    read.arg(format!("if={}", device.display()));
    read.args(["of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none"]);
    read
}

#[test]
fn users_of_a_disk_wait_when_a_daemon_gives_up_its_start() {
    let name = "users_of_a_disk_wait_when_a_daemon_gives_up_its_start";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 8M");
    let device = keeper.block_device("zram0");
    let mut reader = None;
    give_up(&mut keeper, || reader = Some(read(&device).spawn().unwrap()));
    assert!(reader.unwrap().wait().unwrap().success());
    run(&mut read(&device));
    assert_eq!(keeper.block_device("zram0"), device);
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_swap_device_stays_when_a_daemon_gives_up_its_start() {
    let name = "a_swap_device_stays_when_a_daemon_gives_up_its_start";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let mut keeper = Keeper::start_swap(&place, "swap on --size 8M --transport fuse --force");
    let (device, at) = (keeper.block_device("swap0"), place.root().join("swap/swap0"));
    give_up(&mut keeper, || assert!(place.mounts().contains(&at), "{:?}", place.mounts()));
    run(&mut read(&device));
    assert_eq!(keeper.block_device("swap0"), device);
    keeper.does("swap off");
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}
