//! Whether a device is in use is what the kernel says. What an ordinary user puts into a namespace
//! of its own keeps nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::{Need, met};

use crate::common::{Daemon, Place, program, refused, said};

const UNSHARE: Need = Need::program("unshare", "util-linux");
const SETPRIV: Need = Need::program("setpriv", "util-linux");

/// A command that runs until the end of the test.
struct Holder(Child);

impl Holder {
    /// Waits until the command says a line.
    fn start(command: &mut Command) -> Holder {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{command:?}");
        Holder(child)
    }

    /// A script of the user nobody, perhaps as the root of a user namespace of its own.
    fn nobody(namespace: bool, text: &str, arguments: &[&Path]) -> Holder {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        if namespace {
            command.args(["unshare", "--user", "--map-root-user", "--mount"]);
        }
        let text = format!("{text}; echo ready; exec sleep 1000");
        Holder::start(command.args(["sh", "-euc", &text, "-"]).args(arguments))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_ordinary_user_keeps_no_device() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, UNSHARE, SETPRIV];
    if !met("an_ordinary_user_keeps_no_device", &needs) {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let daemon = Daemon::start(&place, "serve --num-devices 2 --size 8M");
    let nodes = ["zram0", "zram1"].map(|name| {
        let link = place.root().join("dev").join(name);
        fs::canonicalize(link).unwrap()
    });
    // Ordinary files with the names of the devices.
    let named = "mount -t tmpfs none /dev; touch $1 $2 /dev/zram0; exec 3<$1 4<$2 5</dev/zram0";
    let tree = place.root().join("sys");
    let _holders = [
        Holder::nobody(true, named, &[&nodes[0], &nodes[1]]),
        Holder::nobody(true, "mount --rbind $1 /dev; cd /dev; exec 3<block/zram0/size", &[&tree]),
        Holder::nobody(true, "cd $1", &[&place.root()]),
        Holder::nobody(false, "cd $1/block; exec 3<zram1/size", &[&tree]),
    ];
    daemon.does("reset zram0");
    daemon.does("remove zram0");
    let control = place.root().join("sys/class/zram-control");
    fs::write(control.join("hot_remove"), "1").unwrap();
    assert_eq!(daemon.does("add --size 8M"), "zram0\n");
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_program_that_has_a_device_open_keeps_it() {
    if !met("a_program_that_has_a_device_open_keeps_it", &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 3 --size 8M");
    let at = |path: &str| place.root().join(path);
    let node = fs::canonicalize(at("dev/zram1")).unwrap();
    let other = fs::canonicalize(at("dev/zram2")).unwrap();
    let open = Holder::start(Command::new("sh").args([
        "-euc",
        "exec 3<$1; echo ready; exec sleep 1000",
        "-",
        node.to_str().unwrap(),
    ]));
    let process = format!("process {}", open.0.id());
    for command in ["reset zram1", "remove zram1", "stop"] {
        refused(&daemon.ask(command), 1, &["zram1", "in use", &process, "EBUSY"]);
    }
    assert_eq!(fs::canonicalize(at("dev/zram1")).unwrap(), node, "it is as before");
    assert_eq!(fs::canonicalize(at("dev/zram2")).unwrap(), other, "and so are others");
    assert_eq!(fs::read_to_string(at("sys/block/zram1/disksize")).unwrap(), "8388608\n");
    drop(open);
    let file = at("files/zram1");
    let open = Holder::start(Command::new("sh").args([
        "-euc",
        "exec 3<$1; echo ready; exec sleep 1000",
        "-",
        file.to_str().unwrap(),
    ]));
    refused(&daemon.ask("reset zram1"), 1, &["zram1", "in use", &open.0.id().to_string()]);
    drop(open);
    daemon.does("reset zram1");
    assert_eq!(fs::canonicalize(at("dev/zram1")).unwrap(), node, "its number stays");
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_device_is_not_the_backing_of_another_one() {
    let name = "a_device_is_not_the_backing_of_another_one";
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    for line in ["serve --num-devices 2", "keep serve --num-devices 2"] {
        let place = Place::new();
        let daemon = Daemon::start(&place, line);
        daemon.does("set zram0 disksize 8M");
        for path in ["dev/zram0", "files/zram0"] {
            let path = place.root().join(path).display().to_string();
            let words = [&*path, "device of this daemon", "EINVAL"];
            refused(&daemon.ask(&format!("set zram1 backing_dev {path}")), 1, &words);
            refused(&daemon.ask(&format!("add --set backing_dev={path}")), 1, &words);
        }
        assert_eq!(daemon.does("get zram1 backing_dev"), "none\n");
        daemon.stop();
        place.is_clean();
    }
}

#[test]
fn exec_names_the_namespace_of_the_daemon() {
    let name = "exec_names_the_namespace_of_the_daemon";
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop, UNSHARE]) {
        return;
    }
    let place = Place::new();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(program().get_program());
    command.arg("--root").arg(place.root()).args(["serve", "--num-devices", "1"]);
    let daemon = Daemon::spawn(&place, command.stdin(Stdio::null()));
    let enter = format!("nsenter --target {} --mount", daemon.pid());
    refused(&daemon.ask("exec true"), 1, &["mount namespace of its own", &enter, "ENODEV"]);
    daemon.stop();
    place.is_clean();
}

/// Runs a script in a mount namespace, with the program and the root as arguments.
fn script(place: &Place, text: &str) -> crate::common::Said {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-euc", text, "-"]);
    command.arg(program().get_program()).arg(place.root());
    said(&command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn what_is_missing_is_named_and_nothing_is_left() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, UNSHARE, SETPRIV];
    if !met("what_is_missing_is_named_and_nothing_is_left", &needs) {
        return;
    }
    let place = Place::new();
    let without_proc = script(&place, "umount --lazy /proc; exec $1 --root $2 up --size 8M");
    refused(&without_proc, 1, &["no /proc is mounted", "mount -t proc"]);
    assert!(!place.root().exists());
    // A device node on a file system without devices may not be opened, by root either.
    let text = "mount -t tmpfs -o nodev none /mnt; mknod /mnt/control c 10 237
                mount --bind /mnt/control /dev/loop-control
                $1 --root $2 serve --num-devices 1 > /mnt/said 2>&1 & daemon=$!
                until grep serving /mnt/said > /dev/null; do sleep 0.1; done
                $1 --root $2 stop; wait $daemon; cat /mnt/said";
    let said = script(&place, text);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("no permission to open /dev/loop-control"), "{}", said.out);
    assert!(!said.out.contains("modprobe"), "{}", said.out);
    // The program that mounts for other users is missing.
    let text = "mount -t tmpfs none /mnt; chmod 1777 /mnt; mknod -m 666 /mnt/fuse c 10 229
                mount --bind /mnt/fuse /dev/fuse; cp $1 /mnt/rampack
                for path in /bin/fusermount* /usr/bin/fusermount*; do
                    if [ -f $path ]; then mount --bind /dev/null $path; fi
                done
                exec setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/rampack \
                    --root /mnt/root serve --transport fuse";
    refused(&script(&place, text), 1, &["fusermount3", "install fuse3", "EPERM"]);
    place.is_clean();
}
