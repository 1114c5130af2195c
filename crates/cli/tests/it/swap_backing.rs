//! Files and devices below swap devices: what is taken and what is refused.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use cli::swap::selftest::group::Group;
use host::{Controller, swaps};
use service::swap::beneath;
use testkit::{Need, met};

use crate::common::{Daemon, Place, refused, said, wait_until};
use crate::hungry::hungry;
use crate::swap::{NEEDS, device, json};

const MIB: u64 = 1 << 20;

/// What every swap device with a file in the temporary directory needs.
pub fn with_a_file() -> [Need; 5] {
    let [a, b, c, d] = NEEDS;
    let is_there = beneath::why_not(&std::env::temp_dir()).is_none();
    [a, b, c, d, Need::other(is_there, "a temporary directory on a local disk (TMPDIR)")]
}

/// A file of zeroes for the pages of a swap device, as README makes it.
pub fn file_of(place: &Place, name: &str, bytes: u64) -> PathBuf {
    let path = place.path().join(name);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
    file.set_len(bytes).unwrap();
    path
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    if !met("a_file_that_others_may_read_is_refused", &with_a_file()) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let path = file_of(&place, "backing", 4 * MIB);
    let on = || daemon.ask(&format!("swap on --backing {}", path.display()));
    let mode = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let repair = format!("chmod 600 {}", path.display());
    refused(&on(), 1, &["other users", "0644", &repair, "--force", "EACCES"]);
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0), "it was written to");
    mode(0o600);
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    refused(&on(), 1, &["user 65534 owns it", "chown 0", "--force", "EPERM"]);
    daemon.does(&format!("swap on --force --backing {}", path.display()));
    daemon.does("swap off");
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    assert_eq!(on().code, 0);
    daemon.stop();
    place.is_clean();
}

/// A directory in memory, removed with its contents.
struct InMemory(PathBuf);

