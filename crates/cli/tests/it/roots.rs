//! Root directories: what is not of rampack is left alone, and a daemon that lost its lock is too.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use host::swaps;
use testkit::{Need, met};

use crate::common::{Daemon, Place, program, rampack, refused, said};

/// Every name below `path`, with what tells whether it was touched.
fn snapshot(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap().flatten() {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        let target = fs::read_link(&path).ok();
        let number = (about.ino(), about.mode(), about.len(), about.ctime(), about.ctime_nsec());
        found.push(format!("{path:?} {number:?} {target:?}"));
        if about.is_dir() {
            found.extend(snapshot(&path));
        }
    }
    found.sort();
    found
}

/// A directory with what a system has, and names that rampack has too.
fn system(root: &Path) {
    for name in ["", "dev", "proc", "sys", "etc"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    for (number, name) in ["stdin", "stdout", "stderr"].iter().enumerate() {
        symlink(format!("/proc/self/fd/{number}"), root.join("dev").join(name)).unwrap();
    }
    symlink("/proc/self/fd", root.join("dev/fd")).unwrap();
    fs::write(root.join("lock"), "precious").unwrap();
}

#[test]
fn a_root_that_is_not_ours_is_refused_and_left_alone() {
    let place = Place::new();
    let root = place.root();
    system(&root);
    let before = snapshot(&root);
    let words = ["not empty", "dev, etc, lock, proc, sys", "nothing was touched", "ENOTEMPTY"];
    for line in ["serve", "up", "up --transport nbd", "swap on --size 16M"] {
        let said = rampack(&format!("--root {} {line}", root.display()));
        refused(&said, 1, &words);
        assert_eq!(snapshot(&root), before, "{line}");
    }
    for line in ["status", "stop", "add"] {
        let said = rampack(&format!("--root {} {line}", root.display()));
        refused(&said, 1, &["no rampack daemon runs"]);
        assert_eq!(snapshot(&root), before, "{line}");
    }
    // A relative one.
    let mut command: Command = program();
    command.args(["--root", ".", "serve"]).current_dir(&root);
    refused(&said(&command.output().unwrap()), 1, &words);
    assert_eq!(snapshot(&root), before);
    fs::remove_file(root.join("lock")).unwrap();
    let before = snapshot(&root);
    refused(&rampack(&format!("--root {} serve", root.display())), 1, &["dev, etc, proc, sys"]);
    assert_eq!(snapshot(&root), before);
}

#[test]
fn what_others_put_beside_what_a_killed_daemon_left_is_kept() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --size 8M");
    daemon.kill();
    let foreign = place.root().join("dev/fd");
    symlink("/proc/self/fd", &foreign).unwrap();
    let daemon = Daemon::start(&place, "up --size 8M");
    daemon.stop();
    assert_eq!(fs::read_link(&foreign).unwrap(), Path::new("/proc/self/fd"));
    assert!(place.mounts().is_empty() && place.loops().is_empty());
    fs::remove_file(&foreign).unwrap();
    Daemon::start(&place, "up --size 8M").stop();
    place.is_clean();
}

#[test]
fn a_daemon_that_lost_its_lock_is_left_alone() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place, "up --size 8M");
    let mounts = place.mounts();
    fs::remove_file(place.root().join("lock")).unwrap();
    let again = rampack(&format!("--root {} serve", place.root().display()));
    refused(&again, 1, &["control.sock is in use", "whose lock was removed", "EADDRINUSE"]);
    assert_eq!(place.mounts(), mounts);
    // Nor when its sockets were removed as well: nobody can tell then whose the rest is.
    fs::rename(place.root().join("control.sock"), place.path().join("socket")).unwrap();
    fs::remove_file(place.root().join("nbd.sock")).unwrap();
    let again = rampack(&format!("--root {} serve", place.root().display()));
    refused(&again, 1, &["not empty", "ENOTEMPTY"]);
    assert_eq!(place.mounts(), mounts);
    fs::rename(place.path().join("socket"), place.root().join("control.sock")).unwrap();
    assert!(daemon.is_alive());
    daemon.does("status");
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_swap_device_is_asked_of_the_next_daemon_where_a_keeper_listens() {
    let place = Place::new();
    fs::create_dir_all(place.root()).unwrap();
    fs::write(place.root().join("lock"), "rampack root 1\npid 4242\n").unwrap();
    let listener = UnixListener::bind(place.root().join("control.sock")).unwrap();
    let asking = program()
        .args(["--root", place.root().to_str().unwrap(), "swap", "on", "--size", "16M"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (socket, ended) = (place.root().join("control.sock"), "it has ended\n");
    let asking = thread::spawn(move || {
        let said = asking.wait_with_output().unwrap();
        let told = UnixStream::connect(socket).map(|mut it| it.write_all(ended.as_bytes()));
        (said, told)
    });
    // As the next daemon finds it. Whoever only looks whether somebody listens says nothing.
    let request = loop {
        let mut line = String::new();
        let (client, _) = listener.accept().unwrap();
        if BufReader::new(&client).read_line(&mut line).unwrap() > 0 {
            break line;
        }
    };
    assert!(request.contains("swap_on") && request.contains("16M"), "{request}");
    drop(listener);
    assert!(!asking.join().unwrap().0.status.success(), "the answer never came");
}

#[test]
fn a_swap_device_whose_daemon_lost_its_lock_stays() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Swap];
    if !met("a_swap_device_whose_daemon_lost_its_lock_stays", &needs) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "swap on --size 16M");
    let path = fs::read_link(place.root().join("dev/swap0")).unwrap();
    fs::remove_file(place.root().join("lock")).unwrap();
    for line in ["serve", "swap on --size 16M"] {
        let again = rampack(&format!("--root {} {line}", place.root().display()));
        refused(&again, 1, &["in use", "EADDRINUSE"]);
        assert!(swaps::find(&path).is_some());
        assert_eq!(place.loops().len(), 1);
    }
    daemon.stop();
    place.is_clean();
}
