//! `rampack keep`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testkit::Rng;

use crate::common::{NbdClient, Place, noise, program, rampack, refused, wait_until};
use crate::keeper::{Keeper, daemon_of, kill};

/// Ends the keeper and its daemon with the test.
pub struct Kept(pub Child);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // A test may have failed while the daemon was stopped.
            if let Some(daemon) = daemon_of(self.0.id()) {
                kill(daemon, libc::SIGCONT);
            }
            kill(self.0.id() as i32, libc::SIGTERM);
            let _ = self.0.wait();
        }
    }
}

#[test]
fn a_daemon_that_is_killed_is_started_again() {
    let place = Place::new();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "8M"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut keeper = Kept(command.spawn().unwrap());
    let socket = place.root().join("nbd.sock");
    let mut last = None;
    for _ in 0..3 {
        let mut now = None;
        wait_until("a daemon serves", || {
            now = daemon_of(keeper.0.id());
            now.is_some() && now != last && UnixStream::connect(&socket).is_ok()
        });
        last = now;
        kill(now.unwrap(), libc::SIGKILL);
    }
    wait_until("a daemon serves", || daemon_of(keeper.0.id()).is_some_and(|it| Some(it) != last));
    let root = place.root();
    let stop = || rampack(&format!("--root {} stop", root.display())).code == 0;
    wait_until("the daemon stops", stop);
    assert_eq!(keeper.0.wait().unwrap().into_raw(), 0);
    place.is_clean();
}

#[test]
fn what_is_no_daemon_is_not_kept() {
    refused(&rampack("keep status"), 2, &["status is no daemon to keep", "Usage: rampack keep"]);
    refused(&rampack("keep serve --size 1X"), 2, &["1X"]);
    refused(&rampack("keep"), 2, &["<COMMAND>"]);
    let mut command = program();
    command.env("WATCHDOG_USEC", "1000").args(["keep", "serve"]);
    refused(&crate::common::said(&command.output().unwrap()), 1, &["FileDescriptorStoreMax="]);
}

#[test]
fn a_daemon_that_is_refused_is_refused_once() {
    let place = Place::new();
    let said = rampack(&format!("--root {} keep serve --set nothing=1", place.root().display()));
    refused(&said, 1, &["nothing"]);
    assert_eq!(said.err.matches("nothing").count(), 1, "{}", said.err);
    place.is_clean();
}

/// A client that writes versions of pages until the daemon is killed. Returns the versions that were
/// acknowledged, and the page that was being written.
pub fn write_until_killed(socket: &Path, seed: u64, versions: &mut BTreeMap<u64, u64>) -> u64 {
    let (mut rng, mut page) = (Rng::new(seed), 0);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let mut client = NbdClient::connect(socket, "zram0").unwrap();
        loop {
            page = rng.below(PAGES);
            let version = versions.get(&page).copied().unwrap_or(0) + 1;
            assert_eq!(client.write(page * 4096, &contents(page, version)), 0);
            versions.insert(page, version);
        }
    }));
    page
}

pub const PAGES: u64 = 500;

pub fn contents(page: u64, version: u64) -> Vec<u8> {
    match version {
        0 => vec![0; 4096],
        _ if version.is_multiple_of(3) => vec![version as u8; 4096],
        _ => noise(page << 32 | version).into_iter().take(2000).chain([7; 2096]).collect(),
    }
}

