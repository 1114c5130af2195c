//! `rampack keep up --mount`: a file system that rampack made stays mounted when the daemon is
//! killed, and nothing is made twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use host::Unmount;
use testkit::{Need, Rng, TempDir, met, run};

use crate::common::{Place, wait_until};
use crate::keep_users::{NEEDS, make_tree, survive};
use crate::keeper::{Keeper, has_resend, kills};

fn needs() -> Vec<Need> {
    [&NEEDS[..], &[has_resend(), Need::program("mkfs.ext4", "e2fsprogs")]].concat()
}

fn up(place: &Place) -> (Keeper, PathBuf) {
    let at = place.mount_point();
    let keeper = Keeper::start(place, &format!("up --size 96M --mount {}", at.display()));
    (keeper, at)
}

/// The numbers that the kernel gave to what is mounted at a place.
fn mounted(at: &Path) -> Vec<u64> {
    let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = at.canonicalize().unwrap();
    let words = all.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let there = words.filter(|words| Path::new(words[4]) == at);
    there.map(|words| words[0].parse().unwrap()).collect()
}

/// Waits until it is mounted. Returns the number of the mount.
#[track_caller]
fn wait_for_mount(at: &Path) -> u64 {
    wait_until("it is mounted", || !mounted(at).is_empty());
    let there = mounted(at);
    assert_eq!(there.len(), 1, "it is mounted once");
    there[0]
}

fn lost_pages(keeper: &Keeper) -> String {
    keeper.does("get zram0 lost_pages").trim().to_owned()
}

#[test]
fn a_mount_of_up_survives_the_daemon() {
    let name = "a_mount_of_up_survives_the_daemon";
    if !met(name, &needs()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let (place, source) = (Place::new(), TempDir::new());
    make_tree(source.path(), &mut rng);
    let (mut keeper, at) = up(&place);
    let number = wait_for_mount(&at);
    keeper.wait();
    let device = keeper.block_device("zram0");
    let copies = survive(&mut keeper, kills(25), &mut rng, |stop| {
        let mut copies = 0;
        while !stop.load(Ordering::Relaxed) || copies == 0 {
            let copy = at.join(format!("copy{}", copies % 3));
            run(Command::new("rm").arg("-rf").arg(&copy));
            run(Command::new("cp").arg("-r").arg(source.path()).arg(&copy));
            run(Command::new("sync").arg("-f").arg(&copy));
            run(Command::new("diff").arg("-r").arg(source.path()).arg(&copy));
            copies += 1;
        }
        copies
    });
    assert_eq!((mounted(&at), keeper.block_device("zram0")), (vec![number], device.clone()));
    keeper.does("upgrade");
    assert_eq!(mounted(&at), [number]);
    // What the system kept in memory is read from the device now.
    host::unmount(&at, Unmount::WhenUnused).unwrap();
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(&device));
    host::mount(&device, &at, "ext4", "").unwrap();
    for copy in 0..copies.min(3) {
        let copy = at.join(format!("copy{copy}"));
        run(Command::new("diff").arg("-r").arg(source.path()).arg(copy));
    }
    assert_eq!(lost_pages(&keeper), "0");
    // Who kills the daemon gets one that still takes down what was made.
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    keeper.stop();
    place.is_clean();
}

