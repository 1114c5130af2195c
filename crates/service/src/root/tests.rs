use host::effective_user;

use super::*;

fn decide(asked: Option<&str>, user: u32, runtime: Option<&str>) -> Result<Root, ControlError> {
    Root::decide(asked.map(Path::new), user, runtime.map(Path::new))
}

#[test]
fn the_default_follows_the_user() {
    assert_eq!(decide(None, 0, None).unwrap().path(), Path::new("/run/rampack"));
    let own = decide(None, 1000, Some("/run/user/1000")).unwrap();
    assert_eq!(own.path(), Path::new("/run/user/1000/rampack"));
    assert_eq!(decide(Some("/x"), 1000, None).unwrap().path(), Path::new("/x"));
}

#[test]
fn no_default_says_what_to_do() {
    let error = decide(None, 1000, None).unwrap_err();
    assert!(error.message.contains("--root DIR"), "{error}");
    assert!(error.message.contains("XDG_RUNTIME_DIR is not set"), "{error}");
    let error = decide(None, 1000, Some("relative")).unwrap_err();
    assert!(error.message.contains("XDG_RUNTIME_DIR (relative) is not absolute"), "{error}");
    assert!(decide(Some(""), 0, None).is_err());
}

#[test]
fn a_root_too_long_for_sockets_is_refused() {
    let error = decide(Some(&format!("/{}", "x".repeat(100))), 0, None).unwrap_err();
    assert_eq!(error.errno, Errno(libc::ENAMETOOLONG));
    assert!(error.message.contains("at most 107"), "{error}");
}

#[test]
fn a_root_belongs_to_one_daemon() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().join("r").to_str().unwrap()), 0, None).unwrap();
    let claim = root.claim().unwrap();
    assert_eq!(claim.killed_before_us(), None);
    let error = root.claim().err().unwrap();
    assert_eq!(error.errno, Errno::EBUSY);
    assert!(error.message.contains(&format!("pid {}", std::process::id())), "{error}");
    drop(claim);
    assert!(!root.path().exists(), "what was made is removed");
    drop(root.claim().unwrap());
}

#[test]
fn who_looks_holds_up_no_daemon_and_takes_no_other_for_one() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().to_str().unwrap()), 0, None).unwrap();
    fs::write(root.lock_file(), "rampack root 1\n").unwrap();
    let first = root.open_lock().unwrap().unwrap();
    first.lock_shared().unwrap();
    assert!(!root.is_claimed());
    let claim = std::thread::scope(|scope| {
        let claims = scope.spawn(|| root.claim().map(|claim| claim.killed_before_us()));
        std::thread::sleep(std::time::Duration::from_millis(5));
        drop(first);
        claims.join().unwrap()
    });
    assert!(claim.is_ok(), "{claim:?}");
}

#[test]
fn a_killed_daemon_is_remembered() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().to_str().unwrap()), 0, None).unwrap();
    fs::write(root.lock_file(), "rampack root 1\npid 4242\n").unwrap();
    let claim = root.claim().unwrap();
    assert_eq!(claim.killed_before_us(), Some(4242));
    drop(claim);
    assert!(root.path().exists(), "a directory that was there stays");
    // One that a killed daemon had made does not.
    fs::write(root.lock_file(), "rampack root 1\ndir .\npid 4242\n").unwrap();
    drop(root.claim().unwrap());
    assert!(!root.path().exists());
}

#[test]
fn who_is_refused_for_a_listener_holds_up_nobody_who_has_it() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().to_str().unwrap()), 0, None).unwrap();
    fs::write(root.lock_file(), "rampack root 1\npid 4242\n").unwrap();
    // A keeper listens while no daemon runs.
    let held = [root.control_socket()];
    assert!(!root.has_daemon(), "nobody listens");
    let _listener = std::os::unix::net::UnixListener::bind(&held[0]).unwrap();
    assert!(root.has_daemon() && !root.is_claimed(), "the next one is expected");
    let goes_on = |_: &Path| {
        assert!(root.claim_with(&held).is_ok(), "the next daemon waits for a command");
        true
    };
    let lock = root.open_lock().unwrap().unwrap();
    let error = root.take_lock(lock, &[], goes_on).unwrap_err();
    assert_eq!(error.errno, Errno(libc::EADDRINUSE));
}

