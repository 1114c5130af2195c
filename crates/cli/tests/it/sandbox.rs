//! What the threads of a daemon may do, as the kernel has it. Every other test of this program runs
//! daemons whose threads end the process when they call what their role lacks.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;

use testkit::{Need, met};

use crate::common::{Daemon, NbdClient, Place, program, rampack, refused, said};
use crate::swap::NEEDS;

const MIB: u64 = 1 << 20;
/// `CAP_IPC_LOCK`, which a thread may keep.
const IPC_LOCK: u64 = 1 << 14;

/// A row of the table of roles in docs/operating/safety.md: the role, and the names of its threads.
/// `N` at the end of a name stands for a number.
fn roles() -> Vec<(String, Vec<String>)> {
    let text = include_str!("../../../../docs/operating/safety.md");
    let (_, table) = text.split_once("| role | threads |").expect("the table of roles");
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| "));
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_string).collect();
    let row = |row: &str| {
        let mut cells = row.split(" | ");
        let role = cells.next().unwrap().trim_matches('`').to_string();
        (role, names(cells.next().unwrap()))
    };
    rows.map(row).collect()
}

fn is_named(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('N') {
        Some(start) => name.strip_prefix(start).is_some_and(|number| number.parse::<u32>().is_ok()),
        None => name == pattern,
    }
}

/// Checks every thread of a daemon, and returns the roles that were there.
#[track_caller]
fn check(daemon: &Daemon) -> BTreeSet<String> {
    let roles = roles();
    let mut seen = BTreeSet::new();
    for task in fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap() {
        // A thread that has ended since.
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_string()
        };
        let name = field("Name");
        let mut of_it =
            roles.iter().filter(|(_, names)| names.iter().any(|it| is_named(&name, it)));
        let (role, _) = of_it.next().unwrap_or_else(|| panic!("{name} has no role"));
        seen.insert(role.clone());
        if role == "control" {
            continue;
        }
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let has = u64::from_str_radix(&field(set), 16).unwrap();
            assert_eq!(has & !IPC_LOCK, 0, "{name}, {role}: {set} {has:x}");
        }
        assert_eq!(field("NoNewPrivs"), "1", "{name}, {role}");
        assert_eq!(field("Seccomp"), "2", "{name}, {role}");
    }
    seen
}

/// The file whose commands crash or restart a machine is for one thread only.
#[track_caller]
fn check_trigger(daemon: &Daemon) {
    for task in fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap() {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let open = fs::read_dir(task.join("fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        let has = open.any(|it| it.ends_with("sysrq-trigger"));
        assert!(!has || name == "oom-killer\n", "{name} may write to it");
    }
}

#[track_caller]
fn has(seen: &BTreeSet<String>, wanted: &[&str]) {
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn every_thread_of_a_daemon_has_the_limits_of_its_role() {
    let name = "every_thread_of_a_daemon_has_the_limits_of_its_role";
    if !met(name, &[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let place = Place::new();
    let backing = place.path().join("backing");
    fs::write(&backing, vec![0u8; 4 << 20]).unwrap();
    let daemon = Daemon::start(&place, "serve --num-devices 0 --nbd-tcp 0");
    daemon.does(&format!("add --size 8M --backing {}", backing.display()));
    let mut client = NbdClient::connect(&daemon.nbd(), "zram0").unwrap();
    let page: Vec<u8> = (0..4096u32).map(|n| (n * n / 7) as u8).collect();
    assert_eq!(client.write(0, &page), 0);
    daemon.does("set zram0 idle=all");
    daemon.does("set zram0 writeback=idle");
    // Pages that are on the device make both frontends start threads that wait.
    assert_eq!(client.read(0, 4096), page);
    let file = place.root().join("dev/zram0");
    assert_eq!(fs::read(&file).unwrap()[..4096], page[..]);
    let size = fs::read_to_string(place.root().join("sys/block/zram0/disksize")).unwrap();
    assert_eq!(size, format!("{}\n", 8 * MIB));
    let nbd = ["nbd-accept", "nbd-client"];
    has(&check(&daemon), &[&["clock", "control", "fuse-disk", "fuse-tree"], &nbd[..]].concat());
    drop(client);
    daemon.stop();
}

#[test]
fn every_thread_of_a_daemon_that_serves_swap_has_the_limits_of_its_role() {
    let name = "every_thread_of_a_daemon_that_serves_swap_has_the_limits_of_its_role";
    if !met(name, &NEEDS) {
        return;
    }
    let place = Place::new();
    let line = "swap on --size 16M --priority -1 --transport fuse";
    let daemon = Daemon::start(&place, line);
    let mut seen = check(&daemon);
    // It is where the kernel has a file to call the OOM killer, and tells of pressure.
    seen.remove("oom-killer");
    let swap = ["swap-file", "swap-log", "swap-memory", "swap-pressure", "swap-worker"];
    has(&seen, &[&["clock", "control", "fuse-disk", "fuse-tree"], &swap[..]].concat());
    check_trigger(&daemon);
    daemon.does("swap off --all");
    let _ = daemon.ended();
    place.is_clean();
}

/// The check can fail: without a sandbox threads have no filter.
#[test]
fn a_daemon_without_a_sandbox_is_told_from_one_with_it() {
    let place = Place::new();
    let line = "up --transport nbd --size 8M --sandbox off";
    let daemon = Daemon::start(&place, line);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&daemon)));
    assert!(checked.is_err(), "threads have filters that nobody asked for");
    daemon.stop();
}

#[test]
fn the_option_of_the_sandbox_takes_two_values() {
    refused(&rampack("up --sandbox maybe"), 2, &["--sandbox", "on", "off"]);
}

/// A daemon inside a filter that refuses filters, as in a container that has one of an old kind.
#[test]
fn a_kernel_without_filters_is_told_what_to_do() {
    let name = "a_kernel_without_filters_is_told_what_to_do";
    let python = Need::program("python3", "python3");
    if !met(name, &[python]) {
        return;
    }
    // seccomp(2) fails with ENOSYS from here on: four instructions, by prctl(2).
    let script = r#"
import ctypes, os, platform, struct, sys
number = {"x86_64": 317, "aarch64": 277}[platform.machine()]
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, number, 6, 0, 0, 0x50026, 6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("H6xP", 4, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;
    let place = Place::new();
    let start = |more: &[&str]| {
        let mut command = std::process::Command::new("python3");
        command.arg("-c").arg(script).arg(program().get_program()).arg("--root");
        command.arg(place.root()).args(["serve", "--stdio", "--size", "1M"]).args(more);
        command.stdin(std::process::Stdio::null()).env_remove("RAMPACK_SANDBOX");
        command.output().unwrap()
    };
    let without = start(&[]);
    assert_eq!(without.status.signal(), None);
    refused(&said(&without), 1, &["seccomp", "--sandbox off", "ENOSYS"]);
    let off = said(&start(&["--sandbox", "off"]));
    assert_eq!(off.code, 0, "{}", off.err);
}
