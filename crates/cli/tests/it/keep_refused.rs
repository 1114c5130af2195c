//! Disks that a daemon could not take over: their block devices stay in its care.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::{met, run};

use crate::common::{Place, noise, program, refused, wait_until};
use crate::config::damage;
use crate::fsck::region_of;
use crate::keep_users::NEEDS;
use crate::keeper::{Keeper, has_resend};

/// What `status --json` says of the disks.
fn disks(keeper: &Keeper) -> Vec<Value> {
    let status: Value = serde_json::from_str(&keeper.does("status --json")).unwrap();
    status["devices"].as_array().unwrap().clone()
}

/// What it says of the first one.
fn first(keeper: &Keeper) -> Value {
    disks(keeper).into_iter().find(|it| it["name"] == "zram0").unwrap()
}

/// A daemon that could not take over `zram0`, beside `zram1`, and the block device of `zram0`.
fn start(place: &Place) -> (Keeper, PathBuf) {
    let mut keeper = Keeper::start(place, "serve --size 8M");
    keeper.does("add --size 1M");
    let device = keeper.block_device("zram0");
    run(Command::new("mkfs.ext2").arg("-q").arg(&device));
    damage(&mut keeper, "zram0");
    (keeper, device)
}

/// Reads past every cache.
fn reads(device: &Path) -> bool {
    let block = ["of=/dev/null", "bs=4096", "count=1", "iflag=direct"];
    let read = Command::new("dd").arg(format!("if={}", device.display())).args(block).output();
    read.unwrap().status.success()
}

#[test]
fn the_device_of_a_disk_that_could_not_be_taken_over_is_known_and_goes_with_it() {
    let name = "the_device_of_a_disk_that_could_not_be_taken_over_is_known_and_goes_with_it";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let (mut keeper, device) = start(&place);
    // It is known on, also after another disk was made and another daemon came.
    keeper.does("add --size 1M");
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    wait_until("it is refused again", || first(&keeper)["refused"].is_string());
    assert_eq!(first(&keeper)["block_device"], device.to_str().unwrap());
    assert_eq!(keeper.block_device("zram0"), device);
    assert!(!reads(&device) && reads(&keeper.block_device("zram1")));
    // Who has it keeps it.
    let file = File::open(&device).unwrap();
    let words = ["zram0 (", &*device.display().to_string(), ") is in use: ", "EBUSY"];
    for line in ["remove zram0", "reset zram0", "stop"] {
        refused(&keeper.ask(line), 1, &words);
    }
    drop(file);
    keeper.does("reset zram0");
    assert_eq!(keeper.does("get zram0 disksize"), "0\n");
    keeper.does("set zram0 disksize=4M");
    assert_eq!(keeper.block_device("zram0"), device, "it has the number that it had");
    File::options().write(true).open(&device).unwrap().write_all_at(&noise(3), 0).unwrap();
    damage(&mut keeper, "zram0");
    keeper.does("remove zram0");
    assert_eq!(place.loops().len(), 2, "{:?}", place.loops());
    assert!(fs::symlink_metadata(keeper.root().join("dev/zram0")).is_err());
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_stop_tells_who_has_the_device_of_a_disk_that_could_not_be_taken_over() {
    let name = "a_stop_tells_who_has_the_device_of_a_disk_that_could_not_be_taken_over";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let (keeper, _) = start(&place);
    keeper.stop();
    place.is_clean();
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 8M");
    let (device, at) = (keeper.block_device("zram0"), place.mount_point());
    run(Command::new("mkfs.ext2").arg("-q").arg(&device));
    host::mount(&device, &at, "ext2", "").unwrap();
    damage(&mut keeper, "zram0");
    let words = [&*device.display().to_string(), "mounted at", &*at.display().to_string()];
    refused(&keeper.ask("stop"), 1, &words);
    assert_eq!(first(&keeper)["mountpoint"], at.to_str().unwrap());
    keeper.does("stop --force");
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}

#[test]
fn a_daemon_of_swap_stays_for_a_disk_that_could_not_be_taken_over() {
    let name = "a_daemon_of_swap_stays_for_a_disk_that_could_not_be_taken_over";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let mut keeper = Keeper::start_swap(&place, "swap on --size 8M --transport fuse --force");
    keeper.does("add --size 4M");
    damage(&mut keeper, "zram0");
    keeper.does("swap off");
    // Each second it looks whether it has a device. If it does not come to look, this shows less.
    thread::sleep(Duration::from_millis(2500));
    assert!(first(&keeper)["refused"].is_string());
    keeper.does("remove zram0");
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}

#[test]
fn a_load_goes_by_a_disk_that_could_not_be_taken_over() {
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --transport nbd --size 8M");
    keeper.does("add --size 1M");
    damage(&mut keeper, "zram0");
    let mut load = Command::new("timeout");
    load.arg("60").arg(program().get_program()).arg("--root").arg(place.root());
    let load = load.args(["set", "class/zram-control", "load=3"]).output().unwrap();
    assert!(load.status.success(), "{load:?}");
    let disks = disks(&keeper);
    let names: Vec<&str> = disks.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["zram1", "zram2", "zram0"], "it is told last");
    keeper.does("remove zram0");
    keeper.stop();
    place.is_clean();
}

#[test]
fn what_is_to_be_saved_and_could_not_be_taken_over_refuses_a_stop() {
    let place = Place::new();
    let saved = place.path().join("saved");
    let line = format!("up --transport nbd --size 4M --snapshot {}", saved.display());
    let mut keeper = Keeper::start(&place, &line);
    damage(&mut keeper, "zram0");
    let words = ["zram0 cannot be saved to ", "it could not be taken over", "with --force it is"];
    refused(&keeper.ask("stop"), 1, &words);
    assert!(first(&keeper)["refused"].is_string(), "it is there");
    keeper.does("stop --force");
    keeper.says("zram0 is not saved to ");
    assert_eq!(keeper.ended(), 0);
    assert!(!saved.exists());
    place.is_clean();
}

#[test]
fn disks_are_served_while_the_swap_cache_cannot_be_taken_over() {
    let name = "disks_are_served_while_the_swap_cache_cannot_be_taken_over";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let mut keeper = Keeper::start_swap(&place, "swap on --size 8M --transport fuse --force");
    keeper.does("set module/zswap/parameters max_pool_percent=33");
    keeper.does("add --size 4M");
    let (disk, at) = (keeper.block_device("zram0"), place.root().join("swap/swap0"));
    File::options().write(true).open(&disk).unwrap().write_all_at(&noise(3), 0).unwrap();
    // Whoever has pages there would wait, this test as well.
    host::swap_off(&keeper.block_device("swap0")).unwrap();
    let record = region_of(keeper.process() as u32, "swap.record");
    let mut layout = [0; 8];
    record.read_exact_at(&mut layout, 8).unwrap();
    record.write_all_at(&99u64.to_ne_bytes(), 8).unwrap();
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    keeper.says("the swap devices are not served: the swap cache cannot be recovered: its record");
    assert!(reads(&disk));
    assert!(place.mounts().contains(&at), "{:?}", place.mounts());
    refused(&keeper.ask("swap on --size 1M --transport fuse --force"), 1, &["EBUSY"]);
    record.write_all_at(&layout, 8).unwrap();
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    keeper.says(" on its backing device were recovered, 0 are lost");
    assert_eq!(keeper.does("get module/zswap/parameters max_pool_percent"), "33\n");
    let mut contents = vec![0; 4096];
    File::open(&disk).unwrap().read_exact_at(&mut contents, 0).unwrap();
    assert_eq!(contents, noise(3)[..4096]);
    keeper.does("remove zram0");
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}
