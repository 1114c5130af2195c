//! `rampack-lab serve`: real programs use a device of any designs, and nothing is left of it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::common::Place;
use testkit::Need;

/// A server, which is asked to end when this is dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "INT", &self.0.id().to_string()]).status();
        let status = self.0.wait().expect("its status");
        assert!(thread::panicking() || status.success(), "{status}");
    }
}

fn serve(place: &Place, arguments: &str) -> Serving {
    let mut command = place.lab(&format!("serve --size 16M {arguments}"));
    command.args(["--nbd", "nbd.sock"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut serving = Serving(command.spawn().expect("the program"));
    let begun = Instant::now();
    while !place.path("nbd.sock").exists() {
        assert!(serving.0.try_wait().expect("its state").is_none(), "it has ended by itself");
        assert!(begun.elapsed() < Duration::from_secs(60), "there is no socket");
        thread::sleep(Duration::from_millis(5));
    }
    serving
}

#[test]
fn qemu_io_on_devices_of_several_designs() {
    let qemu_io = Need::program("qemu-io", "qemu-utils");
    let kill = Need::program("kill", "procps");
    if !testkit::met("qemu_io_on_devices_of_several_designs", &[qemu_io, kill]) {
        return;
    }
    for arguments in [
        "--slots cas --zone splice --streams multi",
        "--slots epoch --algorithm zstd",
        "--index rbtree",
        "",
    ] {
        let place = Place::new();
        let serving = serve(&place, arguments);
        let uri = format!("nbd+unix:///disk?socket={}", place.path("nbd.sock").display());
        let mut qemu_io = Command::new("qemu-io");
        qemu_io.args(["-f", "raw", "-c", "write -P 0x5a 64k 1M", "-c", "read -P 0x5a 64k 1M"]);
        qemu_io.args(["-c", "read -P 0 2M 64k", "-c", "discard 64k 1M", "-c", "read -P 0 64k 1M"]);
        let said = testkit::run(qemu_io.arg(&uri)).stdout;
        assert!(!said.contains("failed"), "{arguments:?}: {said}");
        drop(serving);
        place.assert_nothing_left();
    }
}

/// Mounts and loop devices of files under `place`.
fn left_in_the_system(place: &Path) -> Vec<String> {
    let shown = place.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let loops = fs::read_dir("/sys/block").expect("devices").flatten();
    let backing =
        |entry: fs::DirEntry| fs::read_to_string(entry.path().join("loop/backing_file")).ok();
    let lines = mounts.lines().map(str::to_owned).chain(loops.filter_map(backing));
    lines.filter(|line| line.contains(&shown)).collect()
}

#[test]
fn a_block_device_of_which_nothing_is_left() {
    let test = "a_block_device_of_which_nothing_is_left";
    let kill = Need::program("kill", "procps");
    if !testkit::met(test, &[Need::Root, Need::Fuse, Need::Loop, kill]) {
        return;
    }
    let place = Place::new();
    let mut command = place.lab("serve --size 16M --slots epoch");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut serving = Serving(command.spawn().expect("the program"));
    let said = BufReader::new(serving.0.stdout.take().expect("its words"));
    let mut lines = said.lines().map(|line| line.expect("a line"));
    let device = lines.find_map(|line| Some(line.split_once("block device")?.1.trim().to_owned()));
    let device = device.expect("a block device");
    let bytes = [0x5a; 1 << 16];
    fs::write(&device, bytes).expect("it can be written");
    assert!(!left_in_the_system(&place.path("t")).is_empty());
    assert_eq!(fs::read(&device).expect("it can be read")[..bytes.len()], bytes);
    // It is asked to end.
    drop(serving);
    place.assert_nothing_left();
    assert_eq!(left_in_the_system(&place.path("t")), Vec::<String>::new());
}