#[test]
fn disks_outlive_a_daemon_that_is_killed() {
    let mut rng = Rng::new(testkit::seed("disks_outlive_a_daemon_that_is_killed"));
    let place = Place::new();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "4M"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut keeper = Kept(command.spawn().unwrap());
    let socket = place.root().join("nbd.sock");
    let root = place.root();
    let asked = |what: &str| rampack(&format!("--root {} {what}", root.display()));
    // The socket of clients is there a moment before that of commands, and both before a device.
    let serves = || asked("status").code == 0 && NbdClient::is_served(&socket, "zram0");
    wait_until("a daemon serves", serves);
    let does = |what: &str| {
        let said = asked(what);
        assert_eq!(said.code, 0, "{what}: {}", said.err);
        said.out
    };
    does("add --size 1M --algorithm zstd --level 3");
    does("set zram0 mem_limit=3M");
    let mut other = NbdClient::connect(&socket, "zram1").unwrap();
    assert_eq!(other.write(8192, &contents(5, 1)), 0);
    drop(other);
    let mut versions = BTreeMap::new();
    for round in 0..6 {
        let daemon = daemon_of(keeper.0.id()).unwrap();
        let seed = rng.next_u64();
        let under_way = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_killed(&socket, seed, &mut versions));
            thread::sleep(Duration::from_millis(20 + rng.below(150)));
            kill(daemon, libc::SIGKILL);
            writer.join().unwrap()
        });
        let now = || daemon_of(keeper.0.id()).is_some_and(|it| it != daemon);
        wait_until("another daemon serves", || now() && serves());
        let mut client = NbdClient::connect(&socket, "zram0").unwrap();
        assert_eq!(client.bytes, 4 << 20);
        for page in 0..PAGES {
            let version = versions.get(&page).copied().unwrap_or(0);
            let found = client.read(page * 4096, 4096);
            if found != contents(page, version) {
                let next = contents(page, version + 1);
                assert!(page == under_way && found == next, "page {page} in round {round}");
                versions.insert(page, version + 1);
            }
        }
        let mut other = NbdClient::connect(&socket, "zram1").unwrap();
        assert_eq!((other.bytes, other.read(8192, 4096)), (1 << 20, contents(5, 1)));
        let limit = does("get zram0 mm_stat");
        assert_eq!(limit.split_whitespace().nth(3), Some("3145728"), "{limit}");
        assert!(does("get zram1 comp_algorithm").contains("[zstd]"));
        assert_eq!(does("get zram0 lost_pages").trim(), "0");
        // What is made, changed and removed is so for the next daemon.
        does(&format!("add --size {}M", 2 + round));
        if round % 2 == 1 {
            does("remove zram2");
        } else {
            does("reset zram2");
            does("set zram2 disksize=7M");
        }
    }
    assert!(versions.values().sum::<u64>() > 100, "it was used");
    wait_until("the daemon stops", || asked("stop").code == 0);
    assert_eq!(keeper.0.wait().unwrap().into_raw(), 0);
    place.is_clean();
}

#[test]
fn all_devices_are_there_after_a_death_during_the_first_start() {
    const DEVICES: usize = 30;
    let place = Place::new();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "1M", "--num-devices", &DEVICES.to_string()]);
    let mut keeper = Kept(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let (said, out) = (Arc::new(Mutex::new(0)), keeper.0.stdout.take().unwrap());
    let starts = said.clone();
    thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines.filter(|it| it.starts_with("serving in")).for_each(|_| *said.lock().unwrap() += 1);
    });
    let (socket, root) = (place.root().join("nbd.sock"), place.root());
    let asked = |what: &str| rampack(&format!("--root {} {what}", root.display()));
    let last = format!("zram{}", DEVICES - 1);
    wait_until("the first is there", || NbdClient::is_served(&socket, "zram0"));
    // It may have made them all by now; then this shows less.
    let before = *starts.lock().unwrap();
    kill(daemon_of(keeper.0.id()).unwrap(), libc::SIGKILL);
    wait_until("the next one has begun", || *starts.lock().unwrap() > before);
    assert_eq!(asked(&format!("get {last} disksize")).out, "1048576\n");
    // Once they were made, what a user has removed stays so.
    assert_eq!(asked(&format!("remove {last}")).code, 0);
    let before = *starts.lock().unwrap();
    kill(daemon_of(keeper.0.id()).unwrap(), libc::SIGKILL);
    wait_until("another one has begun", || *starts.lock().unwrap() > before);
    refused(&asked(&format!("get {last} disksize")), 1, &[&last]);
    wait_until("the daemon stops", || asked("stop").code == 0);
    assert_eq!(keeper.0.wait().unwrap().into_raw(), 0);
    place.is_clean();
}

#[test]
fn a_disk_without_a_size_keeps_its_codecs() {
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --transport nbd --size 4M");
    keeper.does("add --algorithm zstd --level 3");
    keeper.does("set zram1 recomp_algorithm=algo=deflate");
    for _ in 0..2 {
        keeper.kill(libc::SIGKILL);
        keeper.wait();
    }
    assert!(keeper.does("get zram1 comp_algorithm").contains("[zstd]"));
    assert!(keeper.does("get zram1 recomp_algorithm").contains("[deflate]"));
    keeper.does("set zram1 disksize=1M");
    assert!(keeper.does("get zram1 comp_algorithm").contains("[zstd]"));
    keeper.stop();
    place.is_clean();
}
