//! Each mistake gets its own sentence, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Need, TempDir, met};

use crate::common::{Daemon, Place, Said, program, rampack, refused, said, wait_until};

/// Somebody who is not root.
pub const NOBODY: u32 = 65534;

const MKFS_EXT4: Need = Need::program("mkfs.ext4", "e2fsprogs");

fn up(place: &Place, line: &str) -> Said {
    rampack(&format!("--root {} up {line}", place.root().display()))
}

#[test]
fn size_zero() {
    let place = Place::new();
    refused(&up(&place, "--size 0"), 2, &["cannot be of size 0", "EINVAL"]);
    refused(&up(&place, "--size 0K"), 2, &["cannot be of size 0", "EINVAL"]);
    place.is_clean();
}

/// A machine with the driver makes the device instead; the guest's `ublk-kills` is about that.
#[test]
fn a_machine_without_ublk() {
    if Path::new("/dev/ublk-control").exists() {
        return;
    }
    let place = Place::new();
    let said = up(&place, "--transport ublk --size 8M");
    refused(&said, 1, &["no ublk on this machine", "modprobe ublk_drv", "ENODEV"]);
    place.is_clean();
}

#[test]
fn size_huge() {
    let place = Place::new();
    refused(&up(&place, "--size 16E"), 2, &["too large", "EINVAL"]);
    let said = up(&place, "--transport nbd --size 15E");
    refused(&said, 1, &["17293822569102704640", "ENOMEM"]);
    place.is_clean();
}

#[test]
fn size_garbage() {
    let place = Place::new();
    refused(
        &up(&place, "--size plenty"),
        2,
        &["\"plenty\" is not a size", "K M G T P E", "ram / 2", "30%"],
    );
    refused(&up(&place, "--size=-1G"), 2, &["\"-1G\" is not a size"]);
    refused(&up(&place, "--memory lots"), 2, &["\"lots\" is not a size"]);
    place.is_clean();
}

#[test]
fn size_with_junk_after_the_suffix() {
    let place = Place::new();
    refused(&up(&place, "--size 1Gfoo"), 2, &["\"foo\" follows the number", "EINVAL"]);
    refused(&up(&place, "--size 1GB"), 2, &["\"B\" follows the number", "EINVAL"]);
    place.is_clean();
}

#[test]
fn algorithm_unknown() {
    let place = Place::new();
    let mut words = vec!["no algorithm \"lzma\"", "EINVAL"];
    words.extend(service::engine::ALGORITHMS);
    refused(&up(&place, "--algorithm lzma"), 2, &words);
    place.is_clean();
    let daemon = Daemon::start(&place, "serve --transport nbd");
    refused(&daemon.ask("set zram0 comp_algorithm lzma"), 1, &words);
    daemon.stop();
}

#[test]
fn algorithm_after_the_size() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let said = daemon.ask("set zram0 comp_algorithm zstd");
    refused(&said, 1, &["zram0", "reset it first", "EBUSY"]);
    daemon.stop();
}

#[test]
fn level_out_of_range() {
    let place = Place::new();
    let said = up(&place, "--transport nbd --algorithm zstd --level 9999");
    refused(&said, 1, &["9999", "EINVAL"]);
    place.is_clean();
}

#[test]
fn socket_path_in_use() {
    let place = Place::new();
    fs::create_dir(place.root()).unwrap();
    for name in ["control.sock", "nbd.sock"] {
        let path = place.root().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        refused(&up(&place, "--transport nbd"), 1, &[name, "in use", "--root", "EADDRINUSE"]);
        assert!(path.exists());
        drop(listener);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "not a socket").unwrap();
        refused(&up(&place, "--transport nbd"), 1, &[name, "not empty", "--root", "ENOTEMPTY"]);
        assert_eq!(fs::read(&path).unwrap(), b"not a socket");
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 0);
}

#[test]
fn tcp_port_in_use() {
    let place = Place::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let said = up(&place, &format!("--transport nbd --nbd-tcp {port}"));
    refused(&said, 1, &[&port.to_string(), "EADDRINUSE"]);
    place.is_clean();
}

