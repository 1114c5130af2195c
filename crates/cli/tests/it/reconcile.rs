//! What a daemon left, what is configured now, and what is there: each option that can differ when
//! the next daemon comes, after a kill and in an upgrade. The contents are compared each time.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;

use host::swaps;
use testkit::{Ends, Need, TempDir, met, run, try_run};

use crate::common::{NbdClient, Place, noise, private_file, program, wait_until};
use crate::fsck::region_of;
use crate::keep_swap::{FIRST, is_swapped_off, lost_pages, work};
use crate::keep_users::NEEDS;
use crate::keeper::{Keeper, has_resend};
use crate::nbd_frontends::{NBDINFO, make_certificates};

const MIB: u64 = 1 << 20;

/// How the next daemon comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// The daemon is killed, and its manager starts the program with other options: the restart of
    /// a service whose unit was edited.
    Restart,
    /// `rampack upgrade`.
    Upgrade,
}

const HOWS: [How; 2] = [How::Restart, How::Upgrade];

/// A daemon whose manager starts it again with the options that are in a file then.
struct Service {
    // The daemon ends before its place goes.
    keeper: Keeper,
    place: Place,
    words: PathBuf,
}

impl Service {
    fn start(line: &str) -> Service {
        Service::begin(line, Keeper::start_by)
    }

    fn begin(line: &str, start: impl FnOnce(Command, &Place, &str) -> Keeper) -> Service {
        let place = Place::new();
        let (at, words) = (place.path().join("rampack"), place.path().join("words"));
        testkit::copy_program(program().get_program(), &at);
        let mut command = Command::new(&at);
        for (name, value) in program().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let keeper = start(command, &place, line);
        let service = Service { keeper, place, words };
        service.configure(line, "root");
        // The manager starts what is at the path of its program.
        let script = service.place.path().join("script");
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = layouts ] && exec {0} layouts\neval \"set -- $(cat {1})\"\n\
             exec {0} \"$@\"\n",
            program().get_program().to_string_lossy(),
            service.words.display()
        );
        testkit::script(&script, &text);
        fs::rename(&script, &at).unwrap();
        service
    }

    fn configure(&self, line: &str, root: &str) {
        let root = self.place.path().join(root);
        fs::write(&self.words, format!("--root {} {line}", root.display())).unwrap();
    }

    /// Has the next daemon come, with the options `line`.
    #[track_caller]
    fn next(&mut self, how: How, line: &str) {
        self.configure(line, "root");
        self.comes(how);
    }

    #[track_caller]
    fn comes(&mut self, how: How) {
        match how {
            How::Restart => {
                self.keeper.kill(libc::SIGKILL);
                self.keeper.wait();
            }
            How::Upgrade => {
                let to = self.place.path().join("rampack");
                self.keeper.does(&format!("upgrade --to {}", to.display()));
            }
        }
    }

    #[track_caller]
    fn holds(&self, contents: &[u8]) {
        let mut client = NbdClient::connect(&self.keeper.nbd(), "zram0").unwrap();
        assert!(client.read(0, contents.len()) == contents, "other contents");
    }

    fn fill(&self) -> Vec<u8> {
        let contents: Vec<u8> =
            (0..64).flat_map(|page| noise(page).into_iter().take(4096)).collect();
        let mut client = NbdClient::connect(&self.keeper.nbd(), "zram0").unwrap();
        assert_eq!(client.write(0, &contents), 0);
        contents
    }

    fn mode(&self) -> u32 {
        fs::metadata(self.keeper.nbd()).unwrap().permissions().mode() & 0o777
    }

    #[track_caller]
    fn stop(self) {
        self.keeper.stop();
        self.place.is_clean();
    }
}

const NBD: &str = "serve --transport nbd --size 4M";

#[test]
fn nobody_else_reaches_a_socket_than_is_configured_now() {
    for how in HOWS {
        let mut service = Service::start(&format!("{NBD} --nbd-allow-uid 65534"));
        let contents = service.fill();
        assert_eq!(service.mode(), 0o666);
        service.next(how, NBD);
        assert_eq!(service.mode(), 0o600, "{how:?}");
        service.holds(&contents);
        service.next(how, &format!("{NBD} --nbd-allow-uid 65534"));
        assert_eq!(service.mode(), 0o666, "{how:?}");
        service.holds(&contents);
        service.stop();
    }
}

