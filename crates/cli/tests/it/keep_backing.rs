//! Pages on a backing device, after the death of the daemon that encrypted them.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rampack::host::Memfds;
use testkit::{Need, TempDir, met};

use crate::common::{NbdClient, Place, noise, program, rampack, wait_until};
use crate::keep::Kept;
use crate::keeper::{daemon_of, kill};

const PAGES: u64 = 100;
/// Pages in a log. Half of each does not shrink, so they fill half of what a log of 4 MiB can hold.
const IN_LOG: u64 = 400;

#[test]
fn pages_that_were_sealed_outlive_the_daemon() {
    let secret = Memfds::new().secret("key", |_| Ok(())).is_ok();
    let need = Need::other(secret, "secret memory (memfd_secret, Linux 5.14)");
    if !met("pages_that_were_sealed_outlive_the_daemon", &[need]) {
        return;
    }
    let (place, directory) = (Place::new(), TempDir::new());
    let backing = directory.join("backing");
    File::create(&backing).unwrap().set_len(1 << 20).unwrap();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "serve", "--transport", "nbd"]);
    command.args(["--size", "4M", "--backing"]).arg(&backing);
    let mut keeper = Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let (socket, root) = (place.root().join("nbd.sock"), place.root());
    let asked = |what: &str| rampack(&format!("--root {} {what}", root.display()));
    let does = |what: &str| {
        let said = asked(what);
        assert_eq!(said.code, 0, "{what}: {}", said.err);
        said.out
    };
    wait_until("a daemon serves", || {
        UnixStream::connect(&socket).is_ok() && asked("status").code == 0
    });
    let page = |n: u64| noise(n).into_iter().take(4096).collect::<Vec<u8>>();
    let mut client = NbdClient::connect(&socket, "zram0").unwrap();
    for n in 0..PAGES {
        assert_eq!(client.write(n * 4096, &page(n)), 0);
    }
    drop(client);
    does("set zram0 writeback=huge");
    let backed = |stat: &str| stat.split_whitespace().next().map(str::to_owned);
    assert_eq!(backed(&does("get zram0 bd_stat")), Some(PAGES.to_string()));
    for round in 0..2 {
        let dead = daemon_of(keeper.0.id()).unwrap();
        kill(dead, libc::SIGKILL);
        wait_until("the next daemon serves", || {
            daemon_of(keeper.0.id()).is_some_and(|it| it != dead) && asked("status").code == 0
        });
        let stat = does("get zram0 bd_stat");
        assert_eq!(backed(&stat), Some((PAGES - round).to_string()), "{stat}");
        does("set zram0 scrub=1");
        let mut client = NbdClient::connect(&socket, "zram0").unwrap();
        for n in 0..PAGES {
            assert!(client.read(n * 4096, 4096) == page(n), "page {n}");
        }
        // One that is back in memory stays there.
        assert_eq!(client.write(round * 4096, &page(round)), 0);
    }
    does("stop");
    assert!(keeper.0.wait().unwrap().success());
    place.is_clean();
}

#[test]
fn a_log_outlives_the_daemon() {
    let sealed = Memfds::new().secret("key", |_| Ok(())).is_ok();
    let options: &[&[&str]] =
        if sealed { &[&[], &["--plain-backing"]] } else { &[&["--plain-backing"]] };
    for options in options {
        log_outlives_daemons(options);
    }
}

fn log_outlives_daemons(options: &[&str]) {
    let (place, directory) = (Place::new(), TempDir::new());
    let backing = directory.join("backing");
    File::create(&backing).unwrap().set_len(4 << 20).unwrap();
    let mut command = program();
    command.arg("--root").arg(place.root()).args(["keep", "up", "--transport", "nbd"]);
    command.args(["--size", "4M", "--backing-layout", "log", "--backing"]).arg(&backing);
    command.args(options);
    let mut keeper = Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let (socket, root) = (place.root().join("nbd.sock"), place.root());
    let asked = |what: &str| rampack(&format!("--root {} {what}", root.display()));
    let does = |what: &str| {
        let said = asked(what);
        assert_eq!(said.code, 0, "{what}: {}", said.err);
        said.out
    };
    wait_until("a daemon serves", || {
        UnixStream::connect(&socket).is_ok() && asked("status").code == 0
    });
    let page = |version: u64| {
        let mut page = noise(version);
        page[2048..].fill(version as u8);
        page
    };
    let mut versions: Vec<u64> = (0..IN_LOG).collect();
    for death in 0..3 {
        let mut client = NbdClient::connect(&socket, "zram0").unwrap();
        // A third of the pages change each time, so segments have to be cleaned.
        for round in 0..12 {
            for n in 0..IN_LOG {
                if death + round == 0 || (n * 7 + round).is_multiple_of(3) {
                    versions[n as usize] = (death * 12 + round + 1) * IN_LOG + n;
                    assert_eq!(client.write(n * 4096, &page(versions[n as usize])), 0);
                }
            }
            does("set zram0 idle=all");
            does("set zram0 writeback=idle");
        }
        drop(client);
        let dead = daemon_of(keeper.0.id()).unwrap();
        kill(dead, libc::SIGKILL);
        wait_until("the next daemon serves", || {
            daemon_of(keeper.0.id()).is_some_and(|it| it != dead) && asked("status").code == 0
        });
        assert_eq!(does("get zram0 backing_layout"), "log\n");
        let stat = does("get zram0 bd_stat");
        assert_eq!(stat.split_whitespace().next(), Some(&*IN_LOG.to_string()), "{stat}");
        let mut client = NbdClient::connect(&socket, "zram0").unwrap();
        for (n, version) in (0..).zip(&versions) {
            assert!(client.read(n * 4096, 4096) == page(*version), "page {n} after death {death}");
        }
    }
    does("stop");
    assert!(keeper.0.wait().unwrap().success());
    place.is_clean();
}
