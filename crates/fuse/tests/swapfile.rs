//! A file for swap space: what reads, writes and uses it see.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use common::{eventually, start_swap};
use fuse::{LoopDevice, LoopOptions, find_by_backing, leftovers};
use testkit::{Need, Rng, TempDir};

const P: usize = 4096;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

fn direct(path: &Path) -> File {
    let flags = libc::O_DIRECT | libc::O_CLOEXEC;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

fn buffered(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn fallocate(file: &File, mode: i32, offset: usize, length: usize) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn code(error: io::Error) -> i32 {
    error.raw_os_error().expect("an answer of the system")
}

/// Memory that begins on a page, as O_DIRECT asks for.
struct Aligned {
    memory: Vec<u8>,
    skip: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Aligned {
        let memory = vec![0; length + P];
        let skip = memory.as_ptr().align_offset(P);
        Aligned { memory, skip, length }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.length]
    }
}

/// Random operations on the part of `file` that begins at `from`, against a vector. Offsets and
/// lengths are multiples of `unit`.
fn compare_with_a_vector(
    file: &File,
    (from, bytes): (usize, usize),
    unit: usize,
    (rounds, holes): (usize, bool),
    rng: &mut Rng,
) {
    let mut model = vec![0u8; bytes];
    let mut buffer = Aligned::new(bytes);
    let buffer = buffer.get();
    file.write_all_at(&model, from as u64)
        .or_else(|_| file.write_all_at(buffer, from as u64))
        .unwrap();
    for _ in 0..rounds {
        let offset = rng.below((bytes / unit) as u64) as usize * unit;
        let most = if rng.one_in(10) { bytes - offset } else { (3 * P).min(bytes - offset) };
        let length = (rng.below((most / unit) as u64) as usize + 1) * unit;
        let range = offset..offset + length;
        let at = (from + offset) as u64;
        match rng.below(8) {
            0..=2 => {
                rng.fill(&mut buffer[..length]);
                file.write_all_at(&buffer[..length], at).unwrap();
                model[range].copy_from_slice(&buffer[..length]);
            }
            3 | 4 if holes => {
                let mode = if rng.one_in(2) { PUNCH } else { ZERO };
                fallocate(file, mode, from + offset, length).unwrap();
                model[range].fill(0);
            }
            5 if rng.one_in(8) => file.sync_data().unwrap(),
            _ => {
                file.read_exact_at(&mut buffer[..length], at).unwrap();
                assert!(buffer[..length] == model[range], "{length} bytes at {offset}");
            }
        }
    }
    file.read_exact_at(buffer, from as u64).unwrap();
    assert!(*buffer == model[..], "all of it");
}

#[test]
fn the_file_holds_what_was_written() {
    let name = "the_file_holds_what_was_written";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    // Not a multiple of a page, and longer than the longest request.
    let bytes = 1024 * 1024 + 100;
    let served = start_swap(TempDir::new(), bytes as u64, 2, "plain");
    compare_with_a_vector(&buffered(&served.swap()), (0, bytes), 1, (400, true), &mut rng);
    drop(served);
    let bytes = 1024 * 1024;
    for threads in [1, 3] {
        let served = start_swap(TempDir::new(), bytes as u64, threads, "plain");
        compare_with_a_vector(&direct(&served.swap()), (0, bytes), 512, (400, true), &mut rng);
    }
}

#[test]
fn many_use_the_file_at_once() {
    let name = "many_use_the_file_at_once";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let seed = testkit::seed(name);
    let (clients, part) = (8, 512 * 1024);
    let served = start_swap(TempDir::new(), (clients * part) as u64, 4, "plain");
    let path = served.swap();
    let together = Barrier::new(clients);
    thread::scope(|scope| {
        for client in 0..clients {
            let (path, together) = (&path, &together);
            scope.spawn(move || {
                let file = direct(path);
                let mut rng = Rng::new(seed.wrapping_add(client as u64));
                together.wait();
                compare_with_a_vector(&file, (client * part, part), 512, (300, true), &mut rng);
            });
        }
    });
}

#[test]
fn a_loop_device_stands_on_it() {
    let name = "a_loop_device_stands_on_it";
    if !common::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let bytes = 4 << 20;
    let mut served = start_swap(TempDir::new(), bytes as u64, 2, "plain");
    let mut device = LoopDevice::attach(&served.swap(), LoopOptions::default()).unwrap();
    assert!(device.is_direct());
    assert_eq!(find_by_backing(&served.swap()), [device.number()]);
    let file = direct(device.path());
    compare_with_a_vector(&file, (0, bytes), P, (400, true), &mut rng);
    drop(file);
    let refused = served.ask("unmount").unwrap_err();
    assert!(refused.contains(&format!("behind {}", device.path().display())), "{refused}");
    device.detach().unwrap();
    eventually("the loop device closes it", || served.ask("opens").unwrap() == "0");
    served.ask("unmount").unwrap();
}

#[test]
fn the_file_ends_as_a_disk_does() {
    if !common::met("the_file_ends_as_a_disk_does", &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut served = start_swap(TempDir::new(), 10_000, 1, "plain");
    let path = served.swap();
    let data = fs::metadata(&path).unwrap();
    assert_eq!((data.len(), data.permissions().mode()), (10_000, 0o100_600));
    let file = buffered(&path);
    assert_eq!(file.write_at(&[7; 100], 9_990).unwrap(), 10, "cut off at the end");
    assert_eq!(code(file.write_at(&[7], 10_000).unwrap_err()), libc::ENOSPC);
    let mut bytes = [0; 100];
    assert_eq!(file.read_at(&mut bytes, 9_990).unwrap(), 10);
    assert_eq!(bytes[..11], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
    assert_eq!(file.read_at(&mut bytes, 10_000).unwrap(), 0);
    assert_eq!(code(file.set_len(20_000).unwrap_err()), libc::EINVAL);
    assert_eq!(code(file.set_len(0).unwrap_err()), libc::EINVAL);
    let readable = fs::Permissions::from_mode(0o644);
    assert_eq!(code(fs::set_permissions(&path, readable).unwrap_err()), libc::EPERM);
    assert_eq!(code(fallocate(&file, 0, 0, P).unwrap_err()), libc::EOPNOTSUPP);
    let extend = libc::FALLOC_FL_ZERO_RANGE;
    assert_eq!(code(fallocate(&file, extend, 9_000, P).unwrap_err()), libc::ENOSPC);
    fallocate(&file, PUNCH, 9_995, 1 << 40).unwrap();
    drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000, "O_TRUNC changes nothing");
    assert_eq!(file.read_at(&mut bytes, 9_990).unwrap(), 10);
    assert_eq!(bytes[..10], [7, 7, 7, 7, 7, 0, 0, 0, 0, 0]);
    assert_eq!(served.ask("opens").unwrap(), "1");
}

#[test]
fn a_panic_of_the_device_is_an_error_of_the_request() {
    let name = "a_panic_of_the_device_is_an_error_of_the_request";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut served = start_swap(TempDir::new(), 64 * P as u64, 1, "panicking");
    let threads = served.ask("threads").unwrap();
    let file = direct(&served.swap());
    let mut page = Aligned::new(P);
    for round in 0..5 {
        let page = page.get();
        page.fill(round);
        file.write_all_at(page, 0).unwrap();
        assert_eq!(code(file.write_at(page, 7 * P as u64).unwrap_err()), libc::EIO);
        assert_eq!(code(file.read_at(page, 7 * P as u64).unwrap_err()), libc::EIO);
        assert_eq!(code(fallocate(&file, PUNCH, 7 * P, P).unwrap_err()), libc::EIO);
        page.fill(0xff);
        file.read_exact_at(page, 0).unwrap();
        assert!(page.iter().all(|byte| *byte == round));
    }
    assert_eq!(served.ask("threads").unwrap(), threads, "always the same ones");
    drop(file);
    served.ask("unmount").unwrap();
}

#[test]
fn errors_of_the_device_reach_the_caller() {
    let name = "errors_of_the_device_reach_the_caller";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let served = start_swap(TempDir::new(), 8 * P as u64, 2, "failing");
    let file = buffered(&served.swap());
    assert_eq!(code(file.read_at(&mut [0; 10], 0).unwrap_err()), libc::EIO);
    assert_eq!(code(file.write_at(&[0; 10], 0).unwrap_err()), libc::EIO);
    assert_eq!(code(fallocate(&file, PUNCH, 0, P).unwrap_err()), libc::EIO);
    assert_eq!(code(fallocate(&file, ZERO, 0, P).unwrap_err()), libc::EIO);
    assert_eq!(code(file.sync_all().unwrap_err()), libc::EIO);
}

#[test]
fn a_file_in_use_is_not_taken_away() {
    let name = "a_file_in_use_is_not_taken_away";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut served = start_swap(TempDir::new(), 8 * P as u64, 2, "plain");
    let file = direct(&served.swap());
    let refused = served.ask("unmount").unwrap_err();
    assert!(refused.contains("is in use: open in "), "{refused}");
    assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
    assert_eq!(served.ask("served").unwrap(), "true");
    let mut page = Aligned::new(P);
    file.read_exact_at(page.get(), 0).expect("it is as before");
    served.ask("force").unwrap();
    assert_eq!(served.ask("served").unwrap(), "false");
    assert!(file.read_at(page.get(), 0).is_err(), "failed, not waiting");
    assert!(!served.swap().exists(), "what was mounted on is gone");
    served.ask("force").expect("twice does no harm");
    assert!(served.stop());

    // A request under way when it is taken away fails at once.
    let mut served = start_swap(TempDir::new(), 8 * P as u64, 2, "stuck");
    let file = direct(&served.swap());
    thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_at(Aligned::new(P).get(), 0).is_err());
        thread::sleep(std::time::Duration::from_millis(100));
        served.ask("force").unwrap();
        assert!(reader.join().unwrap());
    });

    let mut served = start_swap(TempDir::new(), 8 * P as u64, 2, "plain");
    drop(direct(&served.swap()));
    served.ask("unmount").unwrap();
    assert!(!served.swap().exists());
}

