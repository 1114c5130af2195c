//! Writing pages back to an ordinary file, and all that is done to a device in use.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use testkit::{Need, met, run};

use crate::common::{Daemon, NbdClient, Place, noise, private_file, rampack, refused, wait_until};

const MIB: u64 = 1 << 20;

fn file_of(place: &Place, bytes: u64) -> PathBuf {
    let path = place.path().join("backing");
    private_file(&path, bytes);
    path
}

fn numbers(daemon: &Daemon, attribute: &str) -> Vec<u64> {
    let text = daemon.does(&format!("get zram0 {attribute}"));
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// A page that lz4 leaves large and zstd does not.
fn text(number: u64) -> Vec<u8> {
    let mut rng = testkit::Rng::new(number);
    (0..4096).map(|_| b"etaoin s"[rng.below(8) as usize]).collect()
}

#[test]
fn pages_go_to_a_file_and_come_back() {
    let place = Place::new();
    let backing = file_of(&place, 2 * MIB);
    let line = format!(
        "up --transport nbd --size 8M --backing {} --recompress-with zstd --set \
         writeback_batch_size=7",
        backing.display()
    );
    let daemon = Daemon::start(&place, &line);
    assert_eq!(daemon.does("get zram0 backing_dev"), format!("{}\n", backing.display()));
    assert_eq!(numbers(&daemon, "writeback_batch_size"), [7]);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    (0..200).for_each(|n| assert_eq!(client.write(n * 4096, &text(n)), 0));
    assert_eq!(client.write(200 * 4096, &noise(200)), 0);
    let before = numbers(&daemon, "compr_data_size");
    daemon.does("set zram0 recompress type=huge");
    let block_state = daemon.does("get zram0 block_state");
    assert_eq!(block_state.lines().filter(|line| line.ends_with("..h..n")).count(), 1);
    daemon.does("set zram0 recompress threshold=2000");
    assert!(numbers(&daemon, "compr_data_size") < before, "zstd is the stronger one");
    daemon.does("set zram0 idle all");
    assert_eq!(client.read(5 * 4096, 4096), text(5));
    daemon.does("set zram0 writeback idle");
    assert_eq!(numbers(&daemon, "bd_stat"), [200, 0, 200], "all but the page that was read");
    let mut all = client.read(0, 201 * 4096);
    assert!(all.split_off(200 * 4096) == noise(200));
    (0..200).for_each(|n| assert!(all[n * 4096..][..4096] == text(n as u64), "page {n}"));
    assert_eq!(client.write(7 * 4096 + 100, &[1; 50]), 0, "a part of a page that is elsewhere");
    let mut edited = text(7);
    edited[100..150].fill(1);
    assert_eq!(client.read(7 * 4096, 4096), edited);
    let taken = daemon.ask(&format!("add --backing {}", backing.display()));
    refused(&taken, 1, &["EBUSY", "backing"]);
    assert!(!daemon.does("status").contains("zram1"), "a device that is refused is not there");
    let status = daemon.does("status --output NAME,DATA,RATIO --noheadings");
    assert!(status.contains("804K"), "what is written back counts as data: {status}");
    drop(client);
    wait_until("the client's end", || daemon.ask("reset zram0").code == 0);
    assert_eq!(daemon.does("get zram0 backing_dev"), "none\n");
    daemon.does(&format!("set zram0 backing_dev {}", backing.display()));
    daemon.stop();
}

#[test]
fn what_is_written_back_is_sealed() {
    let place = Place::new();
    let backing = file_of(&place, 2 * MIB);
    let line = format!("up --transport nbd --size 8M --backing {}", backing.display());
    let daemon = Daemon::start(&place, &line);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    (0..100).for_each(|n| assert_eq!(client.write(n * 4096, &noise(n)), 0));
    daemon.does("set zram0 writeback type=huge");
    assert_eq!(numbers(&daemon, "bd_stat")[0], 100);
    let mut there = fs::read(&backing).unwrap();
    let leaked = (0..100).any(|n| there.chunks(4096).any(|block| block == noise(n)));
    assert!(!leaked, "a page can be read in the file");
    daemon.does("set zram0 scrub 1");
    // Somebody changes a bit, and puts an old block in place of another.
    let block = there.chunks(4096).position(|block| block.iter().any(|b| *b != 0)).unwrap();
    there[block * 4096 + 1234] ^= 4;
    there.copy_within((block + 1) * 4096..(block + 2) * 4096, (block + 2) * 4096);
    fs::write(&backing, &there).unwrap();
    refused(&daemon.ask("set zram0 scrub 1"), 1, &["2 of 100 pages", "EIO", "backing"]);
    let read: Vec<_> = (0..100).map(|n| client.try_read(n * 4096, 4096)).collect();
    assert_eq!(read.iter().filter(|page| **page == Err(5)).count(), 2);
    for (n, page) in (0..100).zip(&read) {
        assert!(page.is_err() || *page == Ok(noise(n)), "page {n} is another one's");
    }
    // A write heals a page.
    let lost = read.iter().position(Result::is_err).unwrap() as u64;
    assert_eq!(client.write(lost * 4096, &noise(lost)), 0);
    assert_eq!(client.read(lost * 4096, 4096), noise(lost));
    drop(client);
    daemon.stop();
}

#[test]
fn a_log_packs_pages_and_is_used_again() {
    let place = Place::new();
    let backing = file_of(&place, 4 * MIB);
    let line = format!(
        "up --transport nbd --size 8M --backing {} --backing-layout log",
        backing.display()
    );
    let daemon = Daemon::start(&place, &line);
    assert_eq!(daemon.does("get zram0 backing_layout"), "log\n");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    // Half of each page does not shrink.
    let page = |number: u64| {
        let mut page = noise(number);
        page[2048..].fill(number as u8);
        page
    };
    for round in 0..12 {
        (0..600).for_each(|n| assert_eq!(client.write(n * 4096, &page(round * 600 + n)), 0));
        daemon.does("set zram0 writeback type=idle");
        daemon.does("set zram0 idle all");
        daemon.does("set zram0 writeback type=idle");
        assert_eq!(numbers(&daemon, "bd_stat")[0], 600);
    }
    let [capacity, live, written, _, _, free, segments] = numbers(&daemon, "log_stat")[..] else {
        panic!("log_stat has seven numbers");
    };
    assert!(live > 600 * 2048 && live < 600 * 2300, "{live} bytes for 600 halves of pages");
    assert!(live <= capacity && capacity < 4 * MIB && segments == 4 && free <= segments);
    // A block a page would have written 4096 bytes each.
    assert!(written < 12 * 600 * 2300, "{written} bytes were written");
    let all = client.read(0, 600 * 4096);
    (0..600).for_each(|n| assert!(all[n * 4096..][..4096] == page(11 * 600 + n as u64), "{n}"));
    let there = fs::read(&backing).unwrap();
    let half = &page(11 * 600)[..64];
    assert!(!there.windows(64).any(|bytes| bytes == half), "a page can be read in the file");
    daemon.does("set zram0 scrub 1");
    refused(&daemon.ask("set zram0 backing_layout pages"), 1, &["EBUSY", "backing_layout"]);
    refused(&daemon.ask("set zram0 backing_layout heap"), 1, &["EINVAL", "pages", "log"]);
    // A bit of an object: its page is lost, and no other.
    let mut there = there;
    let at = there.iter().rposition(|byte| *byte != 0).unwrap();
    there[at - 4096] ^= 1;
    fs::write(&backing, &there).unwrap();
    let errors = (0..600).filter(|n| client.try_read(n * 4096, 4096) == Err(5)).count();
    assert!(errors <= 4, "{errors} pages in one block");
    drop(client);
    daemon.stop();
    let small = file_of(&place, 2 * MIB);
    let line = format!(
        "up --root {} --transport nbd --backing {} --backing-layout log",
        place.root().display(),
        small.display()
    );
    refused(&rampack(&line), 1, &["3145728", "three segments"]);
}

#[test]
fn pages_are_written_back_plainly_on_request() {
    let place = Place::new();
    let backing = file_of(&place, 2 * MIB);
    let line =
        format!("up --transport nbd --size 8M --plain-backing --backing {}", backing.display());
    let daemon = Daemon::start(&place, &line);
    assert_eq!(numbers(&daemon, "sealed_backing"), [0]);
    refused(&daemon.ask("set zram0 sealed_backing 1"), 1, &["EBUSY", "sealed_backing"]);
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(0, &noise(1)), 0);
    daemon.does("set zram0 writeback type=huge");
    let there = fs::read(&backing).unwrap();
    assert!(there.chunks(4096).any(|block| block == noise(1)));
    refused(&daemon.ask("set zram0 scrub 1"), 1, &["ENOTSUP", "unsealed"]);
    drop(client);
    daemon.stop();
}

