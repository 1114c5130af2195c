//! Cold parts of a log, at stores outside.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::TempDir;

use crate::common::{Daemon, NbdClient, Place, noise, private_file, rampack, refused, wait_until};

const MIB: u64 = 1 << 20;
/// `CAP_IPC_LOCK`, which a thread may keep.
const IPC_LOCK: u64 = 1 << 14;
const PAGES: u64 = 600;

fn file_of(place: &Place) -> PathBuf {
    let path = place.path().join("backing");
    private_file(&path, 6 * MIB);
    path
}

/// A daemon whose disk has a directory for what is cold.
fn daemon_with(place: &Place, store: &TempDir) -> Daemon {
    let line = format!(
        "up --transport nbd --size 8M --backing {} --remote fs://{} --remote cold=0",
        file_of(place).display(),
        store.path().display()
    );
    Daemon::start(place, &line)
}

/// All objects in a directory.
fn objects(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(objects(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

fn numbers(daemon: &Daemon) -> Vec<u64> {
    let text = daemon.does("get zram0 remote_stat");
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// Capabilities that the threads of this name have.
fn capabilities(daemon: &Daemon, name: &str) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let all =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let named = all.filter(|status| status.starts_with(&format!("Name:\t{name}\n")));
    let has = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    named.map(has).collect()
}

#[test]
fn cold_segments_go_to_a_store_and_come_back() {
    let (place, store) = (Place::new(), TempDir::new());
    let daemon = daemon_with(&place, &store);
    assert_eq!(daemon.does("get zram0 backing_layout"), "log\n");
    let shown = daemon.does("get zram0 backing_remote");
    assert!(shown.starts_with(&format!("fs://{} cold=0", store.path().display())), "{shown}");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    for round in 0..3 {
        for n in 0..PAGES {
            assert_eq!(client.write(n * 4096, &noise(round * PAGES + n)), 0);
        }
        daemon.does("set zram0 idle all");
        daemon.does("set zram0 writeback type=idle");
        wait_until("it is at the store", || {
            numbers(&daemon)[1] == 0 && numbers(&daemon)[0] >= 2 * MIB
        });
        for n in 0..PAGES {
            assert!(client.read(n * 4096, 4096) == noise(round * PAGES + n), "{round}: {n}");
        }
    }
    let stat = numbers(&daemon);
    let [_, _, uploaded, downloaded, requests, failed, wrong, stores, lost] = stat[..] else {
        panic!("remote_stat has nine numbers: {stat:?}");
    };
    assert!(uploaded >= 6 * MIB && downloaded >= PAGES * 4096 && requests >= PAGES, "{stat:?}");
    assert_eq!((failed, wrong, stores, lost), (0, 0, 1, 0));
    daemon.does("set zram0 scrub 1");
    let there = objects(store.path());
    assert!(!there.is_empty());
    let page = noise(2 * PAGES);
    for object in there {
        let bytes = fs::read(object).unwrap();
        assert!(!bytes.windows(64).any(|bytes| *bytes == page[..64]), "a page can be read there");
    }
    let has = capabilities(&daemon, "remote");
    assert!(has.len() == 1 && has[0] & !IPC_LOCK == 0, "{has:x?}");
    refused(&daemon.ask("set zram0 backing_remote none"), 1, &["EBUSY", "backing_remote"]);
    drop(client);
    daemon.stop();
    assert!(objects(store.path()).is_empty(), "the end deletes all objects");
}

#[test]
fn what_is_damaged_at_a_store_is_an_error_and_nothing_else() {
    let (place, store) = (Place::new(), TempDir::new());
    let daemon = daemon_with(&place, &store);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    (0..PAGES).for_each(|n| assert_eq!(client.write(n * 4096, &noise(n)), 0));
    daemon.does("set zram0 idle all");
    daemon.does("set zram0 writeback type=idle");
    wait_until("it is at the store", || numbers(&daemon)[1] == 0);
    for object in objects(store.path()) {
        let mut bytes = fs::read(&object).unwrap();
        let half = bytes.len() / 2;
        bytes[..half].fill(7);
        fs::write(&object, bytes).unwrap();
    }
    let read: Vec<_> = (0..PAGES).map(|n| client.try_read(n * 4096, 4096)).collect();
    for (n, page) in (0..PAGES).zip(&read) {
        assert!(*page == Err(5) || *page == Ok(noise(n)), "page {n} is another one's");
    }
    let lost = read.iter().filter(|page| page.is_err()).count();
    assert!((200..PAGES as usize).contains(&lost), "{lost} pages");
    assert!(numbers(&daemon)[6] > 0);
    let lost = read.iter().position(Result::is_err).unwrap() as u64;
    assert_eq!(client.write(lost * 4096, &noise(lost)), 0, "a write heals a page");
    assert_eq!(client.read(lost * 4096, 4096), noise(lost));
    drop(client);
    daemon.stop();
}

#[test]
fn stores_that_cannot_be_used_are_refused_by_name() {
    let place = Place::new();
    let backing = file_of(&place);
    let up = "up --transport nbd --size 8M";
    refused(&rampack(&format!("{up} --remote fs:///tmp")), 2, &["--backing"]);
    let up = format!("--root {} {up} --backing {}", place.root().display(), backing.display());
    for (words, says) in [
        ("--remote warm=1", &["EINVAL", "warm…", "redis://"][..]),
        ("--remote nothing://there", &["EINVAL", "nothing://there is no store"]),
        ("--remote redis://:word@127.0.0.1:1/0 --remote deadline=500", &["EIO", "…@127.0.0.1:1/0"]),
        ("--remote fs:///tmp --plain-backing", &["EINVAL", "sealed_backing"]),
        ("--remote fs:///tmp --backing-layout pages", &["EINVAL", "backing_layout"]),
    ] {
        let said = rampack(&format!("{up} {words}"));
        refused(&said, 1, says);
        assert!(!said.err.contains(":word@"), "{}", said.err);
    }
}
