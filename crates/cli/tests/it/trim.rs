//! What is not needed any more is given back, to the pool and to the operating system: by the
//! daemon's resident set.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use testkit::{Need, met, run};

use crate::common::{Daemon, Place, noise};

const MIB: u64 = 1 << 20;
/// How much is written; it does not compress.
const WRITTEN: u64 = 64 * MIB;
/// How much the daemon may differ from itself for other reasons.
const SLACK: u64 = 12 * MIB;

/// Bytes of a process that are in memory.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

fn used(daemon: &Daemon) -> u64 {
    daemon.does("get zram0 mem_used_total").trim().parse().unwrap()
}

fn fill(path: &Path) {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    for page in 0..WRITTEN / 4096 {
        file.write_all(&noise(page)).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn fstrim_and_compaction_give_memory_back() {
    let needs = [
        Need::Root,
        Need::Fuse,
        Need::Loop,
        Need::program("mkfs.ext4", "e2fsprogs"),
        Need::program("fstrim", "util-linux"),
    ];
    if !met("fstrim_and_compaction_give_memory_back", &needs) {
        return;
    }
    let place = Place::new();
    let mount_point = place.mount_point();
    let daemon =
        Daemon::start(&place, &format!("up --size 256M --mount {}", mount_point.display()));
    // The daemon mounts with discard; here it is fstrim's turn.
    run(Command::new("mount").args(["-o", "remount,nodiscard"]).arg(&mount_point));
    let before = resident(daemon.pid());
    let file = mount_point.join("file");
    fill(&file);
    let full = resident(daemon.pid());
    assert!(full > before + WRITTEN * 9 / 10, "{full} resident, {before} before");
    fs::remove_file(&file).unwrap();
    run(Command::new("sync").arg("-f").arg(&mount_point));
    assert!(used(&daemon) > WRITTEN * 9 / 10, "nothing was trimmed yet");
    run(Command::new("fstrim").arg(&mount_point));
    assert!(used(&daemon) < SLACK, "{} in the pool of an empty file system", used(&daemon));
    daemon.does("set zram0 compact=1");
    let after = resident(daemon.pid());
    assert!(after < before + SLACK, "{after} resident, {before} before");
    daemon.stop();
    place.is_clean();
}

#[test]
fn zeroing_gives_memory_back() {
    let blkdiscard = Need::program("blkdiscard", "util-linux");
    if !met("zeroing_gives_memory_back", &[Need::Root, Need::Fuse, Need::Loop, blkdiscard]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --size 96M");
    let link = place.root().join("dev/zram0");
    fill(&link);
    assert!(used(&daemon) > WRITTEN * 9 / 10);
    run(Command::new("blkdiscard").arg("--zeroout").arg(&link));
    // orig_data_size counts same-filled pages, too: Linux's zram keeps none here.
    let stat = daemon.does("get zram0 mm_stat");
    let numbers: Vec<u64> = stat.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!((numbers[0], numbers[5]), (0, 0), "pages are still kept: {stat}");
    assert!(used(&daemon) < SLACK);
    daemon.stop();
    place.is_clean();
}

/// Swaps off when the test ends, however it does.
struct Swap(String);

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).status();
    }
}

#[test]
fn swap_discard_gives_memory_back() {
    let needs = [
        Need::Root,
        Need::Fuse,
        Need::Loop,
        Need::program("mkswap", "util-linux"),
        Need::program("swapon", "mount"),
    ];
    if !met("swap_discard_gives_memory_back", &needs) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --size 96M");
    let link = place.root().join("dev/zram0");
    let before = resident(daemon.pid());
    fill(&link);
    assert!(used(&daemon) > WRITTEN * 9 / 10);
    run(Command::new("mkswap").arg(&link));
    // Swapped on with a discard of all of it, used last of all, and at once off again.
    let device = fs::canonicalize(&link).unwrap().display().to_string();
    let swap = Swap(device.clone());
    run(Command::new("swapon").args(["--discard=once", "--priority", "0", &device]));
    drop(swap);
    assert!(used(&daemon) < SLACK, "{} in the pool of an empty swap space", used(&daemon));
    daemon.does("set zram0 compact=1");
    let after = resident(daemon.pid());
    assert!(after < before + SLACK, "{after} resident, {before} before");
    daemon.stop();
    place.is_clean();
}