#[test]
fn a_file_that_others_may_read_is_told_of_and_used_all_the_same() {
    let place = Place::new();
    let backing = file_of(&place, 2 * MIB);
    let line = format!("up --transport nbd --size 8M --backing {}", backing.display());
    let repair = format!("chmod 600 {}", backing.display());
    for (mode, is_told) in [(0o644, true), (0o600, false)] {
        fs::set_permissions(&backing, fs::Permissions::from_mode(mode)).unwrap();
        let daemon = Daemon::start(&place, &line);
        let said = &daemon.greeting;
        assert_eq!(said.contains(&repair), is_told, "{said}");
        assert_eq!(daemon.does("get zram0 backing_dev"), format!("{}\n", backing.display()));
        daemon.stop();
    }
}

#[test]
fn a_file_that_cannot_be_written_back_to_is_refused() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd --num-devices 1");
    let empty = file_of(&place, 100);
    let set = |path: &str| daemon.ask(&format!("set zram0 backing_dev {path}"));
    refused(&set("/nonexistent/file"), 1, &["/nonexistent/file", "ENOENT"]);
    refused(&set("/dev/null"), 1, &["/dev/null", "ENOTBLK"]);
    refused(&set(place.path().to_str().unwrap()), 1, &["EISDIR"]);
    refused(&set(empty.to_str().unwrap()), 1, &["EINVAL", "4096"]);
    daemon.does("set zram0 disksize 1M");
    refused(&daemon.ask("set zram0 writeback idle"), 1, &["no backing device", "ENODEV"]);
    daemon.stop();
}

