use super::*;

#[test]
fn paths_in_uris_are_escaped() {
    assert_eq!(percent_encoded(Path::new("/run/rampack/nbd.sock")), "/run/rampack/nbd.sock");
    assert_eq!(percent_encoded(Path::new("/a b/ü?&#%")), "/a%20b/%C3%BC%3F%26%23%25");
}

#[test]
fn sockets_are_cleared_only_when_nobody_listens() {
    let dir = testkit::TempDir::new();
    let path = dir.path().join("s");
    assert_eq!(clear_socket(&path), Ok(false));
    let listener = UnixListener::bind(&path).unwrap();
    let fault = clear_socket(&path).unwrap_err();
    assert_eq!(fault.errno, Errno(libc::EADDRINUSE));
    assert!(fault.message.contains("--root"), "{fault}");
    drop(listener);
    assert_eq!(clear_socket(&path), Ok(true));
    fs::write(&path, "precious").unwrap();
    assert_eq!(clear_socket(&path).unwrap_err().errno, Errno::EEXIST);
    assert!(path.exists(), "what is not a socket is left alone");
}

fn start(root: &Path) -> Result<Daemon, Fault> {
    let root = Root::choose(Some(root)).unwrap();
    let (events, _) = channel();
    let variants = Variants::default();
    let options = DaemonOptions { root, transport: Transport::Nbd, nbd_tcp: None, variants };
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
    fs::write(root.join("lock"), "4242\n").unwrap();
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
    let fault = start(dir.path()).err().unwrap();
    assert_eq!(fault.errno, Errno(libc::EADDRINUSE));
    assert!(path.exists());
    assert!(!dir.path().join("lock").exists(), "a failed start leaves nothing");
}
