//! `rampack doctor`: a line of each kind is provoked, in namespaces, by limits and by privileges,
//! and is gone after its command.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use testkit::{Need, TempDir, met};

use crate::common::{program, rampack, refused, said};

/// Replaces a file of the system by one with another text, for this namespace alone.
const PUT: &str = "put() { printf '%s\\n' \"$2\" >\"$T/${1##*/}\"; mount --bind \"$T/${1##*/}\" \
                   \"$1\"; }";
const UNSHARE: Need = Need::program("unshare", "util-linux");

/// What the program says after `setup` of a shell that `entered` starts. `$T` is an empty
/// directory, `$P` the program.
#[track_caller]
fn after(entered: &[&str], setup: &str) -> Value {
    let place = TempDir::new();
    let (first, rest) = entered.split_first().unwrap();
    let mut command = Command::new(first);
    let script = format!("{PUT}; {setup}\nexec \"$P\" doctor --json");
    command.args(rest).args(["bash", "-ec", &script]).stdin(Stdio::null());
    command.env("P", program().get_program()).env("T", place.path());
    let said = said(&command.output().unwrap());
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    let levels = json["findings"].as_array().unwrap().iter().map(|it| &it["level"]);
    let has_problem = levels.clone().any(|level| level == "problem");
    assert_eq!(said.code, i32::from(has_problem), "{}", said.err);
    json
}

/// The line of this name.
#[track_caller]
fn line(json: &Value, name: &str) -> Value {
    let lines = json["findings"].as_array().unwrap();
    lines.iter().find(|it| it["name"] == name).cloned().unwrap_or_else(|| panic!("{name}: {json}"))
}

/// After `setup` the line is one of `level`, and after its own command it is as it should be.
#[track_caller]
fn mends_itself(entered: &[&str], setup: &str, name: &str, level: &str) {
    let it = line(&after(entered, setup), name);
    assert_eq!(it["level"], level, "{setup}: {it}");
    // Root of a user namespace is nobody on the machine, but here it is what is mended for.
    let command = it["command"].as_str().unwrap_or_else(|| panic!("{it}")).replace("sudo ", "");
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let command = format!("{setup}; PATH={path}\n{{ {command}\n}} >/dev/null");
    let mended = line(&after(entered, &command), name);
    assert_eq!(mended["level"], "ok", "{command}: {mended}");
}

fn has_user_namespaces() -> Need {
    let mut tried = Command::new("unshare");
    tried.args(["--user", "--map-root-user", "--mount", "true"]).stderr(Stdio::null());
    let is_there = tried.status().is_ok_and(|status| status.success());
    Need::other(is_there, "user namespaces (sysctl user.max_user_namespaces)")
}

#[test]
fn the_text_has_each_line_of_the_object_and_its_command() {
    let text = rampack("doctor");
    let json: Value = serde_json::from_str(&rampack("doctor --json").out).unwrap();
    assert_eq!(json["rampack"], env!("CARGO_PKG_VERSION"));
    for it in json["findings"].as_array().unwrap() {
        let name = it["name"].as_str().unwrap();
        let level = it["level"].as_str().unwrap();
        let line = format!("\n{level:<8} {name}: ");
        assert!(text.out.contains(&line), "{line}{}", text.out);
        if let Some(command) = it["command"].as_str() {
            assert!(text.out.contains(&format!("\n         $ {command}\n")), "{}", text.out);
        }
    }
    for it in json["can"].as_array().unwrap() {
        let works =
            if it["missing"].as_array().unwrap().is_empty() { "works  " } else { "fails  " };
        let line = text.out.lines().find(|line| line.contains(it["name"].as_str().unwrap()));
        assert!(line.is_some_and(|line| line.starts_with(works)), "{it}: {}", text.out);
    }
    refused(&rampack("doctor --json --sysctl"), 2, &["--sysctl"]);
}

