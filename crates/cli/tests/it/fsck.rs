//! `rampack fsck`: what it finds of devices that outlive their daemon, and when it refuses to look.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::{Need, met};

use crate::common::{noise, rampack, refused, wait_until};
use crate::keep::contents;
use crate::keeper::{daemon_of, kill};
use crate::upgrade::{Service, table_of};

/// The file in memory of a region that a keeper has.
pub fn region_of(keeper: u32, name: &str) -> File {
    let fds = fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
    // A memfd, or a file of a tmpfs.
    let names = ["/memfd:", "/"].map(|begin| format!("{begin}rampack.{name} (deleted)"));
    let is_it = |path: &std::path::PathBuf| {
        fs::read_link(path)
            .is_ok_and(|link| names.iter().any(|name| link.as_os_str() == name.as_str()))
    };
    let path = fds.map(|entry| entry.unwrap().path()).find(is_it).expect("a region");
    File::options().read(true).write(true).open(path).unwrap()
}

/// A service with pages of each kind, whose daemon is stopped.
fn stopped() -> (Service, i32) {
    let service = Service::start("serve --transport nbd --size 4M");
    let mut client = service.client();
    for page in 0..100 {
        assert_eq!(client.write(page * 4096, &contents(page, 1 + page % 3)), 0);
    }
    assert_eq!(client.write(300 * 4096, &noise(300)), 0);
    let process = service.process();
    kill(process, libc::SIGSTOP);
    wait_until("it stands still", || {
        fs::read_to_string(format!("/proc/{process}/stat")).unwrap().contains(") T ")
    });
    (service, process)
}

/// `kill -STOP` returns before the daemon stands still, and the check may be the next command.
#[test]
fn a_daemon_that_is_about_to_stop_is_waited_for() {
    if !met("a_daemon_that_is_about_to_stop_is_waited_for", &[Need::Root]) {
        return;
    }
    let service = Service::start("serve --transport nbd --size 4M");
    let process = service.process();
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            kill(process, libc::SIGSTOP);
        });
        service.ask("fsck")
    });
    kill(process, libc::SIGCONT);
    assert!(said.code == 0 && said.out.ends_with("\nclean\n"), "{}{}", said.out, said.err);
    service.stop();
}

#[test]
fn a_stopped_daemon_is_checked_and_goes_on() {
    if !met("a_stopped_daemon_is_checked_and_goes_on", &[Need::Root]) {
        return;
    }
    let (service, process) = stopped();
    for line in ["fsck", "fsck --contents", &format!("fsck --pid {}", service.keeper.0.id())] {
        let said = service.does(line);
        assert!(said.starts_with("NAME ") && said.ends_with("\nclean\n"), "{said}");
        let row: Vec<&str> = said.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((row[0], row[1], row[2], row[4], row[5]), ("zram0", "4M", "101", "0", "0"));
    }
    let json: Value = serde_json::from_str(&service.does("fsck --json")).unwrap();
    assert_eq!((&json["clean"], &json["layout"]), (&true.into(), &2.into()));
    assert_eq!(json["not_checked"], Value::Null);
    assert_eq!(json["process"], process);
    assert_eq!((&json["devices"][0]["pages"], &json["all_findings"]), (&101.into(), &0.into()));
    kill(process, libc::SIGCONT);
    let mut client = service.client();
    for page in 0..100 {
        assert_eq!(client.read(page * 4096, 4096), contents(page, 1 + page % 3));
    }
    drop(client);
    service.stop();
}

#[test]
fn what_a_dead_daemon_left_is_checked_while_its_keeper_waits() {
    if !met("what_a_dead_daemon_left_is_checked_while_its_keeper_waits", &[Need::Root]) {
        return;
    }
    let (service, process) = stopped();
    let keeper = service.keeper.0.id();
    // It would start the next one at once.
    kill(keeper as i32, libc::SIGSTOP);
    kill(process, libc::SIGKILL);
    wait_until("its end", || {
        fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|it| it.contains(") Z "))
    });
    let said = service.does(&format!("fsck --contents --pid {keeper}"));
    assert!(said.ends_with("\nclean\n"), "{said}");
    kill(keeper as i32, libc::SIGCONT);
    wait_until("another daemon", || daemon_of(keeper).is_some_and(|it| it != process));
    service.wait();
    assert_eq!(service.client().read(4096, 4096), contents(1, 2));
    service.stop();
}

