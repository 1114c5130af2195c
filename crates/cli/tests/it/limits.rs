//! Daemons whose memory is limited: they serve, or are refused with the name of the limit, and
//! leave nothing behind.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use host::Controller;
use testkit::{Need, met};

use crate::common::{Daemon, PATIENCE, Place, program, rampack, refused, said, wait_until};
use crate::swap::{NEEDS, json};

const MIB: u64 = 1 << 20;

/// The program with the words of `line`, started by a shell after `script`.
pub fn after(place: &Place, script: &str, line: &str) -> Command {
    let inner = program();
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{script} && exec \"$@\""), "bash"]).arg(inner.get_program());
    command.arg("--root").arg(place.root()).args(line.split_whitespace());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null());
    command
}

/// Starts a daemon after `script`. It serves until it is told to stop, and then this is true, or it
/// is refused with all of `words`.
#[track_caller]
fn serves(script: &str, line: &str, words: &[&str]) -> bool {
    let place = Place::new();
    let mut command = after(&place, script, line);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut has_ended, mut is_there) = (false, false);
    let stop = format!("--root {} stop", place.root().display());
    wait_until(&format!("{script}, {line}: serving, or refused"), || {
        has_ended = child.try_wait().unwrap().is_some();
        is_there = place.root().join("control.sock").exists() && rampack(&stop).code == 0;
        has_ended || is_there
    });
    let ended = said(&child.wait_with_output().unwrap());
    match is_there {
        true => assert_eq!(ended.code, 0, "{script}: {}", ended.err),
        false => refused(&ended, 1, words),
    }
    place.is_clean();
    is_there
}

#[test]
fn limits_of_the_process_are_named_and_nothing_is_left() {
    let lines = ["serve --size 64M", "keep serve --size 64M", "up --transport nbd --size 64M"];
    for line in lines {
        let data = |mib: u64| serves(&format!("ulimit -d {}", mib << 10), line, &["ulimit -d"]);
        let served: Vec<bool> = [4, 20, 50, 100, 200, 400].into_iter().map(data).collect();
        assert!(!served[0], "{line}");
        // Between half and all of the addresses that a machine takes.
        for gib in [1, 30, 60, 110] {
            serves(&format!("ulimit -v {}", gib << 20), line, &["ulimit -v"]);
        }
    }
    assert!(serves("ulimit -d unlimited", lines[0], &[]));
}

#[test]
fn descriptors_are_allowed_for_many_devices_or_their_limit_is_named() {
    let (serve, keep) = ("serve --transport nbd --size 4M", "keep serve --transport nbd --size 4M");
    // What may be raised is.
    assert!([serve, keep].iter().all(|line| serves("ulimit -S -n 16", line, &[])));
    assert!(!serves("ulimit -n 64", keep, &["`ulimit -n` is 64", "a keeper needs 547", "EMFILE"]));
}

#[test]
fn a_stack_that_is_too_small_is_told_by_every_command() {
    let place = Place::new();
    for line in ["serve --size 64M", "status", "--help"] {
        let output = after(&place, "ulimit -s 64", line).output().unwrap();
        refused(&said(&output), 1, &["`ulimit -s` is 64K", "needs 1M", "ENOMEM"]);
    }
    // What may be raised is.
    assert!(serves("ulimit -S -s 64", "serve --transport nbd --size 64M", &[]));
    assert!(serves("ulimit -s 1024", "serve --transport nbd --size 64M", &[]));
}

/// A group with a limit on memory. A drop removes it.
pub struct Limited(pub PathBuf);

impl Limited {
    pub fn make(bytes: u64) -> Option<Limited> {
        let controller = Controller::find()?;
        let group = controller.top.join(format!("rampack-limits-{}-{bytes}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let group = Limited(group);
        let limit = group.0.join(controller.limit_files()[0]);
        // Version 2 may not have given the controller to groups at the top.
        fs::write(limit, bytes.to_string()).ok()?;
        Some(group)
    }

    /// What a shell does to be in it.
    pub fn enter(&self) -> String {
        format!("echo $$ >{}/cgroup.procs", self.0.display())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        // A process that ended leaves it a moment later.
        while fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn all_memory_is_no_more_than_that_of_the_control_group() {
    if !met("all_memory_is_no_more_than_that_of_the_control_group", &NEEDS) {
        return;
    }
    let Some(group) = Limited::make(1024 * MIB) else { return };
    let place = Place::new();
    let line = "swap on --size 16M --priority -1 --transport fuse --force --memory 25%";
    let daemon = Daemon::spawn(&place, &mut after(&place, &group.enter(), line));
    assert_eq!(json(&daemon)["swap_cache"]["limit_bytes"], 256 * MIB);
    daemon.does("swap off --all");
    let _ = daemon.ended();
    place.is_clean();
}

#[test]
fn the_limit_of_a_control_group_is_named() {
    if !met("the_limit_of_a_control_group_is_named", &[Need::Root]) {
        return;
    }
    let Some(group) = Limited::make(32 * MIB) else { return };
    let words = ["rampack-limits", "is 32M", "ENOMEM"];
    assert!(!serves(&group.enter(), "serve --transport nbd --size 64M", &words));
}
