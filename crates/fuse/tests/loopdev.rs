//! A file of the mount as a block device, and a file system on it.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{eventually, start};
use fuse::{Error, LoopDevice, LoopOptions, User, find_by_backing};
use testkit::{Need, Rng, TempDir};

const P: usize = 4096;

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Loop];
const EXT4: [Need; 5] = [
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::program("mkfs.ext4", "e2fsprogs"),
    Need::program("fstrim", "util-linux"),
];

fn run(program: &str, arguments: &[&dyn AsRef<OsStr>]) {
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|argument| argument.as_ref()));
    testkit::run(&mut command);
}

fn attribute(device: &LoopDevice, name: &str) -> String {
    let path = format!("/sys/block/loop{}/{name}", device.number());
    fs::read_to_string(path).unwrap().trim().to_owned()
}

#[test]
fn a_loop_device_is_set_up_and_taken_down() {
    if !common::met("a_loop_device_is_set_up_and_taken_down", &NEEDS) {
        return;
    }
    let mut served = start();
    let file = served.add("zram0", 16 << 20);
    let mut device = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
    assert_eq!(device.path(), Path::new(&format!("/dev/loop{}", device.number())));
    assert_eq!(find_by_backing(&file), [device.number()]);
    assert_eq!(device.backing(), file);
    assert!(device.is_direct());
    assert_eq!(attribute(&device, "queue/logical_block_size"), "4096");
    assert_eq!(attribute(&device, "size"), ((16 << 20) / 512).to_string());
    assert_ne!(attribute(&device, "queue/discard_max_bytes"), "0");
    assert_eq!(device.in_use(), []);
    assert_eq!(served.ask("opens zram0").unwrap(), "1");
    let refused = served.ask("unmount").unwrap_err();
    assert!(refused.contains(&format!("behind {}", device.path().display())), "{refused}");

    // What is written to one is read from the other.
    let direct = libc::O_DIRECT;
    let block = OpenOptions::new().read(true).write(true).custom_flags(direct).open(device.path());
    let block = block.unwrap();
    let mut memory = vec![0u8; 3 * P];
    let skip = memory.as_ptr().align_offset(P);
    let page = &mut memory[skip..skip + 2 * P];
    Rng::new(1).fill(page);
    block.write_all_at(page, 5 * P as u64).unwrap();
    block.sync_all().unwrap();
    let mut seen = vec![0; 2 * P];
    File::open(&file).unwrap().read_exact_at(&mut seen, 5 * P as u64).unwrap();
    assert!(seen == page);
    assert_eq!(device.in_use(), [], "who merely reads and writes does not hold it");
    drop(block);

    device.detach().unwrap();
    device.detach().expect("twice does no harm");
    assert!(find_by_backing(&file).is_empty());
    served.ask("unmount").expect("nobody uses it now");
}

#[test]
fn what_reads_a_device_delays_but_does_not_keep_it() {
    if !common::met("what_reads_a_device_delays_but_does_not_keep_it", &NEEDS) {
        return;
    }
    let mut served = start();
    let file = served.add("zram0", 16 << 20);
    let mut device = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
    let reader = File::open(device.path()).unwrap();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(reader);
    });
    device.detach().unwrap();
    closing.join().unwrap();
    assert!(find_by_backing(&file).is_empty());
}

#[test]
fn devices_that_were_added_are_removed() {
    if !common::met("devices_that_were_added_are_removed", &NEEDS) {
        return;
    }
    let mut served = start();
    let at = |number: u32| PathBuf::from(format!("/sys/block/loop{number}"));
    let before: Vec<u32> = (0..1000).filter(|number| at(*number).exists()).collect();
    let attach = |n: usize| {
        let file = served.add(&format!("zram{n}"), 1 << 20);
        LoopDevice::attach(&file, LoopOptions::default()).unwrap()
    };
    let devices: Vec<LoopDevice> = (0..before.len() + 2).map(attach).collect();
    let numbers: Vec<u32> = devices.iter().map(LoopDevice::number).collect();
    let added = numbers.iter().filter(|number| !before.contains(number));
    assert!(added.clone().count() >= 2, "{numbers:?} after {before:?}");
    drop(devices);
    for number in added {
        // Another test may have taken it over meanwhile.
        let is_gone = || !at(*number).exists() || at(*number).join("loop/backing_file").exists();
        eventually("a device that was added goes", is_gone);
    }
    for number in before {
        assert!(at(number).exists(), "loop{number} was there before");
    }
}

#[test]
fn a_write_through_device_and_a_read_only_one() {
    if !common::met("a_write_through_device_and_a_read_only_one", &NEEDS) {
        return;
    }
    let mut served = start();
    let file = served.add("zram0", 16 << 20);
    let options = LoopOptions { flush: false, largest_kib: Some(32), ..served.loop_options() };
    let device = LoopDevice::attach(&file, options).unwrap();
    assert_eq!(attribute(&device, "queue/write_cache"), "write through");
    assert_eq!(attribute(&device, "queue/max_sectors_kb"), "32");
    let depth = options.depth.expect("a limit").to_string();
    assert_eq!(attribute(&device, "queue/nr_requests"), depth);
    let (node, number) = (device.path().to_owned(), device.number());
    drop(device);
    assert!(find_by_backing(&file).is_empty(), "dropping it detaches it");
    // Who has it next has his flushes and large requests, unless another test took it meanwhile.
    let image = served.root.join("image");
    File::create(&image).unwrap().set_len(1 << 20).unwrap();
    if testkit::try_run(Command::new("losetup").arg(&node).arg(&image)).status.success() {
        let queue = Path::new("/sys/block").join(format!("loop{number}/queue"));
        let [cache, largest, depth] = ["write_cache", "max_sectors_kb", "nr_requests"]
            .map(|name| fs::read_to_string(queue.join(name)));
        run("losetup", &[&"-d", &node]);
        assert_eq!(cache.unwrap().trim(), "write back");
        assert_ne!(largest.unwrap().trim(), "32");
        assert_ne!(depth.unwrap().trim(), "16");
    }
    let device = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
    assert_eq!(attribute(&device, "queue/write_cache"), "write back");
    drop(device);
    let options = LoopOptions { read_only: true, block_size: 512, ..LoopOptions::default() };
    let device = LoopDevice::attach(&file, options).unwrap();
    assert_eq!(attribute(&device, "ro"), "1");
    assert_eq!(attribute(&device, "queue/logical_block_size"), "512");
}