#[test]
fn up_that_is_killed_while_it_begins_makes_each_thing_once() {
    let name = "up_that_is_killed_while_it_begins_makes_each_thing_once";
    if !met(name, &needs()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    for round in 0..kills(8) {
        let place = Place::new();
        let (mut keeper, at) = up(&place);
        // Each daemon comes a bit further than the one before.
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(rng.below(60)));
            keeper.kill(libc::SIGKILL);
        }
        keeper.wait();
        let number = wait_for_mount(&at);
        let file = at.join("file");
        fs::write(&file, [7; 100_000]).unwrap();
        keeper.kill(libc::SIGKILL);
        keeper.wait();
        assert_eq!(mounted(&at), [number], "round {round}");
        let device = keeper.block_device("zram0");
        host::unmount(&at, Unmount::WhenUnused).unwrap();
        run(Command::new("e2fsck").args(["-f", "-n"]).arg(&device));
        host::mount(&device, &at, "ext4", "").unwrap();
        assert!(fs::read(&file).unwrap() == [7; 100_000]);
        let status: serde_json::Value =
            serde_json::from_str(&keeper.does("status --json")).unwrap();
        assert_eq!(status["devices"].as_array().unwrap().len(), 1, "{status}");
        keeper.stop();
        place.is_clean();
    }
}

#[test]
fn what_the_user_has_unmounted_stays_unmounted() {
    let name = "what_the_user_has_unmounted_stays_unmounted";
    if !met(name, &needs()) {
        return;
    }
    let place = Place::new();
    let (mut keeper, at) = up(&place);
    wait_for_mount(&at);
    keeper.wait();
    fs::write(at.join("file"), b"what is here").unwrap();
    // A daemon that finds the mount has that in the table before it serves.
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    host::unmount(&at, Unmount::WhenUnused).unwrap();
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    keeper.says("the file system of zram0 is no longer mounted at");
    assert!(mounted(&at).is_empty());
    host::mount(&keeper.block_device("zram0"), &at, "ext4", "").unwrap();
    assert_eq!(fs::read(at.join("file")).unwrap(), b"what is here");
    // That it was unmounted for a while makes no difference for a stop.
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_stop_of_up_that_is_killed_is_done_or_undone() {
    let name = "a_stop_of_up_that_is_killed_is_done_or_undone";
    if !met(name, &needs()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    for round in 0..kills(8) {
        let place = Place::new();
        let (mut keeper, at) = up(&place);
        wait_for_mount(&at);
        keeper.wait();
        // An unmount writes this to the device, which its daemon has to answer.
        let mut bytes = vec![0; 20 << 20];
        rng.fill(&mut bytes);
        fs::write(at.join("file"), &bytes).unwrap();
        let pause = Duration::from_millis(rng.below(120));
        thread::scope(|scope| {
            let stop = scope.spawn(|| keeper_stop(&place));
            thread::sleep(pause);
            keeper.try_kill(libc::SIGKILL);
            stop.join().unwrap();
        });
        wait_until("it ends, or serves on", || {
            !keeper.is_there() || keeper.ask("status").code == 0
        });
        if keeper.is_there() {
            wait_for_mount(&at);
            // It was not begun, or it was cut off when all was gone already.
            let file = fs::read(at.join("file")).unwrap_or_else(|_| bytes.clone());
            assert!(file == bytes, "round {round}");
            keeper.stop();
            place.is_clean();
        }
        // A kill at the very end leaves the record of the root, which the next start reads.
        assert!(place.mounts().is_empty() && place.loops().is_empty(), "round {round}");
    }
}

fn keeper_stop(place: &Place) {
    crate::common::rampack(&format!("--root {} stop", place.root().display()));
}

#[test]
fn up_without_a_mount_and_what_cannot_be_made() {
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "up --size 8M --transport nbd");
    for _ in 0..2 {
        keeper.kill(libc::SIGKILL);
        keeper.wait();
        let status: serde_json::Value =
            serde_json::from_str(&keeper.does("status --json")).unwrap();
        assert_eq!(status["devices"].as_array().unwrap().len(), 1, "{status}");
    }
    keeper.stop();
    place.is_clean();
    // It is refused once, and not started again.
    let line = format!("--root {} keep up --size 8M --mount /nowhere", place.root().display());
    let said = crate::common::rampack(&line);
    crate::common::refused(&said, 1, &["/nowhere"]);
    assert_eq!(said.err.matches("/nowhere does not exist").count(), 1, "{}", said.err);
    place.is_clean();
}
