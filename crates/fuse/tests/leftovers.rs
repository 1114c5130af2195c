//! What is left after a kill -9, and how the next start clears it.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::{eventually, start, start_elsewhere, start_in};
use fuse::{LoopDevice, LoopOptions, find_by_backing, leftovers};
use testkit::{Ends, Need, TempDir};

/// Tests with loop devices run one after another: numbers are given in order, and a copy of all
/// mounts keeps the devices of other tests in use.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mounts that are made while others are cleared.
const ROUNDS: usize = 100;

#[test]
fn a_killed_server_is_cleared_away() {
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    let needs = [Need::Root, Need::Fuse, Need::Loop, mkfs];
    if !testkit::met("a_killed_server_is_cleared_away", &needs) {
        return;
    }
    let _turn = alone();
    let mut served = start();
    let (used, unused) = (served.add("zram0", 32 << 20), served.add("zram1", 1 << 20));
    let used_device = LoopDevice::attach(&used, LoopOptions::default()).unwrap();
    let unused_device = LoopDevice::attach(&unused, LoopOptions::default()).unwrap();
    let at = served.root.join("at");
    fs::create_dir(&at).unwrap();
    testkit::run(Command::new("mkfs.ext4").arg("-q").arg(used_device.path()));
    testkit::run(Command::new("mount").arg(used_device.path()).arg(&at));
    // Data that was never written back, and a file that stays open.
    fs::write(at.join("file"), vec![1; 1 << 20]).unwrap();
    let file = File::open(at.join("file")).unwrap();
    served.kill();

    let dead = fs::metadata(served.files()).unwrap_err();
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    let refused = fuse::Mount::new(&served.files(), fuse::Options::default()).err().unwrap();
    assert!(refused.to_string().contains("a process that was killed"), "{refused}");
    assert!(leftovers::exist(served.root.path()));
    let report = leftovers::clear(served.root.path());
    let files = served.files();
    let (node, other) = (used_device.path().display(), unused_device.path().display());
    let cleared = [
        format!("unmounted {}, which was on {node}, left by a killed daemon", at.display()),
        format!("detached {other} from {}", unused.display()),
        format!("unmounted the dead file system at {}", files.display()),
    ];
    assert_eq!(report.cleared, cleared);
    // The open file keeps its file system, and that the loop device.
    let [kept] = &report.remaining[..] else { panic!("{report:?}") };
    assert!(kept.starts_with(&format!("{node} is in use: by somebody")), "{kept}");
    assert!(kept.ends_with("goes when that ends"), "{kept}");
    let backing = format!("/sys/block/loop{}/loop/backing_file", used_device.number());
    drop(file);
    eventually("the device goes", || !fs::exists(&backing).unwrap());
    assert!(!leftovers::exist(served.root.path()));
    assert!(find_by_backing(&used).is_empty() && find_by_backing(&unused).is_empty());
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    assert_eq!(leftovers::clear(served.root.path()), leftovers::Report::default());

    // The next server starts at the same place.
    let root = std::mem::take(&mut served.root);
    drop(served);
    let mut served = start_in(root);
    let path = served.add("zram0", 4096);
    assert_eq!(fs::metadata(path).unwrap().len(), 4096);
}

#[test]
fn who_waits_for_a_stuck_server_is_freed() {
    let name = "who_waits_for_a_stuck_server_is_freed";
    if !testkit::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.add("zram0", 4096);
    let file = File::open(&path).unwrap();
    served.suspend();
    let waiting = thread::spawn(move || file.read_at(&mut [0; 10], 0));
    thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    let report = leftovers::clear(served.root.path());
    assert_eq!(report.remaining, [""; 0]);
    assert_eq!(report.cleared.len(), 1, "{report:?}");
    assert!(waiting.join().unwrap().is_err());
    served.signal("CONT");
    assert_eq!(fs::read_dir(served.files()).unwrap().count(), 0);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let name = "what_is_not_ours_is_left_alone";
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let _turn = alone();
    let mut other = start();
    let file = other.add("zram0", 1 << 20);
    let device = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
    let root = TempDir::new();
    assert_eq!(leftovers::clear(&root.join("missing")), leftovers::Report::default());
    assert_eq!(leftovers::clear(root.path()), leftovers::Report::default());
    let files = root.join("files");
    fs::create_dir(&files).unwrap();
    testkit::run(Command::new("mount").args(["-t", "tmpfs", "rampack"]).arg(&files));
    fs::write(files.join("zram0"), vec![0; 1 << 20]).unwrap();
    let report = leftovers::clear(root.path());
    let kept = files.join("zram0").exists();
    common::clean(root.path());
    assert_eq!(report, leftovers::Report::default());
    assert!(kept, "a file system of another kind stays");
    assert_eq!(find_by_backing(&file), [device.number()], "a device of another root stays");
    File::open(&file).unwrap().read_exact_at(&mut [0; 10], 0).unwrap();
}

