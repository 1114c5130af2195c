//! A running daemon and the commands that talk to it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::Value;
use testkit::{Need, met};

use crate::common::{DESIGN, Daemon, NbdClient, Place, noise, program, rampack, refused, said};

#[test]
fn up_says_how_to_use_it_and_leaves_nothing() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 64M --algorithm zstd");
    let socket = daemon.nbd();
    for word in [
        "zram0 is ready: 64M, compressed with zstd",
        &format!("nbd+unix:///zram0?socket={}", socket.display()),
        "nbdinfo",
        "status",
        "Ctrl-C",
    ] {
        assert!(daemon.greeting.contains(word), "{word}: {}", daemon.greeting);
    }
    assert!(!daemon.greeting.contains('\x1b'), "no terminal, no drawing");
    daemon.stop();
    place.is_clean();
}

/// A daemon has its own, for what it makes.
#[test]
fn a_command_has_the_umask_and_the_limits_of_who_started_the_program() {
    let name = "a_command_has_the_umask_and_the_limits_of_who_started_the_program";
    let mkfs = Need::program("mkfs.ext4", "e2fsprogs");
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop, mkfs]) {
        return;
    }
    let place = Place::new();
    let look = "umask; ulimit -S -n; ulimit -S -c; ulimit -H -c";
    let script = format!(
        "umask 026; ulimit -S -n 500; ulimit -S -c $(ulimit -H -c); {look}; exec \"$@\" sh -c '{look}'"
    );
    let mut command = Command::new("sh");
    command.args(["-euc", &script, "-"]).arg(program().get_program()).arg("--root");
    command.arg(place.root()).args(["up", "--size", "64M", "--mount"]);
    command.arg(place.mount_point()).arg("--");
    let said = said(&command.output().unwrap());
    assert_eq!(said.code, 0, "{}", said.err);
    let lines: Vec<_> = said.out.lines().collect();
    assert_eq!((lines.len(), &lines[..4]), (8, &lines[4..]));
    assert_eq!(&lines[..2], ["0026", "500"]);
    place.is_clean();
}

#[test]
fn who_became_root_by_sudo_is_told_to_do_so_again() {
    let is_root = host::effective_user() == 0;
    for user in [None, Some("0"), Some("1000")] {
        let place = Place::new();
        let mut command = Daemon::command_in(&place, "up --transport nbd --size 16M");
        user.map(|user| command.env("SUDO_UID", user));
        let daemon = Daemon::spawn(&place, &mut command);
        let is_by_sudo = is_root && user == Some("1000");
        for (word, is_said) in [
            ("sudo nbd-client", is_by_sudo || !is_root),
            ("sudo nbdinfo", is_by_sudo),
            ("sudo rampack --root ", is_by_sudo),
        ] {
            assert_eq!(daemon.greeting.contains(word), is_said, "{word}: {}", daemon.greeting);
        }
        daemon.stop();
        place.is_clean();
    }
}

