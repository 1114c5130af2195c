//! Requests that have to wait hold up nobody else, and sizes that change.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, ScopedJoinHandle};

use common::{Served, eventually, start, start_with};
use fuse::{LoopDevice, LoopOptions};
use testkit::{Need, Rng, TempDir};

const P: u64 = 4096;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn page(fill: u8) -> [u8; P as usize] {
    [fill; P as usize]
}

#[test]
fn others_are_answered_meanwhile() {
    if !common::met("others_are_answered_meanwhile", &[Need::Fuse]) {
        return;
    }
    // A single worker, so that one request that holds it up holds up all.
    let mut served = start_with(TempDir::new(), &["--workers", "1"]);
    let path = served.ask(&format!("add-gated zram0 {}", 64 * P)).unwrap();
    let file = open(Path::new(&path));
    for n in 0..64 {
        file.write_all_at(&page(n + 1), u64::from(n) * P).unwrap();
    }
    served.ask("hold zram0 3").unwrap();
    served.ask("hold zram0 5").unwrap();
    let file = &file;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let mut into = page(0);
                    file.read_exact_at(&mut into, 3 * P).unwrap();
                    into
                })
            })
            .collect();
        let writer = scope.spawn(|| file.write_all_at(b"part", 5 * P + 100).unwrap());
        served.ask("waiting zram0 7").unwrap();
        for round in 0..50u8 {
            file.write_all_at(&page(round), 7 * P).unwrap();
            let mut into = page(0);
            file.read_exact_at(&mut into, 7 * P).unwrap();
            assert_eq!(into, page(round));
            assert_eq!(fs::metadata(&path).unwrap().len(), 64 * P);
            drop(open(Path::new(&path)));
        }
        assert!(readers.iter().all(|reader| !reader.is_finished()) && !writer.is_finished());
        served.ask("release zram0").unwrap();
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() == page(4)));
    });
    // Readers hold up no fsync; a writer does in Linux, which locks the file for one.
    served.ask("hold zram0 3").unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_exact_at(&mut page(0), 3 * P).unwrap());
        served.ask("waiting zram0 1").unwrap();
        file.sync_all().unwrap();
        served.ask("release zram0").unwrap();
        reader.join().unwrap();
    });
    let mut into = [0; 6];
    file.read_exact_at(&mut into, 5 * P + 99).unwrap();
    assert_eq!(into, *b"\x06part\x06");
    // A hole in parts of pages.
    served.ask("hold zram0 9").unwrap();
    thread::scope(|scope| {
        let puncher = scope.spawn(|| {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: the call takes numbers only.
            unsafe { libc::fallocate(file.as_raw_fd(), mode, 9 * P as i64 + 8, 16) }
        });
        served.ask("waiting zram0 1").unwrap();
        let mut into = page(0);
        file.read_exact_at(&mut into, 10 * P).unwrap();
        assert_eq!(into, page(11));
        served.ask("release zram0").unwrap();
        assert_eq!(puncher.join().unwrap(), 0);
    });
    let mut into = [1; 18];
    file.read_exact_at(&mut into, 9 * P + 7).unwrap();
    assert_eq!(into, *b"\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0a");
}

#[test]
fn names_are_there_while_all_waiters_wait() {
    if !common::met("names_are_there_while_all_waiters_wait", &[Need::Fuse]) {
        return;
    }
    let mut served = start_with(TempDir::new(), &["--waiters", "1"]);
    let [held, other] = ["zram0", "zram1"].map(|name| {
        let path = served.ask(&format!("add-gated {name} {}", 64 * P)).unwrap();
        std::path::PathBuf::from(path)
    });
    served.ask("hold zram0 3").unwrap();
    let file = open(&held);
    thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_exact_at(&mut page(0), 3 * P));
        served.ask("waiting zram0 1").unwrap();
        // Behind the read they would come when that has failed.
        let length = fs::metadata(&other).map(|there| there.len());
        let opened = File::open(&other).map(drop);
        assert!(!reader.is_finished(), "names waited for the read");
        served.ask("release zram0").unwrap();
        assert_eq!((length.unwrap(), opened.unwrap()), (64 * P, ()));
        reader.join().unwrap().unwrap();
    });
}