#[test]
fn pages_age() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(0, &text(0)), 0);
    let idle = || {
        daemon.does("set zram0 idle 2");
        daemon.does("get zram0 block_state").contains("...i..")
    };
    assert!(!idle(), "it was just used");
    wait_until("the page is idle", idle);
    assert_eq!(client.read(0, 4096), text(0));
    assert!(!daemon.does("get zram0 block_state").contains("...i.."));
    drop(client);
    daemon.stop();
}

#[test]
fn clients_are_cut_off_by_force_alone() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let _client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    refused(&daemon.ask("remove zram0"), 1, &["EBUSY", "NBD", "--force"]);
    daemon.does("remove zram0 --force");
    assert!(!daemon.does("status").contains("zram0"));
    daemon.stop();
}

#[test]
fn a_block_device_in_use_grows() {
    if !met("a_block_device_in_use_grows", &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --size 1M");
    let path = fs::canonicalize(place.root().join("dev/zram0")).unwrap();
    let mut open = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    open.write_all(&noise(1)).unwrap();
    open.sync_all().unwrap();
    daemon.does("set zram0 resize 4M");
    let size = run(Command::new("blockdev").arg("--getsize64").arg(&path));
    assert_eq!(size.stdout.trim(), (4 * MIB).to_string());
    open.seek(SeekFrom::Start(4 * MIB - 4096)).unwrap();
    open.write_all(&noise(2)).unwrap();
    open.sync_all().unwrap();
    refused(&daemon.ask("set zram0 resize 1M"), 1, &["EBUSY", "discard"]);
    let mut back = vec![0; 4096];
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_exact(&mut back).unwrap();
    assert!(back == noise(1));
    daemon.does("set zram0 switch_algorithm algo=deflate");
    assert!(daemon.does("get zram0 comp_algorithm").contains("[deflate]"));
    drop(open);
    daemon.stop();
    place.is_clean();
}

/// A process that is let go on, and then ended.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_end_by_force_does_not_wait_for_a_backing_file_that_hangs() {
    let name = "an_end_by_force_does_not_wait_for_a_backing_file_that_hangs";
    let dd = Need::program("dd", "coreutils");
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop, dd]) {
        return;
    }
    // The file of another daemon hangs while that one is stopped.
    let below = Place::new();
    let slow = Daemon::start(&below, "up --transport fuse --size 16M");
    let file = below.root().join("files/zram0");
    let place = Place::new();
    let saved = below.path().join("saved");
    Daemon::start(&place, &format!("up --size 8M --snapshot {}", saved.display())).stop();
    let before = fs::read(&saved).unwrap();
    let (file, path) = (file.display(), saved.display());
    let line = format!("up --size 8M --backing {file} --snapshot {path}");
    let daemon = Daemon::start(&place, &line);
    let device = fs::read_link(place.root().join("dev/zram0")).unwrap();
    let data: Vec<u8> = (0..64).flat_map(noise).collect();
    let mut block = OpenOptions::new().write(true).open(&device).unwrap();
    block.write_all(&data).unwrap();
    block.sync_all().unwrap();
    drop(block);
    daemon.does("set zram0 writeback type=huge");
    assert_eq!(numbers(&daemon, "bd_stat")[0], 64);
    slow.signal(libc::SIGSTOP);
    wait_until("the stop", || slow.status("State").starts_with('T'));
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", device.display())).args(["of=/dev/null", "bs=4096", "iflag=direct"]);
    let reader = Reader(dd.spawn().unwrap());
    wait_until("a read that hangs", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", reader.0.id())).unwrap();
        stat.contains(") D ")
    });
    daemon.does("stop --force");
    let said = daemon.lines_until(&["I/O of a device hangs"]);
    assert!(said.contains("not written is lost"), "{said}");
    daemon.lines_until(&["what was saved before stays"]);
    assert!(fs::read(&saved).unwrap() == before);
    drop(reader);
    slow.signal(libc::SIGCONT);
    assert!(daemon.ended().success());
    // The system closes the file of an ended process when its last request is answered.
    wait_until("the end of the other one", || slow.ask("stop").code == 0);
    assert!(slow.ended().success());
    place.is_clean();
    below.is_clean();
}
