//! `rampack exec`: programs written for the kernel's zram, as they are.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use testkit::{Need, met};

use crate::bad_input::as_nobody;
use crate::common::{Daemon, Place, Said, program, refused, said, wait_until};

const EXEC: [Need; 4] =
    [Need::Root, Need::Fuse, Need::Loop, Need::program("zramctl", "util-linux")];
const MKFS: Need = Need::program("mkfs.ext4", "e2fsprogs");
const FSCK: Need = Need::program("fsck.ext4", "e2fsprogs");
const MKSWAP: Need = Need::program("mkswap", "util-linux");
const SWAPON: Need = Need::program("swapon", "mount");

fn exec(daemon: &Daemon, arguments: &[&str]) -> Output {
    daemon.command("exec --").args(arguments).output().unwrap()
}

/// Runs a script of the shell in the place of the system's zram.
fn script(daemon: &Daemon, text: &str) -> Said {
    said(&exec(daemon, &["sh", "-euc", text]))
}

#[track_caller]
fn does(daemon: &Daemon, text: &str) -> String {
    let said = script(daemon, text);
    assert_eq!(said.code, 0, "{text}\n{}\n{}", said.out, said.err);
    said.out
}

/// Words of the lines, without the spaces between them.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn zramctl_finds_sets_lists_and_resets() {
    if !met("zramctl_finds_sets_lists_and_resets", &EXEC) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    assert_eq!(does(&daemon, "zramctl"), "", "none has a size");
    assert_eq!(does(&daemon, "zramctl --find"), "/dev/zram0\n");
    assert_eq!(does(&daemon, "zramctl --find --size 64M --algorithm zstd"), "/dev/zram0\n");
    // The first is taken now: hot_add makes another, whose node is there when it is named.
    let out = does(&daemon, "d=$(zramctl --find --size 32M); echo $d; blockdev --getsize64 $d");
    assert_eq!(out, "/dev/zram1\n33554432\n");
    let list = does(&daemon, "zramctl --noheadings --bytes --output NAME,ALGORITHM,DISKSIZE,DATA");
    let expected =
        [["/dev/zram0", "zstd", "67108864", "0"], ["/dev/zram1", "lz4", "33554432", "0"]];
    assert_eq!(words(&list), expected);
    let table = does(&daemon, "zramctl");
    let heading = "NAME ALGORITHM DISKSIZE DATA COMPR TOTAL STREAMS MOUNTPOINT";
    assert_eq!(words(&table)[0].join(" "), heading);
    does(&daemon, "zramctl --reset /dev/zram0");
    // Some versions remove the device as well. All list only those with a size.
    assert_eq!(does(&daemon, "zramctl --noheadings --output NAME"), "/dev/zram1\n");
    let out = does(&daemon, "zramctl --find --size 16M --algorithm deflate --streams 2");
    assert_eq!(out, "/dev/zram0\n");
    assert_eq!(daemon.does("get zram0 disksize"), "16777216\n");
    let said = script(&daemon, "zramctl --size 1M --algorithm nosuch --find");
    assert_ne!(said.code, 0);
    assert!(said.err.contains("Invalid argument"), "{}", said.err);
    does(&daemon, "exec 3</dev/zram0; ! zramctl --reset /dev/zram0; exec 3<&-");
    does(&daemon, "zramctl --reset /dev/zram0 /dev/zram1");
    daemon.stop();
    place.is_clean();
}

/// Four devices, each with its size and algorithm.
fn four_devices(place: &Place) -> Daemon {
    let daemon = Daemon::start(place, "serve --num-devices 4");
    for (number, algorithm) in ["lz4", "zstd", "deflate", "lz4"].iter().enumerate() {
        does(&daemon, &format!("zramctl /dev/zram{number} --size 64M --algorithm {algorithm}"));
    }
    daemon
}

/// These devices have no contents.
fn are_empty(daemon: &Daemon, numbers: &[u32]) {
    for number in numbers {
        assert_eq!(daemon.does(&format!("get zram{number} orig_data_size")), "0\n");
    }
}