/// Gated disks, with the paths of their files.
fn gated<const N: usize>(served: &mut Served, names: [&str; N], bytes: u64) -> [PathBuf; N] {
    names.map(|name| served.ask(&format!("add-gated {name} {bytes}")).unwrap().into())
}

/// Looks at the file of a disk that answers, and reads a page of it.
fn look_at(path: &Path) {
    assert!(fs::metadata(path).unwrap().len() > 0);
    open(path).read_exact_at(&mut page(0), 7 * P).unwrap();
}

/// Binds this thread to a CPU, and those that it starts from then on.
fn on_one_cpu() {
    host::pin_to_cpu(host::allowed_cpus()[0]).unwrap();
}

/// Threads that all do `work`, and that all sleep in it by now.
fn asleep<'s, 'e>(
    scope: &'s thread::Scope<'s, 'e>,
    count: usize,
    work: &'e (impl Fn(u64) + Sync),
) -> Vec<ScopedJoinHandle<'s, ()>> {
    let (begun, ids) = mpsc::channel();
    let start = |number| {
        let begun: Sender<i32> = begun.clone();
        scope.spawn(move || {
            begun.send(host::thread_id()).unwrap();
            work(number);
        })
    };
    let threads = (0..count as u64).map(start).collect();
    for id in ids.iter().take(count) {
        let path = format!("/proc/self/task/{id}/stat");
        let state = || fs::read_to_string(&path).unwrap().rsplit_once(") ").unwrap().1.to_owned();
        eventually("a thread sleeps", || state().starts_with(['S', 'D']));
    }
    threads
}