#[test]
fn a_configuration_in_the_root_stays() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().to_str().unwrap()), 0, None).unwrap();
    fs::create_dir(dir.path().join("rampack.toml.d")).unwrap();
    fs::write(dir.path().join("rampack.toml"), "").unwrap();
    fs::write(dir.path().join("rampack.tom"), "").unwrap();
    assert_eq!(root.claim().err().unwrap().errno, Errno(libc::ENOTEMPTY));
    fs::remove_file(dir.path().join("rampack.tom")).unwrap();
    drop(root.claim().unwrap());
    assert!(dir.path().join("rampack.toml").exists());
}

#[test]
fn a_root_that_holds_something_else_is_refused() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().to_str().unwrap()), 0, None).unwrap();
    for text in ["", "4242\n", "rampack root 12\n", "precious"] {
        fs::write(root.lock_file(), text).unwrap();
        let error = root.claim().err().unwrap();
        assert_eq!(error.errno, Errno(libc::ENOTEMPTY), "{error}");
        for word in ["not empty", ": lock;", "nothing was touched", "--root", "rampack root 1"] {
            assert!(error.message.contains(word), "{word}: {error}");
        }
        assert_eq!(fs::read_to_string(root.lock_file()).unwrap(), text);
        assert!(!root.is_claimed());
    }
    fs::remove_file(root.lock_file()).unwrap();
    std::os::unix::fs::symlink("elsewhere", root.lock_file()).unwrap();
    assert_eq!(root.claim().err().unwrap().errno, Errno(libc::ENOTEMPTY));
    assert!(!dir.path().join("elsewhere").exists());
    fs::remove_file(root.lock_file()).unwrap();
    for number in 0..7 {
        fs::write(dir.path().join(format!("{number}")), "").unwrap();
    }
    let error = root.claim().err().unwrap();
    assert!(error.message.contains("0, 1, 2, 3, 4 and 2 more"), "{error}");
}

#[test]
fn what_came_while_a_daemon_ran_is_kept_and_the_root_stays_ours() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().join("r").to_str().unwrap()), 0, None).unwrap();
    let claim = root.claim().unwrap();
    fs::write(root.path().join("notes"), "precious").unwrap();
    drop(claim);
    assert_eq!(fs::read_to_string(root.path().join("notes")).unwrap(), "precious");
    let claim = root.claim().unwrap();
    assert_eq!(claim.killed_before_us(), None);
    fs::remove_file(root.path().join("notes")).unwrap();
    drop(claim);
    assert!(!root.path().exists());
}

#[test]
fn a_root_that_others_can_write_is_refused() {
    let dir = testkit::TempDir::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = decide(Some(dir.path().to_str().unwrap()), 0, None).unwrap().claim().err().unwrap();
    assert_eq!(error.errno, Errno::EACCES);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = decide(Some(file.to_str().unwrap()), 0, None).unwrap().claim().err().unwrap();
    assert_eq!(error.errno, Errno(libc::ENOTDIR));
}

#[test]
fn a_symbolic_link_is_no_root() {
    let dir = testkit::TempDir::new();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let error = decide(Some(link.to_str().unwrap()), 0, None).unwrap().claim().err().unwrap();
    assert_eq!(error.errno, Errno(libc::ELOOP), "{error}");
    assert!(error.message.contains(target.to_str().unwrap()), "{error}");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    // A link above the root leads to a directory whose own ancestors count.
    let root = decide(Some(link.join("r").to_str().unwrap()), 0, None).unwrap();
    drop(root.claim().unwrap());
}