#[test]
fn what_cannot_be_right_is_told_by_its_number_and_left() {
    if !met("what_cannot_be_right_is_told_by_its_number_and_left", &[Need::Root]) {
        return;
    }
    let (service, process) = stopped();
    let keeper = service.keeper.0.id();
    let found = |words: &[&str]| {
        let said = service.ask("fsck --contents");
        assert_eq!(said.code, 4, "{}{}", said.out, said.err);
        for word in words {
            assert!(said.out.contains(word), "{word}: {}", said.out);
        }
        assert!(said.out.contains("docs/internals/kept-state.md"), "{}", said.out);
    };
    let slots = region_of(keeper, "zram0.1.slots");
    let mut word = [0; 8];
    slots.read_exact_at(&mut word, 8 * 300).unwrap();
    slots.write_all_at(&(u64::from_ne_bytes(word) | 1 << 60).to_ne_bytes(), 8 * 300).unwrap();
    found(&["page 300 of zram0: its slot", "says nothing that can be (K14)"]);
    let json: Value = serde_json::from_str(&service.ask("fsck -J").out).unwrap();
    let device = &json["devices"][0];
    assert_eq!((&json["clean"], &device["lost_pages"]), (&false.into(), &1.into()));
    assert!(device["findings"][0].as_str().unwrap().ends_with("(K14)"), "{json}");
    slots.write_all_at(&word, 8 * 300).unwrap();
    let record = region_of(keeper, "zram0.1.record");
    let mut magic = [0; 8];
    record.read_exact_at(&mut magic, 0).unwrap();
    record.write_all_at(b"no disk ", 0).unwrap();
    found(&["zram0 cannot be recovered: its record is none (K5)"]);
    record.write_all_at(&magic, 0).unwrap();
    let table = table_of(keeper);
    for (at, said) in [(8, "a newer layout"), (0, "no table of kept state")] {
        let mut byte = [0];
        table.read_exact_at(&mut byte, at).unwrap();
        table.write_all_at(&[byte[0] + 1], at).unwrap();
        found(&[said, "(K1)"]);
        table.write_all_at(&byte, at).unwrap();
    }
    // The text of the current copy.
    for at in [4096, 4096 + (512 << 10)] {
        let mut byte = [0];
        table.read_exact_at(&mut byte, at + 20).unwrap();
        table.write_all_at(&[byte[0] ^ 1], at + 20).unwrap();
    }
    found(&["the checksum of the current copy is wrong (K2)"]);
    for at in [4096, 4096 + (512 << 10)] {
        let mut byte = [0];
        table.read_exact_at(&mut byte, at + 20).unwrap();
        table.write_all_at(&[byte[0] ^ 1], at + 20).unwrap();
    }
    assert!(service.does("fsck --contents").ends_with("clean\n"));
    kill(process, libc::SIGCONT);
    assert_eq!(service.client().read(300 * 4096, 4096), noise(300));
    service.stop();
}

#[test]
fn a_daemon_that_serves_is_not_checked() {
    refused(&rampack("fsck --pid 999999999"), 8, &["there is no process 999999999", "ENOENT"]);
    refused(&rampack("--root /nonexistent/rampack fsck"), 8, &["no daemon lives", "--pid"]);
    let said = rampack("fsck --json --pid 999999999");
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &json["clean"]), (8, &Value::Null));
    assert!(json["not_checked"].as_str().unwrap().contains("no process 999999999"), "{json}");
    let own = std::process::id();
    refused(
        &rampack(&format!("fsck --pid {own}")),
        8,
        &["has no state of devices", "rampack keep"],
    );
    if !met("a_daemon_that_serves_is_not_checked", &[Need::Root]) {
        return;
    }
    let service = Service::start("serve --transport nbd --size 4M");
    let process = service.process();
    let words = [&format!("(process {process}) serves")[..], "kill -STOP", "EBUSY"];
    refused(&service.ask("fsck"), 8, &words);
    refused(&service.ask(&format!("fsck --pid {}", service.keeper.0.id())), 8, &words);
    assert_eq!(service.client().write(0, &contents(0, 1)), 0);
    service.stop();
}
