//! Pages on a backing device, after the death of the daemon that encrypted them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use host::Memfds;
use testkit::{Need, TempDir, met};

use crate::common::{NbdClient, Place, noise, private_file, program, rampack, refused, wait_until};
use crate::keep::Kept;
use crate::keeper::{Keeper, daemon_of, kill};

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
    private_file(&backing, 1 << 20);
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
        asked("get zram0 initstate").out == "1\n" && NbdClient::is_served(&socket, "zram0")
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
    private_file(&backing, 4 << 20);
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
        asked("get zram0 initstate").out == "1\n" && NbdClient::is_served(&socket, "zram0")
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

/// How often a process has a removed file open.
fn removed(process: i32, path: &Path) -> usize {
    let link = format!("{} (deleted)", path.display());
    let fds = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let is_it = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|found| found.to_str() == Some(&*link))
    };
    fds.flatten().filter(is_it).count()
}

#[test]
fn a_backing_file_without_a_path_is_served_on() {
    let sealed = Memfds::new().secret("key", |_| Ok(())).is_ok();
    for options in ["--plain-backing", "--plain-backing --backing-layout log", ""] {
        if sealed || !options.is_empty() {
            file_is_served_without_a_path(options);
        }
    }
}

fn file_is_served_without_a_path(options: &str) {
    let (place, directory) = (Place::new(), TempDir::new());
    let backing = directory.join("backing");
    let make = || private_file(&backing, 4 << 20);
    make();
    let shown = backing.display();
    let mut keeper = Keeper::start(
        &place,
        &format!("serve --transport nbd --size 4M --backing {shown} {options}"),
    );
    keeper.does("add --size 1M");
    let page = |n: u64| {
        let mut page = noise(n);
        page[2048..].fill(n as u8);
        page
    };
    let mut client = NbdClient::connect(&keeper.nbd(), "zram0").unwrap();
    (0..PAGES).for_each(|n| assert_eq!(client.write(n * 4096, &page(n)), 0));
    drop(client);
    let mut client = NbdClient::connect(&keeper.nbd(), "zram1").unwrap();
    assert_eq!(client.write(0, &page(7)), 0);
    drop(client);
    keeper.does("set zram0 idle=all");
    keeper.does("set zram0 writeback=idle");
    fs::remove_file(&backing).unwrap();
    // Another file has the path now. Nobody may take it for the one before.
    make();
    let other = File::options().read(true).write(true).open(&backing).unwrap();
    (0..1024).for_each(|n| other.write_all_at(&[0x5a; 4096], n * 4096).unwrap());
    let process = keeper.process();
    for way in ["kill", "upgrade", "kill"] {
        match way {
            "kill" => keeper.kill(libc::SIGKILL),
            way => _ = keeper.does(way),
        }
        keeper.wait();
        let stat = keeper.does("get zram0 bd_stat");
        assert_eq!(stat.split_whitespace().next(), Some(&*PAGES.to_string()), "{stat}");
        let mut client = NbdClient::connect(&keeper.nbd(), "zram0").unwrap();
        (0..PAGES).for_each(|n| assert!(client.read(n * 4096, 4096) == page(n), "page {n}, {way}"));
        // What is written back from now on goes there, too.
        (0..PAGES).for_each(|n| assert_eq!(client.write(n * 4096, &page(n)), 0));
        drop(client);
        let mut client = NbdClient::connect(&keeper.nbd(), "zram1").unwrap();
        assert!(client.read(0, 4096) == page(7));
        drop(client);
        keeper.does("set zram0 idle=all");
        keeper.does("set zram0 writeback=idle");
        assert_eq!(removed(process, &backing), 1, "{way}");
    }
    // Both could not be told apart by the path.
    let said = keeper.ask(&format!("add --size 1M --backing {shown}"));
    refused(&said, 1, &[backing.to_str().unwrap(), "another file that had this path", "EBUSY"]);
    // With its device the file goes, and the path means what is there.
    keeper.does("remove zram0");
    wait_until("the keeper closes it", || removed(process, &backing) == 0);
    keeper.does(&format!("add --size 1M --backing {shown} --plain-backing"));
    keeper.kill(libc::SIGKILL);
    keeper.wait();
    assert!(keeper.does("get zram0 backing_dev").contains(backing.to_str().unwrap()));
    keeper.stop();
    place.is_clean();
}
