//! Swap devices: on and off, what is refused, and daemons that are stopped or killed meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cli::swap::selftest::group::Group;
use cli::swap::selftest::hungry::Outcome;
use host::{Controller, swaps};
use serde_json::Value;
use testkit::{Need, met, run};

use crate::common::{Daemon, Place, program, refused, said, wait_until};
use crate::swap_backing::{file_of, with_a_file};

const MIB: u64 = 1 << 20;

/// What every swap device needs.
pub const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Loop, Need::Swap];

/// The block device of swap device `name`.
pub fn device(place: &Place, name: &str) -> PathBuf {
    fs::read_link(place.root().join("dev").join(name)).unwrap()
}

pub fn json(daemon: &Daemon) -> Value {
    serde_json::from_str(&daemon.does("status --json")).unwrap()
}

#[test]
fn a_swap_device_is_there_until_it_is_swapped_off() {
    let [a, b, c, d, disk] = with_a_file();
    let blkid = Need::program("blkid", "util-linux");
    let swaplabel = Need::program("swaplabel", "util-linux");
    let name = "a_swap_device_is_there_until_it_is_swapped_off";
    if !met(name, &[a, b, c, d, disk, blkid, swaplabel]) {
        return;
    }
    let place = Place::new();
    let backing = place.path().join("backing");
    let line = format!(
        "swap on --backing {} --size 32M --memory 8M --algorithm zstd --priority 7",
        backing.display()
    );
    let daemon = Daemon::start(&place, &line);
    let path = device(&place, "swap0");
    for word in ["swap0 is swapped to: 32M", "zstd", "8M of memory", "backing", "made for it"] {
        assert!(daemon.greeting.contains(word), "{word}: {}", daemon.greeting);
    }
    let found = swaps::find(&path).unwrap();
    assert_eq!((found.bytes, found.priority), (32 * MIB - 4096, 7));
    let said = run(Command::new("blkid").arg("-p").arg(&path)).stdout;
    assert!(said.contains("TYPE=\"swap\"") && said.contains("LABEL=\"rampack-swap0\""), "{said}");
    let said = run(Command::new("swaplabel").arg(&path)).stdout;
    assert!(said.contains("UUID:"), "{said}");

    // Another one, of the same daemon.
    let said = daemon.does("swap on --size 16M");
    assert!(said.starts_with("swap1  /dev/loop"), "{said}");
    // All share one headroom and one time.
    let second = place.path().join("second");
    for (option, shared) in [("--headroom 1M", "that the swap devices"), ("--oom-after 3", "10")] {
        let line = format!("swap on --backing {} --size 16M {option}", second.display());
        refused(&daemon.ask(&line), 1, &[option, shared, "first swap off all of them", "EINVAL"]);
        assert!(!second.exists());
    }
    daemon.does("swap on --size 16M --oom-after 10");
    daemon.does("swap off swap2");
    let report = json(&daemon);
    let swaps = report["swaps"].as_array().unwrap();
    assert_eq!(swaps.len(), 2);
    assert_eq!(swaps[0]["block_device"], path.to_str().unwrap());
    assert_eq!(swaps[0]["backing"], backing.to_str().unwrap());
    assert_eq!((&swaps[0]["size"], &swaps[1]["size"]), (&(32 * MIB).into(), &(16 * MIB).into()));
    assert_eq!((&swaps[0]["active"], &swaps[1]["priority"]), (&true.into(), &100.into()));
    assert_eq!(report["swap_cache"]["compressor"], "zstd");
    assert_eq!(report["swap_cache"]["limit_bytes"], 8 * MIB);
    let protections = swaps[0]["protections"].as_array().unwrap();
    assert_eq!(protections.len(), 10);
    let table = daemon.does("status");
    let lacking = protections.iter().filter(|it| it["had"] == false).count();
    assert_eq!(table.matches("NOT PROTECTED").count(), lacking, "{table}");
    assert_eq!(daemon.does("get module/zswap/parameters max_pool_bytes"), "8388608\n");
    // The headers; the kernel may swap something out by itself at any time.
    let stored: u64 = daemon.does("get kernel/debug/zswap stored_pages").trim().parse().unwrap();
    assert!(stored >= 2, "{stored} pages");
    let groups = daemon.does("tree");
    assert!(groups.contains("fs/cgroup/swap1/memory.zswap.max"), "{groups}");

    refused(&daemon.ask("swap off"), 1, &["swap0 swap1", "--all"]);
    refused(&daemon.ask("swap off swap7"), 1, &["\"swap7\"", "swap0 swap1", "ENODEV"]);
    daemon.does("swap off swap1");
    assert!(swaps::find(&path).is_some());
    daemon.does(&format!("swap off {}", path.display()));
    // Another test may have its number by now.
    assert_eq!(swaps::find(&path).filter(|active| active.priority == 7), None);
    assert!(!backing.exists(), "it was made for the swap device");
    assert!(place.loops().is_empty());
    // The daemon was started for swap devices, and ends with the last one.
    assert!(daemon.ended().success());
    place.is_clean();
}