#[test]
fn root_too_long() {
    let place = Place::new();
    let root = place.path().join("x".repeat(120));
    let said = rampack(&format!("--root {} status", root.display()));
    refused(&said, 1, &["at most 107", "ENAMETOOLONG"]);
}

#[test]
fn second_daemon_in_the_same_root() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let pid = format!("pid {}", daemon.pid());
    refused(&up(&place, "--transport nbd"), 1, &[&pid, "already runs", "add", "EBUSY"]);
    let serve = rampack(&format!("--root {} serve", place.root().display()));
    refused(&serve, 1, &[&pid, "EBUSY"]);
    daemon.does("status");
    daemon.stop();
    place.is_clean();
}

#[test]
fn no_daemon() {
    let place = Place::new();
    for line in ["status", "add", "remove zram0", "get zram0 disksize", "stop"] {
        let said = rampack(&format!("--root {} {line}", place.root().display()));
        refused(&said, 1, &["no rampack daemon runs", "rampack up", "ENOENT"]);
    }
}

/// A user whose daemon was started by sudo has no reason to start another one.
#[test]
fn no_daemon_here_and_one_of_root_or_of_a_service() {
    let name = "no_daemon_here_and_one_of_root_or_of_a_service";
    let setpriv = Need::program("setpriv", "util-linux");
    if !met(name, &[Need::Root, Need::program("unshare", "util-linux"), setpriv]) {
        return;
    }
    let dir = TempDir::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let listener = UnixListener::bind(dir.join("control.sock")).unwrap();
    let ask = |there: &str, user: &str, root: &str| {
        let script = "mount -t tmpfs none /run; mkdir -p /run/user/1 $1; mount --bind $4 $1
                      export XDG_RUNTIME_DIR=/run/user/1
                      exec setpriv --reuid=$2 --clear-groups \"$0\" $3 status";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", script]);
        command.arg(program().get_program()).args([there, user, root]).arg(dir.path());
        said(&command.env_remove("RAMPACK_ROOT").output().unwrap())
    };
    for there in ["/run/rampack", "/run/rampack-swap"] {
        let said = ask(there, "1", "");
        let words = ["runs in /run/user/1/rampack", "but in ", "`sudo rampack --root ", "ENOENT"];
        refused(&said, 1, &[&words[..], &[there]].concat());
        assert!(!said.err.contains("rampack up"), "{}", said.err);
    }
    let said = ask("/run/rampack-swap", "0", "");
    refused(&said, 1, &["runs in /run/rampack, but in ", "`rampack --root /run/rampack-swap "]);
    // Who names a root means that one.
    refused(&ask("/run/rampack", "1", "--root=/run/x"), 1, &["runs in /run/x;", "rampack up"]);
    // A socket that a killed daemon left answers nobody.
    drop(listener);
    let said = ask("/run/rampack-swap", "0", "");
    refused(&said, 1, &["runs in /run/rampack;", "rampack up"]);
}

#[test]
fn device_and_attribute_unknown() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 2");
    for line in ["remove zram9", "reset zram9", "get zram9 disksize", "set zram9 disksize 1M"] {
        refused(&daemon.ask(line), 1, &["\"zram9\"", "zram0 zram1", "ENODEV"]);
    }
    refused(&daemon.ask("status zram9"), 1, &["\"zram9\"", "ENODEV"]);
    refused(&daemon.ask("get zram0 colour"), 1, &["\"colour\"", "disksize", "ENOENT"]);
    refused(&daemon.ask("set zram0 initstate 1"), 1, &["initstate", "read-only", "EACCES"]);
    refused(&daemon.ask("get zram0 reset"), 1, &["write-only", "EACCES"]);
    refused(&daemon.ask("set zram0 disksize"), 1, &["ATTRIBUTE=VALUE", "EINVAL"]);
    refused(&daemon.ask("set zram0 disksize 0"), 1, &["disksize of 0", "EINVAL"]);
    refused(&daemon.ask("set zram0 disksize 1Mfoo"), 1, &["\"foo\" follows", "EINVAL"]);
    refused(&daemon.ask("set zram0 reset 0"), 1, &["1 to 65535", "EINVAL"]);
    refused(&daemon.ask("status --output NAME,COLOUR"), 2, &["\"COLOUR\"", "MEM-LIMIT", "EINVAL"]);
    daemon.stop();
}

