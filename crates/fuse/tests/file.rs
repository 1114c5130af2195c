//! A device as a file: what reads, writes and asks of it see.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{program, start};
use testkit::{Ends, Need, TempDir};

const P: u64 = 4096;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn fallocate(file: &File, mode: i32, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn seek(file: &File, offset: u64, whence: i32) -> Result<u64, i32> {
    // SAFETY: the call takes numbers only.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) };
    u64::try_from(at).map_err(|_| code(io::Error::last_os_error()))
}

fn code(error: io::Error) -> i32 {
    error.raw_os_error().expect("an answer of the system")
}

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

/// The kernel itself may read more at once than any program can.
#[test]
fn the_kernel_knows_the_longest_read_by_io_uring() {
    if !common::met("the_kernel_knows_the_longest_read_by_io_uring", &[Need::Fuse]) {
        return;
    }
    let served = start();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = format!(" {} ", served.files().display());
    let options = mounts.lines().find(|line| line.contains(&at)).expect("it is mounted");
    assert_eq!(options.contains(",max_read=262144"), common::by_ring(), "{options}");
}

#[test]
fn the_file_ends_as_a_disk_does() {
    if !common::met("the_file_ends_as_a_disk_does", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.add("zram0", 10_000);
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
    let mut file = open(&path);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 10_000);
    assert_eq!(file.write_at(&[7; 100], 9_990).unwrap(), 10, "cut off at the end");
    assert_eq!(code(file.write_at(&[7], 10_000).unwrap_err()), libc::ENOSPC);
    let mut bytes = [0; 100];
    assert_eq!(file.read_at(&mut bytes, 9_990).unwrap(), 10);
    assert_eq!(bytes[..11], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
    assert_eq!(file.read_at(&mut bytes, 10_000).unwrap(), 0);
    assert_eq!(code(file.set_len(20_000).unwrap_err()), libc::EINVAL);
    assert_eq!(code(file.set_len(0).unwrap_err()), libc::EINVAL);
    assert_eq!(code(fallocate(&file, 0, 0, P).unwrap_err()), libc::EOPNOTSUPP);
    let extend = libc::FALLOC_FL_ZERO_RANGE;
    assert_eq!(code(fallocate(&file, extend, 9_000, P).unwrap_err()), libc::ENOSPC);
    // A hole that passes the end is cut off; O_TRUNC changes nothing, as on a block device.
    fallocate(&file, PUNCH, 9_995, 1 << 40).unwrap();
    drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
    assert_eq!(file.read_at(&mut bytes, 9_990).unwrap(), 10);
    assert_eq!(bytes[..10], [7, 7, 7, 7, 7, 0, 0, 0, 0, 0]);
    served.add("empty", 0);
    let empty = open(&served.file("empty"));
    assert_eq!(empty.read_at(&mut bytes, 0).unwrap(), 0);
    assert_eq!(code(empty.write_at(&[1], 0).unwrap_err()), libc::ENOSPC);
}

#[test]
fn holes_are_given_up_and_found() {
    if !common::met("holes_are_given_up_and_found", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.add("zram0", 8 * P);
    let file = open(&path);
    let (hole, data) = (libc::SEEK_HOLE, libc::SEEK_DATA);
    assert_eq!(seek(&file, 0, hole), Ok(0));
    assert_eq!(seek(&file, 0, data), Err(libc::ENXIO));
    file.write_all_at(&[1; 6 * P as usize], P).unwrap();
    assert_eq!(seek(&file, 0, data), Ok(P));
    assert_eq!(seek(&file, P + 5, data), Ok(P + 5));
    assert_eq!(seek(&file, P, hole), Ok(7 * P));
    fallocate(&file, PUNCH, 2 * P, P).unwrap();
    fallocate(&file, ZERO, 4 * P, P).unwrap();
    fallocate(&file, PUNCH, 5 * P + 1, P).unwrap();
    let map = served.map("zram0");
    let map: Vec<_> = map.iter().map(|(kind, length)| (&kind[..], length / P)).collect();
    let expected =
        [("Hole", 1), ("Data", 1), ("Hole", 1), ("Data", 1), ("Hole", 1), ("Data", 2), ("Hole", 1)];
    assert_eq!(map, expected);
    assert_eq!(seek(&file, 3 * P, hole), Ok(4 * P));
    file.write_all_at(&[1; P as usize], 7 * P).unwrap();
    assert_eq!(seek(&file, 5 * P, hole), Ok(8 * P), "every file ends with one");
    assert_eq!(seek(&file, 8 * P, data), Err(libc::ENXIO));
}

#[test]
fn files_come_and_go_while_mounted() {
    if !common::met("files_come_and_go_while_mounted", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.add("zram0", P);
    served.add("zram1", P);
    let list = |served: &common::Served| {
        let entries = fs::read_dir(served.files()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(list(&served), ["zram0", "zram1"]);
    assert_eq!(served.ask("names").unwrap(), "zram0 zram1");
    let missing = File::open(served.file("zram2")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let created = File::create(served.file("zram2")).unwrap_err();
    assert_eq!(created.kind(), ErrorKind::PermissionDenied);
    assert_eq!(code(fs::remove_file(&path).unwrap_err()), libc::EPERM);
    assert!(served.ask("add zram0 4096").unwrap_err().contains("another device has it"));
    assert!(served.ask("add a/b 4096").unwrap_err().contains("none of them '/'"));

    let file = open(&path);
    file.write_all_at(&[1; 100], 0).unwrap();
    assert_eq!(served.ask("opens zram0").unwrap(), "1");
    served.ask("remove zram0").unwrap();
    let mut byte = [0];
    assert_eq!(code(file.read_at(&mut byte, 0).unwrap_err()), libc::ESTALE);
    assert_eq!(code(file.write_at(&byte, 0).unwrap_err()), libc::ESTALE);
    assert_eq!(code(file.sync_all().unwrap_err()), libc::ESTALE);
    assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    // A new device of the same name is another file.
    served.add("zram0", 2 * P);
    assert_eq!(code(file.read_at(&mut byte, 0).unwrap_err()), libc::ESTALE);
    let mut found = [9; 100];
    open(&path).read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, [0; 100]);
    assert_eq!(list(&served), ["zram1", "zram0"]);
}

#[test]
fn a_mount_in_use_is_not_taken_down() {
    if !common::met("a_mount_in_use_is_not_taken_down", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.add("zram0", P);
    let file = open(&path);
    let refused = served.ask("unmount").unwrap_err();
    assert!(refused.contains("is in use: open in "), "{refused}");
    assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
    file.write_all_at(&[1; 100], 0).expect("it is as before");
    served.ask("force").unwrap();
    assert!(file.read_at(&mut [0; 10], 0).is_err(), "failed, not waiting");
    assert_eq!(fs::read_dir(served.files()).unwrap().count(), 0);

    let mut served = start();
    drop(open(&served.add("zram0", P)));
    served.ask("unmount").unwrap();
    served.ask("unmount").expect("twice does no harm");
    assert!(start().stop());
}

#[test]
fn a_copy_of_the_mount_elsewhere_keeps_no_thread() {
    let needs = [Need::Root, Need::Fuse, Need::program("unshare", "util-linux")];
    if !common::met("a_copy_of_the_mount_elsewhere_keeps_no_thread", &needs) {
        return;
    }
    let mut served = start();
    served.add("zram0", P);
    let text = "cd $1; echo ready; exec sleep 1000";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-euc", text, "-"]);
    command.arg(served.files()).stdout(std::process::Stdio::piped());
    let mut copy = command.spawn().unwrap();
    let mut said = [0; 6];
    std::io::Read::read_exact(&mut copy.stdout.take().unwrap(), &mut said).unwrap();
    served.ask("unmount").unwrap();
    // A thread that has ended is listed a moment longer.
    common::eventually("no thread serves it", || {
        let threads = fs::read_dir(format!("/proc/{}/task", served.pid())).unwrap().flatten();
        let mut names = threads.flat_map(|it| fs::read_to_string(it.path().join("comm")));
        !names.any(|name| name.starts_with("fuse"))
    });
    copy.kill().unwrap();
    copy.wait().unwrap();
}

#[test]
fn what_cannot_be_mounted_on_is_named() {
    if !common::met("what_cannot_be_mounted_on_is_named", &[Need::Fuse]) {
        return;
    }
    let refused = |at: &Path| {
        let output = testkit::try_run(Command::new(program()).arg(at));
        assert!(!output.status.success());
        output.stdout
    };
    let served = start();
    let twice = refused(&served.files());
    assert!(
        twice.contains("something is mounted there already (rampack, fuse.rampack)"),
        "{twice}"
    );
    let directory = TempDir::new();
    let file = directory.join("file");
    fs::write(&file, "").unwrap();
    assert!(refused(&file).contains("it is not a directory"));
    assert!(refused(&file.join("below")).contains(&*file.to_string_lossy()));
    assert!(!directory.join("new/files").exists());
}

#[test]
fn a_missing_fuse_and_a_missing_permission_are_named() {
    let name = "a_missing_fuse_and_a_missing_permission_are_named";
    let unshare = Need::program("unshare", "util-linux");
    let setpriv = Need::program("setpriv", "util-linux");
    if !common::met(name, &[Need::Root, Need::Fuse, unshare, setpriv]) {
        return;
    }
    let directory = TempDir::new();
    // In a namespace of its own, with a /dev of its own; $0 is the program, $1 the directory.
    let run = |script: &str| {
        let script =
            format!("mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && {script}");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).arg(program()).arg(directory.join("files"));
        let output = testkit::try_run(&mut command);
        assert!(!output.status.success());
        output.stdout
    };
    let answer = run("exec \"$0\" \"$1\"");
    assert!(answer.contains("no FUSE on this machine"), "{answer}");
    assert!(answer.contains("modprobe fuse"), "{answer}");
    // The copy is for a user who may not look into the build directory.
    let answer = run("mknod -m 600 /dev/fuse c 10 229 && install -m 755 \"$0\" /dev/server && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups /dev/server /dev/files");
    assert!(answer.contains("no permission to open /dev/fuse"), "{answer}");
}

#[test]
fn a_mount_that_somebody_aborted_is_still_taken_down() {
    let name = "a_mount_that_somebody_aborted_is_still_taken_down";
    if !common::met(name, &[Need::Root, Need::Fuse]) {
        return;
    }
    let mut served = start();
    let file = open(&served.add("zram0", P));
    // Fails, as the file is open, but has ended the connection then.
    testkit::try_run(Command::new("umount").arg("-f").arg(served.files()));
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(fs::metadata(served.files()).is_err(), "dead, but still there");
    drop(file);
    served.ask("unmount").unwrap();
    assert_eq!(fs::read_dir(served.files()).unwrap().count(), 0);
}

/// As with Ctrl-Z, or a container that is frozen.
#[test]
fn a_server_that_stops_and_goes_on_fails_no_request() {
    if !common::met("a_server_that_stops_and_goes_on_fails_no_request", &[Need::Fuse]) {
        return;
    }
    let mut served = start();
    let path = served.add("zram0", 16 * P);
    let pid = i32::try_from(served.pid()).unwrap();
    let signal = |signal| {
        // SAFETY: the call takes numbers only.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    };
    let (end, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&end);
        let ask = || {
            while !end.load(Ordering::Relaxed) {
                assert_eq!(fs::metadata(&path)?.len(), 16 * P);
                drop(File::open(&path)?);
                asked.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), io::Error>(())
        };
        let asking = [(); 2].map(|()| scope.spawn(ask));
        let begun = Instant::now();
        for _ in 0..1000 {
            // Fewer are enough on a machine that is busy.
            if begun.elapsed() > Duration::from_secs(30) {
                break;
            }
            let before = asked.load(Ordering::Relaxed);
            signal(libc::SIGSTOP);
            served.has_stopped();
            signal(libc::SIGCONT);
            // The next stop comes amid a request.
            while asked.load(Ordering::Relaxed) == before {
                assert!(asking.iter().all(|it| !it.is_finished()), "a request failed");
                thread::yield_now();
            }
        }
        end.store(true, Ordering::Relaxed);
        asking.into_iter().for_each(|it| it.join().unwrap().unwrap());
    });
    // No close was lost.
    common::eventually("all are closed", || served.ask("opens zram0").unwrap() == "0");
}
