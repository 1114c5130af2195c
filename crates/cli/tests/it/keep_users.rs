//! What the users of disks see of a daemon that is killed again and again: nothing but a pause.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cli::swap::selftest::group::Group;
use host::{Controller, swaps};
use testkit::{Ends, Need, Rng, TempDir, met, run, try_run};

use crate::common::{Daemon, Place, program, wait_until};
use crate::hungry::hungry;
use crate::keeper::{Keeper, has_resend, kill, kills};

const MIB: u64 = 1 << 20;

/// Kills the daemon `times` times while `user` works, which is told when to end, and says how often
/// it was done. Returns that.
pub fn survive(
    keeper: &mut Keeper,
    times: usize,
    rng: &mut Rng,
    user: impl FnOnce(&AtomicBool) -> u64 + Send,
) -> u64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let working = scope.spawn(|| user(&stop));
        let (begun, end) = (Instant::now(), Ends(&stop));
        keeper.kill_often(times, rng);
        drop(end);
        let done = working.join().unwrap();
        println!("{times} kills in {:.1?}, {done} rounds of work", begun.elapsed());
        done
    })
}

/// Reads a block of a device again and again, past every cache. Returns the longest time it took.
fn longest_read(device: &Path, stop: &AtomicBool) -> Duration {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_DIRECT).open(device).unwrap();
    let mut memory = vec![0; 2 * 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        file.read_exact_at(&mut memory[skip..skip + 4096], 0).unwrap();
        longest = longest.max(begun.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    longest
}

pub const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Loop];

#[test]
fn fio_finds_every_block_it_wrote_although_the_daemon_is_killed() {
    let name = "fio_finds_every_block_it_wrote_although_the_daemon_is_killed";
    if !met(name, &[&NEEDS[..], &[has_resend(), Need::program("fio", "fio")]].concat()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 64M");
    let device = keeper.block_device("zram0");
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let pause = scope.spawn(|| longest_read(&device, &ended));
        let end = Ends(&ended);
        let rounds = survive(&mut keeper, kills(25), &mut rng, |stop| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) || rounds == 0 {
                let mut fio = Command::new("fio");
                fio.args(["--name=kept", "--rw=randrw", "--bsrange=4k-64k", "--direct=1"]);
                fio.args(["--ioengine=libaio", "--iodepth=16", "--size=48M", "--io_size=48M"]);
                fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_backlog=64"]);
                fio.arg("--verify_state_save=0");
                fio.arg(format!("--randseed={}", rounds + 1));
                run(fio.arg(format!("--filename={}", device.display())));
                rounds += 1;
            }
            rounds
        });
        assert!(rounds > 0);
        drop(end);
        println!("the longest read took {:.1?}", pause.join().unwrap());
    });
    assert_eq!(keeper.block_device("zram0"), device);
    assert_eq!(keeper.does("get zram0 lost_pages").trim(), "0");
    keeper.stop();
    place.is_clean();
}

/// Makes a directory with files of random contents and sizes.
pub fn make_tree(at: &Path, rng: &mut Rng) {
    for directory in 0..6 {
        let directory = at.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..20 {
            let mut bytes = vec![0; rng.below(60_000) as usize];
            rng.fill(&mut bytes);
            bytes.extend(vec![file; 20_000]);
            fs::write(directory.join(format!("f{file}")), bytes).unwrap();
        }
    }
}

/// Mounted until it is dropped.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn new<'a>(device: &Path, at: &'a Path) -> Mounted<'a> {
        run(Command::new("mount").arg(device).arg(at));
        Mounted(at)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = try_run(Command::new("umount").arg(self.0));
    }
}

#[test]
fn a_file_system_survives_the_daemon_of_its_disk() {
    let name = "a_file_system_survives_the_daemon_of_its_disk";
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    if !met(name, &[&NEEDS[..], &[has_resend(), mkfs]].concat()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let (place, source) = (Place::new(), TempDir::new());
    make_tree(source.path(), &mut rng);
    let mut keeper = Keeper::start(&place, "serve --size 96M --transport fuse");
    let (device, at) = (keeper.block_device("zram0"), place.mount_point());
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device));
    let mounted = Mounted::new(&device, &at);
    let copies = survive(&mut keeper, kills(25), &mut rng, |stop| {
        let mut copies = 0;
        while !stop.load(Ordering::Relaxed) || copies == 0 {
            let copy = at.join(format!("copy{}", copies % 3));
            run(Command::new("rm").arg("-rf").arg(&copy));
            run(Command::new("cp").arg("-r").arg(source.path()).arg(&copy));
            run(Command::new("sync").arg("-f").arg(&copy));
            run(Command::new("diff").arg("-r").arg(source.path()).arg(&copy));
            copies += 1;
        }
        copies
    });
    // What was kept in memory by the system is read from the device now.
    drop(mounted);
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(&device));
    let mounted = Mounted::new(&device, &at);
    for copy in 0..copies.min(3) {
        let copy = at.join(format!("copy{copy}"));
        run(Command::new("diff").arg("-r").arg(source.path()).arg(copy));
    }
    drop(mounted);
    assert_eq!(keeper.does("get zram0 lost_pages").trim(), "0");
    keeper.stop();
    place.is_clean();
}

