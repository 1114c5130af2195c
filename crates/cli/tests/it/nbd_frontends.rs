//! The ways in which NBD clients reach the program.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use testkit::{Need, met};

use crate::common::{Daemon, NbdClient, PATIENCE, Place, program, rampack, refused, wait_until};

pub const NBDINFO: Need = Need::program("nbdinfo", "libnbd-bin");
const NBDCOPY: Need = Need::program("nbdcopy", "libnbd-bin");

fn run(command: &mut Command) -> String {
    testkit::run(command).stdout
}

#[test]
fn exports_bear_the_names_of_devices() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2 --transport nbd --size 4M");
    daemon.does("add --size 12M");
    for (name, bytes) in [("zram0", 4 << 20), ("zram1", 4 << 20), ("zram2", 12 << 20)] {
        assert_eq!(NbdClient::connect(&daemon.nbd(), name).unwrap().bytes, bytes);
    }
    // The first is what clients get who do not know a name.
    assert_eq!(NbdClient::connect(&daemon.nbd(), "").unwrap().bytes, 4 << 20);
    daemon.does("add");
    assert!(NbdClient::connect(&daemon.nbd(), "zram3").is_err(), "it has no size");
    assert!(NbdClient::connect(&daemon.nbd(), "zram9").is_err());
    daemon.stop();
    place.is_clean();
}

