//! `modprobe`, `rmmod` and `insmod` under `rampack exec`, and scripts that begin and end with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Need, met};

use crate::common::{Daemon, Place, Said, said};

const MKFS: Need = Need::program("mkfs.ext4", "e2fsprogs");
const EXEC: [Need; 4] = [Need::Root, Need::Fuse, Need::Loop, Need::program("modprobe", "kmod")];

fn script(daemon: &Daemon, text: &str) -> Said {
    said(&daemon.command("exec --").args(["bash", "-euc", text]).output().unwrap())
}

#[track_caller]
fn does(daemon: &Daemon, text: &str) -> String {
    let said = script(daemon, text);
    assert_eq!(said.code, 0, "{text}\n{}\n{}", said.out, said.err);
    said.out
}

/// Runs a command that must fail with `code` and say `text`.
#[track_caller]
fn refuses(daemon: &Daemon, command: &str, code: i32, text: &str) {
    let said = script(daemon, command);
    assert_eq!((said.code, &*said.err), (code, text), "{command}\n{}", said.out);
}

/// A text that the file of the system's kmod has and ours has not: the namespaces of commands
/// leave the system as it is.
fn real_version() -> Vec<u8> {
    Command::new("modprobe").arg("--version").output().unwrap().stdout
}

#[test]
fn modprobe_and_rmmod_answer_for_zram() {
    if !met("modprobe_and_rmmod_answer_for_zram", &EXEC) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    // The names in the system's directories, whatever PATH says.
    let out = does(
        &daemon,
        "modprobe zram num_devices=4
         ls /dev/zram*
         cat /sys/module/zram/initstate /sys/module/zram/refcnt
         cat /sys/module/zram/parameters/num_devices
         PATH=/sbin:/bin:/usr/sbin:/usr/bin modprobe -q zram num_devices=2
         echo 32M > /sys/block/zram3/disksize
         /sbin/rmmod zram
         ls /dev/zram* 2>&1 | wc -l; ls /sys/module/zram | wc -l
         env -i /sbin/modprobe zram
         ls /dev/zram*; cat /sys/block/zram0/disksize
         modprobe --remove zram
         modprobe -r zram
         insmod /lib/modules/6.1.0/kernel/drivers/block/zram/zram.ko.xz num_devices=0x2
         ls /sys/block | grep -c zram
         modprobe -n zram; modprobe -n -r zram
         ls /sys/block | grep -c zram
         modprobe -v -r zram",
    );
    let expected = "/dev/zram0\n/dev/zram1\n/dev/zram2\n/dev/zram3\nlive\n0\n4\n1\n0\n\
                    /dev/zram0\n0\n2\n2\nrmmod zram\n";
    assert_eq!(out, expected);
    daemon.stop();
    place.is_clean();
}

#[test]
fn refusals_are_those_of_kmod() {
    if !met("refusals_are_those_of_kmod", &EXEC) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    refuses(
        &daemon,
        "modprobe --first-time zram",
        1,
        "modprobe: ERROR: could not insert 'zram': Module already in kernel\n",
    );
    refuses(
        &daemon,
        "insmod /lib/zram.ko",
        1,
        "insmod: ERROR: could not insert module zram: File exists\n",
    );
    // Of three devices one is in use: all three stay.
    let used =
        "modprobe zram num_devices=3; echo 8M > /sys/block/zram1/disksize; exec 3<>/dev/zram1; ";
    let with = |command: &str| format!("{used} {command} || echo $? $(ls /dev/zram* | wc -l) >&2");
    let text = "modprobe: FATAL: Module zram is in use.\n1 3\n";
    refuses(&daemon, &with("modprobe -r zram"), 0, text);
    daemon.does("reset zram1");
    refuses(&daemon, &with("modprobe -qr zram"), 0, "1 3\n");
    daemon.does("reset zram1");
    let text = "rmmod: ERROR: Module zram is in use\n1 3\n";
    refuses(&daemon, &with("rmmod zram"), 0, text);
    for bad in ["four", "2000", "-1"] {
        refuses(
            &daemon,
            &format!("modprobe zram num_devices={bad}"),
            1,
            "modprobe: ERROR: could not insert 'zram': Invalid argument\n",
        );
    }
    does(&daemon, "modprobe -r zram");
    refuses(&daemon, "rmmod zram", 1, "rmmod: ERROR: Module zram is not currently loaded\n");
    refuses(
        &daemon,
        "modprobe -r --first-time zram",
        1,
        "modprobe: FATAL: Module zram is not in kernel.\n",
    );
    daemon.stop();
    place.is_clean();
}