#[test]
fn a_killed_server_is_cleared_away() {
    let name = "a_killed_swap_server_is_cleared_away";
    if !common::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let mut served = start_swap(TempDir::new(), 1 << 20, 2, "plain");
    let device = LoopDevice::attach(&served.swap(), LoopOptions::default()).unwrap();
    // A file of somebody else.
    let other = served.swap().with_file_name("other");
    fs::write(&other, vec![0; 1 << 20]).unwrap();
    let other_device = LoopDevice::attach(&other, LoopOptions::default()).unwrap();
    assert!(leftovers::exist(served.root.path()));
    served.kill();
    // The rings of a process may end after it.
    let error = || code(fs::metadata(served.swap()).unwrap_err());
    eventually("the connection has ended", || error() == libc::ENOTCONN);
    assert!(leftovers::exist(served.root.path()));
    let report = leftovers::clear(served.root.path());
    assert_eq!(report.remaining, [""; 0]);
    let file = served.swap();
    let cleared = [
        format!("detached {} from {}", device.path().display(), file.display()),
        format!("unmounted the dead file system at {}", file.display()),
    ];
    assert_eq!(report.cleared, cleared);
    assert!(!leftovers::exist(served.root.path()));
    assert!(find_by_backing(&file).is_empty());
    assert!(!file.exists(), "what was mounted on is gone");
    assert_eq!(find_by_backing(&other), [other_device.number()], "what is not ours stays");
    drop(other_device);
    fs::remove_file(other).unwrap();

    // The next server starts at the same place, even if the empty file was left.
    let root = std::mem::take(&mut served.root);
    drop(served);
    fs::write(&file, "").unwrap();
    let served = start_swap(root, 8192, 1, "plain");
    assert_eq!(fs::metadata(served.swap()).unwrap().len(), 8192);
}

