//! Paths that users write: in which directory they are, which bytes they may have, and who else may
//! read what they name.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use testkit::{Need, met};

use crate::common::{Daemon, Place, private_file, program, refused, said, wait_until};

/// A daemon in a directory of its own, with a file there that nobody means.
fn daemon_elsewhere(place: &Place, line: &str) -> Daemon {
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    private_file(&elsewhere.join("pages"), 1 << 20);
    let mut command = program();
    command.arg("--root").arg(place.root()).args(line.split(' ')).current_dir(elsewhere);
    Daemon::spawn(place, &mut command)
}

#[test]
fn a_relative_path_is_in_the_directory_of_the_command() {
    let place = Place::new();
    let own = place.path().join("own dir");
    fs::create_dir(&own).unwrap();
    private_file(&own.join("pages"), 1 << 20);
    fs::write(own.join("words"), "a dictionary of some words").unwrap();
    let daemon = daemon_elsewhere(&place, "serve --num-devices 2 --transport nbd");
    let at = |line: &str| said(&daemon.command(line).current_dir(&own).output().unwrap());
    let pages = format!("{}\n", own.join("pages").display());
    for line in ["set zram0 backing_dev=pages", "set zram0 backing_dev ./pages"] {
        assert_eq!(at(line).code, 0, "{line}: {}", at(line).err);
        assert_eq!(daemon.does("get zram0 backing_dev"), pages, "{line}");
        daemon.does("set zram0 reset=1");
    }
    for option in ["--backing pages", "--set backing_dev=pages"] {
        let added = at(&format!("add {option}"));
        assert_eq!(added.code, 0, "{}", added.err);
        let name = added.out.trim();
        assert_eq!(daemon.does(&format!("get {name} backing_dev")), pages, "{option}");
        daemon.does(&format!("remove {name}"));
    }
    let dictionary = daemon
        .command("set zram1 comp_algorithm=zstd")
        .args(["algorithm_params=dict=words"])
        .current_dir(&own)
        .output()
        .unwrap();
    assert_eq!(said(&dictionary).code, 0, "{}", said(&dictionary).err);
    daemon.does("set zram1 disksize=1M");
    // Where it is not there, it is nowhere.
    let lost =
        said(&daemon.command("set zram0 backing_dev=pages").current_dir("/").output().unwrap());
    refused(&lost, 1, &["/pages", "ENOENT"]);
    let remote = "--remote fs://pages/store";
    refused(
        &at(&format!("add --backing pages {remote}")),
        1,
        &["fs://pages/store", "absolute", "EINVAL"],
    );
    // Another program may ask as it likes.
    let socket = place.root().join("control.sock");
    let asked = |command: &str| {
        use std::io::{BufRead, BufReader, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        writeln!(stream, r#"{{"version":1,{command}}}"#).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    let set = r#""command":"set","device":"zram0","attribute":"backing_dev","value":"pages""#;
    let add = r#""command":"add","attributes":[{"name":"backing_dev","value":"pages"}]"#;
    let upgrade = r#""command":"swap_on","size":"1M","backing":"pages""#;
    for command in [set, add] {
        let answer = asked(command);
        assert!(answer.contains("EINVAL") && answer.contains("relative path"), "{answer}");
    }
    assert!(!asked(upgrade).contains(r#""ok""#));
    assert_eq!(daemon.does("get zram0 backing_dev"), "none\n");
    daemon.stop();
}

#[test]
fn a_relative_path_in_a_file_of_the_tree_is_in_the_directory_of_the_writer() {
    let name = "a_relative_path_in_a_file_of_the_tree_is_in_the_directory_of_the_writer";
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let place = Place::new();
    let own = place.path().join("own");
    fs::create_dir(&own).unwrap();
    private_file(&own.join("pages"), 1 << 20);
    fs::write(own.join("words"), "a dictionary of some words").unwrap();
    let daemon = daemon_elsewhere(&place, "serve --num-devices 2");
    let pages = format!("{}\n", own.join("pages").display());
    let write = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&own).env("SYS", place.root().join("sys"));
        said(&command.output().unwrap())
    };
    let written = write("echo pages > $SYS/block/zram0/backing_dev");
    assert_eq!(written.code, 0, "{}", written.err);
    assert_eq!(daemon.does("get zram0 backing_dev"), pages);
    daemon.does("set zram0 reset=1");
    let written = write("echo dict=words > $SYS/block/zram1/algorithm_params");
    assert_eq!(written.code, 0, "{}", written.err);
    let exec = |line: &str| {
        let mut command = daemon.command("exec -- sh -c");
        said(&command.arg(line).current_dir(&own).output().unwrap())
    };
    let done = exec("echo pages > /sys/block/zram0/backing_dev");
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(daemon.does("get zram0 backing_dev"), pages);
    daemon.does("set zram0 reset=1");
    // What nobody but the writer sees is not what the daemon would take.
    let hidden = "mount -t tmpfs none . && cd . && cd \"$PWD\" && truncate -s 1M pages && \
                  echo pages > /sys/block/zram0/backing_dev";
    refused(&exec(hidden), 1, &["rror"]);
    assert_eq!(daemon.does("get zram0 backing_dev"), "none\n");
    // As in Linux: the node of a device in /dev.
    let file = place.path().join("disk");
    private_file(&file, 1 << 20);
    let device = testkit::attach_loop(&[], &file);
    let name = device.file_name().unwrap().to_str().unwrap();
    let done = exec(&format!("cd /dev; echo {name} > /sys/block/zram0/backing_dev"));
    let shown = daemon.does("get zram0 backing_dev");
    daemon.does("set zram0 reset=1");
    testkit::run(Command::new("losetup").arg("--detach").arg(&device));
    assert_eq!((done.code, shown.trim()), (0, device.to_str().unwrap()), "{}", done.err);
    daemon.stop();
    place.is_clean();
}

#[test]
fn any_bytes_are_a_name() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"p\xff\xf4\x8f\xbf\xbf \xc3\xb6\x9b");
    let path = place.path().join(name);
    private_file(&path, 1 << 20);
    let daemon = Daemon::start(&place, "serve --num-devices 1 --transport nbd");
    let shown = || {
        let output = daemon.command("get zram0 backing_dev").output().unwrap().stdout;
        PathBuf::from(OsStr::from_bytes(output.strip_suffix(b"\n").unwrap()))
    };
    let mut word = OsString::from("backing_dev=");
    word.push(&path);
    for words in [vec![word.clone()], vec!["backing_dev".into(), path.clone().into()]] {
        let set = said(&daemon.command("set zram0").args(words).output().unwrap());
        assert_eq!(set.code, 0, "{}", set.err);
        assert_eq!(shown(), path);
        daemon.does("set zram0 reset=1");
    }
    for (option, value) in [("--backing", path.as_os_str()), ("--set", &word)] {
        let added = said(&daemon.command("add --size 1M").arg(option).arg(value).output().unwrap());
        assert_eq!(added.code, 0, "{}", added.err);
        let status = daemon.does("status --json");
        assert!(serde_json::from_str::<serde_json::Value>(&status).is_ok(), "{status}");
        daemon.does(&format!("remove {}", added.out.trim()));
    }
    let mut missing = word;
    missing.push("x");
    let said = said(&daemon.command("set zram0").arg(missing).output().unwrap());
    refused(&said, 1, &["p\u{fffd}", "ENOENT"]);
    daemon.stop();
}

#[test]
fn a_plain_backing_file_that_others_may_read_is_refused() {
    let place = Place::new();
    let path = place.path().join("pages");
    private_file(&path, 1 << 20);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let daemon = Daemon::start(&place, "serve --num-devices 1 --transport nbd");
    let plain = format!("--backing {} --plain-backing", path.display());
    let why = ["mode 0644", "see every page in it", "chmod 600", "--force", "EACCES"];
    refused(&daemon.ask(&format!("add --size 1M {plain}")), 1, &why);
    let set = format!("set zram0 sealed_backing=0 backing_dev={}", path.display());
    refused(&daemon.ask(&set), 1, &why);
    assert_eq!(daemon.does("add --size 1M --force ".to_owned().as_str()), "zram1\n");
    assert_eq!(daemon.does(&format!("add --size 1M --force {plain}")), "zram2\n");
    daemon.does("remove zram2");
    daemon.lines_until(&["see every page"]);
    // Others see that it is written to, and that is all.
    assert_eq!(daemon.does(&format!("add --size 1M --backing {}", path.display())), "zram2\n");
    wait_until("the warning", || {
        let told = daemon.rest();
        assert!(!told.contains("see every page"), "{told}");
        told.contains("and not what is in them")
    });
    daemon.stop();
}

#[test]
fn no_log_tells_a_password() {
    let name = "no_log_tells_a_password";
    if !met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["-vv", "serve"]).stdin(Stdio::null());
    let daemon = Daemon::spawn(&place, &mut command);
    let sys = place.root().join("sys/block/zram0");
    for (attribute, value) in [
        ("backing_remote", "redis://me:secret@host:1/0 copies=9"),
        ("backing_remote", "redis:/me:secret@host"),
        ("backing_remote", "password=secret"),
        ("backing_dev", "redis://me:secret@host:1/0"),
        ("comp_algorithm", "s3://b/p?secret_access_key=secret"),
    ] {
        assert!(fs::write(sys.join(attribute), value).is_err(), "{value}");
        daemon.ask(&format!("set zram0 {attribute}={}", value.replace(' ', "_")));
        let told = daemon.lines_until(&["refused"]) + &daemon.rest();
        assert!(!told.contains("secret@") && !told.contains("=secret"), "{value}: {told}");
    }
    daemon.stop();
}