#[test]
fn an_attribute_in_bytes_may_be_an_expression() {
    let place = Place::new();
    let line = "serve --transport nbd --size 16M --set mem_limit=1M+1M --set auto_cpu_percent=7";
    let daemon = Daemon::start(&place, line);
    let limit = || {
        let mm_stat = daemon.does("get zram0 mm_stat");
        mm_stat.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(limit(), 2 << 20);
    daemon.does("set zram0 mem_limit=3M*2");
    assert_eq!(limit(), 6 << 20);
    daemon.does("set zram0 mem_limit ram/4");
    assert!(limit() > 6 << 20);
    daemon.does("set module/zswap/parameters max_pool_bytes=min(ram,8M)/2");
    assert_eq!(daemon.does("get module/zswap/parameters max_pool_bytes"), "4194304\n");
    let words = ["\"ram/\" is not a size", "min(ram / 2, 8G)", "EINVAL"];
    refused(&daemon.ask("set zram0 mem_limit=ram/"), 1, &words);
    let words = ["\"x\" is not a size", "ram / 2", "30%", "EINVAL"];
    refused(&daemon.ask("set zram0 mem_limit=x"), 1, &words);
    refused(&daemon.ask("add --set mem_limit=x"), 2, &words);
    daemon.stop();
    place.is_clean();
}

#[test]
fn status_shows_what_is_stored() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 16M --memory 8M");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    assert_eq!(client.bytes, 16 << 20);
    for n in 0..4 {
        assert_eq!(client.write(n * 4096, &[b'x'; 2048]), 0);
    }
    assert_eq!(client.write(1 << 20, &[0x55; 4096]), 0);
    let table = daemon.does("status");
    let heading = "NAME DISKSIZE DATA COMPR ALGORITHM STREAMS ZERO-PAGES TOTAL MEM-LIMIT MEM-USED \
                   RATIO MOUNTPOINT";
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(table.lines().next().unwrap()), heading);
    assert!(words(table.lines().nth(1).unwrap()).starts_with("zram0 16M 20K "), "{table}");
    let json: Value = serde_json::from_str(&daemon.does("status --json")).unwrap();
    let device = &json["devices"][0];
    assert_eq!(device["name"], "zram0");
    assert_eq!(device["disksize"], 16 << 20);
    assert_eq!(device["data"], 5 * 4096);
    assert_eq!(device["zero_pages"], 1, "pages of one pattern");
    assert_eq!(device["mem_limit"], 8 << 20);
    assert_eq!(device["nbd_clients"], 1);
    assert_eq!(device["mountpoint"], Value::Null);
    assert!(device["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(json["pid"], daemon.pid());
    let zone = &json["zone"];
    assert_eq!(zone["design"], DESIGN);
    assert_eq!(zone["bad_frees"], 0);
    let [allocated, cached, free, managed] = ["allocated", "cached", "free", "managed"]
        .map(|name| zone[format!("{name}_bytes")].as_u64());
    assert!(allocated > Some(0) && managed >= Some(2 << 20), "{zone}");
    assert_eq!(managed, allocated.zip(cached).zip(free).map(|((a, b), c)| a + b + c), "{zone}");
    let line = format!("zone {}: ", DESIGN);
    assert!(table.lines().last().unwrap().starts_with(&line), "{table}");
    assert!(!daemon.does("status zram0").contains(&line), "nobody asked for it");
    let bytes = daemon.does("status --bytes --noheadings --raw --output NAME,DISKSIZE,MOUNTPOINT");
    assert_eq!(bytes, "zram0 16777216 -\n");
    drop(client);
    daemon.stop();
}

#[test]
fn the_number_of_streams_is_shown_and_set_at_any_time() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --transport nbd");
    let usual = daemon.does("get zram0 max_comp_streams");
    daemon.does("set zram0 max_comp_streams=2 disksize=8M");
    assert_eq!(daemon.does("status -n -o NAME,STREAMS"), "zram0 2\n");
    daemon.does("set zram0 max_comp_streams=3");
    assert_eq!(daemon.does("status -n -o NAME,STREAMS"), "zram0 3\n");
    refused(&daemon.ask("set zram0 max_comp_streams=0"), 1, &["max_comp_streams", "EINVAL"]);
    daemon.does("set zram0 reset=1");
    assert_eq!(daemon.does("get zram0 max_comp_streams"), usual);
    daemon.stop();
}