/// Threads of a process that the kernel schedules by `SCHED_RR` (2; proc_pid_stat(5), field 41).
fn real_time_threads(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let policy = |stat: &str| {
        // The name stands in parentheses and is field 2.
        let rest = stat.rsplit_once(')')?.1;
        rest.split_whitespace().nth(41 - 3).map(str::to_owned)
    };
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter(|stat| policy(stat).as_deref() == Some("2")).count()
}

/// Kibibytes of memory that a process has locked.
fn locked(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn what_is_said_of_protections_is_so() {
    let name = "what_is_said_of_protections_is_so";
    if !met(name, &NEEDS) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    const MOVING: &str = "/proc/sys/vm/compact_unevictable_allowed";
    let read = |path: &str| fs::read_to_string(path).unwrap().trim().to_owned();
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let score = format!("/proc/{}/oom_score_adj", daemon.pid());
    let before = read(&score);
    assert_eq!((locked(daemon.pid()), real_time_threads(daemon.pid())), (0, 0));
    daemon.does("swap on --size 16M");
    let report = json(&daemon);
    let had = |name: &str| {
        let all = report["swaps"][0]["protections"].as_array().unwrap();
        let one = all.iter().find(|it| it["name"] == name);
        one.unwrap_or_else(|| panic!("{name}: {all:?}"))["had"].as_bool().unwrap()
    };
    assert_eq!(locked(daemon.pid()) > 1024, had("memory locked"));
    assert_eq!(real_time_threads(daemon.pid()) > 0, had("served at once"));
    assert_eq!(read(&score) == "-1000", had("not ended when memory is out"));
    // Where another daemon has set it, or the system, it is so anyway.
    assert!(read(MOVING) == "0" || !had("memory not moved"));
    daemon.does("swap off");
    assert_eq!(read(&score), before);
    daemon.stop();
    place.is_clean();
}

#[test]
fn the_cache_takes_more_where_nothing_is_below_it() {
    if !met("the_cache_takes_more_where_nothing_is_below_it", &with_a_file()) {
        return;
    }
    let place = Place::new();
    let backing = file_of(&place, "backing", 16 * MIB);
    for (below, percent) in [(format!("--backing {}", backing.display()), 20), ("".into(), 75)] {
        let daemon = Daemon::start(&place, &format!("swap on --size 16M {below}"));
        let said = daemon.does("get module/zswap/parameters max_pool_percent");
        assert_eq!(said, format!("{percent}\n"), "{below}");
        daemon.stop();
    }
    place.is_clean();
}

#[test]
fn a_backing_file_gets_all_its_blocks_and_keeps_them() {
    if !met("a_backing_file_gets_all_its_blocks_and_keeps_them", &with_a_file()) {
        return;
    }
    let place = Place::new();
    let backing = file_of(&place, "backing", 16 * MIB);
    let held = || backing.metadata().unwrap().blocks() * 512;
    assert!(held() < MIB, "{} bytes of a file that is all hole", held());
    let daemon = Daemon::start(&place, &format!("swap on --backing {}", backing.display()));
    assert!(held() >= 16 * MIB, "{} bytes", held());
    daemon.stop();
    assert!(held() >= 16 * MIB, "{} bytes", held());
    place.is_clean();
}

#[test]
fn without_ublk_the_risk_is_told_and_has_to_be_taken() {
    if !met("without_ublk_the_risk_is_told_and_has_to_be_taken", &with_a_file()) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let backing = file_of(&place, "backing", 16 * MIB);
    let on = |rest: &str| {
        let line = format!("swap on --backing {} {rest}", backing.display());
        let mut command = daemon.command(&line);
        said(&command.env_remove("RAMPACK_SWAP_TRANSPORT").output().unwrap())
    };
    let has_ublk = Path::new("/dev/ublk-control").exists();
    let asked = on("");
    if has_ublk {
        assert_eq!(asked.code, 0, "{}", asked.err);
        assert!(asked.out.contains("/dev/ublkb"), "{}", asked.out);
    } else {
        refused(&asked, 1, &["ublk", "stand still", "--transport fuse", "--force", "ENODEV"]);
        assert!(fs::read(&backing).unwrap().iter().all(|byte| *byte == 0), "it was written to");
        let forced = on("--force");
        assert_eq!(forced.code, 0, "{}", forced.err);
        assert!(daemon.does("status").contains("served by loop"));
    }
    daemon.stop();
    place.is_clean();
}

#[test]
fn what_cannot_be_swapped_to_is_refused_and_nothing_is_left() {
    if !met("what_cannot_be_swapped_to_is_refused_and_nothing_is_left", &with_a_file()) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let on = |rest: String| daemon.ask(&format!("swap on {rest}"));
    let small = file_of(&place, "small", 4 * MIB);
    let said = on(format!("--backing {} --size 8M", small.display()));
    refused(&said, 1, &["4194304 bytes (4M)", "8388608 (8M)", "EINVAL"]);
    let none = place.path().join("none");
    refused(&on(format!("--backing {}", none.display())), 1, &["not there", "--size", "ENOENT"]);
    refused(&on("--size 4K".into()), 1, &["40960 bytes at least", "EINVAL"]);
    refused(&on("--size 1M --set colour=red".into()), 1, &["\"colour\"", "max_pool_percent"]);
    // Both are as before: the second is refused.
    let two = "--size 1M --set max_pool_percent=33 --set max_compression_ratio=101";
    refused(&on(two.into()), 1, &["max_compression_ratio", "EINVAL"]);
    assert_eq!(daemon.does("get module/zswap/parameters max_pool_percent"), "20\n");
    refused(&on(format!("--backing {} --size 1M", place.path().display())), 1, &["EISDIR"]);
    // What is made for it goes again when something fails later.
    let made = place.path().join("made");
    let said = on(format!("--backing {} --size 1M --set enabled=maybe", made.display()));
    refused(&said, 1, &["enabled", "EINVAL"]);
    assert!(!made.exists());

    let precious = file_of(&place, "precious", 0);
    fs::write(&precious, vec![b'p'; 4 << 20]).unwrap();
    let said = on(format!("--backing {}", precious.display()));
    refused(&said, 1, &["not swap space", "--force", "wipefs", "EEXIST"]);
    assert!(fs::read(&precious).unwrap().iter().all(|byte| *byte == b'p'));
    assert_eq!(json(&daemon)["swaps"].as_array().unwrap().len(), 0);
    assert!(place.loops().is_empty());

    daemon.does(&format!("swap on --backing {}", small.display()));
    let said = on(format!("--backing {} --size 1M", small.display()));
    refused(&said, 1, &["small", "another program or device uses it", "EBUSY"]);
    // It is in use: neither a stop by force nor another daemon changes that.
    let path = device(&place, "swap0");
    assert!(swaps::find(&path).is_some());
    daemon.does("swap off");
    assert!(small.exists(), "it was there before");
    // Its header tells that it was one of ours.
    daemon.does(&format!("swap on --backing {}", small.display()));
    daemon.does("swap off");
    daemon.does(&format!("swap on --backing {} --force", precious.display()));
    daemon.stop();
    assert!(precious.exists());
    place.is_clean();
}

#[test]
fn a_swap_device_that_somebody_has_open_is_taken_away_later() {
    if !met("a_swap_device_that_somebody_has_open_is_taken_away_later", &NEEDS) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "swap on --size 16M");
    let path = device(&place, "swap0");
    let open = File::open(&path).unwrap();
    refused(&daemon.ask("swap off"), 1, &["in use", "EBUSY"]);
    // The kernel does not swap to it any more; the rest waits.
    assert_eq!(swaps::find(&path), None);
    assert_eq!(json(&daemon)["swaps"][0]["active"], false);
    drop(open);
    daemon.does("swap off");
    daemon.stop();
    place.is_clean();
}