#[test]
fn requests_of_a_cpu_that_wait_leave_room_for_others() {
    if !common::met("requests_of_a_cpu_that_wait_leave_room_for_others", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let [held, other] = gated(&mut served, ["zram0", "zram1"], 64 * P);
    let file = open(&held);
    on_one_cpu();
    served.ask("hold zram0 3").unwrap();
    let read = |_| file.read_exact_at(&mut page(0), 3 * P).unwrap();
    thread::scope(|scope| {
        let readers = asleep(scope, 12, &read);
        look_at(&other);
        assert!(readers.iter().all(|it| !it.is_finished()), "others waited for the disk");
        served.ask("release zram0").unwrap();
    });
}

#[test]
fn a_loop_device_that_waits_leaves_room_for_others() {
    let name = "a_loop_device_that_waits_leaves_room_for_others";
    if !common::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    const READERS: u64 = 160;
    let mut served = start();
    let bytes = READERS << 20;
    let [held, other] = gated(&mut served, ["zram0", "zram1"], bytes);
    let options = served.loop_options();
    let devices = [&held, &other].map(|file| LoopDevice::attach(file, options).unwrap());
    let [first, second] = [0, 1].map(|n: usize| open(devices[n].path()));
    for file in [&first, &second] {
        // Each page is read by itself, without those behind it.
        // SAFETY: the call takes numbers only.
        let advised =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
        assert_eq!(advised, 0);
    }
    for number in 0..READERS {
        served.ask(&format!("hold zram0 {}", number << 8)).unwrap();
    }
    let read = |number: u64| first.read_exact_at(&mut page(0), number << 20).unwrap();
    thread::scope(|scope| {
        let readers = asleep(scope, READERS as usize, &read);
        for (number, cpu) in (100..).zip(host::allowed_cpus()) {
            host::pin_to_cpu(cpu).unwrap();
            look_at(&other);
            second.read_exact_at(&mut page(0), number << 20).unwrap();
        }
        assert!(readers.iter().all(|it| !it.is_finished()), "others waited for the disk");
        served.ask("release zram0").unwrap();
    });
}

#[test]
fn a_disk_that_waits_leaves_waiters_for_others() {
    if !common::met("a_disk_that_waits_leaves_waiters_for_others", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let files = gated(&mut served, ["zram0", "zram1"], 64 * P);
    let [held, other] = files.map(|path| open(&path));
    served.ask("hold zram0 3").unwrap();
    served.ask("hold zram1 3").unwrap();
    let read = |_| held.read_exact_at(&mut page(0), 3 * P).unwrap();
    thread::scope(|scope| {
        let readers = asleep(scope, 40, &read);
        let another = scope.spawn(|| other.read_exact_at(&mut page(0), 3 * P).unwrap());
        served.ask("waiting zram1 1").expect("it is the turn of the other disk");
        served.ask("release zram1").unwrap();
        another.join().unwrap();
        assert!(readers.iter().all(|it| !it.is_finished()), "others waited for the disk");
        served.ask("release zram0").unwrap();
    });
}

#[test]
fn large_writes_that_wait_hold_up_no_worker() {
    if !common::met("large_writes_that_wait_hold_up_no_worker", &[Need::Fuse]) {
        return;
    }
    let mut served = start_with(TempDir::new(), &["--workers", "2"]);
    let [held, other] = gated(&mut served, ["zram0", "zram1"], 1 << 20);
    let file = open(&held);
    served.ask("hold zram0 0").unwrap();
    let contents = vec![1; 1 << 20];
    let write = |_| file.write_all_at(&contents, 0).unwrap();
    // By io_uring one CPU may send all, and has entries for fewer.
    let count = if common::by_ring() { 24 } else { 80 };
    thread::scope(|scope| {
        let writers = asleep(scope, count, &write);
        (0..50).for_each(|_| look_at(&other));
        assert!(writers.iter().all(|it| !it.is_finished()), "others waited for the disk");
        served.ask("release zram0").unwrap();
    });
}

/// Bytes of the server that are in memory.
fn resident(served: &Served) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", served.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

#[test]
fn entries_have_no_memory_when_nobody_asks() {
    let name = "entries_have_no_memory_when_nobody_asks";
    if !common::by_ring() || !common::met(name, &[Need::Fuse]) {
        return;
    }
    const READ: u64 = 256 << 10;
    const READERS: u64 = 40;
    let mut served = start();
    let [path] = gated(&mut served, ["zram0"], READ);
    let file = open(&path);
    on_one_cpu();
    file.write_all_at(&[1; READ as usize], 0).unwrap();
    let before = resident(&served);
    served.ask("hold zram0 3").unwrap();
    let read = |_| file.read_exact_at(&mut vec![0; READ as usize], 0).unwrap();
    thread::scope(|scope| {
        let _readers = asleep(scope, READERS as usize, &read);
        served.ask("release zram0").unwrap();
    });
    let most = before + READERS * READ / 4;
    eventually("the memory goes back", || resident(&served) < most);
    // They get it again.
    let mut into = vec![0; READ as usize];
    file.read_exact_at(&mut into, 0).unwrap();
    assert_eq!(into, [1; READ as usize]);
}

#[test]
fn a_long_discard_holds_up_nobody() {
    if !common::met("a_long_discard_holds_up_nobody", &[Need::Fuse]) {
        return;
    }
    let mut served = start_with(TempDir::new(), &["--workers", "1"]);
    let bytes = 64 << 20;
    let [long, other] = gated(&mut served, ["zram0", "zram1"], bytes);
    let file = open(&long);
    on_one_cpu();
    // It waits for the release where it may not wait, too: in place of hours of work.
    served.ask("lengthen-discards zram0").unwrap();
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let discard = |_| {
        // SAFETY: the call takes numbers only.
        let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, bytes.cast_signed()) };
        assert_eq!(done, 0);
    };
    thread::scope(|scope| {
        let discards = asleep(scope, 1, &discard);
        served.ask("waiting zram0 1").unwrap();
        look_at(&other);
        assert!(!discards[0].is_finished(), "others waited for the discard");
        served.ask("release zram0").unwrap();
    });
}

#[test]
fn a_mount_is_torn_down_while_requests_wait() {
    if !common::met("a_mount_is_torn_down_while_requests_wait", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.ask(&format!("add-gated zram0 {}", 64 * P)).unwrap();
    let file = open(Path::new(&path));
    served.ask("hold zram0 3").unwrap();
    let failed = served.root.join("failed");
    served.ask(&format!("release-when zram0 {}", failed.display())).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let read = file.read_at(&mut page(0), 3 * P);
            fs::write(&failed, "").unwrap();
            read
        });
        served.ask("waiting zram0 1").unwrap();
        served.ask("force").unwrap();
        // The device answers only afterwards.
        let error = reader.join().unwrap().expect_err("it is aborted");
        assert_eq!(error.raw_os_error(), Some(libc::ECONNABORTED));
    });
    assert!(file.read_at(&mut page(0), 0).is_err());
    assert_eq!(fs::read_dir(served.files()).unwrap().count(), 0);
}

