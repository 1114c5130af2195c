//! `rampack snapshot`, `rampack restore`, `rampack clone`, and disks that are saved at the end of
//! their daemon.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::{Need, met};

use crate::common::{
    Daemon, NbdClient, Place, Said, noise, program, rampack, refused, said, wait_until,
};
use crate::keeper::Keeper;

/// Runs `rampack` with this input and output.
fn with_files(place: &Place, line: &str, input: Option<&Path>, output: Option<&Path>) -> Said {
    let file = |path: Option<&Path>, open: fn(&Path) -> File| {
        path.map_or_else(Stdio::null, |path| Stdio::from(open(path)))
    };
    let mut command = program();
    command.arg("--root").arg(place.root()).args(line.split_whitespace());
    command.stdin(file(input, |path| File::open(path).unwrap()));
    match output {
        Some(path) => command.stdout(File::create(path).unwrap()).stderr(Stdio::piped()),
        None => command.stdout(Stdio::piped()).stderr(Stdio::piped()),
    };
    said(&command.spawn().unwrap().wait_with_output().unwrap())
}

fn done(said: Said) -> String {
    assert_eq!(said.code, 0, "{}", said.err);
    said.out
}

fn text(number: u64) -> Vec<u8> {
    let mut rng = testkit::Rng::new(number);
    (0..4096).map(|_| b"etaoin s"[rng.below(8) as usize]).collect()
}

fn fill(daemon: &Daemon, round: u64) {
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    (0..300).for_each(|n| assert_eq!(client.write(n * 4096, &text(n + round)), 0));
    assert_eq!(client.write(300 * 4096, &noise(round)), 0);
}

#[track_caller]
fn check(daemon: &Daemon, name: &str, round: u64) {
    let mut client = NbdClient::connect(&daemon.nbd(), name).unwrap();
    (0..300).for_each(|n| assert!(client.read(n * 4096, 4096) == text(n + round), "page {n}"));
    assert!(client.read(300 * 4096, 4096) == noise(round));
}

#[test]
fn a_snapshot_is_restored_to_new_disks_and_to_empty_ones() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M --algorithm zstd --level 5");
    fill(&daemon, 1);
    let file = place.path().join("zram0.snap");
    done(with_files(&place, "snapshot zram0", None, Some(&file)));
    fill(&daemon, 9);
    assert_eq!(done(with_files(&place, "restore", Some(&file), None)), "zram1\n");
    check(&daemon, "zram1", 1);
    check(&daemon, "zram0", 9);
    assert!(daemon.does("get zram1 comp_algorithm").contains("[zstd]"));
    daemon.does("add --algorithm lz4");
    assert_eq!(done(with_files(&place, "restore zram2", Some(&file), None)), "zram2\n");
    check(&daemon, "zram2", 1);
    assert!(daemon.does("get zram2 comp_algorithm").contains("[lz4]"));
    let twice = with_files(&place, "restore zram2", Some(&file), None);
    refused(&twice, 1, &["zram2 has a size already", "EBUSY"]);
    refused(&with_files(&place, "snapshot zram7", None, None), 1, &["zram7", "ENODEV"]);
    daemon.does("add");
    refused(&with_files(&place, "snapshot zram3", None, None), 1, &["not initialised", "EINVAL"]);
    daemon.stop();
}

#[test]
fn damaged_snapshots_are_refused_with_the_place() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 64M");
    fill(&daemon, 1);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    // More than a socket holds, so that the client is told before it has sent all.
    (400..2400).for_each(|n| assert_eq!(client.write(n * 4096, &noise(n)), 0));
    drop(client);
    let file = place.path().join("zram0.snap");
    done(with_files(&place, "snapshot zram0", None, Some(&file)));
    let whole = fs::read(&file).unwrap();
    let try_it = |bytes: &[u8], words: &[&str]| {
        fs::write(&file, bytes).unwrap();
        refused(&with_files(&place, "restore", Some(&file), None), 1, words);
        assert!(!daemon.does("status").contains("zram1"), "nothing is left of it");
    };
    for at in [5, whole.len() / 100, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 16;
        try_it(&bytes, &["EINVAL"]);
    }
    try_it(&whole[..whole.len() / 2], &["damaged", "record", "ends", "EINVAL"]);
    try_it(&whole[..whole.len() - 32], &["without the last record", "EINVAL"]);
    try_it(b"", &["the input is empty"]);
    try_it(b"PK and what else may be in a file", &["no snapshot"]);
    fs::write(&file, &whole).unwrap();
    done(with_files(&place, "restore", Some(&file), None));
    check(&daemon, "zram1", 1);
    daemon.stop();
}