#[test]
fn devices_come_and_go() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 2 --transport nbd");
    assert_eq!(daemon.does("status -n -o NAME,DISKSIZE"), "zram0 0B\nzram1 0B\n");
    assert_eq!(daemon.does("add --size 4M --algorithm deflate --level 1"), "zram2\n");
    assert!(daemon.does("get zram2 comp_algorithm").contains("[deflate]"));
    daemon.does("remove zram0");
    assert_eq!(daemon.does("add"), "zram0\n");
    assert_eq!(daemon.does("get zram0 disksize initstate"), "disksize  0\ninitstate 0\n");
    daemon.does("set zram0 comp_algorithm=zstd disksize=8M");
    assert_eq!(daemon.does("get zram0 disksize"), "8388608\n");
    assert_eq!(daemon.does("get zram0 initstate"), "1\n");
    let all = daemon.does("get zram0 --all");
    assert!(all.contains("mm_stat ") && all.contains("io_stat "), "{all}");
    let described = daemon.does("get zram0 --describe");
    assert!(described.contains("mem_limit              -w    bytes"), "{described}");
    daemon.does("reset zram0");
    assert_eq!(daemon.does("get zram0 disksize"), "0\n");
    daemon.does("stop");
    place.is_clean();
    drop(daemon);
}

#[test]
fn a_device_with_a_client_is_neither_reset_nor_removed_nor_stopped() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place, "up --transport nbd --size 16M");
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    let page = noise(1);
    assert_eq!(client.write(4096, &page), 0);
    for line in ["reset zram0", "remove zram0", "set zram0 reset 1", "stop"] {
        refused(&daemon.ask(line), 1, &["zram0", "1 NBD client", "EBUSY"]);
    }
    daemon.lines_until(&["not stopped"]);
    daemon.signal(libc::SIGINT);
    daemon.lines_until(&["still not stopped", "stop --force"]);
    daemon.signal(libc::SIGTERM);
    daemon.lines_until(&["still not stopped", "stop --force"]);
    assert!(daemon.is_alive());
    assert_eq!(client.read(4096, 4096), page, "and nothing is lost");
    daemon.does("stop --force");
    place.is_clean();
}

#[test]
fn a_client_that_left_is_no_reason_to_refuse() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 16M");
    drop(NbdClient::connect(&daemon.nbd(), "zram0").unwrap());
    daemon.stop();
    place.is_clean();
}

#[test]
fn the_root_can_come_from_the_environment() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let output = crate::common::program()
        .env("RAMPACK_ROOT", place.root())
        .args(["get", "zram0", "disksize"])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"1048576\n");
    daemon.stop();
}

#[test]
fn a_hostile_client_holds_up_nobody() {
    let place = Place::new();
    let daemon = Daemon::start(&place, "up --transport nbd --size 1M");
    let connect = || UnixStream::connect(place.root().join("control.sock")).unwrap();
    let silent: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    let mut endless = connect();
    let _ = endless.write_all(&vec![b'{'; 1 << 20]);
    let mut garbage = connect();
    garbage.write_all(b"\xff\xfe\x00\n").unwrap();
    let mut answer = [0; 1];
    garbage.read_exact(&mut answer).unwrap();
    assert!(daemon.does("status").contains("zram0"));
    drop(silent);
    daemon.stop();
}

#[test]
fn help_explains_every_column() {
    let help = rampack("status --help").out;
    for column in &cli::columns::COLUMNS {
        assert!(help.contains(&format!("  {:<11}", column.name)), "{help}");
    }
    assert!(rampack("up --help").out.contains("--mount /mnt/fast"));
    assert_eq!(rampack("").code, 2);
}

#[test]
fn help_says_what_is_true() {
    let help = |line: &str| {
        let said = rampack(line);
        assert_eq!(said.code, 0, "{line}: {}", said.err);
        said.out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(help("status --help").contains("without the pages of DATA that were written back"));
    assert!(help("get --help").contains("get [OPTIONS] <NAME> <ATTRIBUTE>... rampack get"));
    assert!(help("up --help").contains("At the limit, a write does what --when-full says"));
    for line in ["keep swap on --help", "keep serve --help", "swap on --help"] {
        let help = help(line);
        assert!(help.contains("Usage: rampack ") && !help.contains("@rampack"), "{line}: {help}");
    }
}
