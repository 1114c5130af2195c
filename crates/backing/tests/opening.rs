//! What can be opened, what cannot, and what it is called then.

mod common;

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use backing::{Options, exposure, open};
use block::Operation;
use common::*;
use control::{ControlError, Errno};
use testkit::{Need, TempDir};
use units::Cpu;

fn refused(path: &Path) -> ControlError {
    let Err(error) = open(path, Options::default()) else { panic!("{path:?} was opened") };
    assert!(error.message.contains(&*path.to_string_lossy()), "{error}");
    error
}

#[track_caller]
fn expect(path: &Path, errno: Errno, part: &str) {
    let error = refused(path);
    assert_eq!(error.errno, errno, "{error}");
    assert!(error.message.contains(part), "{error}");
}

#[test]
fn the_size_is_that_of_the_whole_pages() {
    let directory = TempDir::new();
    let at = |name: &str, bytes| sparse(&directory.join(name), bytes);
    for (bytes, usable) in [(P, P), (2 * P - 1, P), (10 * P + 512, 10 * P)] {
        let device = open(&at("f", bytes), Options::default()).unwrap();
        assert_eq!(device.geometry().bytes, usable);
        let page = [1; P as usize];
        device.submit(Cpu(0), Operation::Write { offset: usable - P, from: &page }).unwrap();
        assert_eq!(fs::metadata(directory.join("f")).unwrap().len(), bytes);
    }
    expect(&at("empty", 0), Errno::EINVAL, "it has 0 bytes, and at least 4096 are needed");
    expect(&at("short", P - 1), Errno::EINVAL, "4095 bytes");
}

#[test]
fn what_is_neither_file_nor_device_is_named() {
    let directory = TempDir::new();
    expect(&directory.join("nothing"), Errno::ENOENT, "No such file");
    expect(directory.path(), Errno::EISDIR, "it is a directory");
    expect(Path::new("/dev/null"), Errno::ENOTBLK, "it is a character device");
    let socket = directory.join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    expect(&socket, Errno::ENOTBLK, "it is a socket");
    let file = sparse(&directory.join("file"), P);
    expect(&file.join("below"), Errno::ENOTDIR, "Not a directory");
    let pipe = directory.join("pipe");
    let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string that lives through the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    expect(&pipe, Errno::ENOTBLK, "it is a pipe");
}

#[test]
fn a_file_is_for_one_user() {
    let directory = TempDir::new();
    let path = sparse(&directory.join("f"), P);
    let first = open(&path, Options::default()).unwrap();
    expect(&path, Errno::EBUSY, "another program or device uses it");
    drop(first);
    let file = File::open(&path).unwrap();
    drop(open(&path, Options::default()).unwrap());
    drop(file);
}

#[test]
fn a_file_that_is_to_be_private_is_refused_to_be_read_by_others() {
    let directory = TempDir::new();
    let path = sparse(&directory.join("f"), P);
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let private = Options { private: true, ..Options::default() };
    for exposed in [0o644, 0o640, 0o620, 0o602, 0o777] {
        mode(exposed);
        let Err(error) = open(&path, private) else { panic!("{exposed:o} was opened") };
        assert_eq!(error.errno, Errno::EACCES, "{error}");
        for part in [format!("chmod 600 {}", path.display()), format!("mode {exposed:04o}")] {
            assert!(error.message.contains(&part), "{error}");
        }
        // Scripts for Linux's zram make such files.
        drop(open(&path, Options::default()).unwrap());
        let sees = |sealed| exposure(&path, sealed).unwrap().message;
        assert!(sees(false).contains("see every page in it"), "{}", sees(false));
        let written = exposed & 0o022 != 0;
        assert!(!sees(true).contains("see every page") && sees(true).contains("chmod 600"));
        assert_eq!(sees(true).contains("spoil pages"), written, "{}", sees(true));
        assert_eq!(sees(true).contains("not what is in them"), !written, "{}", sees(true));
    }
    assert!(exposure(directory.path(), false).is_none(), "it is no file");
    for usual in [0o600, 0o700] {
        mode(usual);
        drop(open(&path, private).unwrap());
    }
}

#[test]
fn a_file_of_another_user_is_not_private() {
    if !testkit::met("a_file_of_another_user_is_not_private", &[Need::Root]) {
        return;
    }
    let directory = TempDir::new();
    let path = sparse(&directory.join("f"), P);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    let private = Options { private: true, ..Options::default() };
    let Err(error) = open(&path, private) else { panic!("it was opened") };
    assert_eq!(error.errno, Errno::EPERM, "{error}");
    assert!(error.message.contains("user 65534 owns it"), "{error}");
    drop(open(&path, Options::default()).unwrap());
}

