//! The whole way: FUSE, loop device, ext4, mount.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::{Need, met, run};

use crate::common::{Daemon, Place, noise, refused, wait_until};

const BLOCK_DEVICE: [Need; 3] = [Need::Root, Need::Fuse, Need::Loop];
const EXT4: [Need; 5] = [
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::program("mkfs.ext4", "e2fsprogs"),
    Need::program("fsck.ext4", "e2fsprogs"),
];

fn device(daemon: &Daemon, number: usize) -> Value {
    let status: Value = serde_json::from_str(&daemon.does("status --json")).unwrap();
    status["devices"][number].clone()
}

fn up(place: &Place, options: &str) -> (Daemon, PathBuf) {
    let mount_point = place.mount_point();
    let line = format!("up {options} --mount {}", mount_point.display());
    (Daemon::start(place, &line), mount_point)
}

#[test]
fn a_source_tree_comes_back() {
    if !met("a_source_tree_comes_back", &EXT4) {
        return;
    }
    let place = Place::new();
    let (daemon, mount_point) = up(&place, "--size 512M");
    let before = device(&daemon, 0);
    assert_eq!(before["mountpoint"], mount_point.to_str().unwrap());
    assert!(before["total"].as_u64().unwrap() < 1 << 20, "a fresh file system is empty: {before}");
    let path = before["block_device"].as_str().unwrap();
    assert!(daemon.greeting.contains(path), "{}", daemon.greeting);
    let link = fs::canonicalize(place.root().join("dev/zram0")).unwrap();
    assert_eq!(link, Path::new(path));

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let copy = mount_point.join("tree");
    run(Command::new("cp").arg("-r").arg(source).arg(&copy));
    run(Command::new("umount").arg(&mount_point));
    run(Command::new("fsck.ext4").args(["-f", "-n", path]));
    run(Command::new("mount").args(["-o", "discard", path]).arg(&mount_point));
    run(Command::new("diff").arg("-r").arg(source).arg(&copy));

    let full = device(&daemon, 0);
    assert!(full["data"].as_u64() > before["data"].as_u64());
    fs::remove_dir_all(&copy).unwrap();
    run(Command::new("sync").arg("-f").arg(&mount_point));
    // Discards come after the commit that sync(1) waits for.
    let freed = || device(&daemon, 0)["data"].as_u64() < full["data"].as_u64();
    wait_until("what is deleted is given back", freed);
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_mount_in_use_is_not_taken_away() {
    if !met("a_mount_in_use_is_not_taken_away", &EXT4) {
        return;
    }
    let place = Place::new();
    let (mut daemon, mount_point) = up(&place, "--size 64M");
    let mut open = File::create(mount_point.join("open")).unwrap();
    daemon.signal(libc::SIGINT);
    let text = daemon.lines_until(&["is lost then"]);
    for word in ["not stopped", "in use", &format!("pid {}", std::process::id()), "stop --force"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let mounted = mount_point.to_str().unwrap();
    for line in ["reset zram0", "remove zram0", "set zram0 reset 1"] {
        refused(&daemon.ask(line), 1, &["zram0", "mounted at", mounted, "EBUSY"]);
    }
    daemon.signal(libc::SIGTERM);
    daemon.lines_until(&["still not stopped"]);
    assert!(daemon.is_alive());
    open.write_all(b"still here").unwrap();
    open.sync_all().unwrap();
    drop(open);
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_mount_in_use_is_taken_away_by_force() {
    if !met("a_mount_in_use_is_taken_away_by_force", &EXT4) {
        return;
    }
    let place = Place::new();
    let (daemon, mount_point) = up(&place, "--size 64M");
    let open = File::create(mount_point.join("open")).unwrap();
    daemon.does("stop --force");
    assert!(place.mounts().is_empty(), "{:?}", place.mounts());
    drop(open);
    crate::common::wait_until("the loop device's end", || place.loops().is_empty());
    place.is_clean();
}

#[test]
fn what_is_mounted_over_a_mount_stays_and_is_named() {
    if !met("what_is_mounted_over_a_mount_stays_and_is_named", &EXT4) {
        return;
    }
    let place = Place::new();
    let outer = place.mount_point();
    let inner = outer.join("inner");
    fs::create_dir(&inner).unwrap();
    let daemon = Daemon::start(&place, &format!("up --size 64M --mount {}", inner.display()));
    let device = device(&daemon, 0)["block_device"].as_str().unwrap().to_owned();
    let mounted = || -> Vec<String> {
        let below = host::mounts().unwrap().into_iter().filter(|it| it.at.starts_with(&outer));
        below.map(|it| it.source.display().to_string()).collect()
    };
    for over in [&inner, &outer] {
        run(Command::new("mount").args(["-t", "tmpfs", "over"]).arg(over));
        let words = [inner.to_str().unwrap(), "over (tmpfs)", over.to_str().unwrap(), "EBUSY"];
        refused(&daemon.ask("stop"), 1, &words);
        assert_eq!(mounted(), [&*device, "over"]);
        run(Command::new("umount").arg(over));
    }
    run(Command::new("mount").args(["-t", "tmpfs", "over"]).arg(&inner));
    daemon.does("stop --force");
    assert!(mounted().contains(&"over".to_owned()), "{:?}", mounted());
}

#[test]
fn a_file_system_of_the_user_is_left_alone() {
    if !met("a_file_system_of_the_user_is_left_alone", &EXT4) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --size 64M --fs ext4");
    let mount_point = place.mount_point();
    let link = place.root().join("dev/zram0");
    run(Command::new("mount").arg(&link).arg(&mount_point));
    let mounted = mount_point.to_str().unwrap();
    assert_eq!(device(&daemon, 0)["mountpoint"], mounted);
    refused(&daemon.ask("stop"), 1, &["mounted at", mounted, "EBUSY"]);
    run(Command::new("umount").arg(&mount_point));
    // A command of another test may have begun in a copy of all mounts.
    crate::common::wait_until("the stop", || daemon.ask("stop").code == 0);
    place.is_clean();
}

#[test]
fn memory_runs_out_under_a_file_system() {
    if !met("memory_runs_out_under_a_file_system", &EXT4) {
        return;
    }
    let place = Place::new();
    let (daemon, mount_point) = up(&place, "--size 256M --memory 16M");
    let early = mount_point.join("early");
    let write = |path: &Path, pages: std::ops::Range<u64>| {
        let mut file = File::create(path)?;
        pages.into_iter().try_for_each(|n| file.write_all(&noise(n)))?;
        file.sync_all()
    };
    write(&early, 0..1024).unwrap();
    let late = write(&mount_point.join("late"), 1024..8192);
    let error = late.expect_err("32 MiB that do not compress cannot be stored in 16");
    assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC)), "{error}");
    let failed: u64 = daemon.does("get zram0 failed_writes").trim().parse().unwrap();
    assert!(failed > 0);
    let used: u64 = daemon.does("get zram0 mem_used_total").trim().parse().unwrap();
    assert!(used <= 17 << 20, "{used}");

    // Past the page cache, from the device.
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(libc::O_DIRECT).open(&early).unwrap();
    let mut buffer = vec![0; 64 * 4096 + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    for part in 0..1024 / 64 {
        let part_bytes = &mut buffer[start..start + 64 * 4096];
        file.read_exact(part_bytes).unwrap();
        for (n, page) in part_bytes.chunks(4096).enumerate() {
            assert!(page == noise(part * 64 + n as u64), "page {} of {part}", n);
        }
    }
    drop(file);
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_block_device_grows_with_a_size_and_is_empty_after_a_reset() {
    if !met("a_block_device_grows_with_a_size_and_is_empty_after_a_reset", &BLOCK_DEVICE) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2");
    assert_eq!(place.loops().len(), 2, "a device has its block device from the start");
    let link = place.root().join("dev/zram1");
    let size = || run(Command::new("blockdev").arg("--getsize64").arg(&link)).stdout;
    assert_eq!(size().trim(), "0");
    let before = fs::canonicalize(&link).unwrap();
    daemon.does("set zram1 disksize 32M");
    assert!(fs::metadata(&link).unwrap().file_type().is_block_device());
    assert_eq!(fs::metadata(place.root().join("files/zram1")).unwrap().len(), 32 << 20);
    assert_eq!(size().trim(), (32 << 20).to_string());
    let block = run(Command::new("blockdev").arg("--getss").arg(&link)).stdout;
    assert_eq!(block.trim(), "4096");
    fs::write(&link, noise(1)).unwrap();
    assert!(fs::read(&link).unwrap()[..4096] == noise(1));
    refused(&daemon.ask("set zram1 reset 0"), 1, &["EINVAL"]);
    assert_eq!(size().trim(), (32 << 20).to_string(), "a refused reset changes nothing");
    daemon.does("reset zram1");
    assert_eq!(size().trim(), "0");
    daemon.does("set zram1 disksize 64M");
    assert_eq!(size().trim(), (64 << 20).to_string());
    assert_eq!(fs::canonicalize(&link).unwrap(), before, "its number is its own until the end");
    assert!(fs::read(&link).unwrap().iter().all(|byte| *byte == 0), "nothing is kept");
    let open = File::open(&link).unwrap();
    for line in ["reset zram1", "remove zram1"] {
        let process = format!("process {}", std::process::id());
        refused(&daemon.ask(line), 1, &["zram1", "open in", &process, "EBUSY"]);
    }
    drop(open);
    daemon.does("remove zram1");
    assert_eq!(place.loops().len(), 1);
    assert!(fs::symlink_metadata(&link).is_err());
    daemon.does("add --size 1M");
    daemon.stop();
    place.is_clean();
}

#[test]
fn an_open_file_is_a_user() {
    if !met("an_open_file_is_a_user", &[Need::Root, Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport fuse --size 8M");
    let path = place.root().join("files/zram0");
    let mut open = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    open.write_all(b"hello").unwrap();
    for line in ["reset zram0", "remove zram0", "stop"] {
        refused(&daemon.ask(line), 1, &["zram0", "is open", "EBUSY"]);
    }
    drop(open);
    assert_eq!(&fs::read(&path).unwrap()[..6], b"hello\0");
    assert!(!daemon.nbd().exists(), "no NBD with --transport fuse");
    crate::common::wait_until("the file's release", || daemon.ask("reset zram0").code == 0);
    daemon.stop();
    place.is_clean();
}

#[test]
fn fio_reads_back_what_it_wrote() {
    let fio = Need::program("fio", "fio");
    if !met("fio_reads_back_what_it_wrote", &[Need::Root, Need::Fuse, Need::Loop, fio]) {
        return;
    }
    for algorithm in ["lz4", "zstd"] {
        let place = Place::new();
        let daemon = Daemon::start(&place, &format!("up --size 32M --algorithm {algorithm}"));
        let device = device(&daemon, 0);
        // Through the loop device, and through the FUSE file under it.
        for path in [device["block_device"].as_str().unwrap(), "files/zram0"] {
            let path = place.root().join(path);
            let scratch = testkit::TempDir::new();
            for (rw, size) in [("randwrite", "4k"), ("randrw", "16k"), ("write", "256k")] {
                let mut fio = Command::new("fio");
                fio.current_dir(scratch.path());
                fio.args(["--name=verify", "--ioengine=libaio", "--iodepth=16", "--direct=1"]);
                fio.args(["--verify=crc32c", "--verify_fatal=1", "--buffer_compress_chunk=4096"]);
                fio.args(["--buffer_compress_percentage=50", "--size=32M"]);
                fio.arg(format!("--filename={}", path.display()));
                run(fio.arg(format!("--rw={rw}")).arg(format!("--bs={size}")));
            }
        }
        daemon.stop();
        place.is_clean();
    }
}