#[test]
fn a_sealed_snapshot_needs_its_key() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    fill(&daemon, 1);
    let (file, key, other) =
        (place.path().join("snap"), place.path().join("key"), place.path().join("other"));
    fs::write(&key, noise(1)).unwrap();
    fs::write(&other, noise(2)).unwrap();
    let words = |command: &str, key: &Path| format!("{command} --key {}", key.display());
    done(with_files(&place, &words("snapshot zram0", &key), None, Some(&file)));
    let sealed = fs::read(&file).unwrap();
    assert!(!sealed.windows(5).any(|it| it == b"zram0"), "something can be read in it");
    refused(&with_files(&place, "restore", Some(&file), None), 1, &["sealed", "--key"]);
    let wrong = with_files(&place, &words("restore", &other), Some(&file), None);
    refused(&wrong, 1, &["key is not the one", "EINVAL"]);
    fs::write(&file, &sealed[..sealed.len() - 40]).unwrap();
    let cut = with_files(&place, &words("restore", &key), Some(&file), None);
    refused(&cut, 1, &["sealed stream"]);
    // The client ended by itself.
    wait_until("nothing is left of it", || !daemon.does("status").contains("zram1"));
    fs::write(&file, &sealed).unwrap();
    done(with_files(&place, &words("restore", &key), Some(&file), None));
    check(&daemon, "zram1", 1);
    fs::write(&key, b"short").unwrap();
    let short = with_files(&place, &words("snapshot zram0", &key), None, Some(&file));
    refused(&short, 1, &["8 bytes at least"]);
    let endless = words("snapshot zram0", Path::new("/dev/zero"));
    refused(&with_files(&place, &endless, None, Some(&file)), 1, &["1M at most", "EINVAL"]);
    daemon.stop();
}

/// A client that takes nothing holds nobody up: the device is used, and not taken away.
#[test]
fn a_snapshot_that_nobody_reads_holds_nobody_up() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 64M");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    (0..4000).for_each(|n| assert_eq!(client.write(n * 4096, &noise(n)), 0));
    let mut reader = program()
        .arg("--root")
        .arg(place.root())
        .args(["snapshot", "zram0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_busy = || {
        let said = daemon.ask("reset zram0");
        said.err.contains("snapshot")
    };
    // It has begun once there is something to read.
    let mut output = reader.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    (0..4000).for_each(|n| assert_eq!(client.write(n * 4096, &noise(n + 1)), 0));
    drop(client);
    wait_until("the snapshot", is_busy);
    refused(&daemon.ask("stop"), 1, &["snapshot of zram0 is being taken", "EBUSY"]);
    daemon.does("reset zram0 --force");
    // What it has read so far is no snapshot.
    let read = std::thread::spawn(move || std::io::read_to_string(output).is_ok());
    let end = reader.wait().unwrap();
    assert_eq!(end.code(), Some(1));
    let _ = read.join();
    daemon.stop();
}

/// The file to which the daemon of a command line saves its disk.
fn saved_at_the_end() -> (Place, PathBuf, String) {
    let place = Place::new();
    let file = place.path().join("kept.snap");
    let line = format!("up --transport nbd --size 8M --snapshot {}", file.display());
    (place, file, line)
}