#[test]
fn files_of_the_kernel_are_mended_by_the_commands() {
    let sysctl = Need::program("sysctl", "procps");
    let needs = [UNSHARE, sysctl, has_user_namespaces()];
    if !met("files_of_the_kernel_are_mended_by_the_commands", &needs) {
        return;
    }
    let alone = ["unshare", "--user", "--map-root-user", "--mount"];
    let settings = [
        ("vm.page-cluster", "3"),
        ("vm.swappiness", "180"),
        ("vm.watermark_scale_factor", "10"),
        ("vm.watermark_boost_factor", "15000"),
        ("vm.min_free_kbytes", "1"),
    ];
    for (name, value) in settings {
        let setup = format!("put /proc/sys/{} {value}", name.replace('.', "/"));
        mends_itself(&alone, &setup, name, "note");
    }
    let switches = [
        ("/sys/module/zswap/parameters/enabled", "Y", "zswap"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "'always madvise [never]'", "huge pages"),
    ];
    for (file, value, name) in switches {
        if fs::exists(file).unwrap() {
            mends_itself(&alone, &format!("put {file} {value}"), name, "note");
        }
    }
    // It is counted in each user namespace, so this is really forbidden, and allowed again.
    let forbidden = "echo 0 >/proc/sys/user/max_user_namespaces";
    mends_itself(&alone, forbidden, "user namespaces", "note");
}

#[test]
fn the_printed_settings_leave_nothing_to_say() {
    let sysctl = Need::program("sysctl", "procps");
    let needs = [UNSHARE, sysctl, has_user_namespaces()];
    if !met("the_printed_settings_leave_nothing_to_say", &needs) {
        return;
    }
    let alone = ["unshare", "--user", "--map-root-user", "--mount"];
    let setup = "for name in page-cluster swappiness watermark_scale_factor \
                 watermark_boost_factor min_free_kbytes; do put /proc/sys/vm/$name 7; done
                 \"$P\" doctor --sysctl >$T/file
                 PATH=/usr/sbin:/usr/bin:/sbin:/bin
                 sysctl --quiet --load $T/file 2>/dev/null || :
                 grep -q 'vm.swappiness = 60' $T/file";
    let json = after(&alone, setup);
    for it in json["findings"].as_array().unwrap() {
        let name = it["name"].as_str().unwrap();
        assert!(!name.starts_with("vm.") || it["level"] == "ok", "{it}");
    }
    assert_eq!(line(&json, "vm.swappiness")["text"], "is 60");
}

#[test]
fn programs_that_are_not_there_are_named_with_their_package() {
    let needs = [UNSHARE, has_user_namespaces()];
    if !met("programs_that_are_not_there_are_named_with_their_package", &needs) {
        return;
    }
    let alone = ["unshare", "--user", "--map-root-user", "--mount"];
    // Where nothing else is found.
    let empty = "for place in /sbin /usr/sbin /usr/local/sbin; do
                     [ ! -d $place ] || mount -t tmpfs none $place
                 done
                 mkdir $T/bin";
    let bare = format!("put /etc/os-release ID=debian; {empty}; export PATH=$T/bin");
    let json = after(&alone, &bare);
    for (name, package) in
        [("fusermount3", "fuse3"), ("fuse2fs", "fuse2fs"), ("mkfs.ext4", "e2fsprogs")]
    {
        let it = line(&json, name);
        assert_eq!(it["level"], "problem", "{it}");
        assert_eq!(it["command"], format!("sudo apt install {package}"));
        let missing = json["can"][1]["missing"].as_array().unwrap();
        assert!(missing.contains(&name.into()), "{missing:?}");
    }
    let made = format!("{empty}; touch $T/bin/fuse2fs $T/bin/fusermount3 $T/bin/mkfs.ext4");
    let json = after(&alone, &format!("{made}; export PATH=$T/bin"));
    for name in ["fusermount3", "fuse2fs", "mkfs.ext4"] {
        assert_eq!(line(&json, name)["level"], "ok");
    }
}

