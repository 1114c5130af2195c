//! A file for swap space whose server is killed again and again: what its users see.

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::kept::{Kept, has_resend, kills, mounted};
use common::{eventually, start};
use fuse::{KnownLoop, LoopDevice, LoopOptions, SwapFile, SwapFileOptions, find_by_backing};
use testkit::{Ends, Need, Rng, TempDir, run};

const P: usize = 4096;
/// Pages of the file.
const PAGES: usize = 4096;
/// Threads that use it, each its own part.
const USERS: usize = 4;
/// Memory that begins on a page, as O_DIRECT asks for.
struct Aligned {
    memory: Vec<u8>,
    skip: usize,
}

impl Aligned {
    fn new(length: usize) -> Aligned {
        let memory = vec![0; length + 65536];
        let skip = memory.as_ptr().align_offset(65536);
        Aligned { memory, skip }
    }

    fn get(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + length]
    }
}

/// The contents of a page as it was written the nth time; zeroes before the first time.
fn contents(page: usize, version: u64, into: &mut [u8]) {
    match version {
        0 => into.fill(0),
        _ => Rng::new((page as u64) << 32 | version).fill(into),
    }
}

/// Writes and reads the pages of `part` until `stop`. An error says what was wrong.
fn use_part(
    file: &File,
    part: std::ops::Range<usize>,
    rng: &mut Rng,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<(), String> {
    let mut versions = vec![0u64; part.len()];
    // Longer than the longest request.
    let (mut buffer, mut expected) = (Aligned::new(64 * P), vec![0; P]);
    let mut compare = |versions: &[u64], first: usize, bytes: &[u8]| {
        for (n, page) in bytes.chunks(P).enumerate() {
            let (version, page_number) = (versions[first + n], part.start + first + n);
            contents(page_number, version, &mut expected);
            if page != expected {
                return Err(format!("page {page_number} is not as it was written ({version})"));
            }
        }
        Ok(())
    };
    while !stop.load(Ordering::Relaxed) {
        let first = rng.below(part.len() as u64) as usize;
        let most = if rng.one_in(4) { 64 } else { 2 };
        let count = rng.range(1..most + 1).min((part.len() - first) as u64) as usize;
        let bytes = buffer.get(count * P);
        let at = ((part.start + first) * P) as u64;
        if rng.one_in(2) {
            for (n, page) in bytes.chunks_mut(P).enumerate() {
                versions[first + n] += 1;
                contents(part.start + first + n, versions[first + n], page);
            }
            file.write_all_at(bytes, at).map_err(|error| format!("a write failed: {error}"))?;
        } else {
            file.read_exact_at(bytes, at).map_err(|error| format!("a read failed: {error}"))?;
            compare(&versions, first, bytes)?;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    for first in (0..part.len()).step_by(64) {
        let count = 64.min(part.len() - first);
        let bytes = buffer.get(count * P);
        let at = ((part.start + first) * P) as u64;
        file.read_exact_at(bytes, at).map_err(|error| format!("a read failed: {error}"))?;
        compare(&versions, first, bytes)?;
    }
    Ok(())
}

/// Uses the device at `path` while `disturb` runs.
fn use_while(path: &Path, seed: u64, disturb: impl FnOnce(&AtomicU64)) -> Result<u64, String> {
    let flags = libc::O_DIRECT | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap();
    let file = Arc::new(file);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let users: Vec<_> = (0..USERS)
        .map(|user| {
            let (file, stop, done) = (file.clone(), stop.clone(), done.clone());
            let part = user * PAGES / USERS..(user + 1) * PAGES / USERS;
            let mut rng = Rng::new(seed.wrapping_add(user as u64));
            thread::spawn(move || use_part(&file, part, &mut rng, &stop, &done))
        })
        .collect();
    disturb(&done);
    stop.store(true, Ordering::Relaxed);
    let outcomes: Vec<_> = users.into_iter().map(|user| user.join().unwrap()).collect();
    let first = outcomes.into_iter().find(Result::is_err).unwrap_or(Ok(()));
    first.map(|()| done.load(Ordering::Relaxed))
}

/// Kills the servers of a file `kills` times while it is used.
fn survive(name: &str, kind: &str, kills: usize, on_loop: bool) -> Result<(), String> {
    let seed = testkit::seed(name);
    let mut rng = Rng::new(seed);
    let kept = Kept::start(kind, PAGES * P, 3);
    let mount = mounted(&kept.path).expect("it is mounted");
    let options = LoopOptions { flush: false, ..LoopOptions::default() };
    let disk = kept.disk();
    let device = on_loop.then(|| LoopDevice::attach(&disk, options).unwrap());
    let path = device.as_ref().map_or(&*disk, LoopDevice::path);
    let worked = use_while(path, seed, |done| {
        // It is used from the first kill.
        eventually("the file is used", || done.load(Ordering::Relaxed) > 100);
        for _ in 0..kills {
            kept.kill(&mut rng);
        }
        // It is used to the end.
        let before = done.load(Ordering::Relaxed);
        eventually("the file is used", || {
            !kind.ends_with("kept") || done.load(Ordering::Relaxed) > before + 100
        });
    });
    println!("{kills} kills, {worked:?} operations");
    assert_eq!(kept.lives().len(), kills + 1);
    assert_eq!(mounted(&kept.path), Some(mount), "another mount");
    if let Some(mut device) = device {
        assert_eq!(find_by_backing(&disk), [device.number()]);
        device.detach().unwrap();
    }
    if worked.is_ok() {
        kept.stop();
    }
    worked.map(|_| ())
}

#[test]
fn no_user_of_a_file_sees_that_its_server_was_killed() {
    let name = "no_user_of_a_file_sees_that_its_server_was_killed";
    if !testkit::met(name, &[Need::Root, Need::Fuse, has_resend()]) {
        return;
    }
    survive(name, "kept", kills(50), false).unwrap();
    // Requests are under way at each kill.
    survive(name, "slow", 50, false).unwrap();
}

#[test]
fn a_loop_device_survives_the_server_of_its_file() {
    let name = "a_loop_device_survives_the_server_of_its_file";
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop, has_resend()]) {
        return;
    }
    survive(name, "kept", kills(50), true).unwrap();
    survive(name, "slow", 30, true).unwrap();
}

#[test]
fn no_user_of_a_disk_sees_that_its_server_was_killed() {
    let name = "no_user_of_a_disk_sees_that_its_server_was_killed";
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop, has_resend()]) {
        return;
    }
    survive(name, "mount-kept", kills(50), false).unwrap();
    survive(name, "mount-slow", 30, false).unwrap();
    survive(name, "mount-kept", 30, true).unwrap();
}