#[test]
fn one_connection_on_standard_input_and_output() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let copy = theirs.try_clone().unwrap();
    let mut child = program()
        .args(["serve", "--size", "64M", "--stdio"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(OwnedFd::from(copy)))
        .spawn()
        .unwrap();
    drop(ours);
    wait_until("the end with the connection", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

/// As systemd starts a program for each client (`Accept=yes`, systemd.socket(5)).
#[test]
fn a_client_that_was_handed_over_takes_the_daemon_with_it() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" serve --size 4M";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program().get_program()).env_remove("RAMPACK_ROOT");
    let mut child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 18];
    (&ours).read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    drop(ours);
    wait_until("the end with the connection", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

#[test]
fn nbdinfo_launches_us() {
    if !met("nbdinfo_launches_us", &[NBDINFO]) {
        return;
    }
    let rampack = program().get_program().to_owned();
    let mut command = Command::new("nbdinfo");
    command.args(["--size", "--", "["]).arg(&rampack);
    command.args(["serve", "--size", "64M", "--stdio", "]"]);
    assert_eq!(run(&mut command).trim(), "67108864");
    // The same by socket activation alone.
    let mut command = Command::new("nbdinfo");
    command.args(["--list", "--", "["]).arg(&rampack);
    command.args(["serve", "--size", "8M", "--num-devices", "2", "]"]);
    let list = run(&mut command);
    assert!(list.contains("zram0") && list.contains("zram1"), "{list}");
}

#[test]
fn an_activated_daemon_can_have_a_root() {
    if !met("an_activated_daemon_can_have_a_root", &[NBDINFO]) {
        return;
    }
    let place = Place::new();
    let mut command = Command::new("nbdinfo");
    command.args(["--size", "--", "["]).arg(program().get_program());
    command.arg("--root").arg(place.root());
    command.args(["serve", "--size", "8M", "--transport", "nbd", "]"]);
    assert_eq!(run(&mut command).trim(), "8388608");
    // It was told to end by its client, who does not wait for it.
    wait_until("the end of the daemon", || !place.root().exists());
    place.is_clean();
}

#[test]
fn nbdcopy_there_and_back() {
    if !met("nbdcopy_there_and_back", &[NBDCOPY]) {
        return;
    }
    let place = Place::new();
    let source = place.path().join("source");
    let target = place.path().join("target");
    let data: Vec<u8> = (0..1 << 20).map(|n: u32| (n / 4096 * 7 + n % 251) as u8).collect();
    std::fs::write(&source, &data).unwrap();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let uri = format!("nbd+unix:///zram0?socket={}", daemon.nbd().display());
    assert!(daemon.greeting.contains(&uri), "{}", daemon.greeting);
    run(Command::new("nbdcopy").arg(&source).arg(&uri));
    run(Command::new("nbdcopy").arg(&uri).arg(&target));
    assert!(std::fs::read(&target).unwrap() == data);
    daemon.stop();
    place.is_clean();
}

#[test]
fn other_machines_only_when_it_is_said_twice() {
    let place = Place::new();
    let up = |line: &str| {
        let root = place.root().display().to_string();
        rampack(&format!("--root {root} up --transport nbd --size 8M {line}"))
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809", "[::ffff:192.0.2.1]:10809"] {
        let said = up(&format!("--nbd-tcp {address}"));
        let words = ["--insecure", "--tls-verify-peer", "loopback", "no password", "EINVAL"];
        refused(&said, 1, &words);
        // Encryption alone keeps nobody out.
        let said = up(&format!("--nbd-tcp {address} --tls-certificates /nowhere"));
        refused(&said, 1, &words);
    }
    refused(&up("--tls-verify-peer"), 2, &["--tls-certificates"]);
    let said = up("--nbd-tcp 0.0.0.0:0 --tls-certificates /nowhere --tls-verify-peer");
    refused(&said, 1, &["/nowhere/server-cert.pem", "EINVAL"]);
    refused(&up("--insecure"), 2, &["--nbd-tcp"]);
    let said = rampack("up --transport fuse --nbd-read-only");
    refused(&said, 1, &["--nbd-read-only", "--transport fuse"]);
    place.is_clean();
    for line in ["--nbd-tcp 127.0.0.2:0", "--nbd-tcp 0.0.0.0:0 --insecure"] {
        Daemon::start(&place, &format!("up --transport nbd --size 8M {line}")).stop();
    }
    place.is_clean();
}

/// Makes an authority with certificates for a server and a client in `directory`.
pub fn make_certificates(directory: &Path) {
    let write = |name: &str, text: String| std::fs::write(directory.join(name), text).unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    write("ca-cert.pem", params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for who in ["server", "client"] {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        write(&format!("{who}-cert.pem"), params.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{who}-key.pem"), key.serialize_pem());
    }
}

#[test]
fn clients_come_with_certificates() {
    if !met("clients_come_with_certificates", &[NBDINFO, NBDCOPY]) {
        return;
    }
    let place = Place::new();
    let directory = place.path().join("pki");
    std::fs::create_dir(&directory).unwrap();
    make_certificates(&directory);
    let pki = directory.display();
    let line = "up --transport nbd --size 8M --nbd-tcp 0";
    let line = format!("{line} --tls-certificates {pki} --tls-verify-peer");
    let daemon = Daemon::start(&place, &line);
    let uri = daemon.greeting.split_whitespace().find(|word| word.starts_with("nbds://"));
    let uri = uri.expect(&daemon.greeting);
    let secure = format!("{uri}?tls-certificates={pki}");
    assert_eq!(run(Command::new("nbdinfo").args(["--size", &secure])).trim(), "8388608");
    let (source, target) = (place.path().join("source"), place.path().join("target"));
    let data: Vec<u8> = (0..8 << 20).map(|n: u32| (n / 4096 * 7 + n % 251) as u8).collect();
    std::fs::write(&source, &data).unwrap();
    run(Command::new("nbdcopy").arg(&source).arg(&secure));
    run(Command::new("nbdcopy").arg(&secure).arg(&target));
    assert!(std::fs::read(&target).unwrap() == data);
    // Neither without TLS nor without a certificate.
    let plain = uri.replace("nbds:", "nbd:");
    for name in ["client-cert.pem", "client-key.pem"] {
        std::fs::remove_file(directory.join(name)).unwrap();
    }
    for refused in [&plain, &secure] {
        let output = testkit::try_run(Command::new("nbdinfo").args(["--size", refused]));
        assert!(!output.status.success(), "{}", output.stdout);
    }
    daemon.stop();
    place.is_clean();
}

#[test]
fn clients_can_be_kept_from_changes() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M --nbd-read-only");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.write(0, &[1; 4096]), 1, "EPERM");
    assert_eq!(client.read(0, 4096), [0; 4096]);
    assert_eq!(client.bytes, 8 << 20);
    if met("clients_can_be_kept_from_changes", &[NBDINFO]) {
        let uri = format!("nbd+unix:///zram0?socket={}", daemon.nbd().display());
        run(Command::new("nbdinfo").args(["--is", "read-only", &uri]));
    }
    drop(client);
    daemon.stop();
    place.is_clean();
}

#[test]
fn the_socket_is_opened_for_named_users() {
    let place = Place::new();
    let line = "up --transport nbd --size 8M --nbd-allow-uid 65534 --nbd-allow-uid 12";
    let daemon = Daemon::start(&place, line);
    let mode = std::fs::metadata(daemon.nbd()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "the server itself asks who it is");
    assert_eq!(NbdClient::connect(&daemon.nbd(), "").unwrap().bytes, 8 << 20);
    daemon.stop();
    place.is_clean();
}

#[test]
fn who_finds_no_place_is_told_and_logged() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M");
    let all: Vec<_> =
        (0..256).map(|_| NbdClient::connect(&daemon.nbd(), "zram0").unwrap()).collect();
    for _ in 0..3 {
        let mut refused = UnixStream::connect(daemon.nbd()).unwrap();
        let end = refused.read(&mut [0]);
        assert_eq!(end.unwrap(), 0, "an end in order");
    }
    let said = daemon.lines_until(&["an NBD connection is refused"]);
    assert!(said.contains("none of the server's 256 connections is free"), "{said}");
    drop(all);
    daemon.does("remove zram0");
    assert!(!daemon.rest().contains("is refused"), "once a minute");
    daemon.stop();
    place.is_clean();
}

/// Bytes of a process that are in memory.
fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

#[test]
fn memory_for_clients_goes_when_they_do() {
    const MIB: u64 = 1 << 20;
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 64M");
    let before = resident(daemon.pid());
    for _ in 0..2 {
        let clients: Vec<_> =
            (0..64).map(|_| NbdClient::connect(&daemon.nbd(), "zram0").unwrap()).collect();
        std::thread::scope(|scope| {
            for (number, mut client) in clients.into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..8 {
                        let length = (128 << 10) << ((number + round) % 5);
                        assert_eq!(client.write(0, &vec![0; length]), 0);
                        assert_eq!(client.read(0, length).len(), length);
                    }
                });
            }
        });
    }
    wait_until("giving memory back", || resident(daemon.pid()) < before + 8 * MIB);
    daemon.stop();
    place.is_clean();
}

#[test]
fn tcp_only_when_asked_and_on_loopback() {
    if !met("tcp_only_when_asked_and_on_loopback", &[NBDINFO]) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 8M --nbd-tcp 0");
    let uri = daemon.greeting.split_whitespace().find(|word| word.starts_with("nbd://"));
    let uri = uri.expect(&daemon.greeting);
    assert!(uri.starts_with("nbd://127.0.0.1:"), "{uri}");
    assert_eq!(run(Command::new("nbdinfo").args(["--size", uri])).trim(), "8388608");
    daemon.stop();
}
