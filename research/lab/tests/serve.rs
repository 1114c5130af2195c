//! `rampack-lab serve`: real programs use a device of any designs, and nothing is left of it.

mod common;

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::Place;
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

fn serve(place: &Place, arguments: &[&str]) -> Serving {
    let mut command = place.lab(&[&["serve", "--size", "16M"], arguments].concat());
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
        &["--slots", "cas", "--zone", "splice", "--streams", "multi"][..],
        &["--slots", "epoch", "--algorithm", "zstd", "--max-streams", "1"],
        &["--index", "rbtree"],
        &[],
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

#[test]
fn nonsense_is_refused_and_named() {
    let place = Place::new();
    for (arguments, word) in [
        (&["serve"][..], "--size"),
        (&["serve", "--size", "many"], "many"),
        (&["serve", "--size", "1M", "--slots", "hope"], "bit-spinlock"),
        (&["serve", "--size", "1M", "--streams", "hope"], "percpu"),
        (&["serve", "--size", "1M", "--zone", "hope"], "bitfield"),
        (&["serve", "--size", "1M", "--index", "hope"], "xarray-split"),
        (&["serve", "--size", "1M", "--index", "rbtree", "--slots", "cas"], "--slots"),
        (&["serve", "--size", "1M", "--backing", "x"], "--index"),
        (&["serve", "--size", "1M", "--algorithm", "zip"], "zip"),
    ] {
        let message = place.refused(arguments);
        assert!(message.contains(word), "{arguments:?}: {word:?} is missing in {message}");
    }
    place.assert_nothing_left();
}