#[test]
fn swap_space_of_a_killed_daemon_is_swapped_off() {
    if !met("swap_space_of_a_killed_daemon_is_swapped_off", &NEEDS) {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place, "swap on --size 16M --priority 8");
    let path = device(&place, "swap0");
    daemon.kill();
    assert!(swaps::find(&path).is_some());
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let said = format!("swapped off {} of swap0", path.display());
    assert!(daemon.greeting.contains(&said), "{}", daemon.greeting);
    assert!(!daemon.greeting.contains("lost"), "nothing was there: {}", daemon.greeting);
    // Another test may have its number by now.
    assert_eq!(swaps::find(&path).filter(|active| active.priority == 8), None);
    assert!(place.loops().is_empty());
    // A lock on this file says that a daemon wants the setting of the kernel that it changed.
    let kept = Path::new("/run/rampack-compact-unevictable-allowed");
    let is_left = || File::open(kept).is_ok_and(|file| file.try_lock().is_ok());
    wait_until("a setting that nobody wants is as it was", || !is_left());
    daemon.stop();
    assert!(place.mounts().is_empty());
}

/// The program of the selftest, several times over, in a group of its own.
struct Program {
    children: Vec<Child>,
    group: Group,
}

impl Program {
    /// One with so many pages, in a group with so much memory.
    fn start(pages: usize, limit: u64) -> Program {
        Program::several(1, pages, limit)
    }