#[test]
fn status_of_a_device_where_there_is_none() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 0");
    refused(&daemon.ask("status zram0"), 1, &["no device \"zram0\"; there are none (ENODEV)"]);
    daemon.stop();
}

#[test]
fn numbers_that_are_none() {
    let number = |line: &str, words: &[&str]| {
        let said = said(&program().args(line.split(' ')).output().unwrap());
        refused(&said, 2, &[&["a whole number from "], words].concat());
    };
    number("up --level x", &["x", "--level"]);
    number("up --auto --auto-cpu 101", &["101", "from 1 to 100", "EINVAL"]);
    number("up --auto --slowest-read x", &["x"]);
    number("serve --num-devices x", &["from 0 to 1024"]);
    number("swap on --size 1M --oom-after x", &["x"]);
    number("swap on --size 1M --priority 40000", &["from -1 to 32767"]);
    number("estimate --pid x", &["from 1 to "]);
    number("up --nbd-allow-uid bob", &["bob", "`id --user bob`"]);
}

#[test]
fn a_level_in_the_name_of_the_algorithm() {
    let said = rampack("up --algorithm zstd:9");
    refused(&said, 2, &["no algorithm \"zstd:9\"", "--algorithm zstd --level 9", "EINVAL"]);
}

#[test]
fn mount_point_missing() {
    if !met("mount_point_missing", &[Need::Root, Need::program("mkfs.ext4", "e2fsprogs")]) {
        return;
    }
    let place = Place::new();
    let missing = place.path().join("missing");
    let said = up(&place, &format!("--mount {}", missing.display()));
    refused(&said, 1, &["does not exist", "mkdir -p", "ENOENT"]);
    fs::write(&missing, "").unwrap();
    let said = up(&place, &format!("--mount {}", missing.display()));
    refused(&said, 1, &["not a directory", "ENOTDIR"]);
    place.is_clean();
}

#[test]
fn file_system_unknown_or_not_installed() {
    let place = Place::new();
    refused(&up(&place, "--fs ext5"), 2, &["\"ext5\"", "ext4", "EINVAL"]);
    let both = up(&place, "--transport nbd --fs ext4");
    refused(&both, 1, &["--fs", "--transport nbd", "EINVAL"]);
    let unshare = Need::program("unshare", "util-linux");
    if !met("file_system_unknown_or_not_installed", &[Need::Root, unshare]) {
        return;
    }
    // A world of its own, where none of them is.
    let script = "for place in /sbin /usr/sbin /usr/local/sbin; do mount -t tmpfs none $place; done
                  PATH=\"$0\" exec \"$@\"";
    assert!(!service::filesystem::KINDS.is_empty());
    for kind in service::filesystem::KINDS {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "sh", "-euc", script]);
        command.arg(place.path()).arg(program().get_program()).arg("--root").arg(place.root());
        command.args(["up", "--size", "8M", "--fs", kind.name]).stdin(Stdio::null());
        let said = said(&command.output().unwrap());
        let needed = format!("mkfs.{} is not installed", kind.name);
        refused(&said, 1, &[&needed, "install the package", "ENOENT"]);
    }
    place.is_clean();
}