#[test]
fn the_file_is_as_long_as_the_device_is_now() {
    if !common::met("the_file_is_as_long_as_the_device_is_now", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.ask(&format!("add-gated zram0 {}", 64 * P)).unwrap();
    let path = Path::new(&path);
    let mut file = open(path);
    for pages in [8, 64, 16, 1, 0, 32] {
        served.ask(&format!("resize zram0 {}", pages * P)).unwrap();
        assert_eq!(fs::metadata(path).unwrap().len(), pages * P);
        assert_eq!(file.metadata().unwrap().len(), pages * P);
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), pages * P);
        let mut into = page(0);
        assert_eq!(file.read_at(&mut into, pages * P).unwrap(), 0);
        let full = file.write_at(&page(1), pages * P).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        if pages > 0 {
            assert_eq!(file.write_at(&page(pages as u8), (pages - 1) * P).unwrap(), P as usize);
            assert_eq!(file.read_at(&mut into, (pages - 1) * P).unwrap(), P as usize);
            assert_eq!(into, page(pages as u8));
        }
    }
}

/// ext4 asks for CAP_SYS_RESOURCE, which root has not everywhere.
fn may_resize_mounted() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() >> CAP_SYS_RESOURCE & 1 != 0
}

#[test]
fn a_file_system_grows_while_it_is_used() {
    let name = "a_file_system_grows_while_it_is_used";
    let needs = [
        Need::Root,
        Need::Fuse,
        Need::Loop,
        Need::program("mkfs.ext4", "e2fsprogs"),
        Need::program("resize2fs", "e2fsprogs"),
    ];
    if !common::met(name, &needs) {
        return;
    }
    let run = |program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]| {
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|argument| argument.as_ref()));
        testkit::run(&mut command).stdout
    };
    let mut rng = Rng::new(testkit::seed(name));
    let mut served = start();
    let path = served.ask(&format!("add-gated zram0 {}", 96 << 20)).unwrap();
    let sized = |served: &mut Served, device: &LoopDevice, bytes: u64| {
        served.ask(&format!("resize zram0 {bytes}")).unwrap();
        device.refresh_size().unwrap();
        let size = fs::read_to_string(format!("/sys/block/loop{}/size", device.number()));
        assert_eq!(size.unwrap().trim(), (bytes / 512).to_string());
    };
    served.ask(&format!("resize zram0 {}", 32 << 20)).unwrap();
    let device = LoopDevice::attach(Path::new(&path), LoopOptions::default()).unwrap();
    run("mkfs.ext4", &[&"-q", &device.path()]);
    let at = served.root.join("at");
    fs::create_dir(&at).unwrap();
    run("mount", &[&device.path(), &at]);
    let mut first = vec![0; 20 << 20];
    rng.fill(&mut first);
    fs::write(at.join("first"), &first).unwrap();
    assert!(fs::write(at.join("second"), vec![1; 40 << 20]).is_err(), "there is no space");

    sized(&mut served, &device, 96 << 20);
    if may_resize_mounted() {
        run("resize2fs", &[&device.path()]);
    } else {
        // The device has grown under its file system all the same.
        assert!(fs::read(at.join("first")).unwrap() == first);
        run("umount", &[&at]);
        run("fsck.ext4", &[&"-fy", &device.path()]);
        run("resize2fs", &[&device.path()]);
        run("mount", &[&device.path(), &at]);
    }
    fs::write(at.join("second"), vec![1; 40 << 20]).unwrap();
    assert!(fs::read(at.join("first")).unwrap() == first);
    fs::remove_file(at.join("second")).unwrap();

    // Smaller again: only when nobody uses what is cut off.
    run("umount", &[&at]);
    run("fsck.ext4", &[&"-fy", &device.path()]);
    run("resize2fs", &[&device.path(), &"48M"]);
    sized(&mut served, &device, 48 << 20);
    run("fsck.ext4", &[&"-fn", &device.path()]);
    run("mount", &[&device.path(), &at]);
    assert!(fs::read(at.join("first")).unwrap() == first);
    run("umount", &[&at]);
}