    /// So many with so many pages each, in a group with so much memory.
    fn several(count: usize, pages: usize, limit: u64) -> Program {
        let group = Group::make(&Controller::find().unwrap(), limit).unwrap();
        let mut all = Program { children: Vec::new(), group };
        for _ in 0..count {
            let mut command = program();
            command.args(["selftest", "hungry", "--rounds", "1", "--seed", "5", "--pages"]);
            command.arg(pages.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
            let leader = all.children.first().map_or(0, |child| child.id() as i32);
            let mut child = command.process_group(leader).spawn().unwrap();
            all.group.take(child.id()).unwrap();
            use std::io::Write;
            child.stdin.take().unwrap().write_all(b"go\n").unwrap();
            all.children.push(child);
        }
        all
    }

    fn signal(&self, signal: i32) {
        let Some(leader) = self.children.first() else { return };
        // SAFETY: two numbers; the group of processes is ours and its leader not yet waited for.
        unsafe { libc::kill(-(leader.id() as i32), signal) };
    }

    /// Pages that were wrong, and copies that were right.
    fn outcome(mut self) -> (u64, u64) {
        let mut seen = (0, 0);
        // The leader is waited for last: signals go to it.
        for child in self.children.iter_mut().rev() {
            wait_until("the program's end", || {
                self.group.relieve();
                child.try_wait().unwrap().is_some()
            });
            let mut text = String::new();
            use std::io::Read;
            child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            let outcome: Outcome =
                serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("{:?}", child.wait()));
            seen = (seen.0 + outcome.wrong, seen.1 + outcome.copies);
        }
        seen
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

#[test]
fn a_daemon_that_is_stopped_reads_everything_back_first() {
    let [a, b, c, d] = NEEDS;
    let name = "a_daemon_that_is_stopped_reads_everything_back_first";
    if !met(name, &[a, b, c, d, Need::MemoryGroup]) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    for end in ["stop", "stop --force", "swap off", "a signal"] {
        let place = Place::new();
        let mut daemon = Daemon::start(&place, "swap on --size 64M --priority 32766");
        let path = device(&place, "swap0");
        let mut program = Program::start(4096, 4 * MIB);
        let used = |path: &Path| swaps::find(path).map_or(0, |active| active.used);
        wait_until("swapping out", || {
            program.group.relieve();
            used(&path) > 2 * MIB
        });
        program.signal(libc::SIGSTOP);
        // What is read back must have room.
        program.group.lift().unwrap();
        assert!(used(&path) > MIB);
        match end {
            "a signal" => daemon.signal(libc::SIGTERM),
            line => drop(daemon.does(line)),
        }
        // It was started for the swap device, and ends with it.
        if end != "swap off" {
            wait_until("the daemon's end", || !daemon.is_alive());
        }
        // Another test may have its number by now.
        let ours = swaps::find(&path).filter(|active| active.priority == 32766);
        assert_eq!(ours, None, "{end}");
        program.signal(libc::SIGCONT);
        assert_eq!(program.outcome(), (0, 1), "{end}");
        wait_until("the daemon's end", || !daemon.is_alive());
        place.is_clean();
    }
}

#[test]
fn what_nobody_reads_is_recompressed_unless_that_is_off() {
    let [a, b, c, d] = NEEDS;
    let name = "what_nobody_reads_is_recompressed_unless_that_is_off";
    if !met(name, &[a, b, c, d, Need::MemoryGroup]) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let auto = "get module/zswap/parameters auto";
    // One that was started for a swap device would end with that.
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    daemon.does("swap on --size 16M --auto=off");
    assert_eq!(daemon.does(auto), "N\n");
    assert_eq!(json(&daemon)["swap_cache"]["recompress_age"], 0);
    daemon.does("swap off");
    let on = "swap on --size 64M --priority 32766 --algorithm lz4 --auto-cpu 50 --set auto_age=1";
    daemon.does(on);
    assert_eq!(daemon.does(auto), "Y\n");
    assert_eq!(daemon.does("get module/zswap/parameters auto_cpu_percent"), "50\n");
    // Another device leaves it as it is.
    daemon.does("swap on --size 16M --priority 0");
    daemon.does("set module/zswap/parameters auto=N");
    daemon.does("swap on --size 16M --priority 0");
    assert_eq!(daemon.does(auto), "N\n");
    daemon.does("set module/zswap/parameters auto=Y");
    let program = Program::start(4096, 4 * MIB);
    program.signal(libc::SIGSTOP);
    let cache = || json(&daemon)["swap_cache"].clone();
    let count = |name: &str| cache()[name].as_u64().unwrap();
    wait_until("recompression", || {
        program.signal(libc::SIGCONT);
        program.group.relieve();
        program.signal(libc::SIGSTOP);
        count("warm_pages") > 0
    });
    let said = daemon.does("status");
    assert!(said.contains("\nrecompressed: "), "{said}");
    let stats = daemon.does("get kernel/debug/zswap recompress_saved");
    assert!(stats.trim().parse::<u64>().unwrap() > 0);
    program.signal(libc::SIGCONT);
    assert_eq!(program.outcome(), (0, 1));
    for swap in json(&daemon)["swaps"].as_array().unwrap() {
        let serving = &swap["serving"];
        assert_eq!((&serving["minor_faults"], &serving["major_faults"]), (&0.into(), &0.into()));
    }
    daemon.does("swap off --all");
    refused(&daemon.ask("swap off --all"), 0, &[]);
    assert_eq!(json(&daemon)["swaps"].as_array().unwrap().len(), 0);
    daemon.stop();
    place.is_clean();
}

/// The processes that `daemon` started, once they are this program.
fn helpers(daemon: &Daemon) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).into_iter().flatten();
    let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let text: Vec<String> = tasks.flatten().filter_map(children).collect();
    let pids = text.iter().flat_map(|text| text.split_whitespace()).map(|pid| pid.parse().unwrap());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("swapoff-helper")
    })
    .collect()
}