/// A device whose server is killed fails all requests, those under way too, and hangs nobody.
#[test]
fn users_of_a_killed_server_get_errors() {
    let name = "users_of_a_killed_server_get_errors";
    if !common::met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let mut served = start_swap(TempDir::new(), 8 << 20, 2, "plain");
    let device = LoopDevice::attach(&served.swap(), LoopOptions::default()).unwrap();
    let path = device.path().to_owned();
    let (done, all_done) = std::sync::mpsc::channel();
    for client in 0..16u64 {
        let (path, done) = (path.clone(), done.clone());
        thread::spawn(move || {
            let file = direct(&path);
            let mut page = Aligned::new(P);
            let mut round = 0;
            loop {
                let at = (client * 100 + round % 100) * P as u64;
                let ended = match client % 2 {
                    0 => file.write_all_at(page.get(), at),
                    _ => file.read_exact_at(page.get(), at),
                };
                round += 1;
                if let Err(error) = ended {
                    let _ = done.send(code(error));
                    return;
                }
            }
        });
    }
    thread::sleep(std::time::Duration::from_millis(200));
    served.kill();
    for _ in 0..16 {
        let told = all_done.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(told, Ok(libc::EIO), "each user gets an error");
    }
    drop(device);
    assert_eq!(leftovers::clear(served.root.path()).remaining, [""; 0]);
    assert!(!leftovers::exist(served.root.path()));
}

#[test]
fn what_cannot_be_mounted_on_is_named() {
    let name = "what_cannot_be_mounted_on_is_named_of_swap";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let served = start_swap(TempDir::new(), 8192, 1, "plain");
    let refused = |at: &Path| {
        let device = std::sync::Arc::new(block::Plain::new(8192));
        let served = fuse::SwapFile::serve(at, device, fuse::SwapFileOptions::default());
        served.err().expect("an error").to_string()
    };
    let twice = refused(&served.swap());
    let there = "something is mounted there already (rampack, fuse.rampack)";
    assert!(twice.contains(there), "{twice}");
    let file = served.root.join("file");
    fs::write(&file, "mine").unwrap();
    assert!(refused(&file).contains("it is not an empty file"));
    assert!(refused(&served.root.join("swap")).contains("it is not an empty file"));
    assert!(refused(&served.root.join("missing/file")).contains("missing/file"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}
