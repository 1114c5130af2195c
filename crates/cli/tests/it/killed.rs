//! kill -9, and the start after it.

use std::fs::{self, File};
use std::io::Write;

use testkit::{Need, met};

use crate::common::{Daemon, NbdClient, Place};

#[test]
fn sockets_of_a_killed_daemon_are_cleared() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    let pid = daemon.pid();
    daemon.kill();
    assert!(place.root().join("control.sock").exists());
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    for word in [&*format!("pid {pid}"), "was killed", "control.sock", "nbd.sock"] {
        assert!(daemon.greeting.contains(word), "{word}: {}", daemon.greeting);
    }
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(0, b"new"), 0);
    drop(client);
    daemon.stop();
    // A third one has nothing to tell.
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    assert!(!daemon.greeting.contains("killed"), "{}", daemon.greeting);
    daemon.stop();
}

#[test]
fn mounts_and_loop_devices_of_a_killed_daemon_are_cleared() {
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    let needs = [Need::Root, Need::Fuse, Need::Loop, mkfs];
    if !met("mounts_and_loop_devices_of_a_killed_daemon_are_cleared", &needs) {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let line = format!("up --size 64M --mount {}", mount_point.display());
    let daemon = Daemon::start(&place, &line);
    // Somebody is writing when it dies.
    let mut open = File::create(mount_point.join("open")).unwrap();
    open.write_all(&[7; 1 << 16]).unwrap();
    daemon.kill();
    assert_eq!(place.loops().len(), 1);
    assert_eq!(place.mounts().len(), 3, "the files, the tree and the file system");
    drop(open);

    let daemon = Daemon::start(&place, &line);
    let mounted = mount_point.to_str().unwrap();
    for word in ["was killed", &format!("unmounted {mounted}"), "detached /dev/loop", "zram0"] {
        assert!(daemon.greeting.contains(word), "{word}: {}", daemon.greeting);
    }
    assert!(!mount_point.join("open").exists(), "what was in it is lost");
    fs::write(mount_point.join("again"), b"works").unwrap();
    assert_eq!(place.loops().len(), 1);
    daemon.stop();
    assert_eq!(place.mounts().len(), 0);
    assert!(place.loops().is_empty());
}