#[test]
fn a_swapoff_that_is_killed_leaves_the_area_on_and_the_daemon_alive() {
    let [a, b, c, d] = NEEDS;
    let name = "a_swapoff_that_is_killed_leaves_the_area_on_and_the_daemon_alive";
    if !met(name, &[a, b, c, d, Need::MemoryGroup]) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    for end in ["swap off", "stop", "stop --force"] {
        let place = Place::new();
        let mut daemon = Daemon::start(&place, "swap on --size 256M --priority 32766");
        let path = device(&place, "swap0");
        // The kernel looks for signals between one program and the next.
        let mut program = Program::several(8, 4096, 8 * MIB);
        let used = |path: &Path| swaps::find(path).map_or(0, |active| active.used);
        wait_until("swapping out", || {
            program.group.relieve();
            used(&path) > 100 * MIB
        });
        program.signal(libc::SIGSTOP);
        program.group.lift().unwrap();
        let before = used(&path);

        let asked = daemon.command(end).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let asked = asked.unwrap();
        let mut pid = 0;
        wait_until("reading back", || {
            pid = helpers(&daemon).first().copied().unwrap_or(0);
            pid != 0 && used(&path) < before - before / 20
        });
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(score.trim(), "1000", "it is the one that may be ended");
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        assert_eq!(comm.trim(), "rampack-swapoff", "the kernel's log tells what was ended");
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let open: Vec<PathBuf> = open.filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
        let is_daemons =
            |path: &PathBuf| path.starts_with("/dev/fuse") || path.starts_with("/dev/loop");
        assert!(!open.iter().any(is_daemons), "a killed daemon must leave nothing open: {open:?}");
        // SAFETY: two numbers; the process is a child of our daemon, which was just there.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };

        let said = crate::common::said(&asked.wait_with_output().unwrap());
        refused(&said, 1, &["swap0", "stays in use", "was killed", "try again", "ENOMEM"]);
        assert!(daemon.is_alive(), "{end}");
        assert!(used(&path) > 0, "{end}: the kernel swaps to it as before");
        assert_eq!(json(&daemon)["swaps"][0]["active"], true);
        // Nothing is lost, and the next one may do it.
        daemon.does("swap off");
        program.signal(libc::SIGCONT);
        assert_eq!(program.outcome(), (0, 8), "{end}");
        if daemon.is_alive() {
            daemon.signal(libc::SIGINT);
        }
        wait_until("the daemon's end", || !daemon.is_alive());
        place.is_clean();
    }
}

