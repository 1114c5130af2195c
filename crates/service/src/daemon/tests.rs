use std::path::Path;

use super::listen::percent_encoded;
use super::*;

#[test]
fn paths_in_uris_are_escaped() {
    assert_eq!(percent_encoded(Path::new("/run/rampack/nbd.sock")), "/run/rampack/nbd.sock");
    assert_eq!(percent_encoded(Path::new("/a b/ü?&#%")), "/a%20b/%C3%BC%3F%26%23%25");
}

fn start(root: &Path) -> Result<Daemon, ControlError> {
    let root = Root::choose(Some(root)).unwrap();
    let (events, _) = channel();
    let (transport, nbd) = (Transport::Nbd, NbdOptions::default());
    let (asked, sockets) = (Asked::new(), Vec::new());
    let vhost = None;
    let options = DaemonOptions { root, transport, nbd, vhost, asked, state: None, sockets };
    Daemon::start(options, events)
}

#[test]
fn a_daemon_leaves_nothing_behind() {
    let dir = testkit::TempDir::new();
    let root = dir.path().join("root");
    let daemon = start(&root).unwrap();
    assert!(daemon.notes().is_empty());
    for socket in ["control.sock", "nbd.sock"] {
        let mode = fs::metadata(root.join(socket)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{socket}");
    }
    assert_eq!(start(&root).err().unwrap().errno, Errno::EBUSY);
    drop(daemon);
    assert!(!root.exists());
}

#[test]
fn what_a_killed_daemon_left_is_cleared_and_told() {
    let dir = testkit::TempDir::new();
    let root = dir.path();
    let record = "rampack root 1\npid 4242\nsocket control.sock\ndir dev\n\
                  link dev/zram3 /dev/loop4242\n";
    fs::write(root.join("lock"), record).unwrap();
    drop(UnixListener::bind(root.join("control.sock")).unwrap());
    fs::create_dir(root.join("dev")).unwrap();
    std::os::unix::fs::symlink("/dev/loop4242", root.join("dev/zram3")).unwrap();
    let daemon = start(root).unwrap();
    let [note] = daemon.notes() else { panic!("{:?}", daemon.notes()) };
    for told in ["pid 4242", "control.sock", "dev/zram3"] {
        assert!(note.contains(told), "{note}");
    }
    drop(daemon);
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    assert!(start(root).unwrap().notes().is_empty());
}

#[test]
fn a_socket_path_in_use_is_refused() {
    let dir = testkit::TempDir::new();
    let path = dir.path().join("nbd.sock");
    let _other = UnixListener::bind(&path).unwrap();
    let error = start(dir.path()).err().unwrap();
    assert_eq!(error.errno, Errno(libc::EADDRINUSE));
    assert!(path.exists());
    assert!(!dir.path().join("lock").exists(), "a failed start leaves nothing");
}

/// Every name below `path`, with what tells whether it was touched.
fn snapshot(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap().flatten() {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        let target = fs::read_link(&path).ok();
        found.push(format!(
            "{path:?} {:?} {:o} {} {:?}",
            about.file_type(),
            about.permissions().mode(),
            about.len(),
            target
        ));
        if about.is_dir() {
            found.extend(snapshot(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn a_directory_that_looks_like_the_system_s_is_left_alone() {
    let dir = testkit::TempDir::new();
    let root = dir.path();
    for name in ["dev", "proc", "sys", "files", "bin"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    fs::set_permissions(root.join("dev"), Permissions::from_mode(0o700)).unwrap();
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("zram0", "/x")] {
        std::os::unix::fs::symlink(target, root.join("dev").join(name)).unwrap();
    }
    std::os::unix::fs::symlink("x", root.join("proc/buddyinfo")).unwrap();
    fs::write(root.join("lock"), "precious").unwrap();
    let before = snapshot(root);
    for lock in ["a foreign lock", "none"] {
        let error = start(root).err().unwrap();
        assert_eq!(error.errno, Errno(libc::ENOTEMPTY), "{error}");
        assert!(error.message.contains("bin, dev, files"), "{lock}: {error}");
        let mut now = snapshot(root);
        if lock == "none" {
            now.extend(before.iter().filter(|line| line.contains("/lock\"")).cloned());
            now.sort();
        }
        assert_eq!(now, before);
        let _ = fs::remove_file(root.join("lock"));
    }
    // Nor is it when it comes while a daemon runs, or beside what one made.
    let root = root.join("own");
    let daemon = start(&root).unwrap();
    std::os::unix::fs::symlink("/proc/self/fd", root.join("dev/fd")).unwrap();
    fs::create_dir(root.join("own")).unwrap();
    drop(daemon);
    let daemon = start(&root).unwrap();
    assert!(daemon.notes().is_empty(), "{:?}", daemon.notes());
    drop(daemon);
    assert!(fs::symlink_metadata(root.join("dev/fd")).is_ok());
    assert!(root.join("own").is_dir());
}

/// A request that comes while a daemon ends because it has no device is refused, or has it go on.
#[test]
fn a_daemon_that_ends_without_devices_takes_none() {
    let dir = testkit::TempDir::new();
    let daemon = start(&dir.path().join("root")).unwrap();
    let (devices, swaps) = (daemon.devices(), daemon.swaps());
    let add = || devices.add(&crate::protocol::Add::default());
    let disk = add().unwrap();
    assert!(!swaps.end_if_empty());
    devices.remove(&disk.name(), false).unwrap();
    assert!(swaps.end_if_empty());
    assert_eq!(add().err().unwrap().errno, Errno::ENODEV);
    let error = swaps.on(&crate::protocol::SwapOn::default(), &|| false).unwrap_err();
    assert_eq!(error.message, "the daemon is stopping");
    // A stop that fails lets them come again.
    devices.start_again();
    add().unwrap();
    assert!(!swaps.end_if_empty());
}