#[test]
fn limits_and_what_the_process_may_are_told() {
    // Soft limits, which the command can raise again.
    mends_itself(&["env"], "ulimit -S -v 100000", "room", "problem");
    mends_itself(&["env"], "ulimit -S -d 50000", "room", "problem");
    let needs = [Need::Root, UNSHARE, Need::program("setpriv", "util-linux")];
    if !met("limits_and_what_the_process_may_are_told", &needs) {
        return;
    }
    for name in ["sys_admin", "sys_resource", "ipc_lock", "sys_nice"] {
        let without = format!("-{name}");
        let json = after(&["setpriv", "--bounding-set", &without], ":");
        let it = line(&json, &format!("CAP_{}", name.to_uppercase()));
        assert_ne!(it["level"], "ok", "{it}");
    }
    let without = ["setpriv", "--bounding-set", "-ipc_lock"];
    let it = line(&after(&without, "ulimit -S -l 64"), "locked memory");
    assert!(it["level"] == "problem" && it["text"].to_string().contains("64K"), "{it}");
    assert_eq!(it["command"], "ulimit -l unlimited");
    // An ordinary user has what is theirs, where the program can be reached.
    let place = TempDir::new();
    let copy = place.path().join("rampack");
    testkit::copy_program(program().get_program(), &copy);
    testkit::run(Command::new("chmod").arg("755").arg(place.path()).arg(&copy));
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let output = nobody.arg(&copy).args(["doctor", "--json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["root", "loop", "ublk"] {
        assert_eq!(line(&json, name)["level"], "note");
    }
    assert_eq!(json["can"][3]["missing"], serde_json::json!(["root"]));
}

#[test]
fn what_is_hidden_from_the_process_is_told() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, UNSHARE];
    if !met("what_is_hidden_from_the_process_is_told", &needs) {
        return;
    }
    let alone = ["unshare", "--mount", "--propagation", "slave"];
    mends_itself(&alone, "umount -l /proc", "/proc", "problem");
    let json = after(&alone, "mount -t tmpfs none /dev");
    for name in ["/dev/fuse", "loop"] {
        let it = line(&json, name);
        assert_eq!(it["level"], "problem", "{it}");
        assert!(it["command"].as_str().unwrap().contains("modprobe"), "{it}");
    }
    assert!(json["can"][2]["missing"].as_array().unwrap().contains(&"/dev/fuse".into()));
    let json = after(&alone, ":");
    for name in ["/proc", "/dev/fuse", "loop"] {
        assert_eq!(line(&json, name)["level"], "ok");
    }
}

#[test]
fn a_limit_of_a_control_group_is_lifted_by_its_command() {
    if !met("a_limit_of_a_control_group_is_lifted_by_its_command", &[Need::Root]) {
        return;
    }
    let Some(group) = crate::limits::Limited::make(300 << 20) else { return };
    let (enter, own) = (group.enter(), group.0.display().to_string());
    let it = line(&after(&["env"], &enter), "control group");
    assert!(it["level"] != "ok" && it["text"].as_str().unwrap().starts_with(&own), "{it}");
    let command = it["command"].as_str().unwrap();
    // Limits of groups above it stay.
    let it =
        line(&after(&["env"], &format!("{{ {command}\n}} >/dev/null; {enter}")), "control group");
    assert!(!it["text"].as_str().unwrap().contains(&own), "{it}");
}

/// Each of two tests shows a program of this name, and all processes are seen.
static EARLYOOM: Mutex<()> = Mutex::new(());

#[test]
fn a_program_that_ends_others_is_seen() {
    let _alone = EARLYOOM.lock().unwrap_or_else(PoisonError::into_inner);
    let place = TempDir::new();
    let earlyoom = place.path().join("earlyoom");
    testkit::copy_program("/bin/sh", &earlyoom);
    let seen = |words: &[&str]| {
        let mut command = Command::new(&earlyoom);
        command.args(["-c", "echo; read word", "name"]).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It has its name once it says something.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let found = line(&after(&["env"], ":"), "earlyoom");
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        child.wait().unwrap();
        found["level"].clone()
    };
    assert_eq!(seen(&[]), "note");
    assert_eq!(seen(&["--avoid", "^rampack$"]), "ok");
}

/// The program itself, in a namespace where a shell stands for its service.
#[test]
fn earlyoom_leaves_rampack_alone_after_the_command() {
    let needs = [
        Need::Root,
        UNSHARE,
        Need::program("earlyoom", "earlyoom"),
        Need::program("systemctl", "systemd"),
    ];
    if !met("earlyoom_leaves_rampack_alone_after_the_command", &needs) {
        return;
    }
    let _alone = EARLYOOM.lock().unwrap_or_else(PoisonError::into_inner);
    let alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let service = "#!/bin/bash
[ ! -e $T/pid ] || { kill $(<$T/pid); while kill -0 $(<$T/pid); do sleep 0.1; done; } 2>/dev/null
. /etc/default/earlyoom
earlyoom --dryrun -m 1 -s 1 $EARLYOOM_ARGS >/dev/null 2>&1 &
echo $! >$T/pid
sleep 0.3";
    let setup = format!(
        "put /etc/default/earlyoom 'EARLYOOM_ARGS=\"-r 3600\"'
         printf '%s\\n' '{service}' >$T/systemctl
         chmod +x $T/systemctl
         mount --bind $T/systemctl $(command -v systemctl)
         systemctl start earlyoom"
    );
    mends_itself(&alone, &setup, "earlyoom", "note");
}
