//! Swap space whose server is killed again and again while a program needs its pages.

mod common;

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::eventually;
use common::kept::{Kept, has_resend, kills};
use fuse::{LoopDevice, LoopOptions};
use testkit::{Need, Rng, run};

const MIB: usize = 1 << 20;
/// The memory that the program fills, and the memory that its group may have.
const FILLED: usize = 24 * MIB;
const LIMIT: usize = 8 * MIB;
/// Set in the process that is the program.
const PROGRAM: &str = "RAMPACK_TEST_FILLS";

/// A memory cgroup with a limit; its processes sleep where version 1 would end them.
struct Group(PathBuf);

impl Group {
    fn make() -> Group {
        let name = format!("rampack-taken-over-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        if first.join("memory.limit_in_bytes").exists() {
            let group = Group(first.join(name));
            fs::create_dir(&group.0).unwrap();
            fs::write(group.0.join("memory.limit_in_bytes"), LIMIT.to_string()).unwrap();
            fs::write(group.0.join("memory.oom_control"), "1").unwrap();
            return group;
        }
        let group = Group(Path::new("/sys/fs/cgroup").join(name));
        fs::create_dir(&group.0).unwrap();
        fs::write(group.0.join("memory.high"), LIMIT.to_string()).unwrap();
        group
    }

    fn take(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }

    /// Wakes a process that found nothing to reclaim in time.
    fn relieve(&self) {
        let file = self.0.join("memory.limit_in_bytes");
        let text = fs::read_to_string(self.0.join("memory.oom_control")).unwrap_or_default();
        if text.lines().any(|line| line == "under_oom 1") {
            let now = fs::read_to_string(&file).unwrap_or_default();
            let more = now.trim().parse::<usize>().unwrap_or(LIMIT) + MIB;
            let _ = fs::write(&file, more.to_string());
        } else {
            let _ = fs::write(&file, LIMIT.to_string());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Swap space that is swapped off in the end, while its server lives.
struct Swapped(PathBuf);

impl Swapped {
    fn used(&self) -> usize {
        let text = fs::read_to_string("/proc/swaps").unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{} ", self.0.display())));
        let used = line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
        used.unwrap_or(0usize) * 1024
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        let _ = host::swap_off(&self.0);
    }
}

/// The program that needs its pages, ended with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fills memory with numbers and checks them in every pass, until its input ends. Half of it can be
/// compressed.
fn fill() {
    let mut lines = BufReader::new(std::io::stdin()).lines();
    let _ = lines.next();
    let seed = 0x5eed;
    let mut words = vec![0u64; FILLED / 8];
    let mut passes = 0u64;
    let expected = |pass: u64| {
        let mut rng = Rng::new(seed ^ pass);
        move |_| if rng.one_in(2) { rng.next_u64() } else { pass }
    };
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let end = ended.clone();
    thread::spawn(move || {
        lines.for_each(drop);
        end.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    loop {
        passes += 1;
        words.iter_mut().zip((0..).map(expected(passes))).for_each(|(word, new)| *word = new);
        let right = black_box(&words).iter().zip((0..).map(expected(passes)));
        let wrong = right.filter(|(word, expected)| *word != expected).count();
        println!("pass {passes} wrong {wrong}");
        if ended.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
    }
}

#[test]
fn a_program_whose_pages_are_swapped_out_survives_the_server_of_its_swap_space() {
    let name = "a_program_whose_pages_are_swapped_out_survives_the_server_of_its_swap_space";
    if std::env::var_os(PROGRAM).is_some() {
        return fill();
    }
    let mkswap = Need::program("mkswap", "util-linux");
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Swap, Need::MemoryGroup, mkswap];
    if !testkit::met(name, &[&needs[..], &[has_resend()]].concat()) {
        return;
    }
    let mut rng = Rng::new(testkit::seed(name));
    let kept = Kept::start("kept", 128 * MIB, 2);
    let options = LoopOptions { flush: false, ..LoopOptions::default() };
    let mut device = LoopDevice::attach(&kept.path, options).unwrap();
    run(Command::new("mkswap").arg(device.path()));
    let swapped = Swapped(device.path().to_owned());
    host::swap_on(device.path(), Some(host::HIGHEST_PRIORITY), true).unwrap();
    let group = Group::make();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(PROGRAM, "1");
    let mut program =
        Program(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    group.take(program.0.id());
    let mut input = program.0.stdin.take().unwrap();
    writeln!(input, "begin").unwrap();
    let output = BufReader::new(program.0.stdout.take().unwrap());
    let said = thread::spawn(move || output.lines().map_while(Result::ok).collect::<Vec<_>>());
    eventually("swapping", || {
        group.relieve();
        swapped.used() > 4 * MIB
    });
    for _ in 0..kills(50) {
        kept.kill(&mut rng);
        group.relieve();
    }
    drop(input);
    eventually("the program ends", || {
        group.relieve();
        program.0.try_wait().unwrap().is_some()
    });
    assert!(program.0.wait().unwrap().success(), "it was ended by a signal, SIGBUS perhaps");
    let said = said.join().unwrap();
    let passes: Vec<&String> = said.iter().filter(|line| line.contains(" wrong ")).collect();
    println!("{} passes", passes.len());
    assert!(!passes.is_empty() && passes.iter().all(|line| line.ends_with(" wrong 0")), "{said:?}");
    drop(swapped);
    device.detach().unwrap();
    kept.stop();
}
