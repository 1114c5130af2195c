//! Swap devices of a daemon that is killed again and again: programs whose pages are there see
//! nothing but a pause.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cli::swap::selftest::group::Group;
use host::{Controller, Memfds, swaps};
use testkit::{Need, Rng, met};

use crate::common::{Daemon, Place, Said, wait_until};
use crate::hungry::{hungry, try_hungry};
use crate::keep_users::{NEEDS, survive};
use crate::keeper::{Keeper, has_resend, kill, kills};

const MIB: u64 = 1 << 20;
/// The kernel swaps to the device of the test before all others.
pub const FIRST: &str = "--transport fuse --force --priority 32767";

pub fn needs() -> Vec<Need> {
    let noswap = Need::other(Memfds::unswappable().is_ok(), "tmpfs with noswap (Linux 6.4)");
    [&NEEDS[..], &[has_resend(), noswap, Need::Swap, Need::MemoryGroup]].concat()
}

/// Those of a key that outlives the daemon, too.
fn needs_with_key() -> Vec<Need> {
    let secret = Memfds::new().secret("key", |_| Ok(())).is_ok();
    let secret = Need::other(secret, "secret memory (memfd_secret, Linux 5.14)");
    [needs(), vec![secret]].concat()
}

/// The block device of the only swap device.
fn device(keeper: &Keeper) -> PathBuf {
    keeper.block_device("swap0")
}

/// What `status --json` says of the swap devices.
fn swaps(keeper: &Keeper) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&keeper.does("status --json")).unwrap();
    status["swaps"].clone()
}

pub fn lost_pages(keeper: &Keeper) -> String {
    keeper.does("get kernel/debug/zswap lost_pages").trim().to_owned()
}

/// Programs that want more memory than their group has swap to `device`, until `stop`; at least
/// one. Returns how many rounds there were.
pub fn work(device: &Path, seed: u64, least: u64, stop: &AtomicBool) -> u64 {
    let (mut rounds, mut most) = (0, 0);
    let used = || swaps::find(device).map_or(0, |active| active.used);
    while !stop.load(Ordering::Relaxed) || rounds == 0 {
        let group = Group::make(&Controller::find().unwrap(), 6 * MIB).unwrap();
        let (outcome, used) = hungry(&group, seed.wrapping_add(rounds), used);
        assert_eq!(outcome.wrong, 0, "round {rounds}");
        (rounds, most) = (rounds + 1, most.max(used));
    }
    assert!(most > least, "{most} bytes were swapped out at most");
    rounds
}

/// Nobody swaps to `device` any more, unless another test has its number by now.
#[track_caller]
pub fn is_swapped_off(place: &Place, device: &Path) {
    assert!(swaps::find(device).is_none() || place.loops().is_empty(), "{:?}", swaps::all());
}

/// Checks the kept state while the daemon is stopped and nobody swaps.
fn fsck(keeper: &Keeper) -> Said {
    let daemon = keeper.daemon();
    kill(daemon, libc::SIGSTOP);
    let said = keeper.ask(&format!("fsck --pid {daemon} --contents"));
    kill(daemon, libc::SIGCONT);
    said
}

#[test]
fn programs_survive_the_daemon_of_their_swap_device() {
    let name = "programs_survive_the_daemon_of_their_swap_device";
    if !met(name, &needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let mut keeper = Keeper::start_swap(&place, &format!("swap on --size 96M {FIRST}"));
    let device = device(&keeper);
    keeper.does("set module/zswap/parameters max_pool_percent=33");
    keeper.does("set fs/cgroup/swap0 memory.zswap.max=1G");
    let seed = rng.next_u64();
    let rounds =
        survive(&mut keeper, kills(25), &mut rng, |stop| work(&device, seed, 4 * MIB, stop));
    assert!(rounds > 0);
    assert_eq!(lost_pages(&keeper), "0");
    assert_eq!(crate::keep_swap::device(&keeper), device);
    assert_eq!(keeper.does("get module/zswap/parameters max_pool_percent"), "33\n");
    assert_eq!(keeper.does("get fs/cgroup/swap0 memory.zswap.max"), "1073741824\n");
    let status = swaps(&keeper);
    assert_eq!(status[0]["active"], true, "{status}");
    let held = status[0]["protections"].as_array().unwrap().iter();
    let held: Vec<_> = held.filter(|it| it["had"] == true).map(|it| it["name"].clone()).collect();
    for name in ["memory locked", "memory ahead of use", "outlives the daemon"] {
        assert!(held.iter().any(|it| it == name), "{name}: {status}");
    }
    let said = fsck(&keeper);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("swap0") && said.out.contains("clean"), "{}", said.out);
    // The daemon was started for the swap device, and ends with it; so does the keeper.
    keeper.does("swap off");
    assert_eq!(keeper.ended(), 0);
    is_swapped_off(&place, &device);
    place.is_clean();
}