/// Who sends a snapshot may be slow for as long as it likes; other devices do not wait for it.
#[test]
fn a_disk_that_is_being_restored_gets_no_other_size() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    fill(&daemon, 1);
    let file = place.path().join("snap");
    done(with_files(&place, "snapshot zram0", None, Some(&file)));
    daemon.does("add");
    let mut writer = program()
        .arg("--root")
        .arg(place.root())
        .args(["restore", "zram1"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    let snapshot = fs::read(&file).unwrap();
    input.write_all(&snapshot[..snapshot.len() / 2]).unwrap();
    wait_until("the restore", || daemon.ask("set zram1 reset=1").err.contains("being restored"));
    refused(&daemon.ask("set zram1 resize=16M"), 1, &["being restored", "EBUSY"]);
    daemon.does("add --size 1M");
    drop(input);
    writer.wait().unwrap();
    daemon.stop();
}

#[test]
fn a_disk_is_saved_at_the_end_and_restored_at_the_beginning() {
    let (place, file, line) = saved_at_the_end();
    let daemon = Daemon::start(&place, &line);
    fill(&daemon, 1);
    daemon.stop();
    let first = fs::read(&file).unwrap();
    let daemon = Daemon::start(&place, &line);
    check(&daemon, "zram0", 1);
    fill(&daemon, 5);
    daemon.stop();
    assert!(fs::read(&file).unwrap() != first);
    // A smaller disk cannot have it, and begins empty; the file stays.
    let small = format!("up --transport nbd --size 64K --snapshot {}", file.display());
    let daemon = Daemon::start(&place, &small);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert!(client.read(0, 4096).iter().all(|byte| *byte == 0));
    drop(client);
    daemon.stop();
    let aside = fs::read_dir(place.path()).unwrap().flatten().map(|it| it.path());
    let aside: Vec<_> = aside.filter(|it| it.to_string_lossy().contains("refused-")).collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    fs::rename(&aside[0], &file).unwrap();
    let daemon = Daemon::start(&place, &line);
    check(&daemon, "zram0", 5);
    daemon.stop();
    assert!(!place.path().join("kept.snap.part").exists());
    let nowhere = rampack(&format!(
        "--root {} up --transport nbd --snapshot /proc/none/file",
        place.root().display()
    ));
    refused(&nowhere, 1, &["/proc/none/file.part", "ENOENT"]);
}

/// Nothing is given up before it is saved, whether that can be told before or not.
#[test]
fn a_daemon_whose_disk_cannot_be_saved_goes_on() {
    let place = Place::new();
    let directory = place.path().join("kept");
    let file = directory.join("it.snap");
    let line = format!("up --transport nbd --size 8M --snapshot {}", file.display());
    fs::create_dir(&directory).unwrap();
    let daemon = Daemon::start(&place, &line);
    fill(&daemon, 1);
    fs::remove_dir(&directory).unwrap();
    fs::write(&directory, "").unwrap();
    let words = ["zram0", file.to_str().unwrap(), "--force"];
    refused(&daemon.ask("stop"), 1, &[&words[..], &["ENOTDIR"]].concat());
    fs::remove_file(&directory).unwrap();
    // Something else is in the place of the file.
    fs::create_dir_all(&file).unwrap();
    refused(&daemon.ask("stop"), 1, &[&words[..], &["EISDIR"]].concat());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    check(&daemon, "zram0", 1);
    fill(&daemon, 2);
    // Nobody asks again after a signal.
    daemon.signal(libc::SIGTERM);
    daemon.lines_until(&["not stopped", "zram0"]);
    fs::remove_dir(&file).unwrap();
    assert!(daemon.ended().success());
    let daemon = Daemon::start(&place, &line);
    check(&daemon, "zram0", 2);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    daemon.does("stop --force");
    assert!(daemon.ended().success());
    place.is_clean();
}

/// Only the disk of `--snapshot` is saved to its file, also after a death.
#[test]
fn a_disk_beside_that_of_the_option_is_not_saved() {
    let (place, file, line) = saved_at_the_end();
    let mut keeper = Keeper::start(&place, &line);
    let client = |name: &str| NbdClient::connect(&place.root().join("nbd.sock"), name).unwrap();
    assert_eq!(client("zram0").write(0, &text(1)), 0);
    keeper.does("add --size 1M");
    assert_eq!(client("zram1").write(0, &text(2)), 0);
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    keeper.stop();
    let daemon = Daemon::start(&place, &line);
    assert!(client("zram0").read(0, 4096) == text(1));
    daemon.stop();
    fs::remove_file(&file).unwrap();
    place.is_clean();
}

/// The next disk of its number is another one.
#[test]
fn a_disk_that_was_unloaded_is_not_saved() {
    let (place, file, line) = saved_at_the_end();
    let daemon = Daemon::start(&place, &line);
    fill(&daemon, 1);
    daemon.stop();
    let saved = fs::read(&file).unwrap();
    let daemon = Daemon::start(&place, &line);
    daemon.does("set class/zram-control unload=1");
    assert_eq!(daemon.does("add --size 8M").lines().next(), Some("zram0"));
    daemon.stop();
    assert!(fs::read(&file).unwrap() == saved, "another disk was saved there");
}

/// With a file system, which is made once.
#[test]
fn a_file_system_comes_back() {
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    let needs = [Need::Root, Need::Fuse, Need::Loop, mkfs];
    if !met("a_file_system_comes_back", &needs) {
        return;
    }
    let place = Place::new();
    let mount = place.mount_point();
    let file = place.path().join("kept.snap");
    let line = format!("up --size 64M --mount {} --snapshot {}", mount.display(), file.display());
    let daemon = Daemon::start(&place, &line);
    fs::write(mount.join("hello"), b"there").unwrap();
    daemon.stop();
    assert!(!mount.join("hello").exists());
    let daemon = Daemon::start(&place, &line);
    assert_eq!(fs::read(mount.join("hello")).unwrap(), b"there");
    daemon.stop();
}

#[test]
fn clones_share_memory_until_they_are_written() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M --algorithm zstd");
    fill(&daemon, 1);
    let used = |name: &str| -> u64 {
        let said = daemon.does(&format!("get {name} mem_used_total"));
        said.trim().parse().unwrap()
    };
    let one = used("zram0");
    assert_eq!(daemon.does("clone zram0"), "zram1\n");
    assert_eq!(daemon.does("clone zram1"), "zram2\n");
    assert_eq!((used("zram0"), used("zram1")), (one, 0), "the memory counts with the origin");
    for name in ["zram1", "zram2"] {
        assert_eq!(daemon.does(&format!("get {name} disksize")), "8388608\n");
        assert!(daemon.does(&format!("get {name} comp_algorithm")).contains("[zstd]"));
        check(&daemon, name, 1);
    }
    fill(&daemon, 9);
    check(&daemon, "zram1", 1);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram1").unwrap();
    (0..300).for_each(|n| assert_eq!(client.write(n * 4096, &text(n + 50)), 0));
    drop(client);
    check(&daemon, "zram0", 9);
    check(&daemon, "zram2", 1);
    let status = daemon.does("status --json");
    let clones = status.matches("\"clone_of\": \"zram0\"").count();
    assert_eq!(clones, 2, "{status}");
    assert!(daemon.does("status").contains("zram1 is a clone of zram0"));
    for command in ["remove", "reset"] {
        let said = daemon.ask(&format!("{command} zram0"));
        refused(&said, 1, &["zram0 has clones: zram1, zram2", "EBUSY"]);
    }
    // A setting of the family, a snapshot of one.
    daemon.does("set zram1 mem_limit=64M");
    assert!(daemon.does("get zram0 mm_stat").contains(" 67108864 "));
    let file = place.path().join("zram2.snap");
    done(with_files(&place, "snapshot zram2", None, Some(&file)));
    assert_eq!(done(with_files(&place, "restore", Some(&file), None)), "zram3\n");
    check(&daemon, "zram3", 1);
    daemon.does("reset zram1");
    daemon.does("set zram1 disksize=1M");
    daemon.does("remove zram2");
    daemon.does("reset zram0");
    assert!(!daemon.does("status").contains("clone"));
    let none = daemon.ask("clone zram7");
    refused(&none, 1, &["zram7", "ENODEV"]);
    let no_size = daemon.ask("clone zram0");
    refused(&no_size, 1, &["not initialised", "EINVAL"]);
    daemon.stop();
}

