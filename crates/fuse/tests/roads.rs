//! The suite of roads by a file, and by a loop device on it. A server has a process of its own.

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Served, start};
use fuse::{LoopDevice, LoopOptions};
use sim::roads::{self, Client, FileClient, Kind, Lack, Subject};
use testkit::Need;
use units::PAGE_SIZE;

/// Nobody but who opens the file comes to it, and what is cut off at its end succeeds.
const LACKS: [Lack; 2] = [Lack::EndsOfFrees, Lack::Strangers];

fn serve(subject: Subject) -> (Served, String) {
    let mut served = start();
    let path = served.ask(&format!("add-kind disk {:?} {}", subject.kind, subject.bytes));
    (served, path.unwrap())
}

fn by_loop(subject: Subject) -> Arc<dyn Client> {
    let (served, path) = serve(subject);
    let device = LoopDevice::attach(Path::new(&path), LoopOptions::default()).unwrap();
    let node = device.path().to_owned();
    // The loop device goes before what it stands on.
    let both = Mutex::new((device, served));
    let lose = Arc::new(move || both.lock().unwrap().1.kill());
    Arc::new(FileClient::new(&node, lose))
}

#[test]
fn a_file_is_a_road() {
    if !common::met("a_file_is_a_road", &[Need::Fuse]) {
        return;
    }
    roads::pass("FUSE", &LACKS, |subject| {
        let (served, path) = serve(subject);
        let served = Mutex::new(served);
        let lose = Arc::new(move || served.lock().unwrap().kill());
        Arc::new(FileClient::new(Path::new(&path), lose))
    });
}

#[test]
fn a_loop_device_is_a_road() {
    if !common::met("a_loop_device_is_a_road", &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    roads::pass("loop", &LACKS, by_loop);
}

#[test]
fn requests_of_a_cpu_where_nobody_serves_hold_up_nobody() {
    let name = "requests_of_a_cpu_where_nobody_serves_hold_up_nobody";
    if !common::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    // The server inherits it; the kernel's threads, which read and write its file, do not.
    host::pin_to_cpu(host::allowed_cpus()[0]).unwrap();
    for _ in 0..3 {
        roads::waits(&by_loop(Kind::Waiting.of(16 * PAGE_SIZE as u64)), Duration::from_secs(60));
    }
}
