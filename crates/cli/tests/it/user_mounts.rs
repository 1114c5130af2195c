//! `rampack up --mount DIR` of an ordinary user, and with a command: fuse2fs mounts a file.

use std::env;
use std::process::Command;

use service::filesystem::find_program;
use testkit::{Need, met, run};

use crate::common::{Daemon, Place, refused, said};

/// A `/dev/fuse` for everybody, as most systems have it, in a mount namespace where it harms
/// nobody. `$1` is the program, `$2` a directory, `$3` a tree of files. `began` waits until a
/// daemon says that it is ready, `is_gone` until nothing of it is left.
const BEGIN: &str = r#"
dir=$2/dir top=$2 tree=$3
mount -t tmpfs none "$2"
chmod 1777 "$2"
mknod -m 666 "$2/fuse" c 10 229
mount --bind "$2/fuse" /dev/fuse
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
rampack() { as_nobody "$top/rampack" --root "$top/root" "$@"; }
cp "$1" "$2/rampack"
chmod 755 "$2/rampack"
as_nobody mkdir "$dir"
began() { while read line; do case $line in *'end it'*|*'serving in'*) break;; esac; done < "$top/said"; }
is_gone() {
    while grep -q -e "$top/root" -e "$dir" /proc/self/mountinfo; do sleep 0.02; done
    while pgrep -f "fuse2fs $top/root" > /dev/null; do sleep 0.02; done
    [ -z "$(ls "$dir")" ]
    echo "$1: nothing is left"
}
"#;

const A_COMMAND: &str = r#"
code=0
rampack up --size 64M --mount "$dir" -- sh -euc '
    cp -r "$1" "$2/tree"
    diff -r "$1" "$2/tree"
    stat --file-system --format "%T" "$2"
    cd "$2"
    echo > t
    for n in $(seq 20); do ar rcD $n.a t; done
    echo "$(find . -name ".fuse_hidden*" | wc -l) hidden"
    exit 7
' - "$tree" "$dir" || code=$?
echo "code $code"
is_gone 'the command ended'
[ ! -e "$top/root" ]
rampack up --size 64M --mount "$dir" -- sh -c 'kill -9 $$' || echo "code $?"
is_gone 'the command was killed'
rampack up --size 64M --mount "$dir" -- /no/such/command 2>&1 || echo "code $?"
is_gone 'there was no command'
rampack up --mount "$dir" --nbd-tcp 127.0.0.1:0 -- true 2>&1 | grep -o 'nor with --mount'
is_gone 'it was refused'
"#;

const ITS_END: &str = r#"
as_nobody mkfifo "$top/said"
for signal in TERM KILL; do
    rampack up --size 64M --mount "$dir" > "$top/said" 2>&1 & 
    began
    as_nobody cp -r "$tree" "$dir/tree"
    as_nobody diff -r "$tree" "$dir/tree"
    # The shell's child is setpriv, which became the program.
    pkill --signal $signal --oldest -f "^$top/rampack --root $top/root up"
    wait $! || true
    is_gone $signal
done
rampack up --size 64M --mount "$dir" > "$top/said" 2>&1 &
began
rampack stop
wait $!
is_gone stop
"#;

const CONFIGURED: &str = r#"
as_nobody mkfifo "$top/said"
printf '[zram0]\nsize = "64M"\nmount = "%s"\n' "$dir" > "$top/rampack.toml"
for signal in TERM KILL; do
    rampack serve --config="$top/rampack.toml" > "$top/said" 2>&1 &
    began
    as_nobody cp -r "$tree" "$dir/tree"
    as_nobody diff -r "$tree" "$dir/tree"
    pkill --signal $signal --oldest -f "^$top/rampack --root $top/root serve"
    wait $! || true
    is_gone $signal
done
"#;

/// As in a directory that mmdebstrap made.
const NO_MTAB: &str = r#"
mkdir "$top/etc"
cp /etc/passwd "$top/etc"
mount --bind "$top/etc" /etc
rampack up --size 64M --mount "$dir" -- true 2>&1 | grep -o 'fusermount3 unmounts .*'
is_gone 'it was refused'
as_nobody mkfifo "$top/said"
rampack up --size 16M > "$top/said" 2>&1 &
began
rampack stop
wait $!
is_gone 'it needs no mount'
ln -s ../proc/self/mounts /etc/mtab
rampack up --size 64M --mount "$dir" -- echo mounted
is_gone 'the link is there'
"#;

const NEEDS: [Need; 8] = [
    Need::Root,
    Need::Fuse,
    Need::program("fusermount3", "fuse3"),
    Need::program("fuse2fs", "fuse2fs"),
    Need::program("mkfs.ext4", "e2fsprogs"),
    Need::program("pgrep", "procps"),
    Need::program("unshare", "util-linux"),
    Need::program("setpriv", "util-linux"),
];

fn in_a_namespace(script: &str) -> String {
    let place = testkit::TempDir::new();
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300", "unshare", "--mount", "--propagation", "slave"]);
    command.args(["sh", "-euc", &format!("{BEGIN}{script}"), "-"]);
    command.arg(env!("CARGO_BIN_EXE_rampack")).arg(place.path()).arg(tree);
    run(&mut command).stdout
}