/// Has qemu-io write `count` blocks all at once, then read them all at once and compare.
fn write_and_compare(socket: &Path, first: u64, count: u64, pattern: u64) {
    let mut text = String::new();
    for (command, flag) in [("aio_write", ""), ("aio_read", "-q ")] {
        for n in 0..count {
            let byte = 1 + (pattern + n) % 255;
            text += &format!("{command} {flag}-P {byte} {} 16k\n", (first + n) * 16384);
        }
        text += "aio_flush\n";
    }
    let target = format!(
        "driver=nbd,server.type=unix,server.path={},export=zram0,reconnect-delay=60",
        socket.display()
    );
    let mut command = Command::new("qemu-io");
    command.args(["--image-opts", &target]).stdin(Stdio::piped()).stdout(Stdio::piped());
    // The client may be connecting when the daemon is killed: that is before its first request.
    for tries in 0.. {
        let mut client = command.spawn().unwrap();
        let written = client.stdin.take().unwrap().write_all(text.as_bytes());
        let output = client.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let begun = said.contains("wrote ") || said.contains("failed: ");
        if output.status.success() && written.is_ok() {
            assert_eq!(said.matches("wrote 16384/16384").count() as u64, count, "{said}");
            assert!(!said.contains("failed"), "{said}");
            return;
        }
        assert!(!begun && tries < 100, "{said}");
    }
}

#[test]
fn nbd_clients_with_many_requests_reconnect_to_the_next_daemon() {
    let name = "nbd_clients_with_many_requests_reconnect_to_the_next_daemon";
    if !met(name, &[Need::program("qemu-io", "qemu-utils")]) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 64M --transport nbd");
    let (socket, connects) = (keeper.nbd(), AtomicU64::new(0));
    let (ended, control) = (AtomicBool::new(false), keeper.root().join("control.sock"));
    let rounds = thread::scope(|scope| {
        let _end = Ends(&ended);
        // Nobody is refused between two daemons.
        for socket in [&socket, &control] {
            let (ended, connects) = (&ended, &connects);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    std::os::unix::net::UnixStream::connect(socket).unwrap();
                    connects.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        survive(&mut keeper, kills(25), &mut rng, |stop| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) || rounds == 0 {
                write_and_compare(&socket, rounds * 64 % 4032, 64, rounds * 7);
                rounds += 1;
            }
            rounds
        })
    });
    println!("{} connections, none refused", connects.load(Ordering::Relaxed));
    assert!(rounds > 0);
    assert_eq!(keeper.does("get zram0 lost_pages").trim(), "0");
    keeper.stop();
    place.is_clean();
}

#[test]
fn the_port_of_nbd_stays_and_what_would_not_be_kept_is_refused() {
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 1M --transport nbd --nbd-tcp 127.0.0.1:0");
    let address = |keeper: &Keeper| {
        let status: serde_json::Value =
            serde_json::from_str(&keeper.does("status --json")).unwrap();
        let told = status["nbd"].as_array().unwrap().iter().filter_map(|it| it.as_str());
        told.filter_map(|it| it.strip_prefix("nbd://")).next().unwrap().to_owned()
    };
    let before = address(&keeper);
    for _ in 0..3 {
        keeper.kill(libc::SIGKILL);
        std::net::TcpStream::connect(&before).unwrap();
        keeper.wait();
        assert_eq!(address(&keeper), before);
    }
    // A disk takes several descriptors, and the keeper keeps some hundreds.
    let mut made = 1;
    let refused = loop {
        let said = keeper.ask("add --size 1M");
        if said.code != 0 {
            break said.err;
        }
        made += 1;
        assert!(made < 300);
    };
    assert!(refused.contains("the service manager keeps 256"), "{refused}");
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    let status: serde_json::Value = serde_json::from_str(&keeper.does("status --json")).unwrap();
    assert_eq!(status["devices"].as_array().unwrap().len(), made);
    keeper.stop();
    place.is_clean();
}

/// Swap space that is swapped off in the end, while it is served.
struct Swapped<'a>(&'a Path);

impl Swapped<'_> {
    fn used(&self) -> u64 {
        swaps::find(self.0).map_or(0, |active| active.used)
    }
}

impl Drop for Swapped<'_> {
    fn drop(&mut self) {
        let _ = host::swap_off(self.0);
    }
}