/// The program where nobody may run it, whatever the directory it was built in allows.
pub fn as_nobody(place: &Place) -> Command {
    let copy: PathBuf = place.path().join("rampack");
    testkit::copy_program(env!("CARGO_BIN_EXE_rampack"), &copy);
    for path in [place.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(copy);
    command.env_clear().stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
    command
}

#[test]
fn no_permission() {
    if !met("no_permission", &[Need::Root]) {
        return;
    }
    let place = Place::new();
    let run = |words: &str| said(&as_nobody(&place).args(words.split(' ')).output().unwrap());
    refused(&run("up"), 1, &["XDG_RUNTIME_DIR", "--root", "EINVAL"]);
    let root = place.root();
    let said = run(&format!("--root {} up", root.display()));
    refused(&said, 1, &["cannot make the root directory", "EACCES"]);
    let said = run(&format!("--root {} up --fs xfs --mount /mnt", root.display()));
    refused(&said, 1, &["xfs needs root", "ext4 and ext2", "EPERM"]);
    // A daemon of root does not answer others, and does not let them in.
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let said = run(&format!("--root {} status", root.display()));
    refused(&said, 1, &["no permission", "EACCES"]);
    let said = run(&format!("--root {} up", root.display()));
    refused(&said, 1, &["must belong to user 65534", "EACCES"]);
    daemon.stop();
}

#[test]
fn not_root_serves_nbd() {
    if !met("not_root_serves_nbd", &[Need::Root]) {
        return;
    }
    let place = Place::new();
    let home = place.path().join("home");
    fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = as_nobody(&place);
    command.env("XDG_RUNTIME_DIR", &home).args(["up", "--size", "8M"]);
    let daemon = Daemon::spawn(&place, &mut command);
    assert!(daemon.greeting.contains("nbd+unix:///zram0?socket="), "{}", daemon.greeting);
    assert!(!daemon.greeting.contains("block device "), "{}", daemon.greeting);
    let socket = home.join("rampack/nbd.sock");
    let mut client = crate::common::NbdClient::connect(&socket, "zram0").unwrap();
    assert_eq!(client.bytes, 8 << 20);
    assert_eq!(client.write(0, b"hello"), 0);
    drop(client);
    daemon.stop();
    assert!(!home.join("rampack").exists());
}

#[test]
fn no_fuse() {
    let unshare = Need::program("unshare", "util-linux");
    if !met("no_fuse", &[Need::Root, unshare]) {
        return;
    }
    // A world of its own with an empty /dev, but for what every program needs.
    let in_a_bare_world = |place: &Place, line: &str| {
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$@\"";
        command.args(["--mount", "--propagation", "slave", "sh", "-c", script, "sh"]);
        command.arg(program().get_program()).arg("--root").arg(place.root());
        command.args(line.split(' ')).stdin(Stdio::null());
        command
    };
    let place = Place::new();
    let output = in_a_bare_world(&place, "up --transport fuse").output().unwrap();
    refused(&said(&output), 1, &["no FUSE on this machine", "modprobe fuse", "ENODEV"]);
    place.is_clean();
    // Left to itself the program does with NBD, and says why.
    let daemon = Daemon::spawn(&place, &mut in_a_bare_world(&place, "up --size 8M"));
    assert!(daemon.greeting.contains("NBD only: no FUSE"), "{}", daemon.greeting);
    assert!(daemon.greeting.contains("nbd+unix:"), "{}", daemon.greeting);
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_stopped_daemon_is_told_apart_from_a_slow_one() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    daemon.signal(libc::SIGSTOP);
    wait_until("the stop", || daemon.status("State").starts_with('T'));
    let pid = format!("process {}", daemon.pid());
    for line in ["status", "stop", "stop --force"] {
        refused(&daemon.ask(line), 1, &["is stopped", &pid, "kill -CONT", "EBUSY"]);
    }
    // The socket tells the process, not a file: that may be in memory that was swapped out.
    let lock = place.root().join("lock");
    let record = fs::read(&lock).unwrap();
    fs::write(&lock, "").unwrap();
    refused(&daemon.ask("status"), 1, &["is stopped", &pid, "kill -CONT", "EBUSY"]);
    fs::write(&lock, record).unwrap();
    daemon.signal(libc::SIGCONT);
    daemon.does("status");
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_limit_on_addresses_is_told() {
    let place = Place::new();
    let mut command = Command::new("sh");
    // The program itself has room; the addresses for the memory of any machine do not.
    command.args(["-c", "ulimit -v 400000; exec \"$@\"", "sh"]);
    command.arg(program().get_program()).arg("--root").arg(place.root());
    command.args(["up", "--transport", "nbd", "--size", "1M"]).stdin(Stdio::null());
    let said = said(&command.output().unwrap());
    refused(&said, 1, &["no addresses for", "ulimit -v", "ENOMEM"]);
    place.is_clean();
}

#[test]
fn the_port_of_a_server_without_a_sized_device_is_told() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --nbd-tcp 127.0.0.1:0");
    let line = daemon.greeting.lines().find(|line| line.contains("nbd://127.0.0.1:"));
    let port = line.and_then(|line| line.rsplit(':').next()?.parse::<u16>().ok());
    let port = port.unwrap_or_else(|| panic!("{}", daemon.greeting));
    drop(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    daemon.stop();
}

#[test]
fn an_address_without_brackets_is_ambiguous() {
    let place = Place::new();
    let said = up(&place, "--nbd-tcp ::1:5");
    refused(&said, 2, &["\"::1:5\"", "brackets", "PORT, HOST:PORT or [IPV6]:PORT", "EINVAL"]);
}

#[test]
fn a_relative_runtime_directory_is_called_that() {
    if !met("a_relative_runtime_directory_is_called_that", &[Need::Root]) {
        return;
    }
    let place = Place::new();
    let mut command = as_nobody(&place);
    command.env("XDG_RUNTIME_DIR", "run/user").arg("status");
    let said = said(&command.output().unwrap());
    refused(&said, 1, &["XDG_RUNTIME_DIR (run/user) is not absolute", "--root", "EINVAL"]);
}

#[test]
fn hints_can_be_copied_to_a_shell() {
    let place = Place::new();
    let root = place.path().join("a root");
    let mut command = program();
    command.arg("--root").arg(&root).args(["up", "--transport", "nbd", "--size", "1M"]);
    let daemon = Daemon::spawn(&place, &mut command);
    let quoted = format!("rampack --root '{}' ", root.display());
    assert!(daemon.greeting.contains(&quoted), "{}", daemon.greeting);
    let mut command = program();
    command.arg("--root").arg(&root).args(["up", "--transport", "nbd"]);
    refused(&said(&command.output().unwrap()), 1, &[&format!("`{quoted}add`"), "EBUSY"]);
    daemon.stop();
}

#[test]
fn a_mount_over_the_root_is_refused() {
    if !met("a_mount_over_the_root_is_refused", &[Need::Root, MKFS_EXT4]) {
        return;
    }
    let place = Place::new();
    let said = up(&place, &format!("--mount {}", place.path().display()));
    refused(&said, 1, &["would hide the daemon's root", "--root", "EINVAL"]);
    fs::create_dir(place.root()).unwrap();
    let said = up(&place, &format!("--mount {}", place.root().display()));
    refused(&said, 1, &["would hide the daemon's root", "EINVAL"]);
    fs::remove_dir(place.root()).unwrap();
    place.is_clean();
}

#[test]
fn nodes_of_loop_devices_go_with_those_who_made_them() {
    let name = "nodes_of_loop_devices_go_with_those_who_made_them";
    let unshare = Need::program("unshare", "util-linux");
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop, unshare]) {
        return;
    }
    let place = Place::new();
    let dev = place.path().join("dev");
    fs::create_dir(&dev).unwrap();
    // A /dev without a loop device, and nobody who makes nodes there.
    let script = "mount -t tmpfs none $0 && cp -a /dev/null /dev/fuse /dev/loop-control $0
                  mount --bind $0 /dev
                  \"$@\" & daemon=$!
                  trap 'kill $daemon; wait $daemon; ls /dev > $0/../after; exit' TERM
                  while ! ls /dev/loop[0-9]* > $0/../before 2>/dev/null; do sleep 0.1; done
                  wait $daemon";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "sh", "-c", script]).arg(&dev);
    command.arg(program().get_program()).arg("--root").arg(place.root());
    command.args(["up", "--size", "8M"]).stdin(Stdio::null());
    let daemon = Daemon::spawn(&place, &mut command);
    wait_until("the nodes", || {
        fs::read_to_string(place.path().join("before")).is_ok_and(|text| text.contains("/dev/loop"))
    });
    daemon.signal(libc::SIGTERM);
    daemon.ended();
    assert_eq!(
        fs::read_to_string(place.path().join("after")).unwrap(),
        "fuse\nloop-control\nnull\n"
    );
    place.is_clean();
}