#[test]
fn a_user_without_root_runs_a_command_on_a_directory() {
    if !met("a_user_without_root_runs_a_command_on_a_directory", &NEEDS) {
        return;
    }
    let out = in_a_namespace(A_COMMAND);
    let expected = "fuseblk\n0 hidden\ncode 7\nthe command ended: nothing is left\n\
                    code 137\nthe command was killed: nothing is left\n\
                    rampack: cannot run /no/such/command: no such file or directory (ENOENT)\n\
                    code 1\nthere was no command: nothing is left\n\
                    nor with --mount\nit was refused: nothing is left\n";
    assert_eq!(out, expected);
}

#[test]
fn nothing_is_left_of_a_user_s_mount() {
    if !met("nothing_is_left_of_a_user_s_mount", &NEEDS) {
        return;
    }
    let out = in_a_namespace(ITS_END);
    let expected = "TERM: nothing is left\nKILL: nothing is left\nstop: nothing is left\n";
    assert_eq!(out, expected);
}

#[test]
fn a_configured_mount_of_a_user_is_made_and_goes() {
    if !met("a_configured_mount_of_a_user_is_made_and_goes", &NEEDS) {
        return;
    }
    let out = in_a_namespace(CONFIGURED);
    assert_eq!(out, "TERM: nothing is left\nKILL: nothing is left\n");
}

#[test]
fn what_could_not_be_unmounted_is_not_mounted() {
    if !met("what_could_not_be_unmounted_is_not_mounted", &NEEDS) {
        return;
    }
    let out = in_a_namespace(NO_MTAB);
    let expected = "fusermount3 unmounts for a user only if /etc/mtab is there, and root makes it \
                    with 'ln -s ../proc/self/mounts /etc/mtab' (EPERM)\n\
                    it was refused: nothing is left\n\
                    it needs no mount: nothing is left\nmounted\n\
                    the link is there: nothing is left\n";
    assert_eq!(out, expected);
}

/// In a user namespace the user is root there, without block devices.
#[test]
fn a_command_runs_on_a_directory_in_a_user_namespace() {
    if !met("a_command_runs_on_a_directory_in_a_user_namespace", &NEEDS) {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", env!("CARGO_BIN_EXE_rampack")]);
    command.arg("--root").arg(place.root()).args(["up", "--size", "64M", "--mount"]);
    command.arg(&mount_point).args(["--", "sh", "-c", "echo x > $0/x && cat $0/x; exit 3"]);
    let said = said(&command.arg(&mount_point).output().unwrap());
    assert_eq!((said.out.as_str(), said.code), ("x\n", 3), "{}", said.err);
    place.is_clean();
    // The shell is the parent of the program, and kills it from inside.
    let text = "\"$0\" --root $1 up --size 64M --mount $2 -- sh -c 'kill -9 $PPID'
        while grep -q -e $1 -e $2 /proc/self/mountinfo; do sleep 0.02; done
        ls $2";
    let mut command = Command::new("timeout");
    command.args(["60", "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", text]);
    command.arg(env!("CARGO_BIN_EXE_rampack")).arg(place.root()).arg(&mount_point);
    let said = crate::common::said(&command.output().unwrap());
    assert_eq!((said.out.as_str(), said.code), ("", 0), "{}", said.err);
}

#[test]
fn a_kernel_s_mount_takes_a_command_too() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::program("mkfs.ext4", "e2fsprogs")];
    if !met("a_kernel_s_mount_takes_a_command_too", &needs) {
        return;
    }
    let place = Place::new();
    let dir = place.mount_point();
    let text = "stat --file-system --format %T $0; echo x > $0/x; exit 5";
    let mut command = Daemon::command_in(&place, "up --size 64M --mount");
    let output = command.arg(&dir).args(["--", "sh", "-c", text]).arg(&dir).output().unwrap();
    let said = said(&output);
    assert_eq!((said.out.as_str(), said.code), ("ext2/ext3\n", 5), "{}", said.err);
    place.is_clean();
    // Nothing keeps a command.
    let mut command = Daemon::command_in(&place, "keep up --size 64M --mount");
    let output = command.arg(&dir).args(["--", "true"]).output().unwrap();
    refused(&crate::common::said(&output), 1, &["ends with its daemon", "EINVAL"]);
    place.is_clean();
}

#[test]
fn ctrl_c_before_a_command_begins_ends_the_daemon() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::program("mkfs.ext4", "e2fsprogs")];
    if !met("ctrl_c_before_a_command_begins_ends_the_daemon", &needs) {
        return;
    }
    let place = Place::new();
    let dir = place.mount_point();
    let path = env::var("PATH").unwrap();
    let mkfs = find_program("mkfs.ext4", Some(path.as_ref())).unwrap();
    // Ctrl-C comes while the file system is made.
    let text = format!("#!/bin/sh\nkill -INT $PPID\nexec {} \"$@\"\n", mkfs.display());
    testkit::script(place.path().join("mkfs.ext4"), &text);
    let mut command = Daemon::command_in(&place, "up --size 64M --mount");
    command.env("PATH", format!("{}:{path}", place.path().display()));
    let output = command.arg(&dir).args(["--", "echo", "begun"]).output().unwrap();
    let said = said(&output);
    assert_eq!((said.out.as_str(), said.code), ("", 130), "{}", said.err);
    place.is_clean();
}