#[test]
fn a_port_is_open_as_long_as_it_is_configured() {
    for how in HOWS {
        let mut service = Service::start(&format!("{NBD} --nbd-tcp 0"));
        let contents = service.fill();
        let port = |service: &Service| -> u16 {
            let status = service.keeper.does("status --json");
            let at =
                status.find("nbd://127.0.0.1:").expect("an address") + "nbd://127.0.0.1:".len();
            let digits: String = status[at..].chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        let first = port(&service);
        TcpStream::connect(("127.0.0.1", first)).unwrap();
        service.next(how, &format!("{NBD} --nbd-tcp 0"));
        assert_eq!(port(&service), first, "{how:?}");
        service.next(how, NBD);
        assert!(TcpStream::connect(("127.0.0.1", first)).is_err(), "{how:?}: it still listens");
        service.holds(&contents);
        service.next(how, &format!("{NBD} --nbd-tcp 0"));
        TcpStream::connect(("127.0.0.1", port(&service))).unwrap();
        service.holds(&contents);
        service.stop();
    }
}

#[test]
fn an_address_that_is_taken_does_not_end_what_is_served() {
    let mut service = Service::start(NBD);
    let contents = service.fill();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    service.next(How::Restart, &format!("{NBD} --nbd-tcp {port}"));
    service.keeper.says("EADDRINUSE");
    service.holds(&contents);
    // The server of the other socket is known, and so are its clients.
    assert!(service.keeper.does("status --json").contains("nbd+unix://"));
    service.keeper.does("add --size 1M");
    service.keeper.serves("zram1");
    let client = NbdClient::connect(&service.keeper.nbd(), "zram1").unwrap();
    service.keeper.does("remove zram1 --force");
    drop(client);
    drop(taken);
    service.next(How::Restart, &format!("{NBD} --nbd-tcp {port}"));
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    service.holds(&contents);
    service.stop();
}

/// Users of another frontend do not lose their devices because of it.
#[test]
fn files_that_cannot_be_served_do_not_end_what_is_served() {
    let mut service = Service::start(NBD);
    let contents = service.fill();
    let files = service.keeper.root().join("files");
    fs::write(&files, "of a user").unwrap();
    service.next(How::Restart, "serve --transport fuse --size 4M");
    service.keeper.says("the devices are served on without it: ");
    service.keeper.says(&files.display().to_string());
    service.next(How::Restart, NBD);
    service.holds(&contents);
    fs::remove_file(&files).unwrap();
    service.stop();
}

#[test]
fn what_a_device_cannot_follow_is_said_and_limits_are_followed() {
    for how in HOWS {
        let mut service = Service::start(&format!("{NBD} --algorithm lz4 --memory 3M"));
        let contents = service.fill();
        let limit = |service: &Service| {
            let text = service.keeper.does("get zram0 mm_stat");
            text.split_whitespace().nth(3).unwrap().to_owned()
        };
        // What an administrator sets stays where the options are as before.
        service.keeper.does("set zram0 mem_limit=2M");
        service.next(how, &format!("{NBD} --algorithm lz4 --memory 3M"));
        assert_eq!(limit(&service), "2097152", "{how:?}");
        service.next(how, "serve --transport nbd --size 8M --algorithm zstd --memory 1M");
        service.keeper.says("disksize=8M is not followed");
        service.keeper.says("comp_algorithm=zstd is not followed");
        assert_eq!(limit(&service), "1048576", "{how:?}");
        assert_eq!(service.keeper.does("get zram0 disksize").trim(), "4194304");
        assert!(service.keeper.does("get zram0 comp_algorithm").contains("[lz4]"));
        service.holds(&contents);
        service.stop();
    }
}

#[test]
fn devices_stay_in_their_root() {
    for how in HOWS {
        let mut service = Service::start(NBD);
        let contents = service.fill();
        service.configure(NBD, "other");
        service.comes(how);
        service.keeper.says("--root");
        service.holds(&contents);
        assert!(!service.place.path().join("other").exists(), "{how:?}");
        service.stop();
    }
}

#[test]
fn a_read_only_server_takes_no_writes_after_a_restart() {
    for how in HOWS {
        let mut service = Service::start(NBD);
        let contents = service.fill();
        service.next(how, &format!("{NBD} --nbd-read-only"));
        service.holds(&contents);
        let mut client = NbdClient::connect(&service.keeper.nbd(), "zram0").unwrap();
        assert_ne!(client.write(0, &[1; 4096]), 0, "{how:?}");
        drop(client);
        service.holds(&contents);
        service.stop();
    }
}

#[test]
fn devices_that_were_unloaded_do_not_come_back() {
    for how in HOWS {
        let line = "serve --num-devices 2 --transport nbd --size 4M";
        let mut service = Service::start(line);
        service.fill();
        service.keeper.serves("zram1");
        service.keeper.does("set class/zram-control unload=1");
        service.next(how, line);
        let status = service.keeper.does("status --json");
        assert!(!status.contains("zram0"), "{how:?}: {status}");
        service.keeper.does("add --size 8M");
        service.next(how, line);
        assert_eq!(service.keeper.does("get zram0 disksize").trim(), "8388608", "{how:?}");
        service.stop();
    }
}

/// Reads the first bytes of a block device past the system's cache.
fn read(device: &Path, length: usize) -> Vec<u8> {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", device.display())).arg(format!("bs={length}"));
    let output = command.args(["count=1", "iflag=direct", "status=none"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn a_block_device_goes_with_its_transport_unless_it_is_used() {
    let name = "a_block_device_goes_with_its_transport_unless_it_is_used";
    if !met(name, &[&NEEDS[..], &[has_resend(), Need::program("mkfs.ext4", "e2fsprogs")]].concat())
    {
        return;
    }
    for how in HOWS {
        let mut service = Service::start("serve --num-devices 2 --size 16M");
        let contents = service.fill();
        let device = service.keeper.block_device("zram0");
        let other = service.keeper.block_device("zram1");
        let mounted = service.place.mount_point();
        run(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard"]).arg(&other));
        run(Command::new("mount").arg(&other).arg(&mounted));
        fs::write(mounted.join("file"), "contents").unwrap();
        assert_eq!(read(&device, 8192), contents[..8192]);
        service.next(how, "serve --num-devices 2 --size 16M --transport nbd");
        service.keeper.says("--transport is not followed for zram1");
        assert_eq!(fs::read_to_string(mounted.join("file")).unwrap(), "contents", "{how:?}");
        fs::write(mounted.join("file"), "other").unwrap();
        wait_until("the device nobody uses goes", || {
            fuse::find_by_backing(&service.place.root().join("files/zram0")).is_empty()
        });
        service.holds(&contents);
        // A new one is reached as it is configured now.
        service.keeper.does("add --size 4M");
        assert!(fs::symlink_metadata(service.place.root().join("dev/zram2")).is_err(), "{how:?}");
        run(Command::new("umount").arg(&mounted));
        service.stop();
    }
}

#[test]
fn one_backing_that_is_gone_stops_no_other_device() {
    for how in HOWS {
        let place = Place::new();
        let backing = place.path().join("backing");
        fs::File::create(&backing).unwrap().set_len(8 << 20).unwrap();
        fs::set_permissions(&backing, Permissions::from_mode(0o600)).unwrap();
        let mut service = Service::start(NBD);
        let contents = service.fill();
        service.keeper.does(&format!("add --size 4M --backing {}", backing.display()));
        fs::remove_file(&backing).unwrap();
        service.next(how, NBD);
        service.holds(&contents);
        assert_eq!(service.keeper.ask("status zram1").code, 0, "{how:?}");
        service.stop();
    }
}

#[test]
fn a_backing_file_of_another_length_keeps_what_it_has() {
    for how in HOWS {
        let place = Place::new();
        let backing = place.path().join("backing");
        private_file(&backing, 8 << 20);
        let line = format!("{NBD} --plain-backing --backing {}", backing.display());
        let mut service = Service::start(&line);
        let contents = service.fill();
        let backed = |service: &Service| {
            let text = service.keeper.does("get zram0 bd_stat");
            text.split_whitespace().next().map(str::to_owned)
        };
        for bytes in [12 << 20, 6 << 20] {
            service.keeper.does("set zram0 writeback=huge");
            assert_eq!(backed(&service).as_deref(), Some("64"));
            fs::File::options().write(true).open(&backing).unwrap().set_len(bytes).unwrap();
            service.next(how, &line);
            assert_eq!(backed(&service).as_deref(), Some("64"), "{how:?}, {bytes} bytes");
            service.holds(&contents);
        }
        service.stop();
    }
}

#[test]
fn whoever_has_no_certificate_is_refused_as_soon_as_that_is_configured() {
    if !met("whoever_has_no_certificate_is_refused_as_soon_as_that_is_configured", &[NBDINFO]) {
        return;
    }
    for how in HOWS {
        let pki = TempDir::new();
        make_certificates(pki.path());
        let plain = format!("{NBD} --nbd-tcp 0");
        let secure =
            format!("{plain} --tls-verify-peer --tls-certificates {}", pki.path().display());
        let mut service = Service::start(&plain);
        let contents = service.fill();
        let address = |service: &Service| {
            let status = service.keeper.does("status --json");
            let mut parts = status.split('"').filter(|part| part.contains("://127.0.0.1:"));
            parts.next().expect("an address").to_owned()
        };
        let asks = |uri: &str| {
            let output = try_run(Command::new("nbdinfo").args(["--size", uri]));
            output.status.success()
        };
        let first = address(&service);
        assert!(first.starts_with("nbd://") && asks(&first), "{first}");
        service.next(how, &secure);
        let next = address(&service);
        assert!(next.starts_with("nbds://"), "{how:?}: {next}");
        assert!(asks(&format!("{next}?tls-certificates={}", pki.path().display())), "{how:?}");
        assert!(!asks(&first) && !asks(&next.replace("nbds", "nbd")), "{how:?}");
        service.next(how, &plain);
        assert!(asks(&address(&service)), "{how:?}");
        service.holds(&contents);
        service.stop();
    }
}

#[test]
fn a_disk_that_is_damaged_stops_no_other_and_is_given_up_by_name() {
    if !met("a_disk_that_is_damaged_stops_no_other_and_is_given_up_by_name", &[Need::Root]) {
        return;
    }
    let line = "serve --num-devices 3 --transport nbd --size 4M";
    let mut service = Service::start(line);
    let contents = service.fill();
    let manager = service.keeper.process() as u32;
    service.keeper.serves("zram2");
    region_of(manager, "zram1.1.record").write_all_at(&[7; 8], 0).unwrap();
    service.next(How::Restart, line);
    service.keeper.says("zram1");
    service.holds(&contents);
    let status = service.keeper.does("status");
    assert!(status.contains("zram1 could not be taken over: "), "{status}");
    assert!(service.keeper.does("get zram2 initstate") == "1\n");
    // Its number stays taken, over another restart too.
    service.next(How::Restart, line);
    assert!(service.keeper.does("status --json").contains("zram1"));
    assert_ne!(service.keeper.ask("get zram1 disksize").code, 0);
    service.keeper.does("remove zram1");
    assert!(!service.keeper.does("status --json").contains("zram1"));
    service.keeper.does("add --size 1M");
    service.next(How::Restart, line);
    assert_eq!(service.keeper.does("get zram1 disksize").trim(), "1048576");
    service.holds(&contents);
    service.stop();
}

#[test]
fn a_swap_device_that_is_used_is_served_whatever_is_configured() {
    let name = "a_swap_device_that_is_used_is_served_whatever_is_configured";
    if !met(name, &crate::keep_swap::needs()) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    for how in HOWS {
        let line = format!("swap on --size 48M --memory 50% {FIRST}");
        let mut service = Service::begin(&line, Keeper::start_swap_by);
        let device = service.keeper.block_device("swap0");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let working = scope.spawn(|| work(&device, 7, MIB, &stop));
            let _ends = Ends(&stop);
            wait_until("pages are swapped out", || {
                swaps::find(&device).is_some_and(|active| active.used > MIB)
            });
            service.configure(&line, "other");
            service.comes(how);
            service.keeper.says("--root");
            service.next(how, &format!("swap on --size 64M --memory 40% {FIRST}"));
            service.keeper.says("size=64M is not followed");
            drop(_ends);
            assert!(working.join().unwrap() > 0);
        });
        let percent = service.keeper.does("get module/zswap/parameters max_pool_percent");
        assert_eq!(percent, "40\n", "{how:?}");
        assert_eq!(lost_pages(&service.keeper), "0");
        service.keeper.does("swap off");
        assert_eq!(service.keeper.ended(), 0);
        is_swapped_off(&service.place, &device);
        service.place.is_clean();
    }
}