#[test]
fn a_program_whose_pages_are_on_a_disk_survives_the_daemon() {
    let name = "a_program_whose_pages_are_on_a_disk_survives_the_daemon";
    let mkswap = Need::program("mkswap", "util-linux");
    let needs = [has_resend(), mkswap, Need::Swap, Need::MemoryGroup];
    if !met(name, &[&NEEDS[..], &needs].concat()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 96M --transport fuse");
    let device = keeper.block_device("zram0");
    run(Command::new("mkswap").arg(&device));
    let swapped = Swapped(&device);
    host::swap_on(&device, Some(host::HIGHEST_PRIORITY), true).unwrap();
    let seed = rng.next_u64();
    let rounds = survive(&mut keeper, kills(25), &mut rng, |stop| {
        let (mut rounds, mut most) = (0, 0);
        while !stop.load(Ordering::Relaxed) || rounds == 0 {
            let group = Group::make(&Controller::find().unwrap(), 6 * MIB).unwrap();
            let (outcome, used) = hungry(&group, seed.wrapping_add(rounds), || swapped.used());
            assert_eq!(outcome.wrong, 0, "round {rounds}");
            (rounds, most) = (rounds + 1, most.max(used));
        }
        assert!(most > 4 * MIB, "{most} bytes were swapped out at most");
        rounds
    });
    assert!(rounds > 0);
    assert_eq!(keeper.does("get zram0 lost_pages").trim(), "0");
    drop(swapped);
    keeper.stop();
    place.is_clean();
}

#[test]
fn devices_change_while_daemons_are_killed() {
    let name = "devices_change_while_daemons_are_killed";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 4M");
    let root = keeper.root().to_owned();
    let ask = |line: &str| crate::common::rampack(&format!("--root {} {line}", root.display()));
    let kept = keeper.block_device("zram0");
    let file = OpenOptions::new().read(true).write(true).open(&kept).unwrap();
    file.write_all_at(b"what is here", 8192).unwrap();
    file.sync_all().unwrap();
    let seed = rng.next_u64();
    // A command may be cut off, at any step, and must do nothing or all.
    survive(&mut keeper, kills(25), &mut rng, |stop| {
        let (mut rng, mut done) = (Rng::new(seed), 0);
        while !stop.load(Ordering::Relaxed) {
            let n = 1 + rng.below(4);
            let line = match rng.below(5) {
                0 => "add --size 2M".to_owned(),
                1 => "add".to_owned(),
                2 => format!("set zram{n} disksize={}M", 1 + rng.below(8)),
                3 => format!("reset zram{n}"),
                _ => format!("remove zram{n}"),
            };
            let said = ask(&line);
            done += u64::from(said.code == 0);
            // There are a few devices at a time.
            let made = said.out.trim().strip_prefix("zram").and_then(|n| n.parse().ok());
            let names = (5..=made.unwrap_or(0u64)).map(|n| format!("remove zram{n}"));
            names.for_each(|line| drop(ask(&line)));
        }
        done
    });
    let mut found = [0; 12];
    file.read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(&found, b"what is here");
    assert_eq!(keeper.block_device("zram0"), kept);
    drop(file);
    // Each device is one of the kernel's, of its size.
    let status: serde_json::Value = serde_json::from_str(&keeper.does("status --json")).unwrap();
    for device in status["devices"].as_array().unwrap() {
        let (name, node) = (device["name"].as_str().unwrap(), device["block_device"].as_str());
        let node = node.unwrap_or_else(|| panic!("{name} has no block device: {}", keeper.said()));
        let size = fs::read_to_string(format!("/sys/block/{}/size", &node[5..])).unwrap();
        let expected: u64 = keeper.does(&format!("get {name} disksize")).trim().parse().unwrap();
        assert_eq!(size.trim().parse::<u64>().unwrap() * 512, expected, "{name}");
        assert_eq!(Path::new(node), keeper.block_device(name));
    }
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_daemon_that_cannot_start_loses_nothing_and_its_users_wait() {
    let name = "a_daemon_that_cannot_start_loses_nothing_and_its_users_wait";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 4M");
    let device = keeper.block_device("zram0");
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let file = options.open(&device).unwrap();
    let mut memory = vec![0; 2 * 4096];
    let skip = memory.as_ptr().align_offset(4096);
    memory[skip..skip + 4096].fill(7);
    file.write_all_at(&memory[skip..skip + 4096], 4096).unwrap();
    // A root that others may change is refused by every daemon.
    let allow = |mode| fs::set_permissions(keeper.root(), Permissions::from_mode(mode)).unwrap();
    allow(0o777);
    let daemon = keeper.daemon();
    kill(daemon, libc::SIGKILL);
    let reader = thread::spawn(move || {
        memory.fill(0);
        file.read_exact_at(&mut memory[skip..skip + 4096], 4096).unwrap();
        memory[skip..skip + 4096].iter().all(|byte| *byte == 7)
    });
    keeper.says("death 5 without a READY=1");
    assert!(keeper.said().contains("writable by nobody else"), "{}", keeper.said());
    assert!(!reader.is_finished());
    allow(0o755);
    wait_until("the reader has its answer", || reader.is_finished());
    assert!(reader.join().unwrap());
    keeper.wait();
    assert_eq!(keeper.block_device("zram0"), device);
    // An end in order is no death.
    keeper.kill(libc::SIGTERM);
    assert_eq!(keeper.ended(), 0);
    place.is_clean();
}

/// The program where the kernel says that it is Linux 6.8.
fn program_on_linux_6_8(place: &Place) -> Command {
    let release = place.path().join("osrelease");
    fs::write(&release, "6.8.0\n").unwrap();
    let program = program();
    let mut command = Command::new("unshare");
    let script = "mount --bind $1 /proc/sys/kernel/osrelease; shift; exec \"$@\"";
    command.args(["--mount", "sh", "-ec", script, "sh"]).arg(&release).arg(program.get_program());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null());
    command
}

#[test]
fn before_linux_6_9_users_get_errors_and_what_is_stored_stays() {
    let name = "before_linux_6_9_users_get_errors_and_what_is_stored_stays";
    if !met(name, &[&NEEDS[..], &[Need::program("unshare", "util-linux")]].concat()) {
        return;
    }
    let place = Place::new();
    let program = program_on_linux_6_8(&place);
    let mut keeper = Keeper::start_by(program, &place, "serve --size 4M");
    keeper.says("older than Linux 6.9");
    let device = keeper.block_device("zram0");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_SYNC).open(&device).unwrap();
    file.write_all_at(b"what is here", 8192).unwrap();
    drop(file);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let user = scope.spawn(|| longest_read(&device, &stop));
        let _end = Ends(&stop);
        thread::sleep(Duration::from_millis(50));
        keeper.kill(libc::SIGKILL);
        wait_until("the user has an error", || user.is_finished());
        assert!(user.join().is_err());
    });
    keeper.wait();
    let mut found = [0; 12];
    let file = fs::File::open(keeper.block_device("zram0")).unwrap();
    file.read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(&found, b"what is here");
    drop(file);
    keeper.stop();
    place.is_clean();
}