#[test]
fn the_size_follows_and_bad_files_are_refused() {
    if !common::met("the_size_follows_and_bad_files_are_refused", &NEEDS) {
        return;
    }
    let directory = TempDir::new();
    let path = directory.join("image");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let options = LoopOptions { direct_io: false, ..LoopOptions::default() };
    let device = LoopDevice::attach(&path, options).unwrap();
    file.set_len(2 << 20).unwrap();
    device.refresh_size().unwrap();
    assert_eq!(attribute(&device, "size"), ((2 << 20) / 512).to_string());
    let missing = LoopDevice::attach(&directory.join("missing"), options).unwrap_err().to_string();
    assert!(missing.contains("missing: open the file: No such file"), "{missing}");
    let options = LoopOptions { block_size: 1000, ..options };
    let odd = LoopDevice::attach(&path, options).unwrap_err().to_string();
    assert!(odd.contains("configure it: Invalid argument"), "{odd}");
}

/// The tree that this test belongs to, and files that need many blocks, none, or a long name.
fn fill(directory: &Path, rng: &mut Rng) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    run("cp", &[&"-r", &source, &directory.join("tree")]);
    let made = directory.join("made");
    fs::create_dir(&made).unwrap();
    for n in 0..100 {
        let mut bytes = vec![0; rng.below(100_000) as usize];
        rng.fill(&mut bytes);
        fs::write(made.join(format!("{n:0>200}")), bytes).unwrap();
    }
    let sparse = File::create(made.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 5_000_000).unwrap();
}

#[test]
fn a_file_system_lives_on_it() {
    let name = "a_file_system_lives_on_it";
    if !common::met(name, &EXT4) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let mut served = start();
    let file = served.add("zram0", 128 << 20);
    let (at, copy) = (served.root.join("at"), served.root.join("copy"));
    fs::create_dir(&at).unwrap();
    fs::create_dir(&copy).unwrap();
    fill(&copy, &mut rng);

    let mut device = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
    run("mkfs.ext4", &[&"-q", &device.path()]);
    run("mount", &[&device.path(), &at]);
    run("cp", &[&"-r", &format!("{}/.", copy.display()), &at]);

    let refused = device.detach().unwrap_err();
    let Error::Busy { users, .. } = &refused else { panic!("{refused}") };
    assert_eq!(users[..], [User::MountedAt(at.canonicalize().unwrap())]);
    let text = format!("{} is in use: mounted at {}", device.path().display(), at.display());
    assert_eq!(refused.to_string(), text);
    assert_eq!(device.in_use(), users[..]);
    run("ls", &[&at]);

    run("umount", &[&at]);
    run("fsck.ext4", &[&"-fn", &device.path()]);
    run("mount", &[&device.path(), &at]);
    fs::remove_dir(at.join("lost+found")).unwrap();
    run("diff", &[&"-r", &copy, &at]);

    // What is deleted and trimmed is given up by the device.
    let held = |served: &mut common::Served| {
        let runs = served.map("zram0");
        runs.iter().filter(|(kind, _)| kind != "Hole").map(|(_, length)| length).sum::<u64>()
    };
    let full = held(&mut served);
    fs::remove_dir_all(at.join("made")).unwrap();
    run("sync", &[&"-f", &at]);
    run("fstrim", &[&at]);
    let trimmed = held(&mut served);
    assert!(trimmed + (3 << 20) < full, "{full} bytes were held, {trimmed} still are");
    run("diff", &[&"-r", &copy.join("tree"), &at.join("tree")]);

    // By force it goes from under its user, as soon as that lets go.
    let user = File::open(&at).unwrap();
    let unmounted = device.force_detach().unwrap();
    assert_eq!(unmounted, [at.canonicalize().unwrap()]);
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    drop(user);
    eventually("the device goes", || find_by_backing(&file).is_empty());
    let again = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
    run("fsck.ext4", &[&"-fn", &again.path()]);
    drop(again);
    served.ask("unmount").expect("nobody uses it now");
}

#[test]
fn many_jobs_verify_what_they_wrote() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::program("fio", "fio")];
    if !common::met("many_jobs_verify_what_they_wrote", &needs) {
        return;
    }
    let mut served = start();
    let file = served.add("zram0", 16 << 20);
    let device = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
    for path in [device.path(), &file] {
        let path = format!("--filename={}", path.display());
        let job: [&dyn AsRef<OsStr>; 10] = [
            &"--name=verify",
            &path,
            &"--ioengine=libaio",
            &"--direct=1",
            &"--rw=randwrite",
            &"--bsrange=4k-128k",
            &"--iodepth=16",
            &"--numjobs=3",
            &"--verify=crc32c",
            &"--verify_fatal=1",
        ];
        // Each job has a part of its own.
        let parts: [&dyn AsRef<OsStr>; 3] =
            [&"--size=5m", &"--offset_increment=5m", &"--verify_state_save=0"];
        run("fio", &[&job[..], &parts[..]].concat());
    }
}