impl InMemory {
    fn new(place: &Place) -> InMemory {
        let path = Path::new("/dev/shm").join(place.path().file_name().unwrap());
        fs::create_dir(&path).unwrap();
        InMemory(path)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_backing_store_that_is_in_memory_itself_is_refused() {
    let name = "a_backing_store_that_is_in_memory_itself_is_refused";
    let [a, b, c, d] = NEEDS;
    let shm = Need::other(
        rustix::fs::statfs("/dev/shm").is_ok_and(|it| it.f_type == 0x0102_1994),
        "a tmpfs at /dev/shm",
    );
    if !met(name, &[a, b, c, d, shm]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --size 8M");
    let memory = InMemory::new(&place);
    let file = memory.0.join("file");
    let on = |path: &Path, rest: &str| {
        daemon.ask(&format!("swap on --backing {} {rest}", path.display()))
    };
    // It would be made there.
    refused(&on(&file, "--size 4M"), 1, &["tmpfs", "in memory itself", "--force", "EDEADLK"]);
    assert!(!file.exists());
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(&file).unwrap();
    made.set_len(4 * MIB).unwrap();
    refused(&on(&file, ""), 1, &["tmpfs", "EDEADLK"]);
    // A device of this very daemon, and the file it stands on.
    let own = fs::read_link(place.root().join("dev/zram0")).unwrap();
    refused(&on(&own, ""), 1, &["loop device", "FUSE", "may be a rampack", "EDEADLK"]);
    refused(&on(&place.root().join("files/zram0"), ""), 1, &["FUSE", "EDEADLK"]);
    assert_eq!(json(&daemon)["swaps"].as_array().unwrap().len(), 0);
    let forced = on(&file, "--force");
    assert_eq!(forced.code, 0, "{}", forced.err);
    daemon.does("swap off");
    daemon.stop();
    place.is_clean();
}

/// One that a killed daemon left goes with the next device on it.
#[test]
fn a_file_that_was_made_goes_although_its_daemon_was_killed() {
    let name = "a_file_that_was_made_goes_although_its_daemon_was_killed";
    let place = Place::new();
    let path = file_of(&place, "tried", 4096);
    let tried = rustix::fs::setxattr(&path, "user.tried", b"1", rustix::fs::XattrFlags::empty());
    let [a, b, c, d, e] = with_a_file();
    let attributes = Need::other(tried.is_ok(), "attributes of files (user_xattr)");
    if !met(name, &[a, b, c, d, e, attributes]) {
        return;
    }
    let path = place.path().join("backing");
    let line = format!("swap on --size 16M --priority -1 --backing {}", path.display());
    Daemon::start(&place, &line).kill();
    assert!(path.exists());
    let daemon = Daemon::start(&place, &line);
    assert!(daemon.greeting.contains("backing (made for it)"), "{}", daemon.greeting);
    daemon.stop();
    assert!(!path.exists());
    place.is_clean();
}

/// The time that it takes is nobody else's, and a file that is not needed any more goes at once.
#[test]
fn a_file_that_is_being_filled_holds_up_nobody() {
    if !met("a_file_that_is_being_filled_holds_up_nobody", &with_a_file()) {
        return;
    }
    let place = Place::new();
    let path = place.path().join("backing");
    let line = format!("swap on --size 8G --backing {}", path.display());
    let is_begun = || fs::metadata(&path).is_ok_and(|it| it.blocks() > 0);
    let begin = || {
        let mut command = Daemon::command_in(&place, &line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the first blocks", is_begun);
        child
    };
    let ended = |child: Child, words: &[&str]| {
        refused(&said(&child.wait_with_output().unwrap()), 1, words);
        assert!(!path.exists());
    };
    let words = ["backing", "the daemon is stopping", "ENODEV"];
    for is_asked in [false, true] {
        let child = begin();
        if is_asked {
            let asked = said(&Daemon::command_in(&place, "stop").output().unwrap());
            assert_eq!(asked.code, 0, "{}", asked.err);
        } else {
            // SAFETY: kill takes two numbers; the child is ours and not yet waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        }
        let ended = said(&child.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(!path.exists());
        place.is_clean();
    }
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    daemon.does("swap on --size 16M");
    let child = begin();
    daemon.does("swap off swap0");
    assert!(is_begun());
    daemon.stop();
    ended(child, &words);
    place.is_clean();
}

#[test]
fn a_store_is_looked_at_at_both_ends() {
    let [a, b, c, d, disk] = with_a_file();
    let mkswap = Need::program("mkswap", "util-linux");
    if !met("a_store_is_looked_at_at_both_ends", &[a, b, c, d, disk, mkswap]) {
        return;
    }
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let made = |name: &str, at: u64, magic: &[u8]| {
        let path = file_of(&place, name, 16 * MIB);
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(magic, at).unwrap();
        path
    };
    let on = |path: &Path| daemon.ask(&format!("swap on --backing {}", path.display()));
    let md = 0xa92b_4efc_u32.to_le_bytes();
    let found = [
        (made("md12", 4096, &md), "md RAID"),
        (made("md10", 16 * MIB - 8192, &md), "md RAID"),
        (made("gpt", 16 * MIB - 512, b"EFI PART"), "partition table"),
        (made("zfs", 16 * MIB - (128 << 10), b"uberblock"), "not swap space"),
    ];
    for (path, what) in &found {
        refused(&on(path), 1, &[what, "wipefs", "--force", "EEXIST"]);
        assert!(fs::read(path).unwrap()[..4096].iter().all(|byte| *byte == 0), "{what}");
    }
    // A swap area that was never used, then one with pages in it.
    let path = file_of(&place, "swap", 16 * MIB);
    testkit::run(std::process::Command::new("mkswap").arg(&path));
    let before = fs::read(&path).unwrap();
    daemon.does(&format!("swap on --backing {}", path.display()));
    daemon.does("swap off");
    fs::write(&path, &before).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"page", 8192).unwrap();
    refused(&on(&path), 1, &["swap space that was used", "--force", "EEXIST"]);
    daemon.stop();
    place.is_clean();
}

/// Swap space that is larger than what is below it: the pages are packed there.
#[test]
fn a_program_comes_back_from_a_log() {
    let [a, b, c, d, disk] = with_a_file();
    let name = "a_program_comes_back_from_a_log";
    if !met(name, &[a, b, c, d, disk, Need::MemoryGroup]) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let path = file_of(&place, "backing", 32 * MIB);
    let on = |rest: &str| {
        format!("swap on --backing {} --size 64M --priority 32766 {rest}", path.display())
    };
    refused(&daemon.ask(&on("")), 1, &["33554432 bytes (32M)", "67108864", "log", "EINVAL"]);
    for layout in ["--plain-backing --backing-layout log", "--backing-layout log"] {
        let log = through(&daemon, &place, &on(layout))["log"].clone();
        let number = |name: &str| log[name].as_u64().unwrap();
        assert!(number("written") > 0 && number("live") <= number("capacity"), "{log}");
    }
    // What it says of itself is still there: it is taken again without --force.
    daemon.does(&on("--backing-layout log"));
    daemon.does("swap off");
    let small = file_of(&place, "small", 2 * MIB);
    let line = format!("swap on --backing {} --backing-layout log", small.display());
    refused(&daemon.ask(&line), 1, &["small", "three segments", "EINVAL"]);
    daemon.stop();
    place.is_clean();
}

/// A program goes through the device that this command swaps on, with a pool of a MiB. Returns the
/// report of the device then, and swaps it off.
fn through(daemon: &Daemon, place: &Place, on: &str) -> serde_json::Value {
    daemon.does(&format!("{on} --memory 1M"));
    let block = device(place, "swap0");
    let group = Group::make(&Controller::find().unwrap(), 4 * MIB).unwrap();
    let used = || swaps::find(&block).map_or(0, |active| active.used);
    let (outcome, most) = hungry(&group, 7, used);
    assert_eq!((outcome.wrong, outcome.copies), (0, 2), "{on}");
    assert!(most > 2 * MIB, "{most} bytes were swapped");
    let report = json(daemon);
    assert_eq!(report["swap_cache"]["unread_pages"], 0);
    assert!(report["swap_cache"]["written_back_pages"].as_u64().unwrap() > 0);
    daemon.does("set kernel/debug/zswap scrub=1");
    daemon.does("swap off");
    report["swaps"][0].clone()
}

#[test]
fn a_store_is_taken_again_after_pages_were_written_to_it() {
    let [a, b, c, d, disk] = with_a_file();
    let name = "a_store_is_taken_again_after_pages_were_written_to_it";
    if !met(name, &[a, b, c, d, disk, Need::MemoryGroup]) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let path = file_of(&place, "backing", 64 * MIB);
    let on = format!("swap on --backing {} --priority 32766", path.display());
    through(&daemon, &place, &on);
    daemon.does(&on);
    daemon.does("swap off");
    daemon.stop();
    place.is_clean();
}