#[test]
fn who_may_not_write_is_told() {
    let name = "who_may_not_write_is_told";
    let setpriv = Need::program("setpriv", "util-linux");
    if !testkit::met(name, &[Need::Root, setpriv]) {
        return;
    }
    // Root may do everything, so somebody else has to try: this very test, as a child.
    if let Some(path) = std::env::var_os("RAMPACK_TEST_PATH") {
        expect(Path::new(&path), Errno::EACCES, "Permission denied");
        return;
    }
    let directory = TempDir::new();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = sparse(&directory.join("f"), P);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    // A copy, for others may not look into the build directory.
    let program = directory.join("test");
    testkit::copy_program(std::env::current_exe().unwrap(), &program);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    command.args(["--exact", name, "--nocapture"]).env("RAMPACK_TEST_PATH", &path);
    command.env_remove("RAMPACK_STRICT").env_remove("RAMPACK_SKIPS").current_dir("/");
    let output = testkit::run(&mut command);
    assert!(output.stdout.contains("1 passed"), "{output:?}");
}

#[test]
fn a_read_only_file_system_is_named() {
    if !testkit::met("a_read_only_file_system_is_named", &MOUNT) {
        return;
    }
    let mounted = Mounted::tmpfs(1 << 20);
    let path = sparse(&mounted.join("f"), P);
    mounted.read_only();
    expect(&path, Errno::EROFS, "it is read-only");
}

#[test]
fn a_device_that_is_read_only_mounted_or_ours_already() {
    let name = "a_device_that_is_read_only_mounted_or_ours_already";
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    if !testkit::met(name, &[Need::Root, Need::Loop, mkfs]) {
        return;
    }
    let device = Loop::new(4 << 20, &["--read-only"]);
    expect(&device.path, Errno::EROFS, "it is read-only");
    let device = Loop::new((4 << 20) + 512, &[]);
    let first = open(&device.path, Options::default()).unwrap();
    assert_eq!(first.geometry().bytes, 4 << 20);
    expect(&device.path, Errno::EBUSY, "another program or device uses it");
    drop(first);
    eventually("a file system is made", || {
        let made = testkit::try_run(Command::new("mkfs.ext4").arg("-q").arg(&device.path));
        made.status.success().then_some(())
    });
    let at = device.root.join("at");
    fs::create_dir(&at).unwrap();
    testkit::run(Command::new("mount").arg(&device.path).arg(&at));
    expect(&device.path, Errno::EBUSY, "it is mounted");
    testkit::run(Command::new("umount").arg(&at));
    eventually("it is free again", || open(&device.path, Options::default()).ok());
}

#[test]
fn devices_with_blocks_of_any_usual_size() {
    let name = "devices_with_blocks_of_any_usual_size";
    if !testkit::met(name, &[Need::Root, Need::Loop]) {
        return;
    }
    for size in ["512", "4096"] {
        let device = Loop::new(1 << 20, &["--sector-size", size]);
        let backing = open(&device.path, Options::default()).unwrap();
        let page = [1; P as usize];
        backing.submit(Cpu(0), Operation::Write { offset: P, from: &page }).unwrap();
    }
}

#[test]
fn small_files_are_read_and_others_are_not() {
    let directory = TempDir::new();
    let path = directory.join("dictionary");
    fs::write(&path, [7; 1000]).unwrap();
    assert_eq!(backing::read(&path, 1000).unwrap(), [7; 1000]);
    let expect = |path: &Path, most, errno, part: &str| {
        let error = backing::read(path, most).unwrap_err();
        assert_eq!(error.errno, errno, "{error}");
        assert!(error.message.contains(&*path.to_string_lossy()), "{error}");
        assert!(error.message.contains(part), "{error}");
    };
    expect(&path, 999, Errno::E2BIG, "longer than the 999");
    expect(&directory.join("nothing"), 999, Errno::ENOENT, "No such file");
    expect(directory.path(), 999, Errno::EISDIR, "it is a directory");
    expect(Path::new("/dev/zero"), 999, Errno::EINVAL, "not an ordinary file");
}

#[test]
fn a_file_and_a_loop_device_on_it_are_one() {
    let needs = [Need::Root, Need::Loop, Need::program("losetup", "mount")];
    if !testkit::met("a_file_and_a_loop_device_on_it_are_one", &needs) {
        return;
    }
    let directory = TempDir::new();
    let file = sparse(&directory.join("file"), 16 * P);
    let attach = |file: &Path| Attached(testkit::attach_loop(&[], file));
    let on_file = attach(&file);
    let on_loop = attach(&on_file.0);
    for (one, other) in [(&file, &on_file.0), (&on_file.0, &file), (&on_loop.0, &file)] {
        let held = open(one, Options::default()).unwrap();
        expect(other, Errno::EBUSY, "use");
        drop(held);
    }
    for path in [&file, &on_file.0] {
        drop(open(path, Options::default()).unwrap());
    }
}

/// A loop device, detached at the end.
struct Attached(std::path::PathBuf);

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
