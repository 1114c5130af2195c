//! Sockets for virtual machines. crates/vhost has the tests of what is spoken there.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Need, met};

use crate::common::{Daemon, Place, rampack, refused, wait_until};
use crate::keeper::Keeper;

/// A front end that knows just enough: it asks for the features, and stays.
struct FrontEnd(UnixStream);

impl FrontEnd {
    fn connect(socket: &Path) -> Option<FrontEnd> {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let get_features = [1u32, 1, 0].map(u32::to_ne_bytes).concat();
        stream.write_all(&get_features).ok()?;
        let mut answer = [0; 20];
        stream.read_exact(&mut answer).ok()?;
        assert_eq!(answer[..4], 1u32.to_ne_bytes());
        let features = u64::from_ne_bytes(answer[12..].try_into().unwrap());
        assert_ne!(features & 1 << 32, 0, "virtio 1");
        Some(FrontEnd(stream))
    }

    /// The channel by which it is told of changes.
    fn channel(&mut self) -> UnixStream {
        let message = |request: u32, body: &[u8]| {
            [&[request, 1, body.len() as u32].map(u32::to_ne_bytes).concat(), body].concat()
        };
        // It takes that channel, and asks for the configuration.
        self.0.write_all(&message(16, &(1u64 << 5 | 1 << 9).to_ne_bytes())).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        host::send_message(&self.0, &message(21, &[]), Some(theirs.as_fd())).unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        ours
    }

    /// The size of the disk, in sectors.
    fn sectors(&mut self) -> u64 {
        // What is asked for: offset, length, flags, and room for it.
        let asked = [24u32, 1, 20, 0, 8, 0, 0, 0].map(u32::to_ne_bytes).concat();
        self.0.write_all(&asked).unwrap();
        let mut answer = [0; 32];
        self.0.read_exact(&mut answer).unwrap();
        u64::from_le_bytes(answer[24..].try_into().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.read(&mut [0; 1]).map_or(true, |bytes| bytes == 0)
    }
}

fn socket(place: &Place, number: u32) -> PathBuf {
    place.root().join(format!("zram{number}.vhost"))
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn each_device_with_a_size_has_a_socket() {
    let place = Place::new();
    let line = "serve --num-devices 2 --transport nbd --size 4M --vhost-user";
    let daemon = Daemon::start(&place, line);
    for number in 0..2 {
        let path = socket(&place, number);
        assert!(daemon.greeting.contains(path.to_str().unwrap()), "{}", daemon.greeting);
        assert_eq!(mode_of(&path), 0o600);
        assert!(FrontEnd::connect(&path).is_some());
        let status = daemon.does(&format!("status zram{number} --json"));
        assert!(status.contains(&format!("\"vhost_user\": \"{}\"", path.display())), "{status}");
    }
    daemon.does("add");
    assert!(!socket(&place, 2).exists(), "it has no size");
    daemon.does("set zram2 disksize=8M");
    let mut front = FrontEnd::connect(&socket(&place, 2)).unwrap();
    assert!(FrontEnd::connect(&socket(&place, 2)).is_none(), "another one is refused");
    for line in ["remove zram2", "reset zram2", "stop"] {
        refused(&daemon.ask(line), 1, &["zram2 is in use", "virtual machine", "EBUSY"]);
    }
    let mut channel = front.channel();
    assert_eq!(front.sectors(), (8 << 20) / 512);
    daemon.does("set zram2 resize=16M");
    channel.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(front.sectors(), (16 << 20) / 512);
    daemon.does("reset zram2 --force");
    assert!(front.has_ended());
    assert!(!socket(&place, 2).exists());
    daemon.does("set zram2 disksize=8M");
    assert!(FrontEnd::connect(&socket(&place, 2)).is_some());
    daemon.does("remove zram2");
    assert!(!socket(&place, 2).exists());
    daemon.stop();
    place.is_clean();
}

#[test]
fn a_socket_belongs_to_whom_it_is_given() {
    if !met("a_socket_belongs_to_whom_it_is_given", &[Need::Root]) {
        return;
    }
    let place = Place::new();
    let line = "up --transport nbd --size 4M --vhost-user --vhost-user-owner 54321";
    let daemon = Daemon::start(&place, line);
    assert_eq!(fs::metadata(socket(&place, 0)).unwrap().uid(), 54321);
    assert_eq!(mode_of(&socket(&place, 0)), 0o600);
    daemon.stop();
    place.is_clean();
}

#[test]
fn sockets_are_there_again_after_a_kill() {
    let place = Place::new();
    let line = "up --transport nbd --size 8M --vhost-user";
    Daemon::start(&place, line).kill();
    assert!(socket(&place, 0).exists());
    let daemon = Daemon::start(&place, line);
    assert!(FrontEnd::connect(&socket(&place, 0)).is_some());
    daemon.stop();
    place.is_clean();
    let mut keeper = Keeper::start(&place, "up --transport nbd --size 8M --vhost-user");
    for _ in 0..3 {
        let mut front = None;
        wait_until("a front end is served", || {
            front = FrontEnd::connect(&socket(&place, 0));
            front.is_some()
        });
        keeper.kill(libc::SIGKILL);
        assert!(front.unwrap().has_ended());
    }
    keeper.wait();
    let mut front = FrontEnd::connect(&socket(&place, 0)).unwrap();
    // Another program in this process has it next.
    keeper.does("upgrade");
    assert!(front.has_ended());
    wait_until("a front end is served", || FrontEnd::connect(&socket(&place, 0)).is_some());
    keeper.stop();
    place.is_clean();
}

#[test]
fn a_configuration_may_ask_for_sockets() {
    let place = Place::new();
    let file = place.path().join("disks.toml");
    fs::write(&file, "[serve]\ntransport = \"nbd\"\nvhost-user = true\n[zram3]\nsize = \"4M\"\n")
        .unwrap();
    let daemon = Daemon::start(&place, &format!("serve --config={}", file.display()));
    assert!(FrontEnd::connect(&socket(&place, 3)).is_some());
    daemon.stop();
    place.is_clean();
    for line in ["serve --stdio --vhost-user", "up --vhost-user-owner 1"] {
        refused(&rampack(line), 2, &["--vhost-user"]);
    }
}