#[test]
fn a_root_that_others_can_replace_is_refused() {
    if effective_user() != 0 {
        return;
    }
    let dir = testkit::TempDir::new();
    let (open, below) = (dir.path().join("open"), dir.path().join("open/a/b/r"));
    fs::create_dir_all(below.parent().unwrap()).unwrap();
    let claim = || decide(Some(below.to_str().unwrap()), 0, None).unwrap().claim();
    let allow = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
    allow(0o777);
    let error = claim().err().unwrap();
    assert_eq!(error.errno, Errno::EACCES, "{error}");
    for word in [open.to_str().unwrap(), "777", "sticky bit", "--root"] {
        assert!(error.message.contains(word), "{word}: {error}");
    }
    assert!(!below.exists());
    allow(0o1777);
    drop(claim().unwrap());
    allow(0o755);
    drop(claim().unwrap());
}

#[test]
fn a_root_below_the_directory_of_another_user_is_refused() {
    if effective_user() != 0 {
        return;
    }
    let dir = testkit::TempDir::new();
    let (home, safe) = (dir.path().join("home"), dir.path().join("safe"));
    for path in [&home, &safe] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let claim = |path: &Path| decide(Some(path.to_str().unwrap()), 0, None).unwrap().claim();
    std::os::unix::fs::chown(&home, Some(4242), None).unwrap();
    // What a link of that user leads to may be another directory tomorrow.
    std::os::unix::fs::symlink(&safe, home.join("link")).unwrap();
    std::os::unix::fs::symlink(home.join("link"), dir.path().join("way")).unwrap();
    for path in [home.join("r"), home.join("link/r"), dir.path().join("way/r")] {
        let error = claim(&path).err().unwrap();
        assert_eq!(error.errno, Errno::EACCES, "{path:?}: {error}");
        let words = [&format!("user 4242 owns {}", home.display()), "not safe", "--root"];
        assert!(words.iter().all(|word| error.message.contains(*word)), "{error}");
        assert!(fs::symlink_metadata(&path).is_err(), "nothing was made");
    }
    // The link alone is that user's.
    let link = dir.path().join("own");
    std::os::unix::fs::symlink(&safe, &link).unwrap();
    drop(claim(&link.join("r")).unwrap());
    std::os::unix::fs::lchown(&link, Some(4242), None).unwrap();
    assert!(claim(&link.join("r")).err().unwrap().message.contains("user 4242 owns"));
    // A group that may write is as good as everybody.
    std::os::unix::fs::chown(&safe, None, Some(4242)).unwrap();
    fs::set_permissions(&safe, fs::Permissions::from_mode(0o775)).unwrap();
    let error = claim(&safe.join("r")).err().unwrap();
    assert!(error.message.contains("group 4242 may rename"), "{error}");
    fs::set_permissions(&safe, fs::Permissions::from_mode(0o1775)).unwrap();
    drop(claim(&safe.join("r")).unwrap());
}

#[test]
fn a_daemon_of_another_user_is_asked_nothing() {
    let root = decide(Some("/x"), 0, None).unwrap();
    for user in [0, effective_user()] {
        root.check_server(user).unwrap();
    }
    let error = root.check_server(4242).unwrap_err();
    assert_eq!(error.errno, Errno::EACCES);
    assert!(error.message.contains("user 4242") && error.message.contains("sudo -u"), "{error}");
}

#[test]
fn a_socket_of_the_daemon_before_is_in_nobodys_way() {
    let dir = testkit::TempDir::new();
    let root = decide(Some(dir.path().join("r").to_str().unwrap()), 0, None).unwrap();
    let path = root.control_socket();
    let claim = root.claim().unwrap();
    claim.made().socket(&path).unwrap();
    let kept = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(claim);
    assert!(path.exists(), "somebody listens there");
    assert_eq!(root.claim().err().unwrap().errno, Errno(libc::EADDRINUSE));
    let claim = root.claim_with(std::slice::from_ref(&path)).unwrap();
    assert!(claim.made().clear(std::slice::from_ref(&path)).is_empty());
    assert!(path.exists());
    drop(kept);
}
