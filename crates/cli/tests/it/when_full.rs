//! Devices whose memory is full, with a file where pages can go.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;
use std::thread;

use testkit::{Need, Rng, met, run};

use crate::common::{Daemon, NbdClient, Place, noise, rampack, refused};

const MIB: u64 = 1 << 20;
/// Pages that are written; memory holds a quarter of them.
const PAGES: u64 = 2048;

fn options(place: &Place, when_full: &str) -> String {
    let path = place.path().join("backing");
    File::create(&path).unwrap().set_len(16 * MIB).unwrap();
    let path = path.display();
    format!("--size 8M --memory 2M --when-full {when_full} --backing {path}")
}

/// Checks that no write failed, that memory was kept to and that pages went to the file.
fn check_counts(daemon: &Daemon) {
    let numbers = |attribute: &str| -> Vec<u64> {
        let text = daemon.does(&format!("get zram0 {attribute}"));
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    assert_eq!(numbers("failed_writes"), [0]);
    assert!(numbers("mm_stat")[4] <= 2 * MIB, "{:?}", numbers("mm_stat"));
    assert!(numbers("bd_stat")[0] >= PAGES * 3 / 4, "{:?}", numbers("bd_stat"));
}

#[test]
fn a_client_of_nbd_writes_more_than_memory_holds() {
    for when_full in ["wait", "spill"] {
        let place = Place::new();
        let line = format!("up --transport nbd {}", options(&place, when_full));
        let daemon = Daemon::start(&place, &line);
        assert_eq!(daemon.does("get zram0 when_full"), format!("{when_full}\n"));
        let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
        for n in (0..PAGES).step_by(8) {
            let eight: Vec<u8> = (n..n + 8).flat_map(noise).collect();
            assert_eq!(client.write(n * 4096, &eight), 0, "{when_full}: page {n}");
        }
        assert_eq!(client.write(5 * 4096 + 100, &[1; 50]), 0, "{when_full}: a part of a page");
        for n in 0..PAGES {
            let mut page = noise(n);
            if n == 5 {
                page[100..150].fill(1);
            }
            assert!(client.read(n * 4096, 4096) == page, "{when_full}: page {n}");
        }
        check_counts(&daemon);
        daemon.does("set zram0 when_full fail");
        let failed = (0..PAGES).any(|n| client.write(n * 4096, &noise(n + PAGES)) == 28);
        assert!(failed, "{when_full}: memory has a limit");
        drop(client);
        daemon.stop();
    }
}

#[test]
fn a_loop_device_takes_more_than_memory_holds() {
    let blockdev = Need::program("blockdev", "util-linux");
    let needs = [Need::Root, Need::Fuse, Need::Loop, blockdev];
    if !met("a_loop_device_takes_more_than_memory_holds", &needs) {
        return;
    }
    for when_full in ["wait", "spill"] {
        let place = Place::new();
        let daemon = Daemon::start(&place, &format!("up {}", options(&place, when_full)));
        let path = format!("/dev/loop{}", place.loops()[0]);
        let mut device = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for round in 0..2 {
            device.seek(SeekFrom::Start(0)).unwrap();
            for n in 0..PAGES {
                device.write_all(&noise(n + round)).unwrap();
            }
            // Here the system says whether a write failed.
            device.sync_all().unwrap();
        }
        drop(device);
        // What is read comes from the daemon, not from the system's cache.
        run(Command::new("blockdev").args(["--flushbufs", &path]));
        let mut device = File::open(&path).unwrap();
        let mut page = vec![0; 4096];
        for n in 0..PAGES {
            device.read_exact(&mut page).unwrap();
            assert!(page == noise(n + 1), "{when_full}: page {n}");
        }
        check_counts(&daemon);
        let reads = daemon.does("get zram0 num_reads");
        assert!(reads.trim().parse::<u64>().unwrap() >= PAGES, "the cache was read: {reads}");
        drop(device);
        daemon.stop();
        place.is_clean();
    }
}

/// Words of a small language: LZ4 makes half of them, zstd a quarter.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let words = ["page ", "frame ", "the ", "object ", "0x7fff", "of ", "slot ", "zspage ", "\n"];
    let (mut rng, mut text) = (Rng::new(seed), Vec::new());
    while text.len() < bytes {
        text.extend_from_slice(rng.pick(&words).as_bytes());
    }
    text.truncate(bytes);
    text
}

/// Sixteen threads write more to a file system than fits by the first algorithm.
fn a_file_system_is_filled(name: &str, kind: &str, needs: &[Need]) {
    const BYTES: usize = 3 << 19;
    if !met(name, &[&[Need::Root, Need::Fuse, Need::Loop], needs].concat()) {
        return;
    }
    for smaller in ["--set recomp_algorithm=algo=zstd", "--auto"] {
        let place = Place::new();
        let mount_point = place.mount_point();
        let (limit, mount) = (9 * MIB, mount_point.display());
        let options = format!("--size 320M --memory {limit} --when-full wait --algorithm lz4");
        let line = format!("up {options} {smaller} --fs {kind} --mount {mount}");
        let daemon = Daemon::start(&place, &line);
        thread::scope(|scope| {
            for number in 0..16 {
                let path = mount_point.join(number.to_string());
                scope.spawn(move || {
                    let mut file = File::create(path).unwrap();
                    for part in text(number, BYTES).chunks(1 << 17) {
                        file.write_all(part).unwrap();
                        file.sync_data().unwrap();
                    }
                    file.sync_all().unwrap();
                });
            }
        });
        let path = format!("/dev/loop{}", place.loops()[0]);
        run(Command::new("umount").arg(&mount_point));
        run(Command::new("mount").arg(path).arg(&mount_point));
        for number in 0..16 {
            let found = fs::read(mount_point.join(number.to_string())).unwrap();
            assert!(found == text(number, BYTES), "{kind} {smaller}: file {number}");
        }
        assert_eq!(daemon.does("get zram0 failed_writes"), "0\n", "{kind} {smaller}");
        let memory = daemon.does("get zram0 mm_stat");
        let memory: Vec<u64> = memory.split_whitespace().map(|it| it.parse().unwrap()).collect();
        assert!(memory[0] >= 16 * BYTES as u64 && memory[4] <= limit, "{kind}: {memory:?}");
        daemon.stop();
        place.is_clean();
    }
}

#[test]
fn ext4_holds_more_than_fits_by_one_algorithm() {
    let needs = [Need::program("mkfs.ext4", "e2fsprogs")];
    a_file_system_is_filled("ext4_holds_more_than_fits_by_one_algorithm", "ext4", &needs);
}

#[test]
fn xfs_holds_more_than_fits_by_one_algorithm() {
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    let xfs = Need::Other { is_there: known.contains("\txfs\n"), what: "xfs in the kernel" };
    let needs = [Need::program("mkfs.xfs", "xfsprogs"), xfs];
    a_file_system_is_filled("xfs_holds_more_than_fits_by_one_algorithm", "xfs", &needs);
}

#[test]
fn words_that_are_none_are_refused() {
    refused(&rampack("up --size 8M --when-full never"), 2, &["never", "fail", "wait", "spill"]);
    let said = rampack("up --size 8M --transport nbd --when-full spill");
    refused(&said, 1, &["ENODEV", "backing_dev"]);
}