#[test]
fn users_of_a_disk_wait_when_its_next_server_has_no_descriptor_left() {
    let name = "users_of_a_disk_wait_when_its_next_server_has_no_descriptor_left";
    if !testkit::met(name, &[Need::Root, Need::Fuse, has_resend()]) {
        return;
    }
    survive(name, "mount-starved", 2, false).unwrap();
    survive(name, "starved", 2, false).unwrap();
}

/// Makes a directory with files of random contents and sizes.
fn make_tree(at: &Path, rng: &mut Rng) {
    for directory in 0..8 {
        let directory = at.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..24 {
            let mut bytes = vec![0; rng.below(60_000) as usize];
            rng.fill(&mut bytes);
            fs::write(directory.join(format!("f{file}")), bytes).unwrap();
        }
    }
}

#[test]
fn a_file_system_survives_the_server_of_its_disk() {
    let name = "a_file_system_survives_the_server_of_its_disk";
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    let needs = [Need::Root, Need::Fuse, Need::Loop, has_resend(), mkfs];
    if !testkit::met(name, &needs) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let source = TempDir::new();
    make_tree(source.path(), &mut rng);
    let kept = Kept::start("slow", 64 << 20, 3);
    let options = LoopOptions { flush: false, ..LoopOptions::default() };
    let mut device = LoopDevice::attach(&kept.path, options).unwrap();
    let (node, at) = (device.path().to_owned(), kept.root.join("mnt"));
    fs::create_dir(&at).unwrap();
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&node));
    let mount = || run(Command::new("mount").arg(&node).arg(&at));
    let unmount = || run(Command::new("umount").arg(&at));
    mount();
    let stop = AtomicBool::new(false);
    let copies = thread::scope(|scope| {
        let user = scope.spawn(|| {
            let mut copies = 0;
            while !stop.load(Ordering::Relaxed) {
                let copy = at.join(format!("copy{}", copies % 3));
                run(Command::new("rm").arg("-rf").arg(&copy));
                run(Command::new("cp").arg("-r").arg(source.path()).arg(&copy));
                run(Command::new("sync").arg("-f").arg(&copy));
                run(Command::new("diff").arg("-r").arg(source.path()).arg(&copy));
                copies += 1;
            }
            copies
        });
        let ending = Ends(&stop);
        for _ in 0..kills(40) {
            kept.kill(&mut rng);
        }
        drop(ending);
        user.join().unwrap()
    });
    println!("{copies} copies");
    // What was kept in memory by the system is read from the device now.
    unmount();
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(&node));
    mount();
    for copy in 0..copies.min(3) {
        let copy = at.join(format!("copy{copy}"));
        run(Command::new("diff").arg("-r").arg(source.path()).arg(copy));
    }
    unmount();
    device.detach().unwrap();
    kept.stop();
}