/// The kernel gives the number of a connection that has ended to the next mount, whoever makes it.
#[test]
fn clearing_ends_no_mount_that_is_made_meanwhile() {
    let name = "clearing_ends_no_mount_that_is_made_meanwhile";
    if !testkit::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mount = |root: &TempDir| {
        let at = root.join("files");
        fs::create_dir_all(&at).unwrap();
        fuse::Mount::new(&at, fuse::Options::default()).unwrap()
    };
    let (cleared, used) = ([(); 8].map(|()| TempDir::new()), TempDir::new());
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for root in &cleared {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let _mount = mount(root);
                    let _ = leftovers::clear(root.path());
                }
            });
        }
        let ending = Ends(&ends);
        let listed = || {
            let _mount = mount(&used);
            fs::read_dir(used.join("files")).map(Iterator::count).map_err(|error| error.to_string())
        };
        let wrong = (0..ROUNDS).map(|_| listed()).find(|listed| *listed != Ok(0));
        drop(ending);
        assert_eq!(wrong, None);
    });
}

#[test]
fn a_device_of_a_living_server_with_the_same_path_elsewhere_is_left_alone() {
    let name = "a_device_of_a_living_server_with_the_same_path_elsewhere_is_left_alone";
    let unshare = Need::program("unshare", "util-linux");
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop, unshare]) {
        return;
    }
    let _turn = alone();
    let mut other = start_elsewhere(TempDir::new());
    let path = other.add("zram0", 1 << 20);
    assert!(!path.exists(), "it is mounted in the other namespace only");
    let there = Path::new("/proc").join(other.pid().to_string()).join("root");
    let there = there.join(path.strip_prefix("/").unwrap());
    let mut device = LoopDevice::attach(&there, LoopOptions::default()).unwrap();
    assert_eq!(find_by_backing(&path), [device.number()], "both paths are the same");

    let report = leftovers::clear(other.root.path());
    assert_eq!(report.cleared, [""; 0]);
    let [left] = &report.remaining[..] else { panic!("{report:?}") };
    let node = device.path().display();
    assert!(left.starts_with(&format!("{node} on {} is left alone", path.display())), "{left}");
    assert_eq!(find_by_backing(&path), [device.number()]);
    let file = File::open(device.path()).unwrap();
    file.read_exact_at(&mut [0; 512], 0).unwrap();
    drop(file);
    device.detach().unwrap();
}

#[test]
fn a_killed_server_whose_disk_nobody_uses_is_cleared_at_once() {
    let name = "a_killed_server_whose_disk_nobody_uses_is_cleared_at_once";
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop, mkfs]) {
        return;
    }
    let _turn = alone();
    let mut served = start();
    let path = served.add("zram0", 32 << 20);
    let device = LoopDevice::attach(&path, LoopOptions::default()).unwrap();
    let at = served.root.join("a b");
    fs::create_dir(&at).unwrap();
    testkit::run(Command::new("mkfs.ext4").arg("-q").arg(device.path()));
    testkit::run(Command::new("mount").arg(device.path()).arg(&at));
    fs::write(at.join("file"), vec![1; 1 << 20]).unwrap();
    served.kill();
    let report = leftovers::clear(served.root.path());
    assert_eq!(report.remaining, [""; 0]);
    let node = device.path().display();
    let cleared = [
        format!("unmounted {}, which was on {node}, left by a killed daemon", at.display()),
        format!("detached {node} from {}", path.display()),
        format!("unmounted the dead file system at {}", served.files().display()),
    ];
    assert_eq!(report.cleared, cleared);
}