#[test]
fn users_of_a_daemon_that_nobody_keeps_see_its_death() {
    let name = "users_of_a_daemon_that_nobody_keeps_see_its_death";
    if !met(name, &NEEDS) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --size 4M");
    let device = fs::read_link(place.root().join("dev/zram0")).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let user = scope.spawn(|| longest_read(&device, &stop));
        let _end = Ends(&stop);
        thread::sleep(Duration::from_millis(50));
        daemon.kill();
        wait_until("the user has an error", || user.is_finished());
        assert!(user.join().is_err());
    });
    Daemon::start(&place, "serve --num-devices 0").stop();
}

#[test]
fn a_mount_that_went_between_two_daemons_is_made_anew() {
    let name = "a_mount_that_went_between_two_daemons_is_made_anew";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 4M");
    let device = keeper.block_device("zram0");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_SYNC).open(&device).unwrap();
    file.write_all_at(b"what is here", 8192).unwrap();
    drop(file);
    // Somebody takes it away by force.
    let files = keeper.root().join("files");
    host::unmount(&files, host::Unmount::Lazily).unwrap();
    for _ in 0..2 {
        keeper.kill(libc::SIGKILL);
        keeper.wait();
    }
    keeper.says("of the daemon before get errors");
    assert_eq!(keeper.said().matches("of the daemon before get errors").count(), 1);
    // Nothing tells any more whose it was.
    run(Command::new("losetup").arg("--detach").arg(&device));
    let file = fs::File::open(keeper.block_device("zram0")).unwrap();
    let mut found = [0; 12];
    file.read_exact_at(&mut found, 8192).unwrap();
    assert_eq!(&found, b"what is here");
    drop(file);
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_block_device_without_its_link_is_served_on() {
    let name = "a_block_device_without_its_link_is_served_on";
    if !met(name, &[&NEEDS[..], &[has_resend()]].concat()) {
        return;
    }
    let place = Place::new();
    let mut keeper = Keeper::start(&place, "serve --size 4M");
    let device = keeper.block_device("zram0");
    let link = keeper.root().join("dev/zram0");
    fs::remove_file(&link).unwrap();
    fs::write(&link, "somebody else's").unwrap();
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    assert_eq!(fuse::find_by_backing(&keeper.root().join("files/zram0")).len(), 1);
    fs::File::open(&device).unwrap().read_exact_at(&mut [0; 4096], 0).unwrap();
    assert_eq!(fs::read(&link).unwrap(), b"somebody else's");
    fs::remove_file(&link).unwrap();
    keeper.stop();
    place.is_clean();
}