/// Clones of a kept disk are kept, and share memory with it after a death.
#[test]
fn clones_outlive_their_daemon() {
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --transport nbd --size 8M");
    let client = |name: &str| NbdClient::connect(&place.root().join("nbd.sock"), name).unwrap();
    let write = |name: &str, pages: std::ops::Range<u64>, round: u64| {
        let mut client = client(name);
        pages.for_each(|n| assert_eq!(client.write(n * 4096, &text(n + round)), 0));
    };
    let check = |name: &str, rounds: [u64; 2]| {
        let mut client = client(name);
        for n in 0..300 {
            let round = rounds[usize::from(n >= 20)];
            assert!(client.read(n * 4096, 4096) == text(n + round), "page {n} of {name}");
        }
    };
    let used = |keeper: &Keeper| -> u64 {
        keeper.does("get zram0 mem_used_total").trim().parse().unwrap()
    };
    write("zram0", 0..300, 1);
    let one = used(&keeper);
    assert_eq!(keeper.does("clone zram0"), "zram1\n");
    assert_eq!(keeper.does("clone zram1"), "zram2\n");
    assert_eq!(used(&keeper), one);
    write("zram0", 0..20, 1000);
    write("zram1", 0..20, 2000);
    let few = used(&keeper);
    assert!(few < one + one / 3, "{one} bytes for one, {few} for three");
    for _ in 0..2 {
        keeper.kill(libc::SIGKILL);
        keeper.wait();
        check("zram0", [1000, 1]);
        check("zram1", [2000, 1]);
        check("zram2", [1, 1]);
        assert_eq!(used(&keeper), few);
        assert!(keeper.does("status").contains("zram2 is a clone of zram0"));
        refused(&keeper.ask("remove zram0"), 1, &["zram0 has clones: zram1, zram2", "EBUSY"]);
    }
    keeper.does("upgrade");
    check("zram1", [2000, 1]);
    // What is written and removed now is so after the next death.
    write("zram2", 0..20, 3000);
    keeper.does("reset zram1");
    keeper.does("clone zram2");
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    check("zram2", [3000, 1]);
    check("zram3", [3000, 1]);
    assert_eq!(keeper.does("get zram1 disksize"), "0\n");
    for name in ["zram2", "zram3", "zram0"] {
        keeper.does(&format!("remove {name}"));
    }
    keeper.does("set zram1 disksize=1M");
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    assert_eq!(client("zram1").bytes, 1 << 20);
    keeper.stop();
    place.is_clean();
}