#[test]
fn a_swapoff_of_another_process_is_waited_for() {
    let [a, b, c, d] = NEEDS;
    let name = "a_swapoff_of_another_process_is_waited_for";
    if !met(name, &[a, b, c, d, Need::MemoryGroup]) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let daemon = Daemon::start(&place, "swap on --size 256M --priority 32766");
    let path = device(&place, "swap0");
    let mut swapped = Program::several(8, 4096, 8 * MIB);
    let used = || swaps::find(&path).map_or(0, |active| active.used);
    wait_until("swapping out", || {
        swapped.group.relieve();
        used() > 100 * MIB
    });
    swapped.signal(libc::SIGSTOP);
    swapped.group.lift().unwrap();
    let before = used();
    // As systemd does at shutdown.
    let mut other = program();
    other.arg("swapoff-helper").arg(&path).stdout(Stdio::null());
    let mut other = other.spawn().unwrap();
    wait_until("reading back", || used() < before - before / 20);
    daemon.does("swap off");
    assert!(other.wait().unwrap().success());
    swapped.signal(libc::SIGCONT);
    assert_eq!(swapped.outcome(), (0, 8));
    assert!(daemon.ended().success());
    place.is_clean();
}

#[test]
fn the_memory_of_a_swap_device_goes_with_it_and_if_it_could_not_be_made() {
    let name = "the_memory_of_a_swap_device_goes_with_it_and_if_it_could_not_be_made";
    if !met(name, &NEEDS) {
        return;
    }
    let _alone = crate::swap_selftest::alone();
    let place = Place::new();
    let daemon = Daemon::start(&place, "serve --num-devices 0");
    let resident = || -> u64 {
        let text = daemon.status("VmRSS");
        text.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap() * 1024
    };
    let before = resident();
    let goes_back = || wait_until("the memory goes back", || resident() < before + 128 * MIB);
    let said = daemon.ask("swap on --size 4K --headroom 256M");
    refused(&said, 1, &["40960 bytes at least", "EINVAL"]);
    goes_back();
    daemon.does("swap on --size 16M --headroom 256M --priority -1");
    wait_until("there is memory for pages", || resident() > before + 256 * MIB);
    daemon.does("swap off");
    goes_back();
    daemon.stop();
    place.is_clean();
}
