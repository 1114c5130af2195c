//! A process with disks and swap areas is killed at random instants, again and again, and a new process recovers
//! them each time. What was acknowledged is there; of what was under way, all or nothing.
//!
//! Each child process recovers what the one before left, compares every page with a journal, and
//! then stores, overwrites, discards and changes pages while other threads compact, recompress,
//! write back, resize, and change codecs and limits. `RAMPACK_KILLS` is the number of kills.

mod child;
mod journal;
mod kept;
mod pages;
mod swap;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::{Rng, TempDir, asked};

/// The directory of the test, for a child process.
const DIRECTORY: &str = "RAMPACK_KILLS_DIRECTORY";
const SEED: &str = "RAMPACK_KILLS_SEED";

/// The program of the child processes.
#[test]
fn child() {
    if let (Ok(directory), Ok(seed)) = (env::var(DIRECTORY), env::var(SEED)) {
        child::run(Path::new(&directory), seed.parse().unwrap());
    }
}

fn spawn(directory: &Path, seed: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]);
    command.env(DIRECTORY, directory).env(SEED, seed.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the child has compared all pages; false if it ended before that.
fn is_ready(child: &mut Child) -> bool {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    lines.any(|line| line.unwrap().ends_with("ready"))
}

fn kill(mut child: Child, seed: u64) {
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "child {seed} ended by itself: {status}");
}

/// A kill leaves nothing that cannot be: the checker finds nothing before anybody recovers it.
fn look(regions: &[host::KeptRegion], state: &Path, seed: u64) {
    let (_, kept::Saved { disks, swap, below }) = kept::read(state);
    let swap = swap.zip(below).map(|(saved, below)| swap::seen(saved, &below));
    let found = machine::inspect(regions, &disks, swap.as_ref(), true, &|_| ()).unwrap();
    assert!(found.is_clean(), "child {seed} left {found:?}");
}

fn kills() -> u64 {
    let is_thorough = env::var_os("RAMPACK_THOROUGH").is_some();
    asked("RAMPACK_KILLS", if is_thorough { 100 } else { 12 })
}

/// How often segments of a log were used again, through all processes: what is kept of each begins
/// with its life.
fn lives_of_log(regions: &[host::KeptRegion], name: &str) -> u64 {
    let log = regions.iter().find(|region| region.name == name).unwrap();
    let mut words = [0; 4 * 8];
    log.file.read_exact_at(&mut words, 0).unwrap();
    let words = words.chunks_exact(8).skip(1);
    words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()) >> 52).sum()
}

#[test]
fn what_was_acknowledged_survives_every_kill() {
    let mut rng = Rng::new(testkit::seed("what_was_acknowledged_survives_every_kill"));
    let directory = TempDir::new();
    let state = directory.path().join("state");
    let mut regions = Vec::new();
    let (least, start) = (kills(), Instant::now());
    let logs = ["zram0.1.log", "swap2.log.1"];
    let is_used = |regions: &[_]| logs.iter().all(|log| lives_of_log(regions, log) > 9);
    let mut kills = 0;
    // On a busy machine a child does less until it is killed.
    while kills < least || (least >= 100 && kills < 10 * least && !is_used(&regions)) {
        let number = kills;
        kills += 1;
        let seed = rng.next_u64();
        let mut child = spawn(directory.path(), seed);
        // Some die while they recover.
        if number > 0 && rng.below(6) == 0 {
            sleep(Duration::from_micros(rng.below(60_000)));
            kill(child, seed);
            look(&regions, &state, seed);
            continue;
        }
        if !is_ready(&mut child) {
            panic!("child {seed} did not recover: {}", child.wait().unwrap());
        }
        if number == 0 {
            // From now on this process has the descriptors.
            let (found, saved) = kept::read(&state);
            kept::write(&state, &found, &saved);
            regions = found;
        }
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        sleep(Duration::from_micros(rng.below(150_000)));
        kill(child, seed);
        look(&regions, &state, seed);
    }
    let (_, saved) = kept::read(&state);
    let memory = kept::adopted(&regions);
    let machine = kept::recovered(&memory, &saved);
    let checked =
        child::check(&machine, &journal::Journal::open(&directory.path().join("journal")));
    let on_device = machine.swap_if_made().unwrap().stats().on_device;
    let time = start.elapsed();
    let [lives, swapped] = logs.map(|log| lives_of_log(&regions, log));
    println!(
        "{kills} kills in {time:?}, {checked} versions in the end, {on_device} swapped pages \
         below, {lives} lives of segments of the disk, {swapped} of the swap area"
    );
    assert!(checked > 0);
    assert!(least < 100 || is_used(&regions), "a log was hardly used: {lives} and {swapped} lives");
}