#[test]
fn a_file_system_on_one_of_four_devices() {
    let needs = [EXEC[0], EXEC[1], EXEC[2], EXEC[3], MKFS, FSCK];
    if !met("a_file_system_on_one_of_four_devices", &needs) {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let daemon = four_devices(&place);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../service");
    let at = mount_point.display();
    let out = does(
        &daemon,
        &format!(
            "mkfs.ext4 -q /dev/zram1
             mount /dev/zram1 {at}
             cp -r {source}/src {at}/
             zramctl --noheadings --output MOUNTPOINT /dev/zram1
             ! zramctl --reset /dev/zram1
             umount {at}
             fsck.ext4 -f -n /dev/zram1 >/dev/null 2>&1
             mount /dev/zram1 {at}
             diff -r {source}/src {at}/src
             umount {at}"
        ),
    );
    assert_eq!(out.trim(), mount_point.to_str().unwrap());
    assert!(place.mounts().iter().all(|path| *path != mount_point), "it was the command's alone");
    let stored: u64 = daemon.does("get zram1 orig_data_size").trim().parse().unwrap();
    assert!(stored > 1 << 18, "{stored}");
    are_empty(&daemon, &[0, 2, 3]);
    daemon.stop();
    place.is_clean();
}

#[test]
fn swap_on_one_of_four_devices() {
    let needs = [EXEC[0], EXEC[1], EXEC[2], EXEC[3], MKSWAP, SWAPON, Need::Swap];
    if !met("swap_on_one_of_four_devices", &needs) {
        return;
    }
    let place = Place::new();
    let daemon = four_devices(&place);
    // What is swapped to is given back in any case.
    let out = does(
        &daemon,
        "mkswap /dev/zram2 >/dev/null
         trap 'swapoff /dev/zram2 2>/dev/null || true' EXIT
         swapon --priority 0 --discard /dev/zram2
         grep --count --word-regexp $(readlink --canonicalize /dev/zram2) /proc/swaps
         ! zramctl --reset /dev/zram2
         swapoff /dev/zram2
         blkid --probe --match-tag TYPE --output value /dev/zram2",
    );
    assert_eq!(out, "1\nswap\n");
    are_empty(&daemon, &[0, 1, 3]);
    daemon.stop();
    place.is_clean();
}

/// A command that swaps off at the end of its input.
struct Swapping(std::process::Child);

impl Drop for Swapping {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn swap_on_a_device_that_is_not_protected_is_warned_of() {
    let needs = [EXEC[0], EXEC[1], EXEC[2], MKSWAP, SWAPON, Need::Swap];
    if !met("swap_on_a_device_that_is_not_protected_is_warned_of", &needs) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1 --size 32M");
    let mut swapping = daemon.command("exec --");
    let text = "mkswap /dev/zram0 >/dev/null
                trap 'swapoff /dev/zram0' EXIT
                swapon --priority 0 /dev/zram0
                read line";
    swapping.args(["sh", "-euc", text]).stdin(Stdio::piped());
    let swapping = Swapping(swapping.spawn().unwrap());
    let said = daemon.lines_until(&["the kernel swaps to zram0"]);
    assert!(said.contains("rampack swap on"), "{said}");
    let status = daemon.does("status");
    assert!(status.contains("the kernel swaps to zram0"), "{status}");
    drop(swapping);
    assert!(!daemon.does("status").contains("swaps to"));
    daemon.stop();
    place.is_clean();
}

/// What programs that make swap at the start of a system do, with the tools they use.
const GENERATOR: &str = r#"
set -eu
size=$((32 * 1024 * 1024))
for n in 0 1; do
    dev=zram$n
    if [ ! -e /sys/block/$dev ]; then
        n=$(cat /sys/class/zram-control/hot_add)
        dev=zram$n
    fi
    grep -qw zstd /sys/block/$dev/comp_algorithm && echo zstd > /sys/block/$dev/comp_algorithm
    echo $size > /sys/block/$dev/disksize
    echo 16M > /sys/block/$dev/mem_limit
    [ -b /dev/$dev ] || exit 9
    [ "$(cat /sys/block/$dev/size)" = $((size / 512)) ] || exit 10
    mkswap --label "$dev" /dev/$dev > /dev/null
    echo $dev $(cat /sys/block/$dev/initstate) $(blkid --match-tag LABEL --output value /dev/$dev)
done
for dev in zram0 zram1; do
    echo 1 > /sys/block/$dev/reset
    echo ${dev#zram} > /sys/class/zram-control/hot_remove
done
[ ! -e /dev/zram0 ] && [ ! -e /sys/block/zram0 ]
cat /sys/module/zram/parameters/num_devices
"#;

#[test]
fn a_script_for_the_kernels_zram_runs_unchanged() {
    let needs = [EXEC[0], EXEC[1], EXEC[2], MKSWAP];
    if !met("a_script_for_the_kernels_zram_runs_unchanged", &needs) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    assert_eq!(does(&daemon, GENERATOR), "zram0 1 zram0\nzram1 1 zram1\n0\n");
    daemon.stop();
    place.is_clean();
}

#[test]
fn only_the_commands_zram_is_another() {
    if !met("only_the_commands_zram_is_another", &EXEC) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2");
    let out = does(
        &daemon,
        "ls -d /sys/block/zram* /sys/class/block/zram* /dev/zram*
         cat /sys/dev/block/$(cat /sys/block/zram1/dev)/disksize
         echo nothing > /dev/null
         [ -c /dev/null ] && [ -d /dev/shm -o ! -d /dev/pts ] && [ -L /dev/fd -o ! -e /dev/fd ]
         ls -d /sys/class/net /sys/kernel/debug/zram/zram0 > /dev/null
         [ ! -e /sys/devices/virtual/block/zram0/disksize ]
         ! touch /dev/new 2>/dev/null",
    );
    let expected = ["/sys/block/zram0", "/sys/block/zram1", "/sys/class/block/zram0"];
    for path in expected.into_iter().chain(["/sys/class/block/zram1", "/dev/zram0", "/dev/zram1"]) {
        assert!(out.lines().any(|line| line == path), "{path}: {out}");
    }
    assert_eq!(out.lines().count(), 7, "{out}");
    // What systemd's programs look for before they take a block device.
    let out = does(
        &daemon,
        "for n in 0 1; do
             readlink /sys/dev/block/$(cat /sys/block/zram$n/dev)/subsystem
         done
         [ -d /sys/block/zram0/subsystem/ ]
         echo $SYSTEMD_DEVICE_VERIFY_SYSFS",
    );
    assert_eq!(out, "../../class/block\n../../class/block\n0\n");
    // Every other block device of the system is there and can be asked.
    let out = does(&daemon, "for d in /sys/block/*; do cat $d/size > /dev/null; done; echo all");
    assert_eq!(out, "all\n");
    let this = env!("CARGO_BIN_EXE_rampack");
    assert_eq!(does(&daemon, &format!("{this} add")), "zram2\n", "the same daemon");
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_command_may_run_exec_again() {
    if !met("a_command_may_run_exec_again", &EXEC[..3]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    let this = env!("CARGO_BIN_EXE_rampack");
    let look = "cat /sys/block/zram0/disksize /sys/module/zram/parameters/num_devices; \
                ls -d /dev/zram* /sys/module/zswap/parameters /sys/kernel/debug/zram; \
                [ -c /dev/null ] && ls /sys/class/net > /dev/null";
    let expected = does(&daemon, look);
    assert!(expected.contains("/dev/zram0\n"), "{expected}");
    for times in 1..4 {
        let mut words = [this, "exec", "--"].repeat(times);
        words.extend(["sh", "-euc", look]);
        let said = said(&exec(&daemon, &words));
        assert_eq!((said.code, &*said.out), (0, &*expected), "{times}: {}", said.err);
    }
    // Another daemon inside has its own devices.
    let other_place = Place::new();
    let other = Daemon::start(&other_place, "serve --num-devices 2");
    let root = other_place.root();
    let root = root.to_str().unwrap();
    let look = "cat /sys/module/zram/parameters/num_devices";
    let said = said(&exec(&daemon, &[this, "--root", root, "exec", "--", "sh", "-euc", look]));
    assert_eq!((said.code, &*said.out), (0, "2\n"), "{}", said.err);
    other.stop();
    daemon.stop();
    place.is_clean();
    other_place.is_clean();
}

/// The loop device of a removed device may be somebody else's when its name comes back.
#[test]
fn a_name_that_comes_back_leads_to_the_new_device() {
    if !met("a_name_that_comes_back_leads_to_the_new_device", &EXEC) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    let file = place.path().join("another");
    fs::write(&file, [0; 4096]).unwrap();
    // A device that losetup finds may go before it opens it: that of a daemon of another test.
    let out = does(
        &daemon,
        &format!(
            "for n in 1 2 3 4 5; do
                 test -b /dev/zram0
                 echo 0 > /sys/class/zram-control/hot_remove
                 other=$(losetup --find --show {0} || losetup --find --show {0})
                 [ $(cat /sys/class/zram-control/hot_add) = 0 ]
                 node=$(printf '%d:%d' $(stat --format '0x%t 0x%T' /dev/zram0))
                 losetup --detach $other
                 [ $node = $(cat /sys/block/zram0/dev) ] || echo it is $node, $other
             done",
            file.display()
        ),
    );
    assert_eq!(out, "");
    daemon.stop();
    place.is_clean();
}

/// A device has no block device for a moment when it comes and when it goes.
#[test]
fn devices_come_and_go_while_commands_begin() {
    if !met("devices_come_and_go_while_commands_begin", &EXEC) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    let text = "for n in $(seq 30); do
                    [ $(cat /sys/class/zram-control/hot_add) = 1 ]
                    echo 1 > /sys/class/zram-control/hot_remove
                done";
    let mut busy = daemon.command("exec --").args(["sh", "-euc", text]).spawn().unwrap();
    let ended = loop {
        does(&daemon, "true");
        if let Some(ended) = busy.try_wait().unwrap() {
            break ended;
        }
    };
    assert!(ended.success(), "{ended}");
    daemon.stop();
    place.is_clean();
}

#[test]
fn the_command_is_what_the_caller_waits_for() {
    if !met("the_command_is_what_the_caller_waits_for", &EXEC[..3]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    assert_eq!(exec(&daemon, &["sh", "-c", "exit 7"]).status.code(), Some(7));
    refused(&said(&exec(&daemon, &["/nonexistent/program"])), 127, &["cannot run", "ENOENT"]);
    refused(&said(&exec(&daemon, &["/etc/passwd"])), 126, &["cannot run", "EACCES"]);

    let mut waiting = daemon.command("exec sleep 1000");
    let mut waiting = waiting.stdout(Stdio::null()).spawn().unwrap();
    let here = fs::read_link("/proc/self/ns/mnt").unwrap();
    let its = format!("/proc/{}", waiting.id());
    wait_until("the command", || {
        fs::read_to_string(format!("{its}/comm")).is_ok_and(|name| name == "sleep\n")
    });
    assert_ne!(fs::read_link(format!("{its}/ns/mnt")).unwrap(), here);
    let process = format!("process {}", waiting.id());
    refused(&daemon.ask("stop"), 1, &["in use", &process, "EBUSY"]);
    assert!(place.root().join("sys/block/zram0/disksize").exists(), "all is as before");
    // SAFETY: kill takes two numbers; the child is ours and not yet waited for.
    unsafe { libc::kill(waiting.id() as i32, libc::SIGTERM) };
    assert_eq!(waiting.wait().unwrap().signal(), Some(libc::SIGTERM));
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_daemon_can_be_forced_to_end_under_a_command() {
    let needs = [EXEC[0], EXEC[1], EXEC[2], MKFS];
    if !met("a_daemon_can_be_forced_to_end_under_a_command", &needs) {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let daemon = Daemon::start(&place, "serve --num-devices 1 --size 16M");
    // With a file system that nobody else can see.
    let text = "mkfs.ext4 -q /dev/zram0; mount /dev/zram0 $0; echo x > $0/x; exec sleep 1000";
    let mut waiting = daemon.command("exec --");
    waiting.args(["sh", "-euc", text]).arg(&mount_point);
    let mut waiting = waiting.spawn().unwrap();
    let comm = format!("/proc/{}/comm", waiting.id());
    wait_until("the command", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let process = format!("where sleep runs (process {})", waiting.id());
    let at = mount_point.to_str().unwrap();
    refused(&daemon.ask("stop"), 1, &["zram0", "in use", at, &process, "EBUSY"]);
    refused(&daemon.ask("reset zram0"), 1, &["zram0", "in use", &process, "EBUSY"]);
    daemon.does("stop --force");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    wait_until("the loop device's end", || place.loops().is_empty());
    place.is_clean();
}

#[test]
fn what_exec_needs_is_said() {
    let place = Place::new();
    let help = said(&program().args(["exec", "--help"]).output().unwrap());
    for word in ["Needs root", "/sys/class/zram-control", "/dev/zramN", "126", "zramctl --find"] {
        assert!(help.out.contains(word), "{word}: {}", help.out);
    }
    if !met("what_exec_needs_is_said", &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut command = program();
    let nobody = command.arg("--root").arg(place.root()).args(["exec", "true"]);
    refused(&said(&nobody.output().unwrap()), 1, &["no rampack daemon", "ENOENT"]);
    let daemon = Daemon::start(&place, "serve --transport nbd");
    refused(&daemon.ask("exec true"), 1, &["no block devices", "--transport nbd", "ENODEV"]);
    daemon.stop();
    let mut command = as_nobody(&place);
    command.arg("--root").arg(place.root()).args(["exec", "true"]);
    refused(&said(&command.output().unwrap()), 1, &["needs root", "NBD", "EPERM"]);
    place.is_clean();
}