#[test]
fn other_modules_are_the_systems() {
    if !met("other_modules_are_the_systems", &EXEC) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 1");
    let version = String::from_utf8(real_version()).unwrap();
    assert!(version.contains("kmod"), "{version}");
    assert_eq!(does(&daemon, "modprobe --version"), version);
    assert_eq!(does(&daemon, "/usr/bin/kmod --version"), version);
    // A module that no kernel has: the same words and the same exit code as without rampack.
    for line in ["modprobe no-such-module", "modprobe -r no_such_module", "rmmod no_such_module"] {
        let ours = script(&daemon, line);
        let real = said(&Command::new("bash").args(["-c", line]).output().unwrap());
        assert_ne!(real.code, 0, "{line}");
        assert_eq!((ours.code, &ours.out, &ours.err), (real.code, &real.out, &real.err), "{line}");
    }
    // Of two modules each gets its own answer.
    let said = script(&daemon, "modprobe -a zram no-such-module; echo $?");
    assert_ne!(said.code, 0, "{}", said.out);
    assert!(said.err.contains("no-such-module"), "{}", said.err);
    // A command within a command.
    let this = env!("CARGO_BIN_EXE_rampack");
    let nested = format!("{this} exec -- bash -euc 'modprobe -r zram; modprobe --version'");
    assert_eq!(does(&daemon, &nested), version);
    assert_eq!(daemon.does("status --noheadings --raw"), "", "it was unloaded");
    assert_eq!(real_version(), version.as_bytes(), "the system's own is as before");
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_mounted_device_counts_as_a_use_of_the_module() {
    let needs = [EXEC[0], EXEC[1], EXEC[2], MKFS];
    if !met("a_mounted_device_counts_as_a_use_of_the_module", &needs) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2");
    let at = place.mount_point();
    let out = does(
        &daemon,
        &format!(
            "echo 8M > /sys/block/zram1/disksize; cat /sys/module/zram/refcnt
             mkfs.ext4 -q /dev/zram1; mount /dev/zram1 {0}; cat /sys/module/zram/refcnt
             umount {0}; cat /sys/module/zram/refcnt",
            at.display()
        ),
    );
    assert_eq!(out, "0\n1\n0\n");
    daemon.stop();
    place.is_clean();
}

#[test]
fn the_list_of_modules_has_our_zram() {
    let has_list = Path::new("/proc/modules").exists();
    let list = Need::other(has_list, "a kernel with loadable modules (/proc/modules)");
    // A kernel without modules has no list to cover: everything else is tested there.
    if !has_list
        || !met("the_list_of_modules_has_our_zram", &[EXEC[0], EXEC[1], EXEC[2], list, MKFS])
    {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2");
    let at = place.mount_point();
    let out = does(
        &daemon,
        &format!(
            "lsmod | grep -w ^zram
             echo 8M > /sys/block/zram1/disksize
             mkfs.ext4 -q /dev/zram1; mount /dev/zram1 {0}
             lsmod | grep -w ^zram; umount {0}
             rmmod zram
             grep -cw ^zram /proc/modules || true",
            at.display()
        ),
    );
    let lines: Vec<String> =
        out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, ["zram 0 0", "zram 0 1", "0"]);
    daemon.stop();
    place.is_clean();
}

/// Debian's script of the package zram-tools: installed, or fetched as a package and unpacked.
fn zramswap(place: &Path) -> Option<PathBuf> {
    let installed = PathBuf::from("/usr/sbin/zramswap");
    if installed.is_file() {
        return Some(installed);
    }
    let text = "apt-get download --quiet zram-tools && dpkg-deb --extract zram-tools_*.deb .";
    let fetched = Command::new("bash").args(["-ec", text]).current_dir(place).output().ok()?;
    let script = place.join("usr/sbin/zramswap");
    (fetched.status.success() && script.is_file()).then_some(script)
}

#[test]
fn debians_zramswap_starts_shows_and_stops() {
    let needs = [
        EXEC[0],
        EXEC[1],
        EXEC[2],
        EXEC[3],
        Need::program("mkswap", "util-linux"),
        Need::program("swapon", "mount"),
        Need::Swap,
    ];
    if !met("debians_zramswap_starts_shows_and_stops", &needs) {
        return;
    }
    // Swap is the whole machine's.
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let fetched = testkit::TempDir::new();
    let Some(path) = zramswap(fetched.path()) else {
        let package = Need::other(false, "the script zramswap (apt-get download zram-tools)");
        assert!(!met("debians_zramswap_starts_shows_and_stops", &[package]));
        return;
    };
    // The settings are those of a test: little, and of a low priority.
    let text = fs::read_to_string(&path).unwrap();
    let config = fetched.join("config");
    fs::write(&config, "ALGO=zstd\nSIZE=32\nPRIORITY=0\n").unwrap();
    let text = text.replace("/etc/default/zramswap", config.to_str().unwrap());
    let program = fetched.join("zramswap");
    fs::write(&program, text).unwrap();
    let program = program.display();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let out = does(
        &daemon,
        &format!(
            "trap 'swapoff /dev/zram0 2>/dev/null || true' EXIT
             bash {program} start >/dev/null 2>&1
             bash {program} status | tail -n 1 | tr -s ' ' | cut -d ' ' -f 1-3
             swapon --show=NAME,PRIO --noheadings | grep -w zram0 | tr -s ' '
             ! modprobe -r zram 2>&1
             bash {program} stop >/dev/null 2>&1
             ls /dev/zram* 2>/dev/null | wc -l
             bash {program} restart >/dev/null 2>&1
             cat /sys/block/zram0/disksize
             bash {program} stop >/dev/null 2>&1"
        ),
    );
    let expected = "/dev/zram0 zstd 32M\n/dev/zram0 0\n\
                    modprobe: FATAL: Module zram is in use.\n0\n33554432\n";
    assert_eq!(out, expected);
    let status = daemon.does("status --noheadings --raw");
    assert_eq!(status, "", "all devices are gone");
    daemon.stop();
    place.is_clean();
}