#[test]
fn servers_that_forget_are_found_out() {
    let name = "servers_that_forget_are_found_out";
    if !testkit::met(name, &[Need::Root, Need::Fuse, has_resend()]) {
        return;
    }
    let error = survive(name, "private", 2, false).unwrap_err();
    assert!(error.contains("is not as it was written"), "{error}");
    // The first server alone reads by descriptors that are not kept, and perhaps nothing is under
    // way by them when it is killed.
    let mut tries = (0..20).map(|_| survive(name, "half", 2, false));
    let error = tries.find_map(Result::err).expect("a request was lost");
    assert!(error.contains("a write failed") || error.contains("a read failed"), "{error}");
}

#[test]
fn a_later_process_finds_the_loop_device() {
    let name = "a_later_process_finds_the_loop_device";
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop, has_resend()]) {
        return;
    }
    // A file that is a mount, and one that lies in a mount.
    for kind in ["kept", "mount-kept"] {
        let kept = Kept::start(kind, PAGES * P, 1);
        let disk = kept.disk();
        assert!(LoopDevice::adopt(&disk).unwrap().is_none());
        let first = LoopDevice::attach(&disk, LoopOptions::default()).unwrap();
        let number = first.number();
        // As a killed process leaves it.
        let known = first.into_known();
        kept.kill(&mut Rng::new(1));
        let again = LoopDevice::adopt(&disk).unwrap().expect("it is there");
        assert_eq!((again.number(), again.backing()), (number, &*disk));
        let again = again.into_known();
        assert_eq!(KnownLoop { made: known.made, ..again }, known);
        LoopDevice::of_known(known).detach().unwrap();
        assert!(find_by_backing(&disk).is_empty());
        kept.stop();
    }
}

#[test]
fn a_loop_device_whose_file_system_does_not_answer_is_not_taken_for_none() {
    let name = "a_loop_device_whose_file_system_does_not_answer_is_not_taken_for_none";
    if !testkit::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    // Its drop ends the server, and with it whatever waits for the file.
    let mut served = start();
    let file = served.add("zram0", 1 << 20);
    let known = LoopDevice::attach(&file, LoopOptions::default()).unwrap().into_known();
    let (open, found) = (File::open(&file).unwrap(), fs::metadata(&file).unwrap());
    served.suspend();
    // Who has it open is known all the same.
    assert!(host::is_open(found.dev(), found.ino()));
    let error = LoopDevice::adopt(&file).unwrap_err().to_string();
    assert!(error.contains("does not answer"), "{error}");
    assert_eq!(find_by_backing(&file), [known.number], "it stays");
    served.signal("CONT");
    drop(open);
    let mut found = LoopDevice::adopt(&file).unwrap().expect("it is there");
    assert_eq!(found.number(), known.number);
    found.detach().unwrap();
}

#[test]
fn a_file_stays_when_the_threads_of_its_next_server_cannot_start() {
    let name = "a_file_stays_when_the_threads_of_its_next_server_cannot_start";
    if !testkit::met(name, &[Need::Root, Need::Fuse, has_resend()]) {
        return;
    }
    let root = TempDir::new();
    let at = root.path().canonicalize().unwrap().join("swap0");
    let device = || Arc::new(block::Plain::new(P));
    // It goes on meanwhile, so nobody waits.
    let swap = SwapFile::serve(&at, device(), SwapFileOptions::default()).unwrap();
    let channels = swap.channels().map(|it| it.try_clone_to_owned().unwrap()).collect();
    let options =
        SwapFileOptions { begin: || panic!("it cannot start"), ..SwapFileOptions::default() };
    assert!(SwapFile::take_over(&at, channels, device(), options).is_err());
    assert!(mounted(&at).is_some());
    assert_eq!(fs::metadata(&at).unwrap().len(), P as u64);
    drop(swap);
    assert_eq!(mounted(&at), None);
}

#[test]
fn what_cannot_be_taken_over_says_why() {
    let name = "what_cannot_be_taken_over_says_why";
    if !testkit::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let root = TempDir::new();
    let device = || Arc::new(block::Plain::new(P));
    let options = SwapFileOptions::default;
    let refused = |at: &Path, fds| {
        SwapFile::take_over(at, fds, device(), options()).err().unwrap().to_string()
    };
    let at = root.join("swap0");
    let text = refused(&at, Vec::new());
    assert!(text.contains("it is not mounted any more"), "{text}");
    let text = refused(&root.join("none/swap0"), Vec::new());
    assert!(text.contains("No such file"), "{text}");
    let swap = SwapFile::serve(&at, device(), options()).unwrap();
    // The process cannot know what was under way, so the users of the file get errors.
    let text = refused(&at, Vec::new());
    assert!(text.contains("no descriptor of it was kept"), "{text}");
    assert_eq!(mounted(&root.path().canonicalize().unwrap().join("swap0")), None);
    drop(swap);
    let swap = SwapFile::serve(&at, device(), options()).unwrap();
    let text = refused(&at, vec![File::open("/dev/null").unwrap().into()]);
    assert!(text.contains("none of /dev/fuse"), "{text}");
    assert_eq!(mounted(&root.path().canonicalize().unwrap().join("swap0")), None);
    drop(swap);
}