/// The control of the tests above: without a keeper the program is hurt.
#[test]
fn a_program_sees_the_death_of_a_swap_device_that_nobody_keeps() {
    let name = "a_program_sees_the_death_of_a_swap_device_that_nobody_keeps";
    if !met(name, &needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let daemon = Daemon::start(&place, &format!("swap on --size 96M {FIRST}"));
    let device = std::fs::read_link(place.root().join("dev/swap0")).unwrap();
    let used = || swaps::find(&device).map_or(0, |active| active.used);
    let group = Group::make(&Controller::find().unwrap(), 6 * MIB).unwrap();
    let seed = rng.next_u64();
    let outcome = thread::scope(|scope| {
        let working = scope.spawn(|| try_hungry(&group, seed, used).0);
        wait_until("pages are swapped out", || used() > 4 * MIB);
        daemon.kill();
        working.join().unwrap()
    });
    let is_hurt = outcome.as_ref().map_or(true, |outcome| outcome.wrong > 0);
    assert!(is_hurt, "it lost nothing: {outcome:?}");
}

#[test]
fn pages_on_an_encrypted_backing_file_survive_the_daemon() {
    let name = "pages_on_an_encrypted_backing_file_survive_the_daemon";
    if !met(name, &needs_with_key()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let backing = place.path().join("backing");
    let line = format!(
        "swap on --size 64M --backing {} --memory 4M --headroom 2M {FIRST}",
        backing.display()
    );
    let mut keeper = Keeper::start_swap(&place, &line);
    let device = device(&keeper);
    let seed = rng.next_u64();
    survive(&mut keeper, kills(15), &mut rng, |stop| work(&device, seed, 4 * MIB, stop));
    assert_eq!(lost_pages(&keeper), "0");
    assert!(backing.exists());
    let said = fsck(&keeper);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    keeper.stop();
    // It was made for the device.
    assert!(!backing.exists());
    place.is_clean();
}

#[test]
fn a_swap_device_without_its_keeper_is_served_and_says_so() {
    let name = "a_swap_device_without_its_keeper_is_served_and_says_so";
    if !met(name, &needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let keeper = Keeper::start_swap(&place, &format!("swap on --size 64M {FIRST}"));
    let (device, daemon) = (device(&keeper), keeper.daemon());
    let lasts = |keeper: &Keeper| {
        let status = swaps(keeper);
        let held = status[0]["protections"].as_array().unwrap().iter();
        let mut held = held.filter(|it| it["name"] == "outlives the daemon");
        held.next().unwrap()["had"] == true
    };
    assert!(lasts(&keeper));
    kill(keeper.process(), libc::SIGKILL);
    wait_until("the death is noticed", || !lasts(&keeper));
    let said = keeper.ask("upgrade");
    crate::common::refused(&said, 1, &["swap0", "its service manager", "is gone", "EBUSY"]);
    work(&device, testkit::seed(name), 4 * MIB, &AtomicBool::new(true));
    keeper.does("swap off");
    let process = format!("/proc/{daemon}");
    wait_until("the daemon ends", || !std::path::Path::new(&process).exists());
    place.is_clean();
}

#[test]
fn pages_on_a_backing_file_without_a_path_survive_the_daemon() {
    let name = "pages_on_a_backing_file_without_a_path_survive_the_daemon";
    if !met(name, &needs_with_key()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    for options in ["", "--plain-backing", "--backing-layout log"] {
        let place = Place::new();
        let backing = place.path().join("backing");
        let line = format!(
            "swap on --size 64M --backing {} {options} --memory 4M --headroom 2M {FIRST}",
            backing.display()
        );
        let mut keeper = Keeper::start_swap(&place, &line);
        let device = device(&keeper);
        std::fs::remove_file(&backing).unwrap();
        std::fs::write(&backing, "another file").unwrap();
        let seed = rng.next_u64();
        survive(&mut keeper, kills(5), &mut rng, |stop| work(&device, seed, 4 * MIB, stop));
        let daemon = keeper.daemon();
        keeper.does("upgrade");
        assert_eq!(keeper.daemon(), daemon);
        work(&device, seed, 4 * MIB, &AtomicBool::new(true));
        assert_eq!(lost_pages(&keeper), "0");
        keeper.stop();
        assert_eq!(std::fs::read_to_string(&backing).unwrap(), "another file");
        place.is_clean();
    }
}

/// What the keeper has of the first one is not taken for what belongs to the second.
#[test]
fn a_swap_device_that_is_off_and_is_on_again_survives_the_daemon() {
    let name = "a_swap_device_that_is_off_and_is_on_again_survives_the_daemon";
    if !met(name, &needs_with_key()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    for layout in ["pages", "log"] {
        let place = Place::new();
        let on = format!(
            "swap on --size 64M --backing {} --backing-layout {layout} {FIRST}",
            place.path().join("backing").display()
        );
        let other = "swap on --size 8M --memory 2M --headroom 2M --transport fuse --force";
        let mut keeper = Keeper::start_swap(&place, other);
        for _ in 0..2 {
            keeper.does(&on);
            keeper.does("swap off swap1");
        }
        keeper.does(&on);
        let (device, seed) = (keeper.block_device("swap1"), rng.next_u64());
        survive(&mut keeper, kills(4), &mut rng, |stop| work(&device, seed, 4 * MIB, stop));
        assert_eq!(lost_pages(&keeper), "0");
        keeper.stop();
        place.is_clean();
    }
}

/// A log that is smaller than the device, encrypted and not.
#[test]
fn pages_in_a_log_survive_the_daemon() {
    let name = "pages_in_a_log_survive_the_daemon";
    if !met(name, &needs_with_key()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    for seal in ["", "--plain-backing"] {
        let place = Place::new();
        let backing = place.path().join("backing");
        let file = File::options().write(true).create_new(true).mode(0o600).open(&backing);
        file.unwrap().set_len(16 * MIB).unwrap();
        let line = format!(
            "swap on --size 64M --backing {} --backing-layout log {seal} --memory 4M --headroom \
             2M {FIRST}",
            backing.display()
        );
        let mut keeper = Keeper::start_swap(&place, &line);
        let device = device(&keeper);
        let seed = rng.next_u64();
        survive(&mut keeper, kills(8), &mut rng, |stop| work(&device, seed, 4 * MIB, stop));
        assert_eq!(lost_pages(&keeper), "0");
        let status = swaps(&keeper);
        let log = &status[0]["log"];
        let number = |name: &str| log[name].as_u64().unwrap();
        assert!(number("live") <= number("capacity") && number("capacity") > 0, "{status}");
        let held = status[0]["protections"].as_array().unwrap().iter();
        let mut held = held.filter(|it| it["had"] == true).map(|it| it["name"].clone());
        assert!(held.any(|it| it == "outlives the daemon"), "{status}");
        let said = fsck(&keeper);
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        keeper.stop();
        place.is_clean();
    }
}

#[test]
fn swap_devices_of_a_kept_service_come_go_and_stay_over_upgrades() {
    let name = "swap_devices_of_a_kept_service_come_go_and_stay_over_upgrades";
    if !met(name, &needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 4M");
    let stop = AtomicBool::new(false);
    for round in 0..2 {
        keeper.does(&format!("swap on --size 64M {FIRST}"));
        let device = device(&keeper);
        let seed = rng.next_u64();
        stop.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let (device, stop) = (&device, &stop);
            let working = scope.spawn(move || work(device, seed, 2 * MIB, stop));
            for step in 0..6 {
                thread::sleep(Duration::from_millis(rng.below(300)));
                match step % 2 {
                    0 => _ = keeper.does("upgrade"),
                    _ => {
                        keeper.kill(libc::SIGKILL);
                        keeper.wait();
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            working.join().unwrap();
        });
        assert_eq!(lost_pages(&keeper), "0");
        keeper.does("swap off swap0");
        is_swapped_off(&place, &device);
        // Nothing of it comes back.
        keeper.kill(libc::SIGKILL);
        keeper.wait();
        assert_eq!(swaps(&keeper), serde_json::json!([]), "round {round}");
        let said = fsck(&keeper);
        assert!(said.code == 0 && !said.out.contains("swap0"), "{}{}", said.out, said.err);
    }
    keeper.stop();
    place.is_clean();
}

#[test]
fn swap_devices_come_and_go_while_daemons_are_killed() {
    let name = "swap_devices_come_and_go_while_daemons_are_killed";
    if !met(name, &needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 4M");
    let root = keeper.root().to_owned();
    let ask = |line: &str| crate::common::rampack(&format!("--root {} {line}", root.display()));
    survive(&mut keeper, kills(15), &mut rng, |stop| {
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            // A command may be cut off at any step.
            if ask(&format!("swap on --size 8M {FIRST}")).code == 0 {
                done += 1;
            }
            ask("swap off --all");
        }
        done
    });
    keeper.does("swap off --all");
    assert_eq!(swaps(&keeper), serde_json::json!([]));
    let left = swaps::all().into_iter().filter(|it| it.path.starts_with("/dev/loop"));
    let of_place = |path: &std::path::Path| {
        let said = Command::new("losetup").arg(path).output().unwrap();
        String::from_utf8_lossy(&said.stdout).contains(root.to_str().unwrap())
    };
    assert!(!left.map(|it| it.path).any(|path| of_place(&path)));
    wait_until("no loop device is left but that of the disk", || place.loops().len() <= 1);
    keeper.stop();
    place.is_clean();
}
